//! What outlives a dispatcher: taken from its hub, and given to that of the next.

use std::sync::atomic::Ordering::Relaxed;

use async_channel::Sender;
use weir_core::{Event, Learned, Lesson, PodId, prefix::Cached};

use super::{Hub, led::News};
use crate::{
    fleet::{Pod, pod::Witness},
    state::KeptPod,
};

impl Hub {
    /// What was learned of the pool.
    pub fn learned(&self) -> Learned {
        self.look(|scheduler, _| scheduler.learned())
    }

    /// Tells the same to somebody who hears of answers, in its place among those.
    pub fn tell_learned(&self, to: &Sender<News>) {
        self.look(|scheduler, _| {
            // One that is full loses it, as it does answers: it is told again.
            let _ = to.try_send(News::Learned(Box::new(scheduler.learned())));
        });
    }

    /// What a pod is believed to have cached.
    pub fn cached_on(&self, pod: PodId) -> Cached {
        self.look(|scheduler, _| scheduler.cached_on(pod))
    }

    /// Goes on from what another has learned.
    pub fn recall(&self, learned: Learned) {
        self.post(Event::Told(Lesson::Learned(Box::new(learned))));
    }

    /// Pods had this cached when it was last looked; each is believed to have it still once its process says that it is the same.
    pub fn expect_cached(&self, pods: Vec<KeptPod>) {
        let by_authority = pods.into_iter().map(|pod| (pod.authority.clone(), pod));
        *self.expected.lock() = by_authority.collect();
    }

    /// What no pod has been believed to have yet.
    pub fn still_expected(&self) -> Vec<KeptPod> {
        self.expected.lock().values().cloned().collect()
    }

    /// A pod's process says this of itself.
    pub fn recall_cached(&self, pod: &Pod, witness: &Witness) {
        let known = self.expected.lock().remove(&pod.authority);
        let Some(known) = known.filter(|known| witness.goes_on_from(&known.witness)) else {
            return;
        };
        self.recall_on(pod.id, known.cached);
        self.recalled.fetch_add(1, Relaxed);
    }

    /// A pod has this cached, all of it older than what is known of here.
    pub fn recall_on(&self, pod: PodId, cached: Cached) {
        self.post(Event::Told(Lesson::Cached(pod, cached)));
    }

    /// Pods that were believed to have cached what they had before this process began.
    pub fn pods_recalled(&self) -> u64 {
        self.recalled.load(Relaxed)
    }
}
