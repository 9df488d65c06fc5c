//! One pattern's requests in rank order: insert, pop and cancel by id in O(log n).

use std::hash::BuildHasherDefault;

use priority_queue::DoublePriorityQueue;

use crate::{RequestId, queue::Rank, spread::Spread};

/// Requests from which on their memory is worth giving back.
const MANY: usize = 1024;

/// A double-ended priority queue: the head is served, the tail is refused when room is needed.
#[derive(Debug, Default)]
pub struct Lane {
    queue: DoublePriorityQueue<RequestId, Rank, BuildHasherDefault<Spread>>,
}

impl Lane {
    /// Puts a request in.
    pub fn insert(&mut self, id: RequestId, rank: Rank) {
        self.queue.push(id, rank);
    }

    /// Takes a request out, wherever it stands.
    pub fn remove(&mut self, id: RequestId) -> bool {
        self.queue.remove(&id).is_some()
    }

    /// The request that goes first.
    pub fn head(&self) -> Option<(RequestId, Rank)> {
        self.queue.peek_max().map(|(id, rank)| (*id, *rank))
    }

    /// The request that goes last.
    pub fn tail(&self) -> Option<(RequestId, Rank)> {
        self.queue.peek_min().map(|(id, rank)| (*id, *rank))
    }

    /// Whether it has memory for many, as after a burst.
    pub fn is_roomy(&self) -> bool {
        self.queue.capacity() > MANY
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
