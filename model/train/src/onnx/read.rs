//! Reads the parts of an ONNX file that a bundle's graph consists of.
//!
//! Unknown fields are passed over, as protobuf has it; the field numbers are those of `onnx.proto`.

use std::collections::HashMap;

use super::wire::{Fields, Value};

/// Why a graph cannot be read or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    /// The bytes are no protobuf, or end early.
    #[error("not a protobuf message")]
    Wire,
    /// An operator that a bundle's graph does not use.
    #[error("operator {0} is not one that a trainer writes")]
    Operator(String),
    /// A part of the graph that another part refers to.
    #[error("{0} is missing or does not fit")]
    Part(&'static str),
}

/// `GraphProto`.
#[derive(Debug, Default)]
pub(super) struct GraphParts {
    /// In an order in which they can be computed.
    pub nodes: Vec<NodeParts>,
    /// Constant integers by name.
    pub constants: HashMap<String, Vec<i64>>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
}

/// `NodeProto`.
#[derive(Debug, Default)]
pub(super) struct NodeParts {
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub operator: String,
    pub attributes: HashMap<String, Attribute>,
}

/// `AttributeProto`: whichever of the lists its type fills.
#[derive(Debug, Default)]
pub(super) struct Attribute {
    pub floats: Vec<f32>,
    pub ints: Vec<i64>,
    pub texts: Vec<String>,
}

/// The graph in the bytes of a `ModelProto`.
pub(super) fn read(model: &[u8]) -> Result<GraphParts, GraphError> {
    for field in Fields(model) {
        if let (7, value) = field? {
            return graph(value.bytes()?);
        }
    }
    Err(GraphError::Part("graph"))
}

fn graph(bytes: &[u8]) -> Result<GraphParts, GraphError> {
    let mut parts = GraphParts::default();
    for field in Fields(bytes) {
        match field? {
            (1, value) => parts.nodes.push(node(value.bytes()?)?),
            (5, value) => {
                let (name, values) = tensor(value.bytes()?)?;
                parts.constants.insert(name, values);
            }
            (12, value) => parts.outputs.push(first_text(value.bytes()?)?),
            _ => {}
        }
    }
    Ok(parts)
}

fn node(bytes: &[u8]) -> Result<NodeParts, GraphError> {
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
            _ => {}
        }
    }
    Ok(node)
}

fn attribute(bytes: &[u8]) -> Result<(String, Attribute), GraphError> {
    let (mut name, mut found) = (String::new(), Attribute::default());
    for field in Fields(bytes) {
        match field? {
            (1, value) => name = value.text()?,
            (3 | 8, value) => value.ints(&mut found.ints)?,
            (2 | 7, value) => value.floats(&mut found.floats)?,
            (4 | 9, value) => found.texts.push(value.text()?),
            _ => {}
        }
    }
    Ok((name, found))
}

/// `TensorProto` of integers, as numbers or as raw little-endian bytes.
fn tensor(bytes: &[u8]) -> Result<(String, Vec<i64>), GraphError> {
    let (mut name, mut values) = (String::new(), Vec::new());
    for field in Fields(bytes) {
        match field? {
            (7, value) => value.ints(&mut values)?,
            (8, value) => name = value.text()?,
            (9, Value::Bytes(raw)) => {
                values.extend(raw.as_chunks::<8>().0.iter().map(|one| i64::from_le_bytes(*one)));
            }
            _ => {}
        }
    }
    Ok((name, values))
}

/// The name of a `ValueInfoProto`.
fn first_text(bytes: &[u8]) -> Result<String, GraphError> {
    for field in Fields(bytes) {
        if let (1, value) = field? {
            return value.text();
        }
    }
    Err(GraphError::Part("output name"))
}
