//! Pods looked at for one head.

use smallvec::SmallVec;

use crate::{
    PodClass, PullConfig, RequestId, SchedulerConfig,
    decide::{
        Floor,
        affinity::{self, Shares},
        filter,
    },
    explain::Reason,
    fleet::PodState,
    headroom::{
        Demand, Outlook, outlook,
        start::{self, Prefill},
    },
    prefix::Match,
    queue::Waiting,
};

/// How many times as much may be pending where nobody is promised a pace: a wait costs more there than
/// a longer step does.
const UNPACED_ROOM: f64 = 2.0;

/// How many times as long prompts may make a step that they share, of those with objectives: one by one each would pay for a step of
/// its own. It stays within a share of the tightest TPOT objective, and may be longer where nobody has one.
const SHARED_STEP: f64 = 4.0;
const UNPACED_SHARED_STEP: f64 = 6.0;
const SHARED_PACE: f64 = 0.8;
/// Share of its spare time that a request has waited when it may make one so long, and one that has waited for less in proportion: who
/// can wait for the next step makes no tokens of others later.
const SHARED_WAIT: f64 = 0.15;

/// Uncached tokens that may be pending on a pod where one takes so long, and a request so long outside the steps, in milliseconds.
fn room(pull: &PullConfig, per_prefill_ms: f64, api_ms: f64) -> f64 {
    // A prompt is pending until its first token is seen, and is computed already while that is on its way.
    let ms = if pull.pending_ms > 0.0 { pull.pending_ms + api_ms } else { 0.0 };
    let fast = ms / per_prefill_ms.max(f64::MIN_POSITIVE);
    let fast = fast.min(pull.top_band_tokens.into());
    fast.max(pull.pending_tokens.into())
}

/// Pods looked at, in the order of their ids.
pub type Outlooks = Vec<Outlook>;

/// What a waiting request asks of a pod.
pub fn demand(waiting: &Waiting) -> Demand {
    Demand {
        input_tokens: f64::from(waiting.input_tokens),
        output_tokens: f64::from(waiting.output_tokens),
        sequences: f64::from(waiting.request.sequences),
    }
}

impl Floor<'_> {
    /// Every pod that a head may use, looked at. Empty when there is none. The buffer is the scratch's: who
    /// is done with it puts it back.
    pub fn look(&mut self, id: RequestId) -> Outlooks {
        self.refresh(id);
        let mut outlooks = std::mem::take(&mut self.scratch.outlooks);
        outlooks.clear();
        let Some(waiting) = self.board.get(id) else { return outlooks };
        let mut shares = Shares::of(waiting.matches());
        let pods = self.pods.values().enumerate();
        outlooks.extend(pods.filter(|(_, pod)| filter::usable(pod, waiting)).map(
            |(place, pod)| {
                let share = shares.next_of(pod.spec.id);
                Outlook { place, ..self.outlook_with(waiting, pod, share) }
            },
        ));
        outlooks
    }

    /// Brings up to date what each pod has cached of a waiting request; whether it may use any of them.
    #[inline]
    pub fn refresh(&mut self, id: RequestId) -> bool {
        let Some(waiting) = self.board.looked_at(id) else { return false };
        affinity::refresh(waiting, self.pods.index());
        self.pods.values().any(|pod| filter::usable(pod, waiting))
    }

    /// The pods that a head may use.
    pub fn usable(&self, waiting: &Waiting) -> impl Iterator<Item = &PodState> {
        self.pods.values().filter(|pod| filter::usable(pod, waiting))
    }

    /// Whether a head may use any pod.
    pub fn is_served(&self, id: RequestId) -> bool {
        self.board.get(id).is_some_and(|waiting| self.usable(waiting).next().is_some())
    }

    /// Why a head may use no pod.
    pub fn unserved(&self, id: RequestId) -> Reason {
        let slotless = |waiting: &Waiting| {
            waiting.adapter.is_some()
                && self.pods.values().any(|pod| filter::usable_but_for_slots(pod, waiting))
        };
        let waiting = self.board.get(id);
        if waiting.is_some_and(slotless) {
            Reason::AdaptersFull
        } else if self.pods.values().any(|pod| filter::is_open(pod) && pod.is_full()) {
            Reason::PodsFull
        } else {
            Reason::NoPodReady
        }
    }

    /// A waiting request on a pod, with what was last known to be cached there.
    pub(crate) fn outlook(&self, waiting: &Waiting, pod: &PodState) -> Outlook {
        let place = self.pods.place(pod.spec.id).unwrap_or_default();
        let share = affinity::cached_share(waiting, pod.spec.id);
        Outlook { place, ..self.outlook_with(waiting, pod, share) }
    }

    /// A waiting request on the pod in a place, which has so much of it cached.
    pub(super) fn outlook_at(
        &self,
        waiting: &Waiting,
        place: usize,
        share: f64,
    ) -> Option<Outlook> {
        let pod = self.pods.as_slice().get(place)?;
        Some(Outlook { place, ..self.outlook_with(waiting, pod, share) })
    }

    fn outlook_with(&self, waiting: &Waiting, pod: &PodState, share: f64) -> Outlook {
        let apart = self.outlook_apart(waiting, pod, share);
        if !self.pods.step_together() {
            return apart;
        }
        let steps = self.steps_of(pod.spec.class);
        let Some(together) = self.pods.together(pod, &steps) else { return apart };
        let prompt = Prefill::of(f64::from(waiting.input_tokens), share);
        apart.among(&together, &steps, prompt, pod.class.chunk_tokens)
    }

    #[inline(always)]
    fn outlook_apart(&self, waiting: &Waiting, pod: &PodState, share: f64) -> Outlook {
        let steps = self.steps_of(pod.spec.class);
        let others = pod.others(self.now, self.config.pull.stale_after_ms);
        Outlook::of(pod, &steps, demand(waiting), share, others, self.slower)
    }

    /// A pod that was looked at as it would be if nothing stepped together with it.
    pub(super) fn apart(&self, waiting: &Waiting, on: &Outlook, share: f64) -> Outlook {
        let pod = self.pods.as_slice().get(on.place).filter(|_| self.pods.step_together());
        let Some(pod) = pod else { return *on };
        Outlook { place: on.place, ..self.outlook_apart(waiting, pod, share) }
    }

    /// Whether one full step of a pod would break the tightest objective alive: then what it has
    /// pending must be kept small.
    pub fn big_chunk(&self, outlook: &Outlook) -> bool {
        let share = self.config.pull.big_chunk_share;
        self.tightest_tpot_ms.is_some_and(|slo_ms| outlook.full_pace_ms > share * slo_ms)
    }

    /// Uncached tokens that a pod may have pending together with a request, if it has any pending.
    pub fn room_tokens(&self, waiting: &Waiting, outlook: &Outlook) -> f64 {
        let pull = &self.config.pull;
        let room = room(pull, outlook.per_prefill_ms, outlook.api_ms);
        if waiting.request.slo.is_empty() {
            let factor = if self.tightest_tpot_ms.is_some() { 1.0 } else { UNPACED_ROOM };
            return factor * room;
        }
        // Behind as many tokens as the top band may have pending a first token would hardly come in time: a late request adds none of them.
        let is_top = waiting.pattern.band >= self.top_band && !waiting.late;
        if is_top && !self.big_chunk(outlook) { pull.top_band_tokens.into() } else { room }
    }

    /// Uncached tokens of prompts that may begin with a pod's next step together with a request, if any begins with it.
    pub fn step_tokens(&self, waiting: &Waiting, outlook: &Outlook) -> f64 {
        let least = f64::from(self.config.pull.step_tokens);
        if waiting.request.slo.is_empty() {
            return least;
        }
        let (paced, alone_ms) = (self.tightest_tpot_ms, outlook.step_ms);
        let most = if paced.is_some() { SHARED_STEP } else { UNPACED_SHARED_STEP };
        let waited = (waiting.urgency(self.now) / SHARED_WAIT).min(1.0);
        let longest_ms = alone_ms * (1.0 + (most - 1.0) * waited);
        let longest_ms = paced.map_or(longest_ms, |slo_ms| longest_ms.min(SHARED_PACE * slo_ms));
        // What takes no time is no bound, nor one.
        least.max((longest_ms - alone_ms) / outlook.per_prefill_ms.max(f64::EPSILON))
    }

    /// The fewest tokens of a request that any pod would have to compute; `None` when no pod may be used.
    /// Pods that have nothing of it cached are all alike.
    pub fn warmest_tokens(&self, waiting: &Waiting) -> Option<f64> {
        let usable = |known: &&Match| {
            self.pods.get(&known.pod).is_some_and(|pod| filter::usable(pod, waiting))
        };
        let matches = || waiting.matches().iter();
        let warmest = matches().max_by(|one, other| one.share.total_cmp(&other.share));
        // Mostly the warmest of all may be used, and no other need be looked up.
        let warmest = warmest.filter(usable).map(|known| known.share);
        let warm = || matches().filter(usable).map(|known| known.share).reduce(f64::max);
        let any = || self.usable(waiting).next().map(|_| 0.0);
        let share = warmest.or_else(warm).or_else(any)?;
        Some(start::uncached(f64::from(waiting.input_tokens), share))
    }

    /// Whether some pod could give a request its first token inside so many milliseconds if it were idle,
    /// even with nothing of the prompt cached, and even if that took `factor` times as long.
    pub fn makes_it_cold(&self, waiting: &Waiting, factor: f64, within_ms: f64) -> bool {
        let (mut last, tokens) = (None, f64::from(waiting.input_tokens));
        self.usable(waiting).any(|pod| {
            // Pods of one class are alike, and mostly there is one class.
            let class = (pod.spec.class, pod.class.chunk_tokens);
            if last.replace(class) == Some(class) {
                return false;
            }
            let steps = self.steps_of(pod.spec.class);
            let best_ms = outlook::best_ttft_ms(&steps, pod.class.chunk_tokens, tokens, 0.0);
            factor * best_ms <= within_ms
        })
    }

    /// The best TTFT that any pod could give a request if it were idle, in milliseconds. Pods of one class
    /// that have none of its prompt cached are all alike.
    pub fn best_ttft_ms(&self, waiting: &Waiting) -> Option<f64> {
        let (mut cold, mut best) = (SmallVec::<[u16; 4]>::new(), None);
        let (tokens, mut shares) = (f64::from(waiting.input_tokens), Shares::of(waiting.matches()));
        for pod in self.usable(waiting) {
            let (class, share) = (pod.spec.class, shares.next_of(pod.spec.id));
            if share == 0.0 {
                if cold.contains(&class) {
                    continue;
                }
                cold.push(class);
            }
            let (steps, chunk) = (self.steps_of(class), pod.class.chunk_tokens);
            let ttft_ms = outlook::best_ttft_ms(&steps, chunk, tokens, share);
            best = Some(best.map_or(ttft_ms, |best: f64| best.min(ttft_ms)));
        }
        best
    }
}

/// The class of a pod by its index; the default class when the configuration has no such index.
pub fn class(config: &SchedulerConfig, index: u16) -> PodClass {
    config.classes.get(usize::from(index)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_pending_is_a_time_where_an_engine_is_fast_and_tokens_where_it_is_slow() {
        let pull = PullConfig { pending_tokens: 2048, pending_ms: 100.0, ..PullConfig::default() };
        let tokens = |per_prefill_ms: f64| room(&pull, per_prefill_ms, 0.0).round();
        // A 70B model on four A100, a 32B one on two H100, an 8B one on one.
        assert_eq!([0.18, 0.055, 0.0245].map(tokens), [2048.0, 2048.0, 4082.0]);
        assert_eq!([0.001, 0.0].map(tokens), [8192.0; 2], "as much as of the top band at most");
        assert_eq!(
            room(&pull, 0.0245, 40.0).round(),
            5714.0,
            "with what is computed and on its way"
        );
        let by_tokens = PullConfig { pending_ms: 0.0, ..pull };
        assert_eq!([0.0245, 0.0].map(|ms| room(&by_tokens, ms, 40.0)), [2048.0; 2]);
    }
}
