//! The state of a pod and a demand, as the row that models are asked with and learn from.

use weir_schema::{Feature, Features, Row};

use crate::{
    Role, Time,
    fleet::PodState,
    headroom::{Demand, Outlook},
};

/// The row of a request on a pod. The very row of the chosen pod goes into the sample.
pub fn row(
    pod: &PodState,
    demand: Demand,
    outlook: &Outlook,
    now: Time,
    stale_after_ms: u64,
) -> Row {
    let mut features = Features::default();
    let mut set = |feature, value: f64| features.set(feature, value as f32);
    let kv = pod.kv_tokens(now, stale_after_ms) / pod.kv_capacity_tokens().max(1.0);
    let (ledger, others) = (&pod.ledger, pod.others(now, stale_after_ms));
    set(Feature::KvUsage, kv.min(1.0));
    set(Feature::InputTokens, demand.input_tokens);
    set(Feature::RunningRequests, ledger.decodes() + others.sequences);
    set(Feature::PrefixMatch, 1.0 - outlook.uncached_tokens / demand.input_tokens.max(1.0));
    set(Feature::PrefillTokensInFlight, outlook.backlog_tokens);
    set(Feature::DecodeTokensInFlight, ledger.kv_tokens() + others.kv_tokens);
    set(Feature::UncachedTokens, outlook.uncached_tokens);
    set(Feature::WorkAheadTokens, outlook.uncached_tokens + outlook.backlog_tokens);
    set(Feature::PendingRequests, outlook.pending as f64);
    set(Feature::ExpectedOutputTokens, demand.output_tokens);
    let prefill_rate = pod.prefill_rate(now);
    set(Feature::PrefillRate, prefill_rate);
    set(Feature::PriorTtftMs, outlook.ttft_ms);
    set(Feature::PriorTpotMs, outlook.tpot_ms(prefill_rate));
    set(Feature::PodClass, f64::from(pod.spec.class));
    set(Feature::Role, role_index(pod.class.role));
    if let Some(scrape) = pod.fresh_scrape(now, stale_after_ms) {
        set(Feature::QueueDepth, f64::from(scrape.waiting));
    }
    if let Some((at, _)) = pod.scrape {
        set(Feature::MetricAgeMs, now.ms_since(at));
    }
    if let Some(oldest) = ledger.pending().first() {
        set(Feature::PendingAgeMs, now.ms_since(oldest.since));
    }
    if let Some(gap_ms) = pod.stride.gap_ms() {
        set(Feature::StepGapMs, gap_ms);
    }
    if pod.pulse.steps > 0 && !ledger.is_empty() {
        set(Feature::StepPhaseMs, now.ms_since(pod.pulse.last_step_at));
    }
    features.clamp();
    features.0
}

const fn role_index(role: Role) -> f64 {
    match role {
        Role::Both => 0.0,
        Role::Prefill => 1.0,
        Role::Decode => 2.0,
    }
}
