//! `weir-bench load`: an open-loop replay over HTTP that gives every request exactly one outcome.
//!
//! Requests are sent when the plan says so, whatever became of the ones before: a server that slows down gets no relief.
//! [`run`] owns its connections and runs on the caller's current-thread runtime; the command line and the demo both call
//! it. What it promises: each planned request appears in the report once, as ok, refused or failed; times are taken when
//! bytes arrive, before anything is parsed; and it says how late it sent itself ([`LoadReport::lag_p99_ms`]), so that a
//! saturated client cannot pass as a slow server.
//!
//! # Layout
//! - `args`: the command line; `plan`: what is sent when; `mix`: the built-in synthetic workload
//! - `class`: objectives and shares; `call`: one request on the wire; `sse`: the stream's events
//! - `target`: the server; `connect`: connections to it
//! - `outcome`: how a request ended; `report`: all of them; `table`: the report for people; `replay`: the loop

mod args;
mod call;
mod class;
mod connect;
mod mix;
mod outcome;
mod plan;
mod replay;
mod report;
mod sse;
mod table;
mod target;

#[cfg(test)]
mod tests;

pub use args::LoadArgs;
pub(crate) use call::{OUTPUT_TOKENS_HEADER, body};
pub use class::{Class, parse_classes};
pub use mix::{DemoMix, MixMeans};
pub use outcome::{Failure, Outcome, Record};
pub(crate) use plan::requests as planned;
pub use plan::{LoadPlan, MaxTokens, Planned};
pub use replay::{ClassTally, Tally, run};
pub use report::{ClassReport, LoadReport, Percentiles};
pub use target::Target;
