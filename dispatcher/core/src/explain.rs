//! The reason for every wait, pull, refusal and demotion, as data.

use serde::{Deserialize, Serialize};

use crate::RequestId;

/// Why a head has not been dispatched yet. The names are the values of the metric's `reason` label.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// On every pod another prompt begins with the next step.
    StepFull,
    /// No pod has the KV cache for it.
    KvFull,
    /// Every pod runs as many sequences as it may.
    BatchFull,
    /// Every pod runs as many other LoRA adapters as it may.
    AdaptersFull,
    /// The pods say themselves that they take no more for now.
    PodsFull,
    /// No pod has the KV cache for it beside what is kept for those that come before it.
    KvKept,
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
    /// Its prefill would stall residents so long that more of them may lose their pace than it may cost.
    StallOverBudget {
        /// The stall on the best pod, in milliseconds.
        stall_ms: f64,
        /// How many of that pod's residents would lose their pace by it, on average.
        at_risk: f64,
        /// How many it may cost now.
        bearable: f64,
    },
    /// It waits for the pod that has its prefix.
    WaitsForWarmPod,
    /// The pods that are empty would be late with it, and another that is busy would not: it is faster, or has the prompt.
    WaitsForFasterPod,
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
    /// An operator has paused its lane, its band or the pool.
    Paused,
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
            Self::StepFull => "step_full",
            Self::KvFull => "kv_full",
            Self::BatchFull => "batch_full",
            Self::AdaptersFull => "adapters_full",
            Self::PodsFull => "pods_full",
            Self::KvKept => "kv_kept",
            Self::TtftOverSlo { .. } => "ttft_over_slo",
            Self::TpotOverSlo { .. } => "tpot_over_slo",
            Self::StallOverBudget { .. } => "stall_over_budget",
            Self::WaitsForWarmPod => "waits_for_warm_pod",
            Self::WaitsForFasterPod => "waits_for_faster_pod",
            Self::Late => "late",
            Self::PoolSaturated { .. } => "pool_saturated",
            Self::OverCapacity => "over_capacity",
            Self::PodsStale => "pods_stale",
            Self::FailureDomain => "failure_domain",
            Self::LatencyOverThreshold => "latency_over_threshold",
            Self::Paused => "paused",
        }
    }

    /// The reason in a sentence without its full stop. `called` says what a request is called.
    pub fn text(&self, called: impl Fn(RequestId) -> String) -> String {
        match *self {
            Self::NotConsidered => "it has just arrived and no pass has looked at it".to_owned(),
            Self::BehindItsLane => "another request of its lane goes first".to_owned(),
            Self::NoPodReady => "no pod takes requests".to_owned(),
            Self::BehindHead { head } => {
                format!("{} comes first and waits itself, and nothing may pass it", called(head))
            }
            Self::PodsClaimed => {
                "requests that come first wait for every pod it may use".to_owned()
            }
            Self::PendingFull => {
                "every pod has as many prompts before their first token as it may have".to_owned()
            }
            Self::StepFull => "on every pod another prompt begins with the next step".to_owned(),
            Self::KvFull => "no pod has room for it in its KV cache".to_owned(),
            Self::BatchFull => "every pod runs as many sequences as it may".to_owned(),
            Self::AdaptersFull => "every pod runs as many other LoRA adapters as it may".to_owned(),
            Self::PodsFull => "the pods say that they take no more for now".to_owned(),
            Self::KvKept => "what is left of the pods' KV caches is kept for requests of higher \
                             bands, or for those that can still be in time"
                .to_owned(),
            Self::TtftOverSlo { ttft_ms, slo_ms } => format!(
                "on the best pod its first token would come {} after its arrival, and {} are \
                 promised; another pod may free up sooner",
                span(ttft_ms),
                span(slo_ms),
            ),
            Self::TpotOverSlo { tpot_ms, limit_ms } => format!(
                "on the best pod its tokens would come every {}, and {} is the most",
                span(tpot_ms),
                span(limit_ms),
            ),
            Self::StallOverBudget { stall_ms, at_risk, bearable } => format!(
                "its prefill would hold up what the best pod serves by {}, by which {at_risk:.2} of \
                 those would lose their pace on average, and {bearable:.2} may",
                span(stall_ms),
            ),
            Self::WaitsForWarmPod => {
                "the pod that has its prefix cached is worth waiting for".to_owned()
            }
            Self::WaitsForFasterPod => {
                "the pods that are empty would be late with it, and a faster \
                                        one may still be in time"
                    .to_owned()
            }
            Self::Late => {
                "it can no longer make its objective and goes after those that can".to_owned()
            }
            Self::PoolSaturated { saturation } => {
                format!("the pool is {:.0} % full, more than its band may use", saturation * 100.0)
            }
            Self::OverCapacity => "on every pod it would exceed the profiled capacity".to_owned(),
            Self::PodsStale => "the last scrape of every pod is too old".to_owned(),
            Self::FailureDomain => "every pod stands beside one that failed".to_owned(),
            Self::LatencyOverThreshold => {
                "every pod's predicted latency is at or above its threshold".to_owned()
            }
            Self::Paused => "an operator has paused its lane, its band or the pool".to_owned(),
        }
    }
}

impl Reason {
    /// The reason as it stands against one pod, in a sentence without its full stop.
    pub fn here(&self, called: impl Fn(RequestId) -> String) -> String {
        match *self {
            Self::PendingFull => {
                "it has as many prompts before their first token as it may have".to_owned()
            }
            Self::StepFull => "another prompt begins with its next step".to_owned(),
            Self::KvFull => "no room in its KV cache".to_owned(),
            Self::BatchFull => "it runs as many sequences as it may".to_owned(),
            Self::AdaptersFull => "it runs as many other LoRA adapters as it may".to_owned(),
            Self::PodsFull => "it says that it takes no more for now".to_owned(),
            Self::KvKept => "what is left of its KV cache is kept for others".to_owned(),
            Self::TtftOverSlo { ttft_ms, slo_ms } => format!(
                "the first token would come {} after the arrival, and {} are promised",
                span(ttft_ms),
                span(slo_ms),
            ),
            Self::TpotOverSlo { tpot_ms, limit_ms } => {
                format!("a token every {}, and {} is the most", span(tpot_ms), span(limit_ms))
            }
            Self::StallOverBudget { stall_ms, at_risk, bearable } => format!(
                "the prefill would hold up its residents by {}, by which {at_risk:.2} of them would \
                 lose their pace on average, and {bearable:.2} may",
                span(stall_ms),
            ),
            Self::WaitsForFasterPod => {
                "it would be late with the request, and a faster pod may still be in time"
                    .to_owned()
            }
            Self::OverCapacity => "the request would exceed its profiled capacity".to_owned(),
            Self::PodsStale => "its last scrape is too old".to_owned(),
            Self::FailureDomain => "it stands beside a pod that failed".to_owned(),
            Self::LatencyOverThreshold => {
                "its predicted latency is at or above the threshold".to_owned()
            }
            _ => self.text(called),
        }
    }
}

/// A time as people read it.
pub fn span(ms: f64) -> String {
    let size = ms.abs();
    if size >= 60_000.0 {
        format!("{:.1} min", ms / 60_000.0)
    } else if size >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if size >= 10.0 || size == 0.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_the_unit_that_fits_them() {
        let texts = [0.0, 3.12, 250.4, 1234.0, 90_000.0, -400.0].map(span);
        assert_eq!(texts, ["0 ms", "3.1 ms", "250 ms", "1.2 s", "1.5 min", "-400 ms"]);
    }

    #[test]
    fn the_sentence_names_the_request_that_comes_first() {
        let reason = Reason::BehindHead { head: RequestId(7) };
        let text = reason.text(|id| format!("request {}", id.0));
        assert!(text.starts_with("request 7 comes first"), "{text}");
    }
}
