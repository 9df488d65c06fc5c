//! How full a pool is, and how much of it each band may use (llm-d's flow control).
//!
//! A pod's queue and KV use are the scrape's while it is fresh, corrected by the ledger, and the
//! ledger's alone when it is not: a stale scrape neither fills a pod nor empties it.

use crate::{
    Band, Phase, Time,
    fleet::{PodState, Pods},
    policy::{Detector, UsageLimit},
};

/// Thresholds at which a pod is full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Full {
    /// What is counted.
    pub detector: Detector,
    /// Queued prompts.
    pub queue_depth: f64,
    /// Share of the KV cache.
    pub kv_usage: f64,
    /// Requests in flight, for [`Detector::Concurrency`].
    pub max_concurrency: f64,
}

/// Prompts that wait on a pod: the engine's own count, or those of ours without a first token
/// behind the one that is being computed, if they are more.
pub fn queue_depth(pod: &PodState, now: Time, stale_after_ms: u64) -> f64 {
    let scraped = pod.fresh_scrape(now, stale_after_ms).map_or(0, |scrape| scrape.waiting);
    f64::from(scraped).max(pod.ledger.pending().len().saturating_sub(1) as f64)
}

/// Share of a pod's KV cache in use.
pub fn kv_usage(pod: &PodState, now: Time, stale_after_ms: u64) -> f64 {
    (pod.kv_tokens(now, stale_after_ms) / pod.kv_capacity_tokens().max(1.0)).min(1.0)
}

/// How full a pod is: from 1 on it is.
pub fn fullness(pod: &PodState, full: Full, now: Time, stale_after_ms: u64) -> f64 {
    match full.detector {
        Detector::Concurrency => pod.ledger.len() as f64 / full.max_concurrency,
        Detector::Utilization => {
            let queue = queue_depth(pod, now, stale_after_ms) / full.queue_depth;
            queue.max(kv_usage(pod, now, stale_after_ms) / full.kv_usage)
        }
    }
}

/// Mean over ready pods of how full each is; 1 when there is none.
pub fn saturation(pods: &Pods, full: Full, now: Time, stale_after_ms: u64) -> f64 {
    let ready = pods.values().filter(|pod| pod.phase == Phase::Ready);
    let (sum, count) = ready.fold((0.0, 0u32), |(sum, count), pod| {
        (sum + fullness(pod, full, now, stale_after_ms), count + 1)
    });
    if count == 0 { 1.0 } else { sum / f64::from(count) }
}

/// Saturation up to which the band of this rank, 0 the highest of `bands`, may use the pool.
pub fn ceiling(limit: UsageLimit, rank: usize, bands: usize, saturation: f64) -> f64 {
    let place = rank as f64 / bands.saturating_sub(1).max(1) as f64;
    match limit {
        UsageLimit::Static => 1.0,
        UsageLimit::PriorityHoldback { min_ceiling, max_ceiling } => {
            max_ceiling - (max_ceiling - min_ceiling) * place
        }
        UsageLimit::SoftReflective => 1.0 - place * saturation,
    }
}

/// Of how many turns a band above its soft ceiling gets one; 0 when none can be above.
pub fn soft_period(saturation: f64) -> f64 {
    (saturation / (1.0 - saturation).max(1e-9)).round()
}

/// Chance that a band above its ceiling goes all the same.
pub fn let_through(limit: UsageLimit, saturation: f64) -> f64 {
    let soft = limit == UsageLimit::SoftReflective && saturation < 1.0;
    if soft { 1.0 / soft_period(saturation).max(1.0) } else { 0.0 }
}

/// Rank of a band among those that wait, 0 the highest, and how many there are.
pub fn rank(waiting: impl Iterator<Item = Band>, band: Band) -> (usize, usize) {
    let (mut above, mut all) = (0, 0);
    for other in waiting {
        above += usize::from(other > band);
        all += 1;
    }
    (above, all)
}

/// Chance that a sheddable request is refused: `power` and `factor` make it 2 % at a saturation of
/// 0.15 and certain from 0.34 on.
pub fn refusal_chance(saturation: f64, power: f64, factor: f64) -> f64 {
    (saturation.powf(power) * factor).clamp(0.0, 1.0)
}
