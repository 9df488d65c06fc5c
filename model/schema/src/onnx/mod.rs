//! ONNX files as the trainer writes them and whoever serves reads them.
//!
//! Bytes may be hostile: whatever they are, they are read to the end or refused, without a panic and in
//! memory that is a small multiple of theirs. What a graph means is not decided here.
//!
//! # Layout
//! - [`wire`]: protobuf's fields, as much as an ONNX file needs
//! - [`graph`]: a file as nodes, attributes and constants

pub mod graph;
pub mod wire;

pub use graph::{Attribute, GraphParts, NodeParts, TensorParts, ValueParts};
pub use wire::{Fields, Message, Value, WireError};
