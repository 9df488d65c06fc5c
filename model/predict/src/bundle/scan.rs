//! A look at a graph's protobuf before ONNX Runtime gets it.
//!
//! A bundle needs a handful of operators and no other file. Whatever else a file could make ONNX
//! Runtime do (loops, functions, reading external data) is refused here, and so is what two readers could
//! understand in two ways: a name or a value that is said twice. How deep, wide and large a graph is comes
//! next ([`super::bounds`]), so that a bad file can be slow or wrong at worst, and both are noticed before it
//! serves. Field numbers are those of `onnx.proto`.

use std::collections::HashSet;

use weir_schema::onnx::{Fields, Value};

use super::{BundleError, bounds::MOST_ELEMENTS};

/// Entries of an attribute's list: nodes of the trees of one ensemble, twice as many as fit in the largest graph.
const MOST_ENTRIES: usize = 1 << 22;

/// Operators that a bundle may use, with their domain.
const ALLOWED: [(&str, &str); 11] = [
    ("ai.onnx.ml", "TreeEnsembleRegressor"),
    ("", "Exp"),
    ("", "Mul"),
    ("", "Gather"),
    ("", "Slice"),
    ("", "Concat"),
    ("", "Constant"),
    ("", "Identity"),
    ("", "Cast"),
    ("", "Reshape"),
    ("", "Unsqueeze"),
];

/// Checks that `model` is an ONNX model of allowed operators without external data.
pub(super) fn check(model: &[u8]) -> Result<(), BundleError> {
    let mut graphs = 0;
    for_each_field(model, |field, value| match (field, value) {
        (7, Value::Bytes(graph)) => {
            graphs += 1;
            check_graph(graph)
        }
        (20, Value::Bytes(_)) => Err(disallowed("training information")),
        (25, Value::Bytes(_)) => Err(disallowed("a function")),
        _ => Ok(()),
    })?;
    match graphs {
        0 => Err(corrupt("no graph in it")),
        1 => Ok(()),
        _ => Err(corrupt("more than one graph in it")),
    }
}

fn check_graph(graph: &[u8]) -> Result<(), BundleError> {
    let mut names = HashSet::new();
    for_each_field(graph, |field, value| match (field, value) {
        (1, Value::Bytes(node)) => check_node(node),
        (5, Value::Bytes(initializer)) => once(&mut names, check_tensor(initializer)?),
        (15, Value::Bytes(_)) => Err(disallowed("a sparse initializer")),
        _ => Ok(()),
    })
}

fn check_node(node: &[u8]) -> Result<(), BundleError> {
    let (mut domain, mut op): (&[u8], &[u8]) = (b"", b"");
    let mut names = HashSet::new();
    for_each_field(node, |field, value| {
        match (field, value) {
            (4, Value::Bytes(bytes)) => op = bytes,
            (7, Value::Bytes(bytes)) => domain = bytes,
            (5, Value::Bytes(attribute)) => once(&mut names, check_attribute(attribute)?)?,
            _ => {}
        }
        Ok(())
    })?;
    if domain == b"ai.onnx" {
        domain = b"";
    }
    if ALLOWED.iter().any(|known| known.0.as_bytes() == domain && known.1.as_bytes() == op) {
        return Ok(());
    }
    let (domain, op) = (String::from_utf8_lossy(domain), String::from_utf8_lossy(op));
    Err(disallowed(&format!("operator {domain}:{op}")))
}

/// The attribute's name, once its value is one of the kind that it says.
fn check_attribute(attribute: &[u8]) -> Result<&[u8], BundleError> {
    let (mut name, mut said, mut found): (&[u8], _, _) = (b"", None, None);
    let mut entries = 0_usize;
    for_each_field(attribute, |field, value| {
        match (field, value) {
            (1, Value::Bytes(bytes)) => name = bytes,
            (20, Value::Varint(kind)) => said = Some(kind),
            (5, Value::Bytes(tensor)) => drop(check_tensor(tensor)?),
            (6 | 11, Value::Bytes(_)) => return Err(disallowed("a subgraph")),
            (10, Value::Bytes(_)) => return Err(disallowed("a list of tensors")),
            (22 | 23, Value::Bytes(_)) => return Err(disallowed("a sparse tensor")),
            _ => {}
        }
        let Some(kind) = kind_of(field) else { return Ok(()) };
        entries = entries.saturating_add(match (field, value) {
            (7, Value::Bytes(floats)) => floats.len() / 4,
            (8, Value::Bytes(ints)) => ints.iter().filter(|byte| **byte < 0x80).count(),
            _ => 1,
        });
        if found.replace(kind).is_some_and(|before| before != kind) {
            return Err(corrupt("an attribute of two kinds"));
        }
        Ok(())
    })?;
    if entries > MOST_ENTRIES {
        return Err(BundleError::TooMuch { what: "entries in a list", most: MOST_ENTRIES as u64 });
    }
    if found.is_some() && found != said {
        return Err(corrupt("an attribute of another kind than it says"));
    }
    Ok(name)
}

/// `AttributeProto.AttributeType` of what a field holds, if it holds a value that is allowed.
const fn kind_of(field: u64) -> Option<u64> {
    match field {
        2..=5 | 7..=9 => Some(field - 1),
        _ => None,
    }
}

/// The tensor's name, once it is of a size that may be and its data is in it.
fn check_tensor(tensor: &[u8]) -> Result<&[u8], BundleError> {
    let (mut name, mut dims): (&[u8], _) = (b"", Vec::new());
    for_each_field(tensor, |field, value| match (field, value) {
        (1, dim) => dim.ints(&mut dims).map_err(|_| corrupt("torn or no protobuf")),
        (8, Value::Bytes(bytes)) => {
            name = bytes;
            Ok(())
        }
        // `external_data`, and `data_location` other than the file itself.
        (13, Value::Bytes(_)) => Err(BundleError::ExternalData),
        (14, Value::Varint(location)) if location != 0 => Err(BundleError::ExternalData),
        _ => Ok(()),
    })?;
    let sizes = dims.iter().map(|dim| u64::try_from(*dim).ok());
    let elements = sizes.reduce(|one, other| one?.checked_mul(other?)).unwrap_or(Some(1));
    match elements {
        Some(elements) if elements <= MOST_ELEMENTS => Ok(name),
        _ => Err(BundleError::TooMuch { what: "elements in a constant", most: MOST_ELEMENTS }),
    }
}

/// Refuses a name that was met before.
fn once<'a>(names: &mut HashSet<&'a [u8]>, name: &'a [u8]) -> Result<(), BundleError> {
    if names.insert(name) { Ok(()) } else { Err(corrupt("two of one name")) }
}

const fn corrupt(detail: &'static str) -> BundleError {
    BundleError::CorruptModel { detail }
}

fn disallowed(what: &str) -> BundleError {
    BundleError::DisallowedOp { op: what.to_owned() }
}

/// Looks at every field of a message.
fn for_each_field<'a>(
    message: &'a [u8],
    mut visit: impl FnMut(u64, Value<'a>) -> Result<(), BundleError>,
) -> Result<(), BundleError> {
    for field in Fields(message) {
        let (number, value) = field.map_err(|_| corrupt("torn or no protobuf"))?;
        visit(number, value)?;
    }
    Ok(())
}
