//! `weir-bench scale`: rules that scale a pool, behind the same dispatcher: how many pod-hours each takes, and which share of
//! the requests is in time.
//!
//! Traffic comes at a rate that changes, Weir's scheduler stands in front of pods, and every 15 s of virtual time a [`Rule`] says
//! how many pods there are to be. A pod loads its model before it serves, and ends what it has before it is gone; both cost.
//! All rules have the same requests, the same first pods and the same noise.
//!
//! # Layout
//! - `rule`: what a rule wants, and what Kubernetes' autoscaler makes of it; `run`: one simulation of one rule
//! - `row`: a line of results; `table`: results for people; `series`: what was seen, for pictures; `args`: the command line

mod args;
mod row;
mod rule;
mod run;
mod series;
mod table;
#[cfg(test)]
mod tests;

pub use args::ScaleArgs;
pub use row::ScaleRow;
pub use rule::{Autoscaler, Limits, Rule};
