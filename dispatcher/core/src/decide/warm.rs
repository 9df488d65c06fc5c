//! The wait of a head for the pod that has its prompt, instead of a cold start where it fits.
//!
//! A pick over all pods begins the wait. It goes on while that pod's gates are shut, and at most a tick: then, or
//! when they open, all pods are looked at again. Without that a head would be picked for at every event of the pool,
//! and mostly to no other end.

use std::time::Duration;

use crate::{
    PodId, RequestId, TICK, Time,
    decide::{Floor, affinity, filter, pick::Fit, standing::Shut},
    explain::Reason,
    headroom::{Outlook, start},
    policy::Affinity,
    prefix::Match,
    queue::Waiting,
};

/// Share of its TTFT objective that a cold start is predicted to leave where it can be counted on: with less it may as well be late.
const SURE_SHARE: f64 = 0.05;

/// Share of it that the warm pod must leave for a head to wait on when it would soon be too late for a cold start.
const HOLDS_OUT_SHARE: f64 = 0.3;

/// What a head does that fits somewhere.
#[derive(Debug)]
pub(super) enum Course {
    /// It goes.
    Goes(Fit),
    /// It goes, to a pod that several get the prompt on by that.
    Spreads(Fit),
    /// It waits for the pod that has its prompt.
    Waits(PodId),
}

/// A head's wait for a pod.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    pod: PodId,
    /// Since when it has waited for that pod.
    since: Time,
    /// What was found there last.
    shut: Shut,
    /// Whether nothing but another head's claim is against it.
    claimed: bool,
    /// All pods are looked at again then.
    ends: Time,
}

#[cfg(test)]
impl Wait {
    pub(super) const fn example(shut: Shut) -> Self {
        Self { pod: PodId(1), since: Time::ZERO, shut, claimed: false, ends: Time::NEVER }
    }
}

impl Floor<'_> {
    /// The pod that a head goes on waiting for, where these are claimed; `None` when all pods have to be looked at.
    pub(super) fn still_waits(&mut self, id: RequestId, claimed: &[PodId]) -> Option<PodId> {
        let waiting = self.board.get(id)?;
        let wait = waiting.wait().filter(|wait| self.now < wait.ends)?;
        if wait.claimed && !claimed.contains(&wait.pod) {
            return None;
        }
        let place = self.pods.place(wait.pod)?;
        let change = *self.pods.changes().get(place)?;
        if !wait.shut.stands(change, self.now) {
            let pod = self.pods.as_slice().get(place);
            let pod = pod.filter(|pod| filter::usable(pod, waiting))?;
            let until = self.shut_until(waiting, pod)?;
            self.board.standing_of(id)?.wait =
                Some(Wait { shut: Shut { change, until }, claimed: false, ..wait });
        }
        Some(wait.pod)
    }

    /// What a head does that fits on a pod: rather than start cold there it waits for its warm pod, while that one can still be in
    /// time. It may be claimed by another: a cold start costs everybody, for it takes the place of what others have cached. One that is
    /// for several ([`company`](crate::decide::company)) is worth that.
    ///
    /// Shortly before the cold start would be too late the head joins what is pending on the warm pod, if nobody claims that and it
    /// is in time behind it. If it cannot, it waits on where that pod leaves it much time, and else it takes the cold start.
    pub(super) fn course(&mut self, id: RequestId, fit: Fit, claimed: &[PodId]) -> Course {
        let Some(warm) = self.warmer(id, &fit) else { return Course::Goes(fit) };
        if self.has_company(id) {
            return Course::Spreads(fit);
        }
        if let Some((pod, most)) = self.worth_waiting(id, &fit, warm)
            && let Some(pod) = self.begin_wait(id, &pod, most, claimed)
        {
            return Course::Waits(pod);
        }
        if claimed.contains(&warm.pod) {
            return Course::Goes(fit);
        }
        if let Some(joined) = self.joins(id, &warm) {
            return Course::Goes(joined);
        }
        if let Some(most) = self.holds_out(id, &warm)
            && let Some(pod) = self.begin_wait(id, &warm, most, claimed)
        {
            return Course::Waits(pod);
        }
        Course::Goes(fit)
    }

    /// Begins the wait for a pod, for so long at most.
    fn begin_wait(
        &mut self,
        id: RequestId,
        warm: &Outlook,
        most: Duration,
        claimed: &[PodId],
    ) -> Option<PodId> {
        let ends = self.now.plus(most.min(TICK));
        let (waiting, pod) = (self.board.get(id)?, self.pods.as_slice().get(warm.place)?);
        let shut_until = self.shut_until(waiting, pod);
        let since = waiting.wait().filter(|wait| wait.pod == warm.pod);
        let since = since.map_or(self.now, |wait| wait.since);
        // One that would take it was left for another by what the policy goes by: there is nothing to wait for.
        let claimed = shut_until.is_none() && claimed.contains(&warm.pod);
        if shut_until.is_none() && !claimed && self.takes(id, warm) {
            return None;
        }
        // Where only a prediction is against the pod, that stands until the pod changes.
        let until = shut_until.unwrap_or(ends);
        let change = *self.pods.changes().get(warm.place)?;
        let wait = Wait { pod: warm.pod, since, shut: Shut { change, until }, claimed, ends };
        self.board.standing_of(id)?.wait = Some(wait);
        Some(warm.pod)
    }

    /// Whether the prediction lets a head go to a pod.
    fn takes(&mut self, id: RequestId, on: &Outlook) -> bool {
        let fits = self.predict(id, &[*on]);
        fits.first().is_some_and(|fit| self.judge(id, fit).is_ok())
    }

    /// A head on its warm pod, where nothing is against it but the prompts before it there, and it is surely in time behind them.
    fn joins(&mut self, id: RequestId, warm: &Outlook) -> Option<Fit> {
        let waiting = self.board.get(id).filter(|waiting| !waiting.late)?;
        self.ttft_left_ms(waiting)?;
        let shut = self.cheap(waiting, warm).err();
        let for_others = matches!(shut, Some(Reason::PendingFull | Reason::StepFull));
        if !for_others || self.cheap_to_join(waiting, warm).is_err() {
            return None;
        }
        let fit = self.predict(id, &[*warm]).first().copied()?;
        let is_sure = self.surely_in_time(self.board.get(id)?, &fit);
        (is_sure && self.judge(id, &fit).is_ok()).then_some(fit)
    }

    /// Whether the first token of a head can be counted on to come in time on a pod.
    pub(super) fn surely_in_time(&self, waiting: &Waiting, fit: &Fit) -> bool {
        let takes_ms = f64::from(fit.prediction.ttft_ms.p50);
        let left = self.ttft_left_ms(waiting);
        left.is_none_or(|[slo_ms, left_ms]| takes_ms + SURE_SHARE * slo_ms <= left_ms)
    }

    /// How long at most a head waits for its warm pod when it would soon be too late for another.
    fn holds_out(&self, id: RequestId, warm: &Outlook) -> Option<Duration> {
        let [slo_ms, left_ms] = self.ttft_left_ms(self.board.get(id)?)?;
        let most_ms = left_ms - warm.ttft_ms - HOLDS_OUT_SHARE * slo_ms;
        (most_ms > 0.0).then(|| milliseconds(most_ms))
    }

    /// The TTFT objective of a head that has one, and how much of it is left, in milliseconds.
    pub(super) fn ttft_left_ms(&self, waiting: &Waiting) -> Option<[f64; 2]> {
        waiting.request.slo.ttft?;
        let slo_ms = waiting.request.may_wait().as_secs_f64() * 1e3;
        Some([slo_ms, slo_ms - self.now.ms_since(waiting.request.arrived)])
    }

    /// The pod that is worth waiting for of those that are warmer than where a head fits, and how long at most.
    ///
    /// One that is promised nothing waits while it costs everybody less, and no longer than it saves: beside an empty pod what its own
    /// first token is sooner by, else what all save together, a minute at most. Where a cold start cannot be counted on, a head waits
    /// for as long as the warm pod can be in time.
    fn worth_waiting(
        &self,
        id: RequestId,
        fit: &Fit,
        warm: Outlook,
    ) -> Option<(Outlook, Duration)> {
        let waiting = self.board.get(id)?;
        let request = &waiting.request;
        if request.slo.is_empty() {
            let (cheaper, saved_ms) = self.cheaper(waiting, fit)?;
            let begun = waiting.wait().filter(|wait| wait.pod == cheaper.pod);
            let waited_ms = begun.map_or(0.0, |wait| self.now.ms_since(wait.since));
            let most_ms = if fit.outlook.empty {
                fit.outlook.ttft_ms - cheaper.ttft_ms
            } else {
                saved_ms.min(request.may_wait().as_secs_f64() * 1e3)
            };
            return (waited_ms < most_ms).then(|| (cheaper, milliseconds(most_ms - waited_ms)));
        }
        let [slo_ms, left_ms] = self.ttft_left_ms(waiting)?;
        let slack_ms = left_ms - f64::from(fit.prediction.ttft_ms.p50);
        let most_ms = if slack_ms < SURE_SHARE * slo_ms {
            left_ms - warm.ttft_ms
        } else {
            slack_ms - self.config.pull.warm_slack * slo_ms
        };
        let waits = most_ms > 0.0 && warm.ttft_ms <= left_ms;
        waits.then(|| (warm, milliseconds(most_ms)))
    }

    /// The pod with the most of a request's prompt, if it is so much warmer than the one where it fits that
    /// the policy lets requests wait for it.
    pub(super) fn warmer(&self, id: RequestId, fit: &Fit) -> Option<Outlook> {
        let may_wait = |waiting: &&Waiting| !waiting.request.immediate;
        let waiting = self.board.get(id).filter(may_wait)?;
        if self.rules.affinity != Affinity::WarmWait {
            return None;
        }
        let on = |known: &Match| Some(self.outlook(waiting, self.pods.get(&known.pod)?));
        // Mostly one is the warmest, and how the others are need not be known.
        let ttft_ms = |known: &Match| on(known).map_or(f64::INFINITY, |on| on.ttft_ms);
        let (warmest, _) = self.much_warmer(waiting, fit).min_by(|(a, few), (b, many)| {
            few.total_cmp(many).then_with(|| ttft_ms(a).total_cmp(&ttft_ms(b)))
        })?;
        on(warmest)
    }

    /// What has so much more of a prompt than the pod where it fits, and the tokens left to compute there. Of those
    /// that have nothing of it none does.
    pub(super) fn much_warmer<'w>(
        &self,
        waiting: &'w Waiting,
        fit: &Fit,
    ) -> impl Iterator<Item = (&'w Match, f64)> {
        let (cold_tokens, input_tokens) =
            (fit.outlook.uncached_tokens, f64::from(waiting.input_tokens));
        let tokens = waiting
            .matches()
            .iter()
            .map(move |known| (known, start::uncached(input_tokens, known.share)));
        tokens.filter(move |(known, warm_tokens)| {
            known.pod != fit.outlook.pod
                && affinity::much_colder(cold_tokens, *warm_tokens, &self.config.pull)
                && self.pods.get(&known.pod).is_some_and(|pod| filter::usable(pod, waiting))
        })
    }
}

fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(TICK)
}
