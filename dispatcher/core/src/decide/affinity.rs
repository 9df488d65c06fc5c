//! What each pod has cached of a prompt, when a head waits for the pod that has it, and when pods
//! that have it are the only ones considered.

use crate::{
    PodId, PullConfig, RequestId,
    decide::{Floor, pick::Fit},
    pattern::WARM_SHARE,
    policy::{Affinity, TtftSource},
    prefix::{Match, PrefixIndex},
    queue::Waiting,
};

/// Brings the matches of a waiting request, which has room for them, up to date with the index.
pub fn refresh(waiting: &mut Waiting, index: &PrefixIndex) {
    let Some(standing) = waiting.standing.as_mut() else { return };
    let request = &waiting.request;
    if standing.matched_at != index.version() && (!request.blocks.is_empty() || request.prefilled) {
        if request.prefilled {
            index.all(&mut standing.matches);
        } else {
            let prompt = (&*request.blocks, f64::from(waiting.input_tokens));
            index.finds(prompt, &request.turn, &mut standing.matches);
        }
        standing.matched_at = index.version();
        waiting.share = standing.matches.iter().map(|known| known.share).fold(0.0, f64::max);
    }
}

/// Share of a waiting request's prompt that a pod has cached.
pub fn cached_share(waiting: &Waiting, pod: PodId) -> f64 {
    let matches = waiting.matches();
    let place = matches.binary_search_by_key(&pod, |known| known.pod);
    place.ok().and_then(|place| matches.get(place)).map_or(0.0, |known| known.share)
}

/// The last block of a waiting request's prompt up to a share of it, and its name. Names go on from the one before: who has it in
/// common has all of them.
pub fn last_block(waiting: &Waiting, share: f64) -> Option<(usize, u64)> {
    let blocks = &waiting.request.blocks;
    let known = (share * blocks.len() as f64).round() as usize;
    let last = known.checked_sub(1)?;
    Some((last, *blocks.get(last)?))
}

/// The shares of pods that are asked for in their order.
#[derive(Debug)]
pub struct Shares<'a>(std::iter::Peekable<std::slice::Iter<'a, Match>>);

impl<'a> Shares<'a> {
    /// Those that a waiting request has.
    pub fn of(matches: &'a [Match]) -> Self {
        Self(matches.iter().peekable())
    }

    /// The share that a pod has; its id is above all those before.
    pub fn next_of(&mut self, pod: PodId) -> f64 {
        while self.0.next_if(|known| known.pod < pod).is_some() {}
        self.0.next_if(|known| known.pod == pod).map_or(0.0, |known| known.share)
    }
}

/// The pod that names a request's pattern: the one with the largest share, if it is at least half.
pub fn warm_pod(matches: &[Match]) -> Option<PodId> {
    let best = matches.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
    (best.share >= WARM_SHARE).then_some(best.pod)
}

/// Whether a start with so many tokens to compute costs so many more than another that it is worth waiting.
pub fn much_colder(cold_tokens: f64, warm_tokens: f64, config: &PullConfig) -> bool {
    cold_tokens - warm_tokens >= f64::from(config.warm_gap_tokens)
}

/// A candidate as the prefix gate sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cached {
    /// Share of the prompt that it has cached.
    pub share: f64,
    /// TTFT there, in milliseconds.
    pub ttft_ms: f64,
}

/// Whether only the pods with at least `threshold` of the prompt are to be considered: some but not
/// all have it, and the best of them is not later than the best other by more than the penalty.
/// While every pod is cold the gate is open, so that a new prefix goes where it is served best.
pub fn sticks(pods: &[Cached], threshold: f64, max_penalty_ms: f64) -> bool {
    let best = |warm: bool| {
        let side = pods.iter().filter(|pod| (pod.share >= threshold) == warm);
        side.map(|pod| pod.ttft_ms).reduce(f64::min)
    };
    if pods.len() < 2 || threshold <= 0.0 {
        return false;
    }
    match (best(true), best(false)) {
        (Some(warm_ms), Some(cold_ms)) => warm_ms - cold_ms <= max_penalty_ms,
        _ => false,
    }
}

impl Floor<'_> {
    /// The candidates that the prefix gate leaves.
    pub fn stick_to_prefix(&mut self, id: RequestId, mut fits: Vec<Fit>) -> Vec<Fit> {
        let Affinity::PrefixCache {
            threshold,
            exploration_probability,
            max_ttft_penalty_ms,
            ttft_source,
            peak_prefill_throughput,
        } = self.rules.affinity
        else {
            return fits;
        };
        let Some(waiting) = self.board.get(id) else { return fits };
        let seen = |fit: &Fit| Cached {
            share: cached_share(waiting, fit.outlook.pod),
            ttft_ms: match ttft_source {
                TtftSource::Prediction => f64::from(fit.prediction.ttft_ms.p50),
                TtftSource::PrefillThroughput => {
                    fit.outlook.backlog_tokens / peak_prefill_throughput * 1000.0
                }
            },
        };
        let pods: Vec<Cached> = fits.iter().map(seen).collect();
        let sticks = sticks(&pods, threshold, max_ttft_penalty_ms);
        if sticks && !self.dice.happens(exploration_probability) {
            fits.retain(|fit| cached_share(waiting, fit.outlook.pod) >= threshold);
        }
        fits
    }
}
