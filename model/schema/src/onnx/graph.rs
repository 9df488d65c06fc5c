//! The parts of an ONNX file that a bundle's graph consists of.
//!
//! Fields that nobody asks for are passed over, as protobuf has it; where passing over a field would
//! change what a part means, the part says that it holds something foreign. The field numbers are those
//! of `onnx.proto`.

use std::collections::HashMap;

use super::wire::{Fields, Value, WireError};

/// `TensorProto.DataType` of 32-bit floats.
pub const FLOAT: i64 = 1;
/// `TensorProto.DataType` of 64-bit integers.
pub const INT64: i64 = 7;

/// `ModelProto` with its `GraphProto`.
#[derive(Debug, Default)]
pub struct GraphParts {
    /// Versions of the operator sets, by domain.
    pub opsets: HashMap<String, i64>,
    /// In an order in which they can be computed.
    pub nodes: Vec<NodeParts>,
    /// Constants by name.
    pub constants: HashMap<String, TensorParts>,
    /// The inputs.
    pub inputs: Vec<ValueParts>,
    /// The outputs.
    pub outputs: Vec<ValueParts>,
}

/// `NodeProto`.
#[derive(Debug, Default)]
pub struct NodeParts {
    /// Names of what it reads.
    pub inputs: Vec<String>,
    /// Names of what it makes.
    pub outputs: Vec<String>,
    /// What it does.
    pub operator: String,
    /// The operator set that it is of; empty is ONNX itself.
    pub domain: String,
    /// How it does it.
    pub attributes: HashMap<String, Attribute>,
}

/// `AttributeProto`: whichever of the lists its type fills.
#[derive(Debug, Default)]
pub struct Attribute {
    /// One float or a list of them.
    pub floats: Vec<f32>,
    /// One integer or a list of them.
    pub ints: Vec<i64>,
    /// One string or a list of them.
    pub texts: Vec<String>,
    /// A tensor.
    pub tensor: Option<TensorParts>,
    /// Whether it holds anything but numbers and strings: a tensor, a graph, a reference.
    pub foreign: bool,
}

/// `TensorProto` of floats or integers.
#[derive(Debug, Default, PartialEq)]
pub struct TensorParts {
    /// Its shape.
    pub dims: Vec<i64>,
    /// Its type; [`FLOAT`] and [`INT64`] are read, of others only the shape.
    pub data_type: i64,
    /// The values, if they are floats.
    pub floats: Vec<f32>,
    /// The values, if they are integers.
    pub ints: Vec<i64>,
}

/// `ValueInfoProto`: an input or an output.
#[derive(Debug, Default, PartialEq)]
pub struct ValueParts {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub element: i64,
    /// Its shape; `None` where a size is left open.
    pub dims: Vec<Option<i64>>,
}

/// The graph in the bytes of a `ModelProto`; without one it has no nodes.
///
/// # Errors
/// When the bytes are no protobuf.
pub fn read(model: &[u8]) -> Result<GraphParts, WireError> {
    let mut parts = GraphParts::default();
    for field in Fields(model) {
        match field? {
            (7, value) => graph(value.bytes()?, &mut parts)?,
            (8, value) => {
                let (domain, version) = opset(value.bytes()?)?;
                parts.opsets.insert(domain, version);
            }
            _ => {}
        }
    }
    Ok(parts)
}

fn opset(bytes: &[u8]) -> Result<(String, i64), WireError> {
    let (mut domain, mut version) = (String::new(), 0);
    for field in Fields(bytes) {
        match field? {
            (1, value) => domain = value.text()?,
            (2, value) => version = value.int()?,
            _ => {}
        }
    }
    Ok((domain, version))
}

fn graph(bytes: &[u8], parts: &mut GraphParts) -> Result<(), WireError> {
    for field in Fields(bytes) {
        match field? {
            (1, value) => parts.nodes.push(node(value.bytes()?)?),
            (5, value) => {
                let (name, found) = tensor(value.bytes()?)?;
                parts.constants.insert(name, found);
            }
            (11, value) => parts.inputs.push(value_info(value.bytes()?)?),
            (12, value) => parts.outputs.push(value_info(value.bytes()?)?),
            _ => {}
        }
    }
    Ok(())
}

fn node(bytes: &[u8]) -> Result<NodeParts, WireError> {
    let mut node = NodeParts::default();
    for field in Fields(bytes) {
        match field? {
            (1, value) => node.inputs.push(value.text()?),
            (2, value) => node.outputs.push(value.text()?),
            (4, value) => node.operator = value.text()?,
            (5, value) => {
                let (name, found) = attribute(value.bytes()?)?;
                node.attributes.insert(name, found);
            }
            (7, value) => node.domain = value.text()?,
            _ => {}
        }
    }
    Ok(node)
}

fn attribute(bytes: &[u8]) -> Result<(String, Attribute), WireError> {
    let (mut name, mut found) = (String::new(), Attribute::default());
    for field in Fields(bytes) {
        match field? {
            (1, value) => name = value.text()?,
            (3 | 8, value) => value.ints(&mut found.ints)?,
            (2 | 7, value) => value.floats(&mut found.floats)?,
            (4 | 9, value) => found.texts.push(value.text()?),
            (5, value) => {
                found.tensor = Some(tensor(value.bytes()?)?.1);
                found.foreign = true;
            }
            // What it is for, and which of the lists is meant: the one that is filled.
            (13 | 20, _) => {}
            _ => found.foreign = true,
        }
    }
    Ok((name, found))
}

/// Values as numbers or as raw little-endian bytes.
fn tensor(bytes: &[u8]) -> Result<(String, TensorParts), WireError> {
    let (mut name, mut found, mut raw) = (String::new(), TensorParts::default(), [].as_slice());
    for field in Fields(bytes) {
        match field? {
            (1, value) => value.ints(&mut found.dims)?,
            (2, value) => found.data_type = value.int()?,
            (4, value) => value.floats(&mut found.floats)?,
            (7, value) => value.ints(&mut found.ints)?,
            (8, value) => name = value.text()?,
            (9, value) => raw = value.bytes()?,
            _ => {}
        }
    }
    match found.data_type {
        INT64 => found.ints.extend(raw.as_chunks().0.iter().map(|one| i64::from_le_bytes(*one))),
        FLOAT => found.floats.extend(raw.as_chunks().0.iter().map(|one| f32::from_le_bytes(*one))),
        _ => {}
    }
    Ok((name, found))
}

fn value_info(bytes: &[u8]) -> Result<ValueParts, WireError> {
    let mut found = ValueParts::default();
    for field in Fields(bytes) {
        match field? {
            (1, value) => found.name = value.text()?,
            // `TypeProto`, of which only a tensor has field 1.
            (2, value) => {
                for kind in Fields(value.bytes()?) {
                    if let (1, tensor) = kind? {
                        tensor_type(tensor.bytes()?, &mut found)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn tensor_type(bytes: &[u8], found: &mut ValueParts) -> Result<(), WireError> {
    for field in Fields(bytes) {
        match field? {
            (1, value) => found.element = value.int()?,
            (2, shape) => {
                for dim in Fields(shape.bytes()?) {
                    if let (1, dim) = dim? {
                        found.dims.push(size(dim.bytes()?)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn size(dim: &[u8]) -> Result<Option<i64>, WireError> {
    let mut size = None;
    for field in Fields(dim) {
        if let (1, value @ Value::Varint(_)) = field? {
            size = Some(value.int()?);
        }
    }
    Ok(size)
}
