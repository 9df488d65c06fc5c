//! `weir-bench instructions`: whether the hot path still takes as many instructions as when they were counted last.
//!
//! Times vary with the machine and with what else runs on it; instructions hardly do. A few small workloads of
//! [`crate::decide`] run under callgrind, which counts the instructions inside the scheduler's calls and nowhere else, and the
//! counts per decision are compared with those in the repository. A count above the stored one by more than [`TOLERANCE`] fails; one
//! below by more than that is told, so that it can be stored with `--renew`.
//!
//! A compiler makes its own instructions: figures of another version of `rustc` are printed and not judged. Where valgrind is not
//! installed nothing is measured, which is said, and is no failure.
//!
//! # Layout
//! - `work`: the workloads; `callgrind`: running and reading it; `stored`: the file; `verdict`: the comparison
//! - `args`: the command

mod args;
mod callgrind;
mod stored;
#[cfg(test)]
mod tests;
mod verdict;
mod work;

pub use args::InstructionsArgs;

/// How far a count may be above the stored one, as a share of it. Runs of one build differ by less than a tenth of that: maps with keys
/// of their own for each process.
pub const TOLERANCE: f64 = 0.03;
