//! A policy: which request goes to which pod, and when, as typed data.
//!
//! [`Policy`] names a preset, [`Rules`] is what it says: admission, filters in order, affinity,
//! scorer, picker, dispatch, order and what happens to a lost cause. Operators start from a preset
//! and replace parts; the passes of [`crate::decide`] read the rules and nothing else. Where a rule
//! comes from, and where it differs from there on purpose, stands in docs/policies.md.
//!
//! # Layout
//! - [`rules`]: the parts
//! - [`presets`]: the parts of each preset
//! - [`check`]: which numbers make no sense
//! - [`dice`]: every draw, decided by the seed

pub mod check;
mod default;
pub mod dice;
pub mod presets;
pub mod rules;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use dice::Dice;
pub use rules::{
    Admission, Affinity, Detector, Filter, Hopeless, Mode, Order, Picker, Placement, Rules, Scorer,
    Strategy, TtftSource, UsageLimit,
};

/// The name of a preset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Hold until a pod has headroom; the loop of docs/decisions/001-the-pull-loop.md.
    #[default]
    Weir,
    /// llm-d's predicted-latency scheduling: push to a pod by predicted headroom.
    PredictedLatency,
    /// The SLO-aware routing that llm-d grew out of: every request states an objective.
    SloAware,
    /// AIBrix's RFC: pull while the pod's share of profiled capacity lasts.
    PatternPull,
    /// Llumnix: the pod with the lowest predicted latency, none above its threshold.
    LlumnixSlo,
    /// Push by KV use, queue and prefix, weighted 1, 1, 1.
    LoadPrefix,
    /// Push by prefix, queue and KV use, weighted 3, 2, 2.
    #[serde(rename = "load-prefix-322")]
    LoadPrefix322,
    /// llm-d's flow control: queue in deadline order while the pool is saturated.
    FlowControl,
    /// Push at once, each pod in turn.
    RoundRobin,
    /// Push at once to any pod.
    Random,
    /// Push at once to the pod with the fewest requests in flight.
    LeastRequest,
    /// Push at once to the one of two drawn pods with fewer requests in flight.
    PowerOfTwo,
}

/// There is no preset of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy {0:?}")]
pub struct UnknownPolicy(pub String);

impl Policy {
    /// Every preset.
    pub const ALL: [Self; 12] = [
        Self::Weir,
        Self::PredictedLatency,
        Self::SloAware,
        Self::PatternPull,
        Self::LlumnixSlo,
        Self::LoadPrefix,
        Self::LoadPrefix322,
        Self::FlowControl,
        Self::RoundRobin,
        Self::Random,
        Self::LeastRequest,
        Self::PowerOfTwo,
    ];

    /// The name in configurations, snapshots and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::PredictedLatency => "predicted-latency",
            Self::SloAware => "slo-aware",
            Self::PatternPull => "pattern-pull",
            Self::LlumnixSlo => "llumnix-slo",
            Self::LoadPrefix => "load-prefix",
            Self::LoadPrefix322 => "load-prefix-322",
            Self::FlowControl => "flow-control",
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::LeastRequest => "least-request",
            Self::PowerOfTwo => "power-of-two",
        }
    }

    /// What it says.
    pub fn rules(self) -> Rules {
        presets::rules(self)
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        let known = Self::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}
