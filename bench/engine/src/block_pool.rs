//! The paged KV cache: blocks, the hashes under which full ones are found, and the queue of free ones.
//!
//! Owned by the scheduler. A block is in use (referenced by sequences) or in the free queue; a free block keeps its hash,
//! and can be hit, until it is handed out again. Most blocks are shared with nobody: they are [`BlockPool::fill`]ed and get a
//! hash only when their sequence is preempted and may come back for them. Order of eviction is vLLM's: the queue's head first, where the least
//! recently freed sequence's deepest blocks are. Every operation is O(1); nothing is allocated after construction but the
//! hash map's growth. An empty pool answers `None`; the scheduler decides who is preempted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Index of a block; 0 is the null block, which ends every list.
pub(crate) type BlockId = u32;
const NULL: BlockId = 0;

#[derive(Debug, Clone, Default)]
struct Block {
    refs: u32,
    /// Its tokens are all there: it can be of use to its own sequence, or under its hash to others.
    full: bool,
    hash: Option<u64>,
    /// Neighbours in the free queue, when `refs` is 0.
    prev: BlockId,
    next: BlockId,
    /// Neighbours among blocks of equal hash; the map points at the oldest. Two sequences that compute the same block at
    /// the same time each have their own.
    older_twin: BlockId,
    newer_twin: BlockId,
}

/// All blocks of one engine.
#[derive(Debug, Clone)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    /// Free queue: the null block's `next` is the head and its `prev` the tail.
    free: u32,
    by_hash: HashMap<u64, BlockId, BuildHasherDefault<Spread>>,
}

impl BlockPool {
    /// `num_blocks` counts the null block.
    pub fn new(num_blocks: u32) -> Self {
        let mut pool = Self {
            blocks: vec![Block::default(); num_blocks.max(1) as usize],
            free: 0,
            by_hash: HashMap::default(),
        };
        for id in 1..num_blocks {
            pool.append(id);
        }
        pool
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    /// 1 - free / usable, free blocks with a hash included: an idle pod full of prefix cache reports 0.
    pub fn usage(&self) -> f64 {
        let usable = self.blocks.len().saturating_sub(1).max(1);
        1.0 - f64::from(self.free) / usable as f64
    }

    /// The block that holds this hash's tokens, in use or free.
    pub fn find(&self, hash: u64) -> Option<BlockId> {
        self.by_hash.get(&hash).copied()
    }

    /// Whether taking this block would shrink the free queue.
    pub fn is_free(&self, id: BlockId) -> bool {
        self.at(id).refs == 0
    }

    /// Adds a reference to a block that was found.
    pub fn share(&mut self, id: BlockId) {
        if self.is_free(id) {
            self.unlink(id);
        }
        self.at_mut(id).refs += 1;
    }

    /// Hands out the head of the free queue, forgetting what it cached.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = self.at(NULL).next;
        if id == NULL {
            return None;
        }
        self.unlink(id);
        self.forget(id);
        self.at_mut(id).refs = 1;
        Some(id)
    }

    /// Notes that a block is full without making it findable: it is evicted in its turn like one that is.
    pub fn fill(&mut self, id: BlockId) {
        self.at_mut(id).full = true;
    }

    /// Makes a full block findable.
    pub fn publish(&mut self, id: BlockId, hash: u64) {
        if self.at(id).hash.is_some() {
            return;
        }
        self.fill(id);
        self.at_mut(id).hash = Some(hash);
        let oldest = *self.by_hash.entry(hash).or_insert(id);
        if oldest == id {
            return;
        }
        let second = self.at(oldest).newer_twin;
        self.at_mut(id).older_twin = oldest;
        self.at_mut(id).newer_twin = second;
        self.at_mut(oldest).newer_twin = id;
        if second != NULL {
            self.at_mut(second).older_twin = id;
        }
    }

    /// Drops one reference. The last one frees the block: to the tail if it is full, to the head if it is not. A
    /// sequence releases its blocks deepest first.
    pub fn release(&mut self, id: BlockId) {
        let block = self.at_mut(id);
        block.refs = block.refs.saturating_sub(1);
        match (block.refs, block.full) {
            (0, true) => self.append(id),
            (0, false) => self.prepend(id),
            _ => {}
        }
    }

    fn forget(&mut self, id: BlockId) {
        self.at_mut(id).full = false;
        let Some(hash) = self.at_mut(id).hash.take() else { return };
        let (older, newer) = (self.at(id).older_twin, self.at(id).newer_twin);
        if newer != NULL {
            self.at_mut(newer).older_twin = older;
        }
        match (older, newer) {
            (NULL, NULL) => drop(self.by_hash.remove(&hash)),
            (NULL, _) => drop(self.by_hash.insert(hash, newer)),
            _ => self.at_mut(older).newer_twin = newer,
        }
        self.at_mut(id).older_twin = NULL;
        self.at_mut(id).newer_twin = NULL;
    }

    fn append(&mut self, id: BlockId) {
        self.link(self.at(NULL).prev, id, NULL);
    }

    fn prepend(&mut self, id: BlockId) {
        self.link(NULL, id, self.at(NULL).next);
    }

    fn link(&mut self, prev: BlockId, id: BlockId, next: BlockId) {
        self.at_mut(id).prev = prev;
        self.at_mut(id).next = next;
        self.at_mut(prev).next = id;
        self.at_mut(next).prev = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let (prev, next) = (self.at(id).prev, self.at(id).next);
        self.at_mut(prev).next = next;
        self.at_mut(next).prev = prev;
        self.free -= 1;
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from this pool, whose length never changes"
    )]
    fn at(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from this pool, whose length never changes"
    )]
    fn at_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }
}

/// Keys are hashes already but may be small numbers in a test or a trace: one multiplication spreads them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let product = u128::from(key ^ 0x2545_F491_4F6C_DD1D) * 0x9E37_79B9_7F4A_7C15_u128;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

#[cfg(test)]
#[path = "block_pool_tests.rs"]
mod tests;
