//! The two latencies that are predicted, so that nothing about one of them is written twice.

use serde::{Deserialize, Serialize};

use crate::Feature;

/// One of the two predicted latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Time to the first token.
    #[default]
    Ttft,
    /// Time per output token.
    Tpot,
}

impl Target {
    /// Both, in the order of a graph's output.
    pub const ALL: [Self; 2] = [Self::Ttft, Self::Tpot];

    /// The name in graphs, errors, logs and configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
        }
    }

    /// The feature that the learned factor multiplies.
    pub const fn prior(self) -> Feature {
        match self {
            Self::Ttft => Feature::PriorTtftMs,
            Self::Tpot => Feature::PriorTpotMs,
        }
    }
}
