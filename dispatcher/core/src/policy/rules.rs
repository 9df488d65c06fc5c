//! The parts of a policy. Every number is a key of the configuration under its own name.

use serde::{Deserialize, Serialize};
use weir_schema::Target;

use super::default;

/// What a policy says, completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Who is refused on arrival.
    pub admission: Admission,
    /// Whether a request that states no objective is answered 400.
    pub require_slo: bool,
    /// What takes pods out, in order.
    pub filters: Vec<Filter>,
    /// What a cached prompt is worth.
    pub affinity: Affinity,
    /// What makes one pod better than another.
    pub scorer: Scorer,
    /// How one is picked by its score.
    pub picker: Picker,
    /// When a request is given out, and what may pass one that found no pod.
    pub dispatch: Mode,
    /// Which request goes first, after its band.
    pub order: Order,
    /// What happens to a request that can no longer meet its TTFT objective.
    pub hopeless: Hopeless,
    /// Factor on TPOT objectives in headrooms (llm-d: sloBufferFactor).
    pub slo_buffer: f64,
    /// Decides every draw.
    pub seed: u64,
}

/// Who is refused on arrival, beyond the bounds of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Admission {
    /// Nobody.
    #[default]
    Open,
    /// A sheddable request whose objective no pod is predicted to meet.
    LatencySlo {
        /// A pod with less of its KV cache in use than this is cold, and serves anybody.
        #[serde(default = "default::cold_kv")]
        cold_kv: f64,
    },
    /// A sheddable request, the likelier the more saturated the pool is.
    Probabilistic {
        /// Queued prompts at which a pod is full.
        #[serde(default = "default::queue_depth")]
        queue_depth: f64,
        /// Share of the KV cache at which a pod is full.
        #[serde(default = "default::kv_usage")]
        kv_usage: f64,
        /// Power of the saturation.
        #[serde(default = "default::power")]
        power: f64,
        /// Factor on that power.
        #[serde(default = "default::factor")]
        factor: f64,
    },
}

/// What takes pods out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Filter {
    /// Weir's gates: buffer, memory, TTFT, TPOT and the residents' stall budgets.
    Headroom,
    /// Pods that are predicted to violate an objective, while others are not.
    HeadroomTier {
        /// How often the violating pods are taken instead, so that one that recovered is noticed.
        #[serde(default = "default::explore_negative")]
        explore_negative: f64,
    },
    /// All pods while the pool is saturated.
    Saturation {
        /// How saturation is measured.
        #[serde(default)]
        detector: Detector,
        /// Queued prompts at which a pod is full.
        #[serde(default = "default::queue_depth")]
        queue_depth: f64,
        /// Share of the KV cache at which a pod is full.
        #[serde(default = "default::kv_usage")]
        kv_usage: f64,
        /// Requests at which a pod is full, for the concurrency detector.
        #[serde(default = "default::max_concurrency")]
        max_concurrency: u32,
        /// How much of the pool each band may use.
        #[serde(default)]
        limit: UsageLimit,
    },
    /// Pods on which requests in flight take the whole profiled capacity.
    Capacity {
        /// Load that a pod may carry; 1 is its capacity.
        #[serde(default = "default::one")]
        most: f64,
    },
    /// Pods that share a failure domain with one that failed.
    Failover {
        /// How far a failure reaches.
        #[serde(default)]
        domain: crate::decide::failover::Domain,
    },
    /// Pods whose last scrape is too old.
    Staleness {
        /// Age in milliseconds up to which a scrape is believed.
        #[serde(default = "default::staleness_ms")]
        after_ms: u64,
    },
    /// Pods whose predicted latency is at or above its threshold.
    Latency {
        /// TTFT objective of requests without one, in milliseconds.
        #[serde(default = "default::ttft_slo_ms")]
        ttft_slo_ms: f64,
        /// TPOT objective of requests without one, in milliseconds.
        #[serde(default = "default::tpot_slo_ms")]
        tpot_slo_ms: f64,
        /// Share of the TTFT objective at which a pod is out.
        #[serde(default = "default::dispatch_threshold")]
        ttft_dispatch_threshold: f64,
        /// Share of the TPOT objective at which a pod is out.
        #[serde(default = "default::dispatch_threshold")]
        tpot_dispatch_threshold: f64,
    },
}

/// How saturation is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detector {
    /// Mean over pods of the larger of queue and KV use, each over its threshold.
    #[default]
    Utilization,
    /// Mean over pods of the requests in flight over the most.
    Concurrency,
}

/// How much of the pool each band may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UsageLimit {
    /// Everybody may use it up.
    #[default]
    Static,
    /// Lower bands leave some of it: ceilings fall evenly with the rank of the band.
    PriorityHoldback {
        /// Ceiling of the lowest band.
        min_ceiling: f64,
        /// Ceiling of the highest band.
        #[serde(default = "default::one")]
        max_ceiling: f64,
    },
    /// Lower bands leave the more the fuller it is, and are let through now and then.
    SoftReflective,
}

/// What a cached prompt is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Affinity {
    /// Nothing beyond what scorer and prediction make of it.
    #[default]
    None,
    /// A head waits for its warm pod while that pays.
    WarmWait,
    /// Only pods that have most of the prompt, unless they are too busy.
    PrefixCache {
        /// Share of the prompt that makes a pod warm; 0 turns the gate off.
        #[serde(default = "default::affinity_threshold")]
        threshold: f64,
        /// How often the gate is left open, so that cold pods get prefixes too.
        #[serde(default)]
        exploration_probability: f64,
        /// TTFT in milliseconds by which the best warm pod may be worse than the best cold one.
        #[serde(default = "default::max_penalty_ms")]
        max_ttft_penalty_ms: f64,
        /// Where that TTFT comes from.
        #[serde(default)]
        ttft_source: TtftSource,
        /// Prompt tokens per second of a pod, for the TTFT by throughput.
        #[serde(default = "default::prefill_throughput")]
        peak_prefill_throughput: f64,
    },
}

/// Where the affinity gate's TTFT comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TtftSource {
    /// The predictor.
    #[default]
    Prediction,
    /// Uncached tokens in flight over the pod's throughput.
    PrefillThroughput,
}

/// What makes one pod better than another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scorer {
    /// Nothing.
    #[default]
    None,
    /// Fewest uncached tokens, in steps, then, while long prompts come, a pod that is of no use to them, then the earliest first
    /// token by the step-time model. For a request without objectives: where all together lose least time to it.
    FewestTokens,
    /// Predicted headroom under both objectives.
    Headroom {
        /// Weight of the TTFT headroom.
        #[serde(default = "default::ttft_weight")]
        ttft_weight: f64,
        /// Weight of the TPOT headroom.
        #[serde(default = "default::tpot_weight")]
        tpot_weight: f64,
        /// Whether the least or the most positive headroom is best.
        #[serde(default)]
        strategy: Strategy,
        /// Weight of free KV cache when no pod has a prediction.
        #[serde(default = "default::one")]
        kv_weight: f64,
        /// Weight of a short queue when no pod has a prediction.
        #[serde(default = "default::one")]
        queue_weight: f64,
        /// Weight of a cached prompt when no pod has a prediction.
        #[serde(default = "default::one")]
        prefix_weight: f64,
    },
    /// The lowest predicted latency.
    LowestLatency {
        /// Which latency.
        #[serde(default)]
        target: Target,
    },
    /// Free KV cache, a short queue and a cached prompt, weighted.
    LoadPrefix {
        /// Weight of free KV cache.
        #[serde(default = "default::one")]
        kv_weight: f64,
        /// Weight of a short queue.
        #[serde(default = "default::one")]
        queue_weight: f64,
        /// Weight of a cached prompt.
        #[serde(default = "default::one")]
        prefix_weight: f64,
    },
    /// The fewest requests in flight.
    LeastRequest,
    /// The share of profiled capacity that is taken.
    PatternLoad {
        /// Whether the emptiest or the fullest pod is best.
        #[serde(default)]
        placement: Placement,
    },
}

/// Whether the least or the most positive headroom is best. Negative headroom is always least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Pack: keep pods with much headroom for what will need it.
    #[default]
    Least,
    /// Spread.
    Most,
}

/// Whether the emptiest or the fullest pod with room is best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The emptiest.
    #[default]
    LeastLoad,
    /// The fullest.
    Binpack,
}

/// How a pod is picked by its score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Picker {
    /// The best; of equals the one that was given fewer requests, then the one that joined first.
    #[default]
    Best,
    /// Any of the best few, all alike.
    TopRandom {
        /// How many.
        k: usize,
    },
    /// By chance, in proportion to the score.
    WeightedRandom,
    /// By chance, all alike.
    Random,
    /// Each in turn.
    RoundRobin,
    /// The better one of two drawn.
    PowerOfTwo,
}

/// When a request is given out, and what may pass one that found no pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Pull, and `pull.head_rule` says what passes a head.
    #[default]
    Pull,
    /// Pull; nothing passes a head that found no pod.
    PullStrict,
    /// Pull; a head claims a pod, and much smaller ones may use the others.
    PullReservation,
    /// Pull; anything that fits passes a head.
    PullBackfill,
    /// Push at once.
    Push,
}

/// Which request of a band goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The earliest deadline.
    #[default]
    Deadline,
    /// The earliest deadline, and a long prompt sooner by twice what it takes on an idle pod, while requests hardly wait. Of those
    /// without one that of which least was left to compute when it came, with a cap on age.
    HeadStart,
    /// The earliest deadline; those without a TTFT objective after all others (llm-d: slo-deadline).
    SloDeadline,
    /// The least slack: what is left of the objective after the predicted latency.
    Slack,
    /// The greatest probability of violating an objective.
    Violation,
    /// First come, first served.
    Fifo,
    /// The shortest prompt, with a cap on age.
    ShortestFirst,
}

/// What happens to a request that can no longer meet its TTFT objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hopeless {
    /// A sheddable one is refused, any other served after those that can make it.
    #[default]
    Demote,
    /// It is refused.
    Refuse,
    /// It keeps its place.
    Serve,
}

impl Rules {
    /// Whether the rules ask the predictor about every pod, not only about the one that is picked.
    pub fn ask_predictions(&self) -> bool {
        let filters = self
            .filters
            .iter()
            .any(|filter| matches!(filter, Filter::HeadroomTier { .. } | Filter::Latency { .. }));
        let gate = matches!(
            self.affinity,
            Affinity::PrefixCache { ttft_source: TtftSource::Prediction, .. }
        );
        let scorer = matches!(self.scorer, Scorer::Headroom { .. } | Scorer::LowestLatency { .. });
        filters || gate || scorer
    }

    /// Whether Weir's own gates decide.
    pub fn gated(&self) -> bool {
        self.filters.contains(&Filter::Headroom)
    }
}
