//! What outlives a dispatcher: taken from its hub, and given to that of the next.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_channel::Sender;
use weir_core::{Event, Learned, Lesson, PodId, Time, prefix::Cached};

use super::{
    Hub,
    errand::Lore,
    led::{Lead, News},
};
use crate::{
    fleet::{Pod, pod::Witness},
    state::KeptPod,
};

/// What pods have cached that have not been seen here yet, by host and port: how much of it their caches hold is not known before.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Before this process, of those that have not said yet whether they are the same.
    kept: HashMap<String, KeptPod>,
    /// As whoever decided said at a time, the youngest first.
    told: HashMap<String, Vec<(Time, Cached)>>,
}

/// For how long what was told of a pod that is not in use here is believed: later another process may be in its place.
const BELIEVED: Duration = Duration::from_secs(10);

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
        let by_address = pods.into_iter().map(|pod| (pod.address.clone(), pod));
        self.awaited.lock().kept = by_address.collect();
    }

    /// What no pod has been believed to have yet.
    pub fn still_expected(&self) -> Vec<KeptPod> {
        self.awaited.lock().kept.values().cloned().collect()
    }

    /// A pod was scraped, and its process says this of itself.
    pub fn recall_cached(&self, pod: &Pod, witness: &Witness) {
        let mut awaited = self.awaited.lock();
        let told = awaited.told.remove(&pod.address);
        let kept = awaited.kept.remove(&pod.address);
        drop(awaited);
        for (told_at, cached) in told.into_iter().flatten() {
            if self.clock().now().since(told_at) <= BELIEVED {
                self.recall_on(pod.id, cached);
            }
        }
        if let Some(kept) = kept.filter(|kept| witness.goes_on_from(&kept.witness)) {
            self.recall_on(pod.id, kept.cached);
            self.recalled.fetch_add(1, Relaxed);
        }
    }

    /// Puts by what a pod has cached that is not in use here yet, for when it is. Gives back everything else.
    pub(super) fn await_pod(&self, lead: &Arc<Lead>, lore: Lore) -> Option<Lore> {
        let Lore::Cached { pod, cached } = lore else { return Some(lore) };
        let in_use = |known: &Arc<Pod>| known.address == pod && !known.breaker.is_open();
        if self.pods().iter().any(in_use) {
            return Some(Lore::Cached { pod, cached });
        }
        if self.lead().is_some_and(|decides| Arc::ptr_eq(&decides, lead)) {
            let told = (self.clock().now(), cached);
            self.awaited.lock().told.entry(pod).or_default().push(told);
        }
        None
    }

    /// Another dispatcher decides than before, and will tell all that it knows.
    pub(super) fn await_no_more(&self) {
        self.awaited.lock().told.clear();
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
