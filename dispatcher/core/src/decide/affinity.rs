//! What each pod has cached of a prompt, and when a head waits for the pod that has it.

use crate::{
    PodId, PullConfig,
    fleet::{PodState, Pods},
    headroom::Outlook,
    pattern::WARM_SHARE,
    queue::{Match, Waiting},
};

/// Brings the matches of a waiting request up to date with the pods' indexes.
pub fn refresh(waiting: &mut Waiting, pods: &Pods) {
    if waiting.request.blocks.is_empty() {
        return;
    }
    waiting.matches.retain(|known| pods.contains_key(&known.pod));
    for (id, pod) in pods {
        match waiting.matches.iter_mut().find(|known| known.pod == *id) {
            Some(known) if known.version == pod.index_version => {}
            Some(known) => *known = look_up(*id, pod, &waiting.request.blocks),
            None => waiting.matches.push(look_up(*id, pod, &waiting.request.blocks)),
        }
    }
}

fn look_up(id: PodId, pod: &PodState, blocks: &[u64]) -> Match {
    let share = pod.index.matched(blocks) as f64 / blocks.len().max(1) as f64;
    Match { pod: id, version: pod.index_version, share }
}

/// Share of a waiting request's prompt that a pod has cached.
pub fn cached_share(waiting: &Waiting, pod: PodId) -> f64 {
    let known = waiting.matches.iter().find(|known| known.pod == pod);
    known.map_or(0.0, |known| known.share)
}

/// The pod that names a request's pattern: the one with the largest share, if it is at least half.
pub fn warm_pod(matches: &[Match]) -> Option<PodId> {
    let best = matches.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    (best.share >= WARM_SHARE).then_some(best.pod)
}

/// Whether a head waits for a warmer pod although `cold` fits: the cold start costs many more tokens
/// and there is slack to spend on waiting.
pub fn worth_waiting(
    cold: &Outlook,
    warmest_tokens: f64,
    slack_after_ms: Option<f64>,
    ttft_slo_ms: Option<f64>,
    config: &PullConfig,
) -> bool {
    let gap = cold.uncached_tokens - warmest_tokens >= f64::from(config.warm_gap_tokens);
    let slack = slack_after_ms.zip(ttft_slo_ms);
    gap && slack.is_some_and(|(slack_ms, slo_ms)| slack_ms > config.warm_slack * slo_ms)
}
