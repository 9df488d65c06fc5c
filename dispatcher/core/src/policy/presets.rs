//! The parts of each preset. Numbers are those of the code that a preset stands for, not of its
//! documents, where the two differ; docs/policies.md says which.

use weir_schema::Target;

use crate::decide::failover::Domain;

use super::{
    Admission, Affinity, Detector, Filter, Hopeless, Mode, Order, Picker, Placement, Policy, Rules,
    Scorer, Strategy, TtftSource, UsageLimit,
};

/// Push at once, first come first served, whatever becomes of it: what every push preset says.
fn push(scorer: Scorer, picker: Picker) -> Rules {
    Rules {
        admission: Admission::Open,
        require_slo: false,
        filters: Vec::new(),
        affinity: Affinity::None,
        scorer,
        picker,
        dispatch: Mode::Push,
        order: Order::Deadline,
        hopeless: Hopeless::Serve,
        slo_buffer: 1.0,
        seed: 0,
    }
}

/// The rules of a preset.
pub fn rules(policy: Policy) -> Rules {
    match policy {
        Policy::Weir => weir(),
        Policy::PredictedLatency => predicted_latency(),
        Policy::SloAware => slo_aware(),
        Policy::PatternPull => pattern_pull(),
        Policy::LlumnixSlo => llumnix_slo(),
        Policy::LoadPrefix => push(load_prefix(1.0, 1.0, 1.0), Picker::Best),
        Policy::LoadPrefix322 => push(load_prefix(2.0, 2.0, 3.0), Picker::Best),
        Policy::FlowControl => flow_control(),
        Policy::RoundRobin => push(Scorer::None, Picker::RoundRobin),
        Policy::Random => push(Scorer::None, Picker::Random),
        Policy::LeastRequest => push(Scorer::LeastRequest, Picker::Best),
        Policy::PowerOfTwo => push(Scorer::LeastRequest, Picker::PowerOfTwo),
    }
}

/// docs/decisions/001-the-pull-loop.md.
fn weir() -> Rules {
    Rules {
        filters: vec![Filter::Headroom],
        affinity: Affinity::WarmWait,
        dispatch: Mode::Pull,
        order: Order::HeadStart,
        hopeless: Hopeless::Demote,
        ..push(Scorer::FewestTokens, Picker::Best)
    }
}

const fn load_prefix(kv_weight: f64, queue_weight: f64, prefix_weight: f64) -> Scorer {
    Scorer::LoadPrefix { kv_weight, queue_weight, prefix_weight }
}

const fn headroom() -> Scorer {
    Scorer::Headroom {
        ttft_weight: 0.8,
        tpot_weight: 0.2,
        strategy: Strategy::Least,
        kv_weight: 1.0,
        queue_weight: 1.0,
        prefix_weight: 1.0,
    }
}

/// Seeds 000 and 003: affinity gate, headroom tiers, latency scorer, weighted random, SLO admitter.
fn predicted_latency() -> Rules {
    Rules {
        admission: Admission::LatencySlo { cold_kv: 0.02 },
        filters: vec![Filter::HeadroomTier { explore_negative: 0.01 }],
        affinity: Affinity::PrefixCache {
            threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
            ttft_source: TtftSource::Prediction,
            peak_prefill_throughput: 15_928.0,
        },
        ..push(headroom(), Picker::WeightedRandom)
    }
}

/// Seed 001: valid pods, weighted random, an objective required of everybody.
fn slo_aware() -> Rules {
    Rules {
        admission: Admission::LatencySlo { cold_kv: 0.0 },
        require_slo: true,
        filters: vec![Filter::HeadroomTier { explore_negative: 0.01 }],
        ..push(headroom(), Picker::WeightedRandom)
    }
}

/// Seed 002, with a strict head: a backfilling one starves the pattern that needs most room.
fn pattern_pull() -> Rules {
    Rules {
        filters: vec![Filter::Capacity { most: 1.0 }],
        dispatch: Mode::PullStrict,
        order: Order::Slack,
        hopeless: Hopeless::Demote,
        ..push(Scorer::PatternLoad { placement: Placement::LeastLoad }, Picker::Best)
    }
}

/// Seed 004. Who finds no pod waits in its lane; there is no order between those, so one that does
/// not fit holds up nobody.
fn llumnix_slo() -> Rules {
    Rules {
        filters: vec![
            Filter::Staleness { after_ms: 60_000 },
            Filter::Latency {
                ttft_slo_ms: 6000.0,
                tpot_slo_ms: 50.0,
                ttft_dispatch_threshold: 0.85,
                tpot_dispatch_threshold: 0.85,
            },
            Filter::Failover { domain: Domain::InstanceUnit },
        ],
        dispatch: Mode::PullBackfill,
        hopeless: Hopeless::Refuse,
        ..push(Scorer::LowestLatency { target: Target::Ttft }, Picker::Best)
    }
}

/// llm-d's flow control with its slo-deadline order, in front of its default profile.
fn flow_control() -> Rules {
    Rules {
        filters: vec![Filter::Saturation {
            detector: Detector::Utilization,
            queue_depth: 5.0,
            kv_usage: 0.8,
            max_concurrency: 100,
            limit: UsageLimit::Static,
        }],
        dispatch: Mode::PullStrict,
        order: Order::SloDeadline,
        ..push(load_prefix(2.0, 2.0, 3.0), Picker::Best)
    }
}
