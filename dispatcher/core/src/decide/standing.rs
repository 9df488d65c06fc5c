//! What stands of the last look at a head: pods that cannot take it, and one that could serve it in time, as long as nothing
//! changes there.
//!
//! A head that fits nowhere is asked for again at every event, and mostly one pod has changed since, or none.
//! The gates that need no prediction depend on the pod's state, which is counted ([`Pods::changes`]), on
//! what all pods are judged by (a change of that counts as one of every pod), and on time in three places: a
//! scrape is believed for so long, a prompt begins with the next step for so long, and what a stall puts at risk and what it may is
//! at some moment the same. So each pod that was
//! found shut is shut until the first of these; only the others are looked at again. Pods with open gates are
//! left to the pick, which asks for predictions.
//!
//! Whether a head is lost is asked of every one in every pass, and mostly it is not, because of a pod that has not changed since the last one.
//! What that pod needs is known with nothing of the prompt cached: it can only be less when something is.
//!
//! [`Pods::changes`]: crate::fleet::Pods::changes

use std::time::Duration;

use crate::{
    PodId, RequestId, Time,
    decide::{Floor, filter, plain, warm::Wait},
    explain::Reason,
    fleet::PodState,
    headroom::{Outlook, judge, outlook, risk},
    prefix::Match,
    queue::Waiting,
};

/// What stands of the last look at a head.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Why it was not dispatched in the last pass that looked at it; `None` when none has.
    pub reason: Option<Reason>,
    /// The pod it claims while it is blocked.
    pub claim: Option<PodId>,
    /// The pods that have some of it cached, in their order; looked up anew when the index has changed.
    pub matches: Vec<Match>,
    /// Version of the index at the last look-up.
    pub matched_at: u64,
    /// Its wait for the pod that has its prompt.
    pub wait: Option<Wait>,
    /// The pods that cannot take it, as long as nothing changes there.
    shut: Shuts,
    /// One that could serve it in time, as long as nothing changes there.
    pub in_time: Option<InTime>,
}

impl Standing {
    /// Nothing stands any more; what it has of memory stays.
    pub fn clear(&mut self) {
        (self.reason, self.claim, self.matched_at) = (None, None, 0);
        (self.wait, self.in_time) = (None, None);
        self.matches.clear();
        self.shut.pods.clear();
    }
}

#[cfg(test)]
impl Standing {
    /// Something of each kind was found.
    pub fn example() -> Self {
        let shut = Shut { change: 1, until: Time::NEVER };
        Self {
            reason: Some(Reason::KvFull),
            claim: Some(PodId(1)),
            matches: vec![Match { pod: PodId(1), share: 0.5 }],
            matched_at: 7,
            wait: Some(Wait::example(shut)),
            shut: Shuts { order: 1, pods: vec![shut; 3] },
            in_time: Some(InTime { place: 1, needs_ms: 2.0, change: 3 }),
        }
    }

    /// Whether nothing is.
    pub fn is_blank(&self) -> bool {
        let of_look = (self.reason, self.claim, self.matched_at) == (None, None, 0);
        let of_pods = self.matches.is_empty() && self.shut.pods.is_empty();
        of_look && of_pods && self.wait.is_none() && self.in_time.is_none()
    }
}

impl Waiting {
    /// Its wait for the pod that has its prompt.
    pub fn wait(&self) -> Option<Wait> {
        self.standing.as_ref()?.wait
    }
}

/// A pod that cannot take a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shut {
    /// The pod's last change when that was found.
    pub(super) change: u64,
    /// It stands until then.
    pub(super) until: Time,
}

impl Shut {
    /// Whether it still stands for a pod whose last change is this.
    pub(super) fn stands(self, change: u64, now: Time) -> bool {
        self.change == change && now < self.until
    }
}

/// What was found of each pod, by its place.
#[derive(Clone, Debug, Default)]
pub struct Shuts {
    /// Order of the pods that the places are of.
    order: u64,
    pods: Vec<Shut>,
}

impl Shuts {
    /// Forgets everything when pods have joined or left.
    fn fit(&mut self, order: u64, pods: usize) {
        if self.order != order || self.pods.len() != pods {
            self.order = order;
            self.pods.clear();
            self.pods.resize(pods, Shut { change: u64::MAX, until: Time::ZERO });
        }
    }
}

/// A pod that serves a head in time, as far as the step-time model goes.
#[derive(Clone, Copy, Debug)]
pub struct InTime {
    /// Its place.
    place: u32,
    /// At most what of the objective has to be left.
    needs_ms: f32,
    /// The pod's last change when that was found.
    change: u64,
}

impl Floor<'_> {
    /// Whether the pod that was found to serve a head in time still does.
    pub(super) fn still_in_time(&self, waiting: &Waiting, left_ms: f64) -> bool {
        let known = waiting.standing.as_ref().and_then(|standing| standing.in_time);
        known.is_some_and(|known| {
            let change = self.pods.changes().get(known.place as usize);
            change == Some(&known.change)
                && f64::from(known.needs_ms) <= left_ms
                && waiting.excluded().is_empty()
        })
    }

    /// What of a head's objective has to be left for a pod to serve it in time: `shares` of the TTFT there if it were idle, and of
    /// that behind what is pending. `None` when that would not stand: what other pools have there is a matter of time.
    pub(super) fn in_time(
        &self,
        waiting: &Waiting,
        pod: &PodState,
        [idle_share, certain_share]: [f64; 2],
    ) -> Option<InTime> {
        let place = self.pods.place(pod.spec.id).filter(|_| pod.is_alone())?;
        let change = *self.pods.changes().get(place)?;
        let (steps, tokens) = (self.steps_of(pod.spec.class), f64::from(waiting.input_tokens));
        let best_ms = outlook::best_ttft_ms(&steps, pod.class.chunk_tokens, tokens, 0.0);
        let cold = self.outlook_at(waiting, place, 0.0)?;
        let pending_ms = if cold.empty { 0.0 } else { certain_share * cold.ttft_ms };
        let needs_ms = (idle_share * best_ms).max(pending_ms) as f32;
        Some(InTime { place: place as u32, needs_ms: needs_ms.next_up(), change })
    }

    /// Why a head that claims a pod is still blocked, and its claim; `None` when that has to be found by a look at
    /// all pods.
    pub(super) fn still_blocked(
        &mut self,
        id: RequestId,
        claimed: &[PodId],
    ) -> Option<(Reason, PodId)> {
        let waiting = self.board.get(id)?;
        let claim = waiting.claim().filter(|pod| !claimed.contains(pod))?;
        if self.thorough || !waiting.excluded().is_empty() || !plain::is_plain(self.rules) {
            return None;
        }
        let mut shuts = std::mem::take(&mut self.board.standing_of(id)?.shut);
        shuts.fit(self.pods.order(), self.pods.len());
        let blocked = self.all_shut(id, &mut shuts, claimed);
        self.board.standing_of(id)?.shut = shuts;
        let waiting = self.board.get(id).filter(|_| blocked)?;
        let pod = self.pods.get(&claim).filter(|pod| filter::usable(pod, waiting))?;
        let reason = self.cheap(waiting, &self.outlook(waiting, pod)).err()?;
        Some((reason, claim))
    }

    /// Whether no pod that is not claimed can take a head. Looks only at those of which nothing stands.
    fn all_shut(&self, id: RequestId, shuts: &mut Shuts, claimed: &[PodId]) -> bool {
        let Some(waiting) = self.board.get(id) else { return false };
        let (pods, changes) = (self.pods.as_slice(), self.pods.changes());
        for (place, (shut, change)) in shuts.pods.iter_mut().zip(changes).enumerate() {
            if shut.stands(*change, self.now) {
                continue;
            }
            let Some(pod) = pods.get(place) else { return false };
            let until = self.shut_until(waiting, pod);
            match until {
                Some(until) => *shut = Shut { change: *change, until },
                None if claimed.contains(&pod.spec.id) => {}
                None => return false,
            }
        }
        true
    }

    /// Until when a pod cannot take a head unless something changes there; `None` when it might.
    pub(super) fn shut_until(&self, waiting: &Waiting, pod: &PodState) -> Option<Time> {
        if !filter::usable(pod, waiting) {
            return Some(Time::NEVER);
        }
        let outlook = self.outlook(waiting, pod);
        let until = match self.cheap(waiting, &outlook).err()? {
            // What is at risk on several pods may get less at any time.
            Reason::StallOverBudget { .. } if !outlook.is_apart => self.now,
            Reason::StallOverBudget { .. } => self.over_until(waiting, pod, &outlook),
            Reason::StepFull => judge::step_until(pod, &outlook, self.now),
            _ => Time::NEVER,
        };
        Some(until.min(self.scrape_until(pod)))
    }

    fn over_until(&self, waiting: &Waiting, pod: &PodState, outlook: &Outlook) -> Time {
        let urgency = (waiting.urgency(self.now), f64::from(waiting.spare_ms));
        risk::over_until(&pod.ledger, outlook, urgency, self.now, &self.config.pull)
    }

    /// Until when a pod's scrape is believed, or not.
    fn scrape_until(&self, pod: &PodState) -> Time {
        let stale_after = self.config.pull.stale_after_ms;
        match pod.scrape {
            Some((at, _)) if self.now.ms_since(at) <= stale_after as f64 => {
                at.plus(Duration::from_millis(stale_after))
            }
            _ => Time::NEVER,
        }
    }
}
