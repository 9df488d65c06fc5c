//! What is known of a pool, for a dispatcher that begins to go by what is decided here: when it decides one day, it goes on from that.
//!
//! It is told what each pod has cached, some pods at a beat, and from then on of every prompt that is sent; and what was learned, at once
//! and every minute, for that comes of all that the ledger here sees and no single answer tells it.

use std::{collections::VecDeque, sync::Arc, time::Duration, vec};

use tokio::time::Instant;
use weir_core::{Learned, prefix::Cached};

use crate::{
    fleet::Pod,
    hub::{Hub, errand::Lore},
};

/// From one telling of what was learned to the next.
const EVERY: Duration = Duration::from_secs(60);
/// Pods that are looked at in a beat, at most.
const PODS: usize = 8;
/// Names of blocks that are told at once: a quarter of the longest value.
const NAMES: usize = 1 << 15;
/// Bytes of what was learned, at most: half of the longest value.
const LEARNED: usize = 1 << 19;

/// What is to be told.
pub(super) struct Lessons {
    pods: vec::IntoIter<Arc<Pod>>,
    pieces: VecDeque<Lore>,
    learned_at: Instant,
}

impl Lessons {
    /// All of it.
    pub(super) fn of(hub: &Hub) -> Self {
        let pods = hub.pods().to_vec().into_iter();
        Self { pods, pieces: VecDeque::new(), learned_at: Instant::now() }
    }

    /// Whether it is time to tell what was learned.
    pub(super) fn learned_is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.learned_at;
        if is_due {
            self.learned_at = now + EVERY;
        }
        is_due
    }

    /// Looks at some pods, once a beat.
    pub(super) fn beat(&mut self, hub: &Hub) {
        if !self.pieces.is_empty() {
            return;
        }
        for pod in self.pods.by_ref().take(PODS) {
            let pieces = hub.cached_on(pod.id).in_pieces(NAMES).into_iter();
            let told = |cached: Cached| Lore::Cached { pod: pod.address.clone(), cached };
            self.pieces.extend(pieces.map(told));
        }
    }

    /// The next of what is cached.
    pub(super) fn next(&mut self) -> Option<Lore> {
        self.pieces.pop_front()
    }
}

/// What can be told at once. Of a thousand tenants too much may be known for that: then they are left out, for what comes of their
/// requests is told answer by answer.
pub(super) fn fitting(mut learned: Learned) -> Learned {
    if postcard::to_allocvec(&learned).map_or(usize::MAX, |bytes| bytes.len()) > LEARNED {
        learned.lengths.tenants.clear();
    }
    learned
}

#[cfg(test)]
mod tests {
    use weir_core::{learned::Seen, prefix::Part};

    use super::*;
    use crate::hub::fixture::{Fixture, pod};

    #[tokio::test(start_paused = true)]
    async fn what_was_learned_is_told_at_once_and_every_minute_and_what_is_cached_pod_by_pod() {
        let (hub, _) = Fixture::default().hub();
        for number in 1..=10 {
            let pod = pod(number, format!("127.0.0.1:{number}"));
            hub.add_pod(pod.clone());
            let names: Arc<[u64]> =
                (0..u64::from(number)).map(|at| at + 1000 * u64::from(number)).collect();
            hub.recall_on(pod.id, Cached(vec![Part::Prompt(names)]));
        }
        let mut lessons = Lessons::of(&hub);
        assert_eq!((lessons.next(), lessons.learned_is_due()), (None, true));
        assert!(!lessons.learned_is_due());
        let mut told = Vec::new();
        for _ in 0..3 {
            lessons.beat(&hub);
            let pieces = std::iter::from_fn(|| lessons.next());
            told.push(
                pieces
                    .map(|lore| match lore {
                        Lore::Cached { pod, cached } => (pod, cached.len()),
                        other => panic!("{other:?}"),
                    })
                    .collect::<Vec<_>>(),
            );
        }
        assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [8, 2, 0]);
        assert_eq!(told[1][1], ("127.0.0.1:10".to_owned(), 10));
        tokio::time::advance(EVERY).await;
        assert!(lessons.learned_is_due());
    }

    #[test]
    fn tenants_of_whom_too_much_is_known_are_left_out() {
        let (hub, _) = Fixture::default().hub();
        let mut learned = hub.learned();
        learned.lengths.tenants = vec![("a".into(), true, vec![Seen::default()])];
        assert_eq!(fitting(learned.clone()), learned);
        let many = Seen((0..100).map(|length| (length, 1.0)).collect());
        learned.lengths.tenants =
            (0..2000).map(|name| (name.to_string().into(), true, vec![many.clone()])).collect();
        assert_eq!(fitting(learned).lengths.tenants, []);
    }
}
