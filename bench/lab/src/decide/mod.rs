//! `weir-bench decide`: what a decision costs, as a program that prints it.
//!
//! The real [`weir_core::Scheduler`] with a real evaluator is driven from one thread with the whole stream of events that a server
//! gives it: arrivals, first tokens, progress in batches, ends, scrapes and ticks, in virtual time. Only the time inside
//! [`weir_core::Scheduler::handle`] is counted; the pods cost nothing. Their engines are as fast as the load needs: the step times of a
//! real GPU and the objectives are both divided by the same factor, so that every pod carries what it would carry at its
//! own pace and decisions are as hard as they are there.
//!
//! # Layout
//! - `load`: the requests that come; `pool`: pods that serve them in virtual time; `backlog`: what waits and cannot go
//! - `drive`: the events, one after the other, with the cost of each; `cost`: the clocks and what they add up to
//! - `evaluator`: a bundle trained on the load's own samples, behind ONNX Runtime, as a forest, or not at all
//! - `allocations`: what was allocated meanwhile; `queue`: the board alone, by how much waits
//! - `args`, `table`: the command, its table, file and pictures

pub mod allocations;
mod args;
mod backlog;
mod cost;
mod drive;
mod evaluator;
mod load;
mod pool;
mod queue;
mod table;
#[cfg(test)]
mod tests;

pub use args::DecideArgs;
pub(crate) use drive::{Course, drive};
pub(crate) use evaluator::train;
pub(crate) use queue::{Leaves, turnover_us};
