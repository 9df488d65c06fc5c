//! A look at a graph's protobuf before ONNX Runtime gets it.
//!
//! A bundle needs a handful of operators and no other file. Whatever else a file could make ONNX
//! Runtime do (loops, strings, functions, reading external data) is refused here, so that a bad file
//! can be slow or wrong at worst, and both are noticed. Field numbers are those of `onnx.proto`.

use weir_schema::onnx::{Fields, Value};

use super::BundleError;

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
    if graphs == 0 {
        return Err(BundleError::CorruptModel { detail: "no graph in it" });
    }
    Ok(())
}

fn check_graph(graph: &[u8]) -> Result<(), BundleError> {
    for_each_field(graph, |field, value| match (field, value) {
        (1, Value::Bytes(node)) => check_node(node),
        (5, Value::Bytes(initializer)) => check_tensor(initializer),
        (15, Value::Bytes(_)) => Err(disallowed("a sparse initializer")),
        _ => Ok(()),
    })
}

fn check_node(node: &[u8]) -> Result<(), BundleError> {
    let (mut domain, mut op): (&[u8], &[u8]) = (b"", b"");
    for_each_field(node, |field, value| {
        match (field, value) {
            (4, Value::Bytes(bytes)) => op = bytes,
            (7, Value::Bytes(bytes)) => domain = bytes,
            (5, Value::Bytes(attribute)) => check_attribute(attribute)?,
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

fn check_attribute(attribute: &[u8]) -> Result<(), BundleError> {
    for_each_field(attribute, |field, value| match (field, value) {
        (5 | 10, Value::Bytes(tensor)) => check_tensor(tensor),
        (6 | 11, Value::Bytes(_)) => Err(disallowed("a subgraph")),
        (22 | 23, Value::Bytes(_)) => Err(disallowed("a sparse tensor")),
        _ => Ok(()),
    })
}

fn check_tensor(tensor: &[u8]) -> Result<(), BundleError> {
    for_each_field(tensor, |field, value| match (field, value) {
        // `external_data`, and `data_location` other than the file itself.
        (13, Value::Bytes(_)) => Err(BundleError::ExternalData),
        (14, Value::Varint(location)) if location != 0 => Err(BundleError::ExternalData),
        _ => Ok(()),
    })
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
        let (number, value) =
            field.map_err(|_| BundleError::CorruptModel { detail: "torn or no protobuf" })?;
        visit(number, value)?;
    }
    Ok(())
}
