//! `weir-bench sensitivity`: what is left of Weir's advantage where the lab's assumptions do not hold.
//!
//! Every comparison of the lab assumes something of the field: metrics 50 ms old, predictions 5 % off, engines that prefill as
//! fast as the calibration says and have all of their memory. Here one assumption after the other is changed, for everybody
//! alike, and Weir is compared with the best push policy under it. All lines have the same requests at the same rates: a load
//! is of the pool as it is before anything is changed.
//!
//! # Layout
//! - `args`: the command line; `change`: what is changed; `line`: who holds how much then; `table`: the lines for people

mod args;
mod change;
mod line;
mod table;
#[cfg(test)]
mod tests;

pub use args::SensitivityArgs;
