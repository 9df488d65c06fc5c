//! `weir-bench instructions`: whether the hot path still takes as many instructions as when they were counted last.
//!
//! Times vary with the machine and with what else runs on it; instructions hardly do. A few small workloads of
//! [`crate::decide`] run under callgrind, which counts the instructions inside the scheduler's calls and nowhere else; `weir serve` runs
//! under it as a whole, and what a request and a token take is what a life takes more that serves more of them. The counts are compared
//! with those in the repository. A count above the stored one by more than its tolerance fails; one
//! below by more than that is told, so that it can be stored with `--renew`.
//!
//! A compiler makes its own instructions: figures of another version of `rustc` are printed and not judged. Where valgrind is not
//! installed nothing is measured, which is said, and is no failure.
//!
//! # Layout
//! - `work`: the workloads; `hop`: those of the whole program; `callgrind`: running and reading it; `stored`: the file; `verdict`: the comparison
//! - `args`: the command

mod args;
mod callgrind;
mod hop;
mod stored;
#[cfg(test)]
mod tests;
mod verdict;
mod work;

pub use args::InstructionsArgs;

/// How far a count may be above the stored one, as a share of it. Runs of one build differ by a third of that at most: maps with keys of
/// their own for each process.
pub const TOLERANCE: f64 = 0.03;
/// The same of a request in the whole program: what comes by the clock is counted with it, and on a machine half as fast more of it comes.
pub const OF_REQUESTS: f64 = 0.05;
/// The same of what a token takes: how many come together, for which a thread wakes up once, is not the same twice.
pub const OF_TOKENS: f64 = 0.1;
