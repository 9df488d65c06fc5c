//! Evaluators of latency models, and the loading of model bundles.
//!
//! A pool's scheduler owns one [`Chain`] and asks it for latencies; a loader thread verifies bundles
//! with [`Bundle::load`] and hands them over through the chain's [`Slot`]. The chain answers every
//! batch: a missing library, a refused bundle or a graph that fails in service costs accuracy,
//! never an answer.
//!
//! # Layout
//! - [`runtime`]: finding and loading the ONNX Runtime library, once per process
//! - [`bundle`]: reading and verifying a bundle, off the hot path
//! - [`evaluator`]: which of the next two evaluates a bundle, and what shows that it may
//! - [`forest`]: a bundle's trees, flattened
//! - [`onnx`]: one session and its reused output buffer
//! - [`profile`]: a pod class's profile read for a row
//! - [`slot`]: the mailbox between the loader thread and the chain
//! - [`chain`]: the evaluators in their order of trust, behind [`weir_schema::Predict`]
//! - [`step_fit`]: the step-time formula of a pod class, fitted online
//!
//! Inside: `both` (TTFT and TPOT side by side), `live` (recent means), `prior` (the step-time
//! model as read from the row), `conformal` (from medians to 90th percentiles) and `drift` (whether
//! the relation of stated to measured has changed).

mod both;
pub mod bundle;
pub mod chain;
mod conformal;
mod drift;
pub mod evaluator;
#[cfg(test)]
mod fixture;
pub mod forest;
mod live;
#[cfg(test)]
mod noise;
pub mod onnx;
mod prior;
pub mod profile;
pub mod runtime;
pub mod slot;
pub mod step_fit;

pub use bundle::{Bundle, BundleError};
pub use chain::Chain;
pub use evaluator::{Choice, Evaluators};
pub use forest::{Forest, Unfit};
pub use onnx::OnnxEvaluator;
pub use profile::ClassProfile;
pub use runtime::{NO_REPORTS, Runtime, RuntimeError};
pub use slot::{Offer, Slot};
pub use step_fit::StepFit;
