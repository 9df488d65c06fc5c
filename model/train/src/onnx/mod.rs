//! The graph of a bundle: written from trees, and read back from its bytes.
//!
//! Writer and reader share nothing but the wire's form, so that a mistake in one does not hide in
//! the other; the test against XGBoost and the check of every candidate go through both.
//!
//! # Layout
//! - [`write`](mod@write): trees to `model.onnx`
//! - [`evaluate`]: the parts of `model.onnx` to latencies

mod evaluate;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use evaluate::Graph;
#[cfg(test)]
pub(crate) use evaluate::GraphError;
pub(crate) use write::write;
