//! The reason for every wait, pull, refusal and demotion, as data.

use serde::{Deserialize, Serialize};

use crate::RequestId;

/// Why a head has not been dispatched yet. The names are the values of the metric's `reason` label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// It has just arrived; no pass has looked at it.
    #[default]
    NotConsidered,
    /// It is not the head of its lane.
    BehindItsLane,
    /// No pod takes requests.
    NoPodReady,
    /// It waits behind a head that comes first.
    BehindHead {
        /// That head.
        head: RequestId,
    },
    /// Every pod it may use is claimed by a head before it.
    PodsClaimed,
    /// The pods' buffers of prompts without a first token are full.
    PendingFull,
    /// No pod has the KV cache for it.
    KvFull,
    /// On the best pod its first token would come too late; another may free up sooner.
    TtftOverSlo {
        /// Predicted TTFT from arrival on the best pod, in milliseconds.
        ttft_ms: f64,
        /// Its objective, in milliseconds.
        slo_ms: f64,
    },
    /// On the best pod its own token pace would be too slow.
    TpotOverSlo {
        /// Predicted TPOT on the best pod, in milliseconds.
        tpot_ms: f64,
        /// Its objective with the margin, in milliseconds.
        limit_ms: f64,
    },
    /// Its prefill would stall residents longer than they can bear.
    StallOverBudget {
        /// The stall on the best pod, in milliseconds.
        stall_ms: f64,
        /// What that pod's residents can bear, in milliseconds.
        budget_ms: f64,
    },
    /// It waits for the pod that has its prefix.
    WaitsForWarmPod,
    /// It can no longer meet its objective and goes after those that can.
    Late,
    /// The pool is saturated beyond what its band may use.
    PoolSaturated {
        /// How full the pool is; 1 is full.
        saturation: f64,
    },
    /// On every pod it would exceed the profiled capacity.
    OverCapacity,
    /// The last scrape of every pod is too old.
    PodsStale,
    /// Every pod shares a failure domain with one that failed.
    FailureDomain,
    /// Every pod's predicted latency is at or above its threshold.
    LatencyOverThreshold,
}

impl Reason {
    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotConsidered => "not_considered",
            Self::BehindItsLane => "behind_its_lane",
            Self::NoPodReady => "no_pod_ready",
            Self::BehindHead { .. } => "behind_head",
            Self::PodsClaimed => "pods_claimed",
            Self::PendingFull => "pending_full",
            Self::KvFull => "kv_full",
            Self::TtftOverSlo { .. } => "ttft_over_slo",
            Self::TpotOverSlo { .. } => "tpot_over_slo",
            Self::StallOverBudget { .. } => "stall_over_budget",
            Self::WaitsForWarmPod => "waits_for_warm_pod",
            Self::Late => "late",
            Self::PoolSaturated { .. } => "pool_saturated",
            Self::OverCapacity => "over_capacity",
            Self::PodsStale => "pods_stale",
            Self::FailureDomain => "failure_domain",
            Self::LatencyOverThreshold => "latency_over_threshold",
        }
    }
}
