//! `weir-bench rfc`: the queue simulator of AIBrix's RFC (issue 642) and its four result lines, done again.
//!
//! The RFC's world is one of capacities, not of tokens: a consumer's capacity for a pattern is `RPS * E2E` requests, a
//! request takes `1 / (RPS * E2E)` of it for a fixed time, and what is pushed beyond the capacity waits at the consumer.
//! The world here is that one and nothing more; capacities are read from profiles by [`weir_core::Profiles`], as they are where they
//! serve. The simulator itself was never published, nor were its consumers, its arrivals or its figures: `setup` says how they are
//! read, and the tables say for every reading whether a line holds.
//!
//! Two further looks: the scheduler that serves, with the preset `pattern-pull` and parts of it replaced, decides in the same world
//! (`served`), and the bi-pattern is run over engines that compute steps (`engine`), where latency depends on load.
//!
//! Everything is decided by the seeds; policies are compared over the same arrivals.
//!
//! # Layout
//! - `setup`: patterns and consumers; `world`: the simulation; `policy`: the RFC's policies; `served`: the core's in their place
//! - `compare`: all of them over the seeds; `judge`: ratios, intervals and verdicts; `engine`: over engines
//! - `args`, `table`: the command and its tables

mod args;
mod compare;
mod engine;
mod judge;
mod policy;
mod served;
mod setup;
mod table;
#[cfg(test)]
mod tests;
mod world;

pub use args::RfcArgs;
pub use compare::{By, Cell, Compared, checks, compare};
pub use engine::{OnEngines, Profiled, on_engines};
pub use judge::{Check, Ratio, Relation, Verdict};
pub use policy::{Head, Order, Placement};
pub use setup::{Arrival, BI, Kind, MULTI, Pattern, SetUp, set_ups};
