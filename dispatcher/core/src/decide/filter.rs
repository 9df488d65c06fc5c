//! Pods that may be used at all, whatever they would cost.

use crate::{
    Phase, PullConfig, Role, Time, explain::Reason, fleet::PodState, headroom::Outlook,
    queue::Waiting,
};

/// Whether a pod may take requests: ready, and of a role that prefills.
pub fn is_open(pod: &PodState) -> bool {
    pod.phase == Phase::Ready && pod.class.role != Role::Decode
}

/// Whether a pod may take a request: open, and not one that the request could not be delivered to.
pub fn usable(pod: &PodState, waiting: &Waiting) -> bool {
    is_open(pod) && !waiting.excluded().contains(&pod.spec.id)
}

/// Whether the KV cache and the engine's sequence limit have room for a request and some of its
/// growth. An empty pod always does: a prompt that does not fit there fits nowhere, and the engine
/// says so. One that gives way to others on the pod leaves them a part of the cache: it can wait, and they
/// come when it has long taken the last room.
///
/// # Errors
/// What there is no room for.
pub fn fits_memory(
    pod: &PodState,
    waiting: &Waiting,
    outlook: &Outlook,
    now: Time,
    config: &PullConfig,
) -> Result<(), Reason> {
    if outlook.empty {
        return Ok(());
    }
    let sequences = f64::from(waiting.request.sequences);
    let growth = config.kv_growth * f64::from(waiting.output_tokens) * sequences;
    let used = pod.kv_tokens(now, config.stale_after_ms) + outlook.uncached_tokens + growth;
    let others = pod.others(now, config.stale_after_ms);
    let running = pod.ledger.decodes_to_come() + others.sequences + sequences;
    let limit = config.kv_limit * pod.kv_capacity_tokens();
    if running > f64::from(pod.class.max_sequences) {
        return Err(Reason::BatchFull);
    }
    if used > limit {
        return Err(Reason::KvFull);
    }
    let yields = waiting.late || pod.ledger.top_band() > Some(waiting.request.band);
    if yields && used > config.yield_share * limit { Err(Reason::KvKept) } else { Ok(()) }
}
