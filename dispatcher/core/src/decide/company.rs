//! A further pod for a prompt that several wait for.
//!
//! A head waits for the pod that has its prompt, for a cold start takes the place of what others have cached. Where those behind it wait
//! for the same, that pod does not serve them as fast as they come, and a cold start is not for the head alone: everybody who comes after
//! it finds the prompt on one pod more. So such a head goes wherever it fits. And where a cold start would be late, one that has
//! waited for most of its objective, or is late, goes all the same, to a pod that bears it: else all others would be late on the same pod, time and again,
//! while the other pods have nothing to do. One at a time: as long as a pod computes the prompt nobody else begins with it.

use crate::{
    PodId, RequestId,
    decide::{Choice, Floor, affinity},
    headroom::Outlook,
    policy::Affinity,
    queue::Waiting,
};

/// Requests behind a head that wait for what it waits for.
const COMPANY: usize = 2;
/// Those behind it among which they are looked for.
const LOOKED_AT: usize = 16;
/// Share of its TTFT objective after which a head that is not late yet makes a cold start that is, for the others.
const GIVEN_UP_SHARE: f64 = 0.8;

impl Floor<'_> {
    /// Whether several wait for what pods have of a head's prompt, and none of these pods is about to have more of it. Then a cold start is for
    /// them too.
    pub(super) fn has_company(&self, id: RequestId) -> bool {
        let Some(waiting) = self.board.get(id) else { return false };
        let Some((last, name)) = affinity::last_block(waiting, waiting.share) else { return false };
        let waits_too = |other: &&Waiting| other.request.blocks.get(last) == Some(&name);
        let followers = self.board.followers(waiting).take(LOOKED_AT);
        followers.filter(waits_too).take(COMPANY).count() == COMPANY && !self.is_computed(waiting)
    }

    /// Whether one of the pods that have something of a prompt is about to have more.
    pub(super) fn is_computed(&self, waiting: &Waiting) -> bool {
        waiting.matches().iter().any(|known| self.computes_much(known.pod))
    }

    /// Whether a pod is at work on a long part of a prompt.
    fn computes_much(&self, pod: PodId) -> bool {
        let gap_tokens = f64::from(self.config.pull.warm_gap_tokens);
        let pending = self.pods.get(&pod).map(|pod| pod.ledger.pending()).unwrap_or_default();
        pending.iter().any(|prompt| prompt.uncached_tokens >= gap_tokens)
    }

    /// Where a head starts cold that will be late there, for those who wait for the same. Only where its own pace is kept, and nobody else
    /// is put at more risk than it may put.
    pub(super) fn goes_ahead(&mut self, id: RequestId, claimed: &[PodId]) -> Option<Choice> {
        let waits = |waiting: &&Waiting| {
            self.rules.affinity == Affinity::WarmWait && !waiting.request.immediate
        };
        let waiting = self.board.get(id).filter(waits)?;
        let [slo_ms, left_ms] = self.ttft_left_ms(waiting)?;
        if !waiting.late && left_ms > (1.0 - GIVEN_UP_SHARE) * slo_ms {
            return None;
        }
        // Mostly there are not so many, and what pods have of the prompt need not be looked up.
        self.board.followers(waiting).nth(COMPANY - 1)?;
        self.refresh(id);
        if !self.has_company(id) {
            return None;
        }
        let waiting = self.board.get(id)?;
        let warm_tokens = self.warmest_tokens(waiting)?;
        let is_cold = |on: &Outlook| {
            affinity::much_colder(on.uncached_tokens, warm_tokens, &self.config.pull)
        };
        let free = self.usable(waiting).filter(|pod| !claimed.contains(&pod.spec.id));
        let cold = free.map(|pod| self.outlook(waiting, pod)).filter(is_cold);
        let open = cold.filter(|on| self.cheap_to_spread(waiting, on).is_ok());
        let soonest = open.min_by(|one, other| one.ttft_ms.total_cmp(&other.ttft_ms))?;
        self.predict(id, &[soonest]).first().map(|fit| fit.choice(id).for_others())
    }
}
