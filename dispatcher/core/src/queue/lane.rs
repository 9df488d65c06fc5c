//! One pattern's requests in rank order: insert, remove and look at the head in O(log n).
//!
//! Ranks mostly come in their order, and what leaves is mostly the head, so that both happen at an end of the tree, where the
//! same few nodes are, however many requests wait between them.

use std::{cmp::Reverse, collections::BTreeSet};

use crate::{RequestId, queue::Rank};

/// A priority queue that gives out its head and lets anyone leave.
#[derive(Debug, Default)]
pub struct Lane {
    /// The greater goes first; of two with the same rank the one named first.
    queue: BTreeSet<(Rank, Reverse<RequestId>)>,
}

impl Lane {
    /// Puts a request in.
    pub fn insert(&mut self, id: RequestId, rank: Rank) {
        self.queue.insert((rank, Reverse(id)));
    }

    /// Takes out a request of this rank, wherever it stands.
    pub fn remove(&mut self, id: RequestId, rank: Rank) -> bool {
        self.queue.remove(&(rank, Reverse(id)))
    }

    /// The request that goes first.
    pub fn head(&self) -> Option<(RequestId, Rank)> {
        self.queue.last().map(|(rank, Reverse(id))| (*id, *rank))
    }

    /// Requests in the lane.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether the lane is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
