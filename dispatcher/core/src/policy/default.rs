//! Numbers that a part may leave out, each that of the code it comes from; see docs/policies.md.

pub(super) const fn one() -> f64 {
    1.0
}

pub(super) const fn cold_kv() -> f64 {
    0.02
}

pub(super) const fn queue_depth() -> f64 {
    5.0
}

pub(super) const fn kv_usage() -> f64 {
    0.8
}

pub(super) const fn power() -> f64 {
    5.0
}

pub(super) const fn factor() -> f64 {
    300.0
}

pub(super) const fn explore_negative() -> f64 {
    0.01
}

pub(super) const fn max_concurrency() -> u32 {
    100
}

pub(super) const fn staleness_ms() -> u64 {
    60_000
}

pub(super) const fn ttft_slo_ms() -> f64 {
    6000.0
}

pub(super) const fn tpot_slo_ms() -> f64 {
    50.0
}

pub(super) const fn dispatch_threshold() -> f64 {
    0.85
}

pub(super) const fn affinity_threshold() -> f64 {
    0.8
}

pub(super) const fn max_penalty_ms() -> f64 {
    18_000.0
}

pub(super) const fn prefill_throughput() -> f64 {
    15_928.0
}

pub(super) const fn ttft_weight() -> f64 {
    0.8
}

pub(super) const fn tpot_weight() -> f64 {
    0.2
}
