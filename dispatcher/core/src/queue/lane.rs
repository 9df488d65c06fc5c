//! One pattern's requests in rank order: insert, remove and look at the head in O(log n).
//!
//! Ranks mostly come in their order, and what leaves is mostly the head, so that both happen at an end of the tree, where the
//! same few nodes are, however many requests wait between them.

use std::collections::BTreeSet;

use crate::queue::Rank;

/// A priority queue that gives out its head and lets anyone leave.
#[derive(Debug, Default)]
pub struct Lane {
    /// The greatest goes first.
    queue: BTreeSet<Rank>,
}

impl Lane {
    /// Puts a request in.
    pub fn insert(&mut self, rank: Rank) {
        self.queue.insert(rank);
    }

    /// Takes out a request, wherever it stands.
    pub fn remove(&mut self, rank: Rank) {
        self.queue.remove(&rank);
    }

    /// The request that goes first.
    pub fn head(&self) -> Option<Rank> {
        self.queue.last().copied()
    }

    /// Those behind a rank, the next one first.
    pub fn behind(&self, rank: Rank) -> impl Iterator<Item = Rank> {
        self.queue.range(..rank).rev().copied()
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
