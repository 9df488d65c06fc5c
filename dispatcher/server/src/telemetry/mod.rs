//! What Weir says of itself: metrics and log lines. Never a prompt, never a key.
//!
//! # Layout
//! - [`series`]: every series, in one table
//! - [`metrics`]: what the data plane counts
//! - [`watched`]: handles to the owners of state, and the whole dispatcher at one moment
//! - [`exposition`]: the text of `/metrics`
//! - `quality`: how good the predictions are, as series
//! - [`compat`]: the same under other systems' names
//! - [`log`]: log lines; [`lines`]: their way to standard error
//! - [`trace`]: by which trace a request is known; [`spans`]: what became of it, for a collector

pub mod compat;
pub mod exposition;
pub mod lines;
pub mod log;
pub mod metrics;
mod quality;
pub mod series;
pub mod spans;
pub mod trace;
pub mod watched;

pub use metrics::Metrics;
pub use watched::Watched;
