//! `weir-bench peers`: what a request costs in front of a pod, in Weir and in what else people put there.
//!
//! Every peer serves the same load to the same simulated pods, on a core of its own; the load and the pods share the other
//! one, in this process. The peers take turns in every measurement of a round, so that what else the machine does meets all
//! of them, and each figure is also given as a ratio to nginx in the same turn. A peer that is not there and cannot be
//! installed is left out, with the reason; one whose answers are wrong is shown with its errors.
//!
//! # Layout
//! - `args`: the command line; `play`: rounds, turns and memory
//! - `peer`: who is compared; `setup`: how each is configured and started; `tools`: finding and installing them
//! - `pod`: the pods; `load`: requests in a closed loop, at a rate, streamed, idle; `wire`: their bytes
//! - `exercise`: Weir by itself under the load that its profile is taken from, which is another one than these
//! - `counted`: Weir by itself with the same requests each time, for `weir-bench instructions`; `life`: starting and ending it
//! - `threads`: Weir by itself with one data-plane thread and with more
//! - `cost`: CPU time and memory of a process with its children
//! - `figures`: medians, spread and ratios of a row; `table`: rows for people and programs

mod args;
mod cost;
mod counted;
mod exercise;
mod figures;
mod life;
mod load;
mod model;
mod peer;
mod play;
mod pod;
mod setup;
mod table;
mod threads;
mod tools;
mod wire;

pub use args::PeersArgs;
pub(crate) use counted::{SMALL_BYTES, Served};
pub use exercise::ExerciseArgs;
pub(crate) use wire::Prompt;
