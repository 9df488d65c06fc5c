//! What one pod, or a rival's idea of one, has cached.

use weir_core::{PodId, prefix::PrefixIndex};

/// The only pod of its index.
const POD: PodId = PodId(0);

/// The blocks of one pod.
#[derive(Clone, Debug)]
pub(super) struct Cached(PrefixIndex);

impl Cached {
    /// Holds at most so many blocks.
    pub(super) fn new(capacity: usize) -> Self {
        let mut index = PrefixIndex::default();
        index.set_capacity(POD, capacity);
        Self(index)
    }

    /// It was sent a prompt.
    pub(super) fn insert(&mut self, blocks: &[u64]) {
        self.0.insert(POD, blocks);
    }

    /// How many leading blocks of a prompt it holds.
    pub(super) fn matched(&self, blocks: &[u64]) -> usize {
        self.0.matched(POD, blocks)
    }
}
