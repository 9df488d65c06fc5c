//! `weir-bench train`: what training costs, how soon it shows, and what a swap of bundles does to decisions.
//!
//! Everything is the real thing: [`weir_train::Trainer`] and the program `weir` beside this one train on samples that the
//! simulation made; [`weir_predict`] evaluates what came out; [`weir_core::Scheduler`] decides while bundles come and go.
//! Times are those of a processor wherever that is possible, with the wall's beside them: on a busy machine the wall says more
//! about the machine.
//!
//! # Layout
//! - `samples`: what is learned from; `clock`: time on a processor
//! - `round`: a round in this process; `process`: the same by `weir train`, with its memory
//! - `rows`: a row by either evaluator; `swap`: decisions while bundles are swapped
//! - `fresh`: `weir serve` and its trainer, from a sample to its model
//! - `args`, `table`: the command, its tables and file

mod args;
mod clock;
mod fresh;
mod process;
mod round;
mod rows;
mod samples;
mod swap;
mod table;
#[cfg(test)]
mod tests;

pub use args::TrainArgs;
pub(crate) use samples::samples;
