//! `weir-bench honesty`: the same requests through the real program and through the simulation, side by side.
//!
//! Every figure of the lab rests on the simulation, so the simulation is held to what it stands for: `weir serve` in front of
//! `weir-bench pod`, over HTTP, in real time. Both get one list of requests, byte for byte and at the same moments, engines
//! configured alike, the same scheduler with the same configuration, and predictions learned in the same way. What they do not
//! share is told: the simulation has no network and no processor, so ten lone requests go first, and what they take longer in
//! reality is added to every simulated TTFT. The engines' noise is not the same either, so the simulation runs several times and
//! its own spread stands beside its figures.
//!
//! The exit code is 0 if every figure holds, 1 if one does not, 2 if it could not be run.
//!
//! # Layout
//! - `args`: the command line; `simulated`: the run of the simulation, beside that of `crate::real`
//! - `compare`: the two beside each other, and the verdict

mod args;
mod compare;
mod simulated;
#[cfg(test)]
mod tests;

pub use args::HonestyArgs;
