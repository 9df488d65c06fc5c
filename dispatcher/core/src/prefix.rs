//! Which blocks of which prompts a pod is believed to have cached.
//!
//! Whoever reads a request names its prompt by [`block_hashes`]; the scheduler keeps one
//! [`PrefixIndex`] per pod, inserts what it sends there and asks how much of a newcomer is held.
//! The index is a belief: it mirrors the cache of an engine that evicts the least recently used block,
//! the deepest block of a prompt first, and hears of no eviction inside the engine. It never holds
//! more than its capacity; when full, it forgets in that same order.
//!
//! A block's name covers everything before it, so whoever holds a block was also given all blocks
//! above it, and later: [`PrefixIndex::insert`] touches the deepest first. A parent is therefore always
//! younger than its children and outlives them, what is held of a prompt is always its beginning, and
//! [`PrefixIndex::matched`] may search for the end of it by bisection.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a block: the 16 tokens of an engine's block at about 4 bytes each.
pub const BLOCK_BYTES: usize = 64;

/// Names the full blocks of a prompt, first block first. Each name covers all bytes up to the end of
/// its block; `seed` keeps apart what engines keep apart, such as models or cache salts.
pub fn block_hashes(bytes: &[u8], seed: u64) -> Vec<u64> {
    let chain = bytes.chunks_exact(BLOCK_BYTES).scan(seed, |above, block| {
        *above = xxh3_64_with_seed(block, *above);
        Some(*above)
    });
    chain.collect()
}

/// Place of a node in [`PrefixIndex::nodes`].
type Slot = u32;

/// The node that closes the ring: its `older` is the youngest block, its `younger` the oldest.
const ENDS: Slot = 0;

/// A held block, in a ring by age.
#[derive(Clone, Copy, Debug)]
struct Node {
    block: u64,
    younger: Slot,
    older: Slot,
}

/// An empty ring.
const ALONE: Node = Node { block: 0, younger: ENDS, older: ENDS };

/// The blocks one pod is believed to have cached.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    /// Blocks held at most.
    capacity: usize,
    /// Where each held block is.
    slots: HashMap<u64, Slot, BuildHasherDefault<Spread>>,
    /// [`ENDS`] and the held blocks; grows to the capacity, then evicted nodes are reused.
    nodes: Vec<Node>,
    /// Nodes in no ring since the capacity shrank.
    vacant: Vec<Slot>,
}

impl PrefixIndex {
    /// An index that holds at most `capacity` blocks; it allocates only as it fills.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: bounded(capacity),
            slots: HashMap::default(),
            nodes: vec![ALONE],
            vacant: Vec::new(),
        }
    }

    /// Changes how many blocks are held at most; forgets the oldest above that.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = bounded(capacity);
        while self.slots.len() > self.capacity {
            let slot = self.forget_oldest();
            self.vacant.push(slot);
        }
    }

    /// How many leading blocks of a prompt are held. Takes a logarithm of look-ups in the length of the
    /// prompt, one when nothing is held. `blocks` must be named as [`block_hashes`] does: equal names
    /// only after equal beginnings.
    pub fn matched(&self, blocks: &[u64]) -> usize {
        let held = |block: &u64| self.slots.contains_key(block);
        if blocks.first().is_some_and(held) { blocks.partition_point(held) } else { 0 }
    }

    /// Takes note that the pod was sent a prompt of these blocks, named as for [`Self::matched`].
    /// Of a prompt longer than the capacity, the beginning is kept.
    pub fn insert(&mut self, blocks: &[u64]) {
        for block in blocks.iter().take(self.capacity).rev() {
            self.touch(*block);
        }
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets everything, as a pod does whose engine restarts.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.vacant.clear();
        self.nodes.clear();
        self.nodes.push(ALONE);
    }

    /// Makes `block` the youngest, holding it if it was not.
    fn touch(&mut self, block: u64) {
        let slot = match self.slots.get(&block) {
            Some(slot) => {
                let slot = *slot;
                self.unlink(slot);
                slot
            }
            None => {
                let slot = self.free_slot();
                self.slots.insert(block, slot);
                slot
            }
        };
        self.link_youngest(slot, block);
    }

    /// A node for one more block, from the oldest one if the index is full.
    fn free_slot(&mut self) -> Slot {
        if self.slots.len() >= self.capacity {
            return self.forget_oldest();
        }
        self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(ALONE);
            // The capacity is bounded so that every slot fits.
            (self.nodes.len() - 1) as Slot
        })
    }

    /// Forgets the oldest block and returns its node.
    fn forget_oldest(&mut self) -> Slot {
        let slot = self.node(ENDS).younger;
        self.slots.remove(&self.node(slot).block);
        self.unlink(slot);
        slot
    }

    fn unlink(&mut self, slot: Slot) {
        let Node { younger, older, .. } = self.node(slot);
        self.edit(younger, |node| node.older = older);
        self.edit(older, |node| node.younger = younger);
    }

    fn link_youngest(&mut self, slot: Slot, block: u64) {
        let older = self.node(ENDS).older;
        self.edit(slot, |node| *node = Node { block, younger: ENDS, older });
        self.edit(older, |node| node.younger = slot);
        self.edit(ENDS, |node| node.older = slot);
    }

    /// The node at `slot`; slots in use always exist.
    fn node(&self, slot: Slot) -> Node {
        self.nodes.get(slot as usize).copied().unwrap_or(ALONE)
    }

    fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(slot as usize) {
            change(node);
        }
    }
}

/// Capacity such that [`ENDS`] and every block have a slot.
fn bounded(capacity: usize) -> usize {
    capacity.min((Slot::MAX - 1) as usize)
}

/// Hasher for block names, which are hashes already. One multiplication fills the high bits, which
/// the map also uses, for callers that name blocks by counting.
#[derive(Clone, Copy, Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // 2^64 over the golden ratio, as in Knuth's multiplicative hashing.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A prompt with one block per letter.
    fn prompt(letters: &[u8]) -> Vec<u64> {
        let bytes: Vec<u8> = letters.iter().flat_map(|l| [*l; BLOCK_BYTES]).collect();
        block_hashes(&bytes, 7)
    }

    #[test]
    fn only_full_blocks_are_named_and_names_depend_on_all_before_and_on_the_seed() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        assert!(block_hashes(&bytes[..63], 0).is_empty());
        assert_eq!(block_hashes(&bytes[..127], 0).len(), 1);
        let names = block_hashes(&bytes, 0);
        assert_eq!(names.len(), 4);
        assert_eq!(names[..2], block_hashes(&bytes[..150], 0));
        let seeded = block_hashes(&bytes, 1);
        assert!(names.iter().zip(&seeded).all(|(a, b)| a != b));
        bytes[70] += 1;
        let changed = block_hashes(&bytes, 0);
        assert_eq!(names[0], changed[0]);
        assert!(names[1..].iter().zip(&changed[1..]).all(|(a, b)| a != b));
    }

    #[test]
    fn a_prompt_matches_as_far_as_it_shares_its_beginning() {
        let mut index = PrefixIndex::new(100);
        index.insert(&prompt(b"system one"));
        assert_eq!(index.matched(&prompt(b"system two")), 7);
        assert_eq!(index.matched(&prompt(b"system one more")), 10);
        assert_eq!(index.matched(&prompt(b"another")), 0);
        assert_eq!(index.matched(&[]), 0);
        assert_eq!(index.len(), 10);
    }

    #[test]
    fn a_full_index_forgets_the_deepest_blocks_of_the_oldest_prompt_first() {
        let mut index = PrefixIndex::new(6);
        index.insert(&prompt(b"abcd"));
        index.insert(&prompt(b"xyz"));
        assert_eq!(index.matched(&prompt(b"abcd")), 3);
        index.insert(&prompt(b"ab"));
        index.insert(&prompt(b"q"));
        assert_eq!(index.matched(&prompt(b"abcd")), 2);
        assert_eq!(index.matched(&prompt(b"xyz")), 3);
        index.insert(&prompt(b"r"));
        assert_eq!(index.matched(&prompt(b"xyz")), 2);
    }

    #[test]
    fn a_prompt_longer_than_the_capacity_keeps_its_beginning() {
        let mut index = PrefixIndex::new(3);
        index.insert(&prompt(b"abcdefgh"));
        assert_eq!((index.matched(&prompt(b"abcdefgh")), index.len()), (3, 3));
    }

    #[test]
    fn capacity_may_shrink_to_nothing_and_grow_again() {
        let mut index = PrefixIndex::new(8);
        index.insert(&prompt(b"abcdefgh"));
        index.set_capacity(2);
        assert_eq!((index.matched(&prompt(b"abcdefgh")), index.len()), (2, 2));
        index.set_capacity(0);
        index.insert(&prompt(b"abc"));
        assert!(index.is_empty());
        index.set_capacity(5);
        index.insert(&prompt(b"abcdefgh"));
        assert_eq!((index.matched(&prompt(b"abcdefgh")), index.nodes.len()), (5, 9));
        index.clear();
        assert_eq!((index.matched(&prompt(b"abc")), index.len()), (0, 0));
    }

    #[test]
    fn a_full_index_no_longer_grows() {
        let mut index = PrefixIndex::new(1000);
        let fill = |index: &mut PrefixIndex, rounds: std::ops::Range<u64>| {
            for seed in rounds {
                index.insert(&block_hashes(&[0; 70 * BLOCK_BYTES], seed));
            }
        };
        fill(&mut index, 0..500);
        let sizes = (index.nodes.capacity(), index.slots.capacity());
        fill(&mut index, 500..2000);
        assert_eq!((index.len(), index.nodes.len()), (1000, 1001));
        assert_eq!(index.nodes.capacity(), sizes.0);
        assert!(index.slots.capacity() <= sizes.1.max(4000));
    }

    /// The same belief written plainly: blocks from oldest to youngest.
    #[derive(Default)]
    struct Model {
        capacity: usize,
        blocks: Vec<u64>,
    }

    impl Model {
        fn trim(&mut self) {
            self.blocks.drain(..self.blocks.len().saturating_sub(self.capacity));
        }

        fn insert(&mut self, blocks: &[u64]) {
            for block in blocks.iter().rev() {
                self.blocks.retain(|held| held != block);
                self.blocks.push(*block);
                self.trim();
            }
        }

        fn matched(&self, blocks: &[u64]) -> usize {
            blocks.iter().take_while(|block| self.blocks.contains(block)).count()
        }
    }

    fn oldest_to_youngest(index: &PrefixIndex) -> Vec<u64> {
        let next = |node: &Node| (node.younger != ENDS).then(|| index.nodes[node.younger as usize]);
        std::iter::successors(next(&index.nodes[0]), next).map(|node| node.block).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Vec<u8>),
        Capacity(usize),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => prop::collection::vec(0..3u8, 0..12).prop_map(Step::Insert),
            2 => (0..30usize).prop_map(Step::Capacity),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #[test]
        fn the_index_equals_a_plain_list_walked_block_by_block(
            capacity in 0..30usize,
            steps in prop::collection::vec(step(), 0..60),
            asked in prop::collection::vec(prop::collection::vec(0..3u8, 0..12), 1..20),
        ) {
            let mut index = PrefixIndex::new(capacity);
            let mut model = Model { capacity, ..Model::default() };
            for step in steps {
                match step {
                    Step::Insert(letters) => {
                        index.insert(&prompt(&letters));
                        model.insert(&prompt(&letters));
                    }
                    Step::Capacity(capacity) => {
                        index.set_capacity(capacity);
                        model.capacity = capacity;
                        model.trim();
                    }
                    Step::Clear => {
                        index.clear();
                        model.blocks.clear();
                    }
                }
                prop_assert_eq!(&oldest_to_youngest(&index), &model.blocks);
                prop_assert_eq!(index.len(), model.blocks.len());
                for letters in &asked {
                    let blocks = prompt(letters);
                    prop_assert_eq!(index.matched(&blocks), model.matched(&blocks));
                }
            }
        }
    }
}
