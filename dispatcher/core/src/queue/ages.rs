//! Requests by the time of their arrival: oldest first, with removal from anywhere.
//!
//! Requests come in the order of their arrival and mostly leave from its beginning, so they lie in one
//! deque: who comes is appended, who leaves is found by bisection and left as a gap. Gaps at either end
//! go at once, and all of them when they outnumber the rest, which costs each removal a constant share.
//! Who comes back, or comes out of order, is put into its place, which is rare and mostly near the front.
//! In a steady state nothing is allocated.

use std::collections::VecDeque;

use crate::{RequestId, Time};

/// Gaps that are left however few the rest are.
const FEW: usize = 64;
/// Places from which on their memory is worth giving back.
const MANY: usize = 4096;

/// Arrival and name.
pub type Age = (Time, RequestId);

/// A place in the order: a request, or the gap that it left.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Twice the microseconds of its arrival; one more of a gap. A flag beside them would take as much as they do.
    doubled: u64,
    id: RequestId,
}

impl Place {
    const fn new((arrived, id): Age) -> Self {
        Self { doubled: arrived.as_micros() << 1, id }
    }

    const fn age(self) -> Age {
        (Time::from_micros(self.doubled >> 1), self.id)
    }

    const fn is_gap(self) -> bool {
        self.doubled & 1 == 1
    }
}

/// Requests, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Ages {
    /// In order. Neither end is a gap.
    places: VecDeque<Place>,
    gaps: usize,
}

impl Ages {
    /// A request comes.
    pub fn insert(&mut self, age: Age) {
        let place = Place::new(age);
        if self.places.back().is_none_or(|last| last.age() < age) {
            self.places.push_back(place);
            return;
        }
        match self.find(age) {
            Ok(at) => {
                if let Some(known) = self.places.get_mut(at).filter(|known| known.is_gap()) {
                    *known = place;
                    self.gaps -= 1;
                }
            }
            Err(at) => self.places.insert(at, place),
        }
    }

    /// A request leaves.
    pub fn remove(&mut self, age: &Age) {
        let known = self.find(*age).ok().and_then(|at| self.places.get_mut(at));
        let Some(known) = known.filter(|known| !known.is_gap()) else { return };
        known.doubled |= 1;
        self.gaps += 1;
        while self.places.front().is_some_and(|first| first.is_gap()) {
            self.places.pop_front();
            self.gaps -= 1;
        }
        while self.places.back().is_some_and(|last| last.is_gap()) {
            self.places.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > FEW.max(self.len()) {
            self.places.retain(|place| !place.is_gap());
            self.gaps = 0;
        }
        // After a burst the memory goes back.
        if self.places.is_empty() && self.places.capacity() > MANY {
            self.places = VecDeque::new();
        }
    }

    fn find(&self, age: Age) -> Result<usize, usize> {
        self.places.binary_search_by_key(&age, |place| place.age())
    }

    /// The oldest.
    pub fn first(&self) -> Option<Age> {
        self.places.front().map(|place| place.age())
    }

    /// The youngest first.
    pub fn from_last(&self) -> impl Iterator<Item = Age> {
        self.places.iter().rev().filter(|place| !place.is_gap()).map(|place| place.age())
    }

    /// Those behind one, which need not be here any more; all of them if there is none.
    pub fn behind(&self, after: Option<Age>) -> impl Iterator<Item = Age> {
        let first = after.map_or(0, |after| self.places.partition_point(|one| one.age() <= after));
        self.places.range(first..).filter(|place| !place.is_gap()).map(|place| place.age())
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.places.len() - self.gaps
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const fn age(at: u64, id: u64) -> Age {
        (Time::from_micros(at), RequestId(id))
    }

    proptest! {
        #[test]
        fn they_are_an_ordered_set(
            steps in prop::collection::vec((any::<bool>(), 0..40u64, 0..3u64), 0..400),
            after in (0..40u64, 0..3u64),
        ) {
            let (mut ages, mut plain) = (Ages::default(), BTreeSet::new());
            for (comes, at, id) in steps {
                if comes {
                    ages.insert(age(at, id));
                    plain.insert(age(at, id));
                } else {
                    ages.remove(&age(at, id));
                    plain.remove(&age(at, id));
                }
                prop_assert!(ages.behind(None).eq(plain.iter().copied()));
                prop_assert_eq!(ages.first(), plain.first().copied());
                prop_assert_eq!(ages.from_last().next(), plain.last().copied());
                prop_assert_eq!((ages.len(), ages.is_empty()), (plain.len(), plain.is_empty()));
            }
            let after = age(after.0, after.1);
            prop_assert!(ages.behind(Some(after)).eq(plain.iter().copied().filter(|one| *one > after)));
        }
    }

    #[test]
    fn gaps_never_outnumber_what_waits_by_much() {
        let mut ages = Ages::default();
        (0..10_000).for_each(|at| ages.insert(age(at, at)));
        for at in (1..9_999).filter(|at| at % 7 != 0) {
            ages.remove(&age(at, at));
            assert!(ages.places.len() <= 2 * ages.len().max(FEW) + 1, "{}", ages.places.len());
        }
    }
}
