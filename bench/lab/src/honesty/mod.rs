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
//! - `args`: the command line; `slice`: the requests; `real`, `simulated`: the two runs
//! - `figures`: what a run comes to; `compare`: the two beside each other, and the verdict

mod args;
mod compare;
mod figures;
mod real;
mod simulated;
mod slice;
#[cfg(test)]
mod tests;

pub use args::HonestyArgs;

use clap::ValueEnum;

/// How latencies are predicted, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Prediction {
    /// By step times that are fitted online; no model
    Fitted,
    /// By that and by models that are trained every 30 s
    Trained,
}

impl Prediction {
    const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Trained => "trained",
        }
    }
}

/// What one request got, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Got {
    /// Index of its class.
    class: usize,
    /// From sending to the first token; `None` when it was not served.
    ttft_ms: Option<f64>,
    /// Mean time per token after the first; `None` below two tokens.
    tpot_ms: Option<f64>,
}
