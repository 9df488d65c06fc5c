//! What every look at a pod begins with, kept side by side until the pod changes.
//!
//! The first question of a decision is asked of every pod: when would the first token come? What it takes of a pod
//! is six numbers, and between two decisions most pods have not changed ([`Pods::changes`]). So they lie in one row
//! of memory, and the pods themselves are touched only where something has happened.
//!
//! [`Pods::changes`]: crate::fleet::Pods::changes

use weir_schema::StepTime;

use crate::{
    PodId,
    decide::{Floor, filter},
    fleet::PodState,
    headroom::Ground,
};

/// One pod.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Which.
    pub pod: PodId,
    /// Its class.
    pub class: u16,
    /// Whether it takes requests.
    pub open: bool,
    /// What an outlook needs of it.
    pub ground: Ground,
    /// The pod's change that this is of; [`NEVER`] when it is not to be used again.
    change: u64,
}

/// No change of a pod has this number.
const NEVER: u64 = u64::MAX;

impl Floor<'_> {
    /// What is known of the pods, up to date, in their order. When a pod joins or leaves, all of them change.
    pub(super) fn survey<'g>(
        &self,
        grounds: &'g mut Vec<Known>,
    ) -> impl Iterator<Item = &'g Known> {
        if grounds.len() != self.pods.len() {
            grounds.clear();
            grounds.extend(self.pods.values().map(|pod| self.known(pod, NEVER)));
        }
        let pods = self.pods.as_slice().iter().zip(self.pods.changes());
        grounds.iter_mut().zip(pods).map(|(known, (pod, change))| {
            if known.change != *change {
                // What other pools have there counts while a scrape is fresh: that is a matter of time.
                *known = self.known(pod, if pod.is_alone() { *change } else { NEVER });
            }
            &*known
        })
    }

    fn known(&self, pod: &PodState, change: u64) -> Known {
        let others = pod.others(self.now, self.config.pull.stale_after_ms);
        let steps: StepTime = self.steps_of(pod.spec.class);
        Known {
            pod: pod.spec.id,
            class: pod.spec.class,
            open: filter::is_open(pod),
            ground: Ground::of(pod, &steps, others),
            change,
        }
    }
}
