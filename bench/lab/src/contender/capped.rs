//! A cap on the requests in flight per pod, behind one queue: what a proxy with `maxconn`, or a careful client, does.
//!
//! - `cap-N`: first come, first served; the head goes to the pod with the fewest requests in flight, and waits while all have N
//! - `cap-N-bands`: the same, the highest priority band first
//! - `slices`, `slices-N`: Knative. Each pod has N slots (its `containerConcurrency`); the activator keeps one queue and tries
//!   the pods in turn for a free slot. Its breaker holds 10,000 requests and answers 503 to more. The queue inside a pod, ten
//!   times as deep, stays empty behind an activator that counts alone.

use std::cmp::Reverse;

use weir_core::{Request, Time};

use super::desk::{Decide, Desk, Rank};

/// At most so many requests in flight per pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capped {
    pub(super) most: usize,
    /// Whether a higher band goes first.
    pub(super) bands: bool,
}

impl Decide for Capped {
    fn place(&mut self, _now: Time, _head: &Request, desk: &Desk) -> Option<usize> {
        desk.least_loaded(|post| post.in_flight < self.most)
    }

    fn rank(&self, request: &Request) -> Rank {
        let band = if self.bands { request.band } else { weir_core::Band::default() };
        (Reverse(band), request.arrived)
    }
}

/// Slots of each pod, and whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    slots: usize,
    turn: usize,
}

impl Slices {
    /// Knative's target of concurrent requests per pod where nothing else is said (`container-concurrency-target-default`).
    pub(super) const SLOTS: usize = 100;
    /// Requests that the activator's breaker lets wait (`breakerQueueDepth`).
    const QUEUE: usize = 10_000;
    /// Up to so many slots the first pod with a free one is taken, not the next.
    const FIRST_AVAILABLE: usize = 3;

    pub(super) const fn new(slots: usize) -> Self {
        Self { slots, turn: 0 }
    }
}

impl Decide for Slices {
    fn place(&mut self, _now: Time, _head: &Request, desk: &Desk) -> Option<usize> {
        let pods = desk.posts.len();
        let from = if self.slots <= Self::FIRST_AVAILABLE { 0 } else { self.turn };
        let mut places = (0..pods).map(|step| (from + step) % pods);
        let free =
            |place: &usize| desk.posts.get(*place).is_some_and(|post| post.in_flight < self.slots);
        let place = places.find(free)?;
        self.turn = place + 1;
        Some(place)
    }

    fn turns_away(&self, _request: &Request, desk: &Desk) -> bool {
        desk.waiting() >= Self::QUEUE
    }
}

#[cfg(test)]
mod tests {
    use super::{super::posed::Posed, *};

    #[test]
    fn the_head_waits_while_every_pod_has_as_many_as_it_may() {
        let mut posed = Posed::new(2, Capped { most: 2, bands: false });
        assert_eq!(
            (0..4).map(|id| posed.arrives(id, 100)).collect::<Vec<_>>(),
            [Some(0), Some(1), Some(0), Some(1)]
        );
        assert_eq!((posed.arrives(4, 100), posed.arrives(5, 100)), (None, None));
        assert_eq!(posed.ends(1), [(4, 1)], "first come, first served, where one has left");
    }

    #[test]
    fn with_bands_the_higher_one_goes_first_and_without_the_earlier() {
        for (bands, next) in [(true, 2), (false, 1)] {
            let mut posed = Posed::new(1, Capped { most: 1, bands });
            posed.arrives(0, 100);
            posed.arrives_in_band(1, -1);
            posed.arrives_in_band(2, 1);
            assert_eq!(posed.ends(0), [(next, 0)]);
        }
    }

    /// knative/serving, `newRoundRobinPolicy`: "tries all targets in order until one responds ... then continues in order from
    /// the last target".
    #[test]
    fn slices_are_tried_in_turn_and_a_full_pod_is_passed_over() {
        let mut posed = Posed::new(3, Slices::new(4));
        let places: Vec<_> = (0..7).map(|id| posed.arrives(id, 100)).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2, 0].map(Some));
        (7..12).for_each(|id| assert!(posed.arrives(id, 100).is_some()));
        assert_eq!(posed.arrives(12, 100), None, "twelve slots");
        assert_eq!(posed.ends(4), [(12, 1)]);
    }

    /// knative/serving, `newRevisionThrottler`: "For very low CC values use first available pod".
    #[test]
    fn a_few_slots_are_filled_pod_by_pod() {
        let mut posed = Posed::new(2, Slices::new(2));
        let places: Vec<_> = (0..4).map(|id| posed.arrives(id, 100)).collect();
        assert_eq!(places, [0, 0, 1, 1].map(Some));
    }

    /// knative/serving, throttler.go: "the number of requests that are queued on the breaker before the 503s are sent", 10000.
    #[test]
    fn the_breaker_turns_away_what_is_beyond_its_queue() {
        let mut posed = Posed::new(1, Slices::new(1));
        for id in 0..=10_000 {
            posed.arrives(id, 100);
        }
        assert_eq!((posed.waiting(), posed.refused()), (10_000, 0));
        posed.arrives(10_001, 100);
        assert_eq!((posed.waiting(), posed.refused()), (10_000, 1));
    }
}
