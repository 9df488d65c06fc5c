//! What stands of the last look at a blocked head: pods that cannot take it as long as nothing changes there.
//!
//! A head that fits nowhere is asked for again at every event, and mostly one pod has changed since, or none.
//! The gates that need no prediction depend on the pod's state, which is counted ([`Pods::changes`]), on
//! what all pods are judged by (a change of that counts as one of every pod), and on time in three places: a
//! scrape is believed for so long, a prompt begins with the next step for so long, and a resident that a stall would hurt is at
//! some moment lost. So each pod that was
//! found shut is shut until the first of these; only the others are looked at again. Pods with open gates are
//! left to the pick, which asks for predictions.
//!
//! [`Pods::changes`]: crate::fleet::Pods::changes

use std::time::Duration;

use crate::{
    PodId, RequestId, Time,
    decide::{Floor, filter, plain},
    explain::Reason,
    fleet::PodState,
    headroom::{Outlook, judge},
    queue::Waiting,
};

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

impl Floor<'_> {
    /// Why a head that claims a pod is still blocked, and its claim; `None` when that has to be found by a look at
    /// all pods.
    pub(super) fn still_blocked(
        &mut self,
        id: RequestId,
        claimed: &[PodId],
    ) -> Option<(Reason, PodId)> {
        let waiting = self.board.get_mut(id)?;
        let claim = waiting.claim.filter(|pod| !claimed.contains(pod))?;
        if self.thorough || !waiting.excluded.is_empty() || !plain::is_plain(self.rules) {
            return None;
        }
        let mut shuts = std::mem::take(&mut waiting.shut);
        shuts.fit(self.pods.order(), self.pods.len());
        let blocked = self.all_shut(id, &mut shuts, claimed);
        self.board.get_mut(id)?.shut = shuts;
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
            Reason::StallOverBudget { .. } => self.stalls_until(pod, &outlook)?,
            Reason::StepFull => judge::step_until(pod, &outlook, self.now),
            _ => Time::NEVER,
        };
        Some(until.min(self.scrape_until(pod)))
    }

    fn stalls_until(&self, pod: &PodState, outlook: &Outlook) -> Option<Time> {
        judge::stalls_until(&pod.ledger, outlook, self.now)
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
