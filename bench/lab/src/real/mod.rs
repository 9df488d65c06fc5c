//! The same requests to real programs: what `weir-bench honesty` and `weir-bench versus` have in common.
//!
//! A run is one list of requests, sent in open loop to `weir serve` in front of `weir-bench pod`, or of engines that run already.
//! Ten lone requests go first; they and the first tenth of the load are in no figure.
//!
//! # Layout
//! - `args`: what is sent, where, and in front of what; `slice`: the requests
//! - `run`: one run; `figures`: what it comes to

mod args;
mod figures;
mod run;
mod slice;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use args::RealArgs;
pub(crate) use figures::Figures;
pub(crate) use run::{Decides, Gave, Pods, run, run_direct};
pub(crate) use slice::Slice;

use clap::ValueEnum;

/// A load that is later than this at the 99th percentile shares its processor with others. The real program is then late as well, and
/// holds back what it would have sent: by 10 to 25 % of the load where 25 ms and more were measured.
pub(crate) const BUSY_LAG_MS: f64 = 20.0;

/// How latencies are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prediction {
    /// By step times that are fitted online; no model
    Fitted,
    /// By that and by models that are trained every 30 s
    Trained,
}

impl Prediction {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Trained => "trained",
        }
    }
}

/// What one request got, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Got {
    /// Index of its class.
    pub(crate) class: usize,
    /// From sending to the first token; `None` when it was not served.
    pub(crate) ttft_ms: Option<f64>,
    /// Mean time per token after the first; `None` below two tokens.
    pub(crate) tpot_ms: Option<f64>,
}
