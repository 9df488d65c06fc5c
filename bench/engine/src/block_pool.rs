//! The paged KV cache: blocks, the hashes under which full ones are found, and the queue of free ones.
//!
//! Owned by the scheduler. A block is in use (referenced by sequences) or in the free queue; a free block keeps its hash,
//! and can be hit, until it is handed out again. Most blocks are shared with nobody: they are [`BlockPool::fill`]ed and get a
//! hash only when their sequence is preempted and may come back for them. Order of eviction is vLLM's: the queue's head
//! first, where the least recently freed sequence's deepest blocks are. A block that is hit while it is free leaves its entry
//! in the queue, where it counts for nothing, so that the queue is read and written at its ends only: a simulation spends
//! much of its time here, and that on waiting for memory. Every operation is O(1), over many of them. An empty pool answers
//! `None`; the scheduler decides who is preempted.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Index of a block; 0 is the null block, which ends every list.
pub(crate) type BlockId = u32;
const NULL: BlockId = 0;

/// What every block has: small, so that the state of all blocks stays near the processor.
#[derive(Debug, Clone, Copy, Default)]
struct Block {
    refs: u32,
    /// Number of its stay in the free queue; an entry with another one is of an earlier stay.
    stay: u32,
    /// Its tokens are all there: it can be of use to its own sequence, or under its hash to others.
    full: bool,
    /// It has a hash.
    named: bool,
}

/// What a block that can be found has besides.
#[derive(Debug, Clone, Copy, Default)]
struct Name {
    hash: u64,
    /// Neighbours among blocks of equal hash; the map points at the oldest. Two sequences that compute the same block at
    /// the same time each have their own.
    older_twin: BlockId,
    newer_twin: BlockId,
}

/// All blocks of one engine.
#[derive(Debug, Clone)]
pub(crate) struct BlockPool {
    blocks: Vec<Block>,
    names: Vec<Name>,
    /// Free blocks and the number of their stay, those to be handed out first in front; and what earlier stays left.
    queue: VecDeque<(BlockId, u32)>,
    free: u32,
    by_hash: HashMap<u64, BlockId, BuildHasherDefault<Spread>>,
}

impl BlockPool {
    /// `num_blocks` counts the null block.
    pub fn new(num_blocks: u32) -> Self {
        let count = num_blocks.max(1) as usize;
        Self {
            blocks: vec![Block::default(); count],
            names: vec![Name::default(); count],
            queue: (1..num_blocks).map(|id| (id, 0)).collect(),
            free: num_blocks.saturating_sub(1),
            by_hash: HashMap::default(),
        }
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
            self.leave(id);
        }
        self.at_mut(id).refs += 1;
    }

    /// Hands out the head of the free queue, forgetting what it cached.
    pub fn take(&mut self) -> Option<BlockId> {
        let id = loop {
            let (id, stay) = self.queue.pop_front()?;
            if self.at(id).stay == stay {
                break id;
            }
        };
        self.leave(id);
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
        if self.at(id).named {
            return;
        }
        let block = self.at_mut(id);
        (block.full, block.named) = (true, true);
        *self.name_mut(id) = Name { hash, ..Name::default() };
        let oldest = *self.by_hash.entry(hash).or_insert(id);
        if oldest == id {
            return;
        }
        let second = self.name(oldest).newer_twin;
        self.name_mut(id).older_twin = oldest;
        self.name_mut(id).newer_twin = second;
        self.name_mut(oldest).newer_twin = id;
        if second != NULL {
            self.name_mut(second).older_twin = id;
        }
    }

    /// Drops one reference. The last one frees the block: to the tail if it is full, to the head if it is not. A
    /// sequence releases its blocks deepest first.
    pub fn release(&mut self, id: BlockId) {
        let block = self.at_mut(id);
        block.refs = block.refs.saturating_sub(1);
        let Block { refs, stay, full, .. } = *block;
        if refs > 0 {
            return;
        }
        match full {
            true => self.queue.push_back((id, stay)),
            false => self.queue.push_front((id, stay)),
        }
        self.free += 1;
        if self.queue.len() > 2 * self.blocks.len() {
            let blocks = &self.blocks;
            let current = |id: BlockId| blocks.get(id as usize).map(|block| block.stay);
            self.queue.retain(|(id, stay)| current(*id) == Some(*stay));
        }
    }

    /// Nothing is found any more; false, and nothing is forgotten, while any block is in use.
    pub fn reset(&mut self) -> bool {
        let unused = self.free as usize + 1 == self.blocks.len();
        if unused {
            self.by_hash.clear();
            for block in &mut self.blocks {
                (block.full, block.named) = (false, false);
            }
        }
        unused
    }

    /// Ends a block's stay in the free queue.
    fn leave(&mut self, id: BlockId) {
        let block = self.at_mut(id);
        block.stay = block.stay.wrapping_add(1);
        self.free -= 1;
    }

    fn forget(&mut self, id: BlockId) {
        let block = self.at_mut(id);
        block.full = false;
        if !std::mem::take(&mut block.named) {
            return;
        }
        let Name { hash, older_twin: older, newer_twin: newer } = self.name(id);
        if newer != NULL {
            self.name_mut(newer).older_twin = older;
        }
        match (older, newer) {
            (NULL, NULL) => drop(self.by_hash.remove(&hash)),
            (NULL, _) => drop(self.by_hash.insert(hash, newer)),
            _ => self.name_mut(older).newer_twin = newer,
        }
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

    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from this pool, whose length never changes"
    )]
    fn name(&self, id: BlockId) -> Name {
        self.names[id as usize]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "ids come from this pool, whose length never changes"
    )]
    fn name_mut(&mut self, id: BlockId) -> &mut Name {
        &mut self.names[id as usize]
    }
}

/// Keys are hashes already, but may be small numbers, or count up along a text: a multiplication spreads them. Sixteen in a row
/// stay neighbours, because a text is looked up block after block and what that costs is waiting for memory.
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
        let (row, seat) = (key >> 4, key & 15);
        let product = u128::from(row ^ 0x2545_F491_4F6C_DD1D) * 0x9E37_79B9_7F4A_7C15_u128;
        let spread = (product as u64) ^ ((product >> 64) as u64);
        // The table takes the place from the low bits and tells neighbours apart by the highest seven.
        self.0 = ((spread & !15) | seat) ^ (seat << 57);
    }
}

#[cfg(test)]
#[path = "block_pool_tests.rs"]
mod tests;
