//! Pods that may be used at all, whatever they would cost.

use crate::{
    Phase, PullConfig, Time, explain::Reason, fleet::PodState, headroom::Outlook, queue::Waiting,
};

/// Whether a pod may take requests.
pub fn is_open(pod: &PodState) -> bool {
    pod.phase == Phase::Ready
}

/// Whether it takes requests of any kind: open, and not full by its own account.
pub fn is_taking(pod: &PodState) -> bool {
    is_open(pod) && !pod.is_full()
}

/// The bit of [`Waiting::picky`] of a prompt that no open pod's cache holds while that of one that is out does: the engine of an open
/// one would refuse it for good.
pub const OUTSIZED: u8 = 1 << 6;

/// Whether a request waits for a pod that is out, for its prompt is too long for those that are not.
pub const fn is_outsized(waiting: &Waiting) -> bool {
    waiting.picky & OUTSIZED != 0
}

/// Whether a pod may take a request: one that takes any, not one that the request could not be delivered to, and not one whose cache is
/// too small for it where another's is not, or that has no slot for its adapter.
pub fn usable(pod: &PodState, waiting: &Waiting) -> bool {
    usable_but_for_slots(pod, waiting)
        && waiting.adapter.is_none_or(|adapter| pod.has_slot(adapter))
}

/// Whether it may take it once it has a slot for its adapter.
pub fn usable_but_for_slots(pod: &PodState, waiting: &Waiting) -> bool {
    is_taking(pod)
        && !is_outsized(waiting)
        && f64::from(waiting.input_tokens) <= pod.longest_prompt
        && !waiting.excluded().contains(&pod.spec.id)
}

/// Whether no gate of a pod is held against a request. On an empty pod it keeps nobody waiting: no deadlock, and no idle GPU. A prompt
/// that its cache does not hold at all waits for nothing that could happen: the engine refuses it at once, and says why.
pub fn ungated(pod: &PodState, waiting: &Waiting, outlook: &Outlook) -> bool {
    outlook.empty || f64::from(waiting.input_tokens) > pod.kv_capacity_tokens()
}

/// Sequences of a request that run on a pod at a time: at most half of what the engine runs. It keeps the others until there is room
/// for them, so that a request of many need not find the pod empty.
pub fn at_once(pod: &PodState, waiting: &Waiting) -> f64 {
    let half = (pod.max_sequences() / 2).max(1);
    f64::from(waiting.request.sequences.min(half))
}

/// Whether the KV cache and the engine's sequence limit have room for a request and some of its
/// growth. One that gives way to others on the pod may use a `share` of the cache: it can wait, and they
/// come when it has long taken the last room.
///
/// # Errors
/// What there is no room for.
pub fn fits_memory(
    pod: &PodState,
    waiting: &Waiting,
    outlook: &Outlook,
    share: f64,
    now: Time,
    config: &PullConfig,
) -> Result<(), Reason> {
    let sequences = at_once(pod, waiting);
    let growth = config.kv_growth * f64::from(waiting.output_tokens) * sequences;
    let used = pod.kv_tokens(now, config.stale_after_ms) + outlook.uncached_tokens + growth;
    let others = pod.others(now, config.stale_after_ms);
    let running = pod.ledger.decodes_to_come() + others.sequences + sequences;
    let limit = config.kv_limit * pod.kv_capacity_tokens();
    if running > f64::from(pod.max_sequences()) {
        return Err(Reason::BatchFull);
    }
    if used > limit {
        return Err(Reason::KvFull);
    }
    if used > share * limit { Err(Reason::KvKept) } else { Ok(()) }
}
