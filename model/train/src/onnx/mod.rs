//! The graph of a bundle: written from trees, and read back from its bytes.
//!
//! Writer and reader share nothing but the wire's form, so that a mistake in one does not hide in
//! the other; the test against XGBoost and the check of every candidate go through both.
//!
//! # Layout
//! - [`wire`]: protobuf's fields, as much as an ONNX file needs
//! - [`write`](mod@write): trees to `model.onnx`
//! - [`read`]: `model.onnx` to nodes and attributes
//! - [`evaluate`]: those nodes to latencies

mod evaluate;
mod read;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub(crate) use evaluate::Graph;
pub(crate) use write::write;
