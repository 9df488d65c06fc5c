//! How far pods are with the prompts that they compute, noted from time to time.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    PodId, Request, TICK, Time,
    decide::{affinity::Shares, filter},
    fleet::PodState,
    headroom::{
        Ground,
        start::{self, Prefill},
    },
    ledger::Underway,
    scheduler::Scheduler,
};

/// What is noted is at least such a share of a prompt: each note lets everything that was found of its pod be found anew.
const NOTED_SHARE: f64 = 0.05;

/// A prompt that takes less has its first token before it would make a difference.
const FOLLOWED: Duration = Duration::from_millis(100);

impl Scheduler {
    /// Whether a request of which another pool could compute the prompt is to come here with nothing of it computed: a pod that is open
    /// has all of it but fewer than `local_tokens`, or none is open, or it would be refused, and nobody has to compute anything for that.
    pub fn takes_whole(&self, now: Time, request: &Request, local_tokens: f64) -> bool {
        let fewest = self.fewest_uncached(request);
        fewest.is_none_or(|tokens| tokens < local_tokens) || self.shut(now, request).is_some()
    }

    /// The fewest tokens of a prompt that an open pod would have to compute; `None` where none is open.
    fn fewest_uncached(&self, request: &Request) -> Option<f64> {
        let mut matches = Vec::new();
        let input_tokens = f64::from(self.input_tokens(request));
        let prompt = (&*request.blocks, input_tokens);
        self.pods.index().finds(prompt, &request.turn, &mut matches);
        let mut shares = Shares::of(&matches);
        let mut uncached =
            |pod: &PodState| start::uncached(input_tokens, shares.next_of(pod.spec.id));
        let open = self.pods.values().map(|pod| (filter::is_open(pod), uncached(pod)));
        open.filter(|(open, _)| *open).map(|(_, tokens)| tokens).reduce(f64::min)
    }

    /// Notes how far they are, at most once in [`TICK`].
    pub(super) fn advance_prefills(&mut self, now: Time) {
        if now.since(self.prefills_at) < TICK {
            return;
        }
        self.prefills_at = now;
        let news = |pod: &PodState| Some((pod.spec.id, self.underway(now, pod)?));
        let news: SmallVec<[(PodId, Underway); 16]> = self.pods.values().filter_map(news).collect();
        for (id, underway) in news {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.ledger.note_underway(underway);
            }
        }
    }

    /// How far a pod is with the prompt that it computes, if that is worth a note.
    fn underway(&self, now: Time, pod: &PodState) -> Option<Underway> {
        let (first, known) = pod.ledger.underway()?;
        let had_ms = known.begun_ms(now);
        if had_ms.is_some_and(|had_ms| had_ms < TICK.as_secs_f64() * 1000.0) {
            return None;
        }
        let steps = self.step_time(pod.spec.class);
        let others = pod.others(now, self.config.pull.stale_after_ms);
        let prompt = Prefill { tokens: first.uncached_tokens, pairs: first.uncached_pairs };
        let [takes_ms, lead_ms] = Ground::of(pod, &steps, others).start.takes_ms(&steps, prompt);
        if takes_ms < FOLLOWED.as_secs_f64() * 1000.0 {
            return None;
        }
        let underway = known.at(now, takes_ms, lead_ms);
        let moved = (underway.computed_share() - known.computed_share()).abs();
        (had_ms.is_none() || moved >= NOTED_SHARE).then_some(underway)
    }
}
