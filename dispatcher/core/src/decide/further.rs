//! A further pod for a prompt that many share, before anybody waits for it.
//!
//! The pod that has a request's prompt is the best one, however much it has to do. While few pods have a prompt that many requests
//! begin with, these get slower together beside pods that have little to do. What each of them loses by that is summed up
//! ([`Regrets`](crate::regrets)), and one starts cold on a pod that has at most a quarter as much to do once the sum is what that costs all
//! together. What it computes displaces what others would find there, which counts as often as for requests without objectives.
//!
//! One request that loses much is no crowd: the next turns of a conversation go on from the pod that it is on. So at least `SEVERAL`
//! have to have lost something.

use crate::{
    PodId, RequestId,
    decide::{Choice, Floor, affinity, filter, pick::Fit},
    headroom::{Outlook, start},
    policy::Affinity,
    regrets::Regret,
};

/// Requests that have to share a prompt.
const SEVERAL: f64 = 8.0;
/// Share of the sequences of the pod that has the prompt that another may have at the most.
const IDLER_SHARE: f64 = 0.25;

/// A pod that might compute a prompt as well.
struct Further {
    /// As it is.
    on: Outlook,
    /// What has been lost without it.
    lost: Regret,
    /// What a start there costs all together, in milliseconds.
    cost_ms: f64,
}

impl Floor<'_> {
    /// The decision for a head that fits on a pod: to go there, or to start cold on a further pod for all that share its prompt.
    pub(super) fn settled(&mut self, id: RequestId, fit: &Fit, claimed: &[PodId]) -> Choice {
        let choice = fit.choice(id);
        let Some(Further { on, lost, cost_ms }) = self.further(id, fit, claimed) else {
            return choice;
        };
        let starts = lost.ms >= cost_ms;
        let Some(cold) = starts.then(|| self.starts_cold(id, &on)).flatten() else {
            return Choice { regret: Some(lost), ..choice };
        };
        *self.last = Some(on.pod);
        let Outlook { pod, uncached_tokens, .. } = fit.outlook;
        self.losers.passed_over(on.pod);
        self.losers.fitted(pod, f64::from(fit.prediction.ttft_ms.p50), uncached_tokens, false);
        Choice { regret: Some(Regret { ms: 0.0, ..lost }), ..cold.choice(id).for_others() }
    }

    /// The pod that has the least to do of those where a head would start cold, if the head loses something by its prompt not being there.
    fn further(&mut self, id: RequestId, fit: &Fit, claimed: &[PodId]) -> Option<Further> {
        let waiting = self.board.get(id).filter(|_| self.rules.affinity == Affinity::WarmWait)?;
        let (here, tokens) = (fit.outlook, f64::from(waiting.input_tokens));
        // Beside what has nothing to do nobody has less, and who has little cached of its prompt loses little.
        let warm = affinity::much_colder(tokens, here.uncached_tokens, &self.config.pull);
        if here.decodes == 0.0 || !warm {
            return None;
        }
        let share = affinity::cached_share(waiting, here.pod);
        let (_, prompt) = affinity::last_block(waiting, share)?;
        let (place, cold_share) = self.idlest(id, &here, claimed)?;
        let waiting = self.board.get(id)?;
        let (on, with_it) =
            (self.outlook_at(waiting, place, cold_share)?, self.outlook_at(waiting, place, share)?);
        // How even those that step together are is a matter of what each has.
        let all = [(here, share), (with_it, share), (on, cold_share)];
        let [here_ms, with_it_ms, on_ms] =
            all.map(|(on, share)| self.lost_ms(waiting, &self.apart(waiting, &on, share), 1.0));
        let loses_ms = here_ms - with_it_ms;
        if loses_ms <= 0.0 {
            return None;
        }
        let cost_ms = on_ms - here_ms + self.config.pull.cold_weight * on.own_stall_ms;
        let counts_ms = loses_ms.min(cost_ms.max(0.0) / SEVERAL);
        let ms = self.regrets.of(prompt, self.now) + counts_ms;
        Some(Further { on, lost: Regret { prompt, ms }, cost_ms })
    }

    /// The pod that has the least to do of those that nobody claims, where a head would start cold beside another one, and at most a quarter as much as
    /// that one; and the share of the prompt that it has.
    fn idlest(&mut self, id: RequestId, here: &Outlook, claimed: &[PodId]) -> Option<(usize, f64)> {
        let mut grounds = std::mem::take(&mut self.scratch.grounds);
        let found = self.board.get(id).and_then(|waiting| {
            self.look_around(waiting, &mut grounds);
            let tokens = f64::from(waiting.input_tokens);
            let is_cold = |share: f64| {
                let cold_tokens = start::uncached(tokens, share);
                affinity::much_colder(cold_tokens, here.uncached_tokens, &self.config.pull)
            };
            let may_go = |place: usize| {
                let pod = self.pods.as_slice().get(place);
                pod.is_some_and(|pod| {
                    filter::usable(pod, waiting) && !claimed.contains(&pod.spec.id)
                })
            };
            let mut best = (IDLER_SHARE * here.decodes).next_up();
            let mut found = None;
            let pods = grounds.decodes().iter().zip(&grounds.cached_shares).enumerate();
            for (place, (decodes, share)) in pods {
                if *decodes < best && is_cold(*share) && may_go(place) {
                    (best, found) = (*decodes, Some((place, *share)));
                }
            }
            found
        });
        self.scratch.grounds = grounds;
        found
    }

    /// A head that starts cold on a pod, if it may go there, is surely in time, and no pod computes what it shares already.
    fn starts_cold(&mut self, id: RequestId, on: &Outlook) -> Option<Fit> {
        let waiting = self.board.get(id)?;
        if self.is_computed(waiting) || self.cheap_to_spread(waiting, on).is_err() {
            return None;
        }
        let fit = self.predict(id, &[*on]).first().copied()?;
        let waiting = self.board.get(id)?;
        (self.surely_in_time(waiting, &fit) && self.judge(id, &fit).is_ok()).then_some(fit)
    }
}
