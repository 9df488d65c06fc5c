//! Which requests a pod has started, by their `x-request-id`: finds requests that start twice.

use std::collections::{HashSet, VecDeque};

use xxhash_rust::xxh3::xxh3_64;

/// Ids remembered; older ones are forgotten.
const REMEMBERED: usize = 1 << 20;

/// The ids seen, as hashes.
#[derive(Debug, Default)]
pub(super) struct Starts {
    seen: HashSet<u64>,
    order: VecDeque<u64>,
    /// Generations started.
    pub(super) total: u64,
    /// Generations started under an id that was started before.
    pub(super) duplicates: u64,
}

impl Starts {
    /// Counts a start; without an id it can be no duplicate.
    pub(super) fn count(&mut self, request_id: Option<&[u8]>) {
        self.total += 1;
        let Some(hash) = request_id.map(xxh3_64) else { return };
        if !self.seen.insert(hash) {
            self.duplicates += 1;
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    /// The ids' hashes in order of their first start.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.order.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_start_of_an_id_is_a_duplicate() {
        let mut starts = Starts::default();
        for id in [Some("a"), Some("b"), None, None, Some("a")] {
            starts.count(id.map(str::as_bytes));
        }
        assert_eq!((starts.total, starts.duplicates, starts.ids().count()), (5, 1, 2));
    }
}
