//! Which blocks of which prompts each pod is believed to have cached.
//!
//! Whoever reads a request names its prompt by [`block_hashes`]; the scheduler keeps one [`PrefixIndex`]
//! for its pods, inserts what it sends there and asks how much of a newcomer each of them holds. The index
//! is a belief: for each pod it mirrors the cache of an engine that evicts the least recently used block,
//! the deepest block of a prompt first, and hears of no eviction inside the engine. It never holds more
//! than a pod's capacity; when that is full, it forgets in that same order.
//!
//! A block's name covers everything before it, so a pod that holds a block was also given all blocks above
//! it, and later: [`PrefixIndex::insert`] touches the deepest first. A parent is therefore always younger
//! than its children and outlives them, and what a pod holds of a prompt is always its beginning. So the
//! pods that hold a block are among those that hold the one above it, and where as many hold the lower one
//! they are the same: [`PrefixIndex::matches`] searches for the ends of such stretches by bisection, one
//! look-up for all pods together.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    PodId,
    spread::{NumberMap, SPREADS},
};

/// Bytes of a block: the 16 tokens of an engine's block at about 4 bytes each.
pub const BLOCK_BYTES: usize = 64;

/// Names the full blocks of a prompt, first block first. Each name covers all bytes up to the end of
/// its block; `seed` keeps apart what engines keep apart, such as models or cache salts.
pub fn block_hashes(bytes: &[u8], seed: u64) -> impl ExactSizeIterator<Item = u64> {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let mut above = seed;
    blocks.iter().map(move |block| {
        // The hash of a block does not wait for that of the one before, and names that differ stay different below equal blocks.
        above = (above.rotate_left(32) ^ xxh3_64(block)).wrapping_mul(SPREADS);
        above
    })
}

/// Place of a node in a ring.
type Slot = u32;

/// The node that closes a ring: its `older` is the youngest block, its `younger` the oldest.
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

/// A pod that holds a block, and the node that it has there.
#[derive(Clone, Copy, Debug)]
struct Held {
    pod: PodId,
    slot: Slot,
}

/// The pods that hold a block, in the order of their ids. Most blocks are on one.
type Holders = SmallVec<[Held; 2]>;

/// How much of a prompt a pod holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// The pod.
    pub pod: PodId,
    /// Share of the prompt's blocks, above 0.
    pub share: f64,
}

/// The blocks that pods are believed to have cached.
#[derive(Clone, Debug, Default)]
pub struct PrefixIndex {
    holders: NumberMap<u64, Holders>,
    rings: NumberMap<PodId, Ring>,
    /// Changes whenever anything else does.
    version: u64,
}

impl PrefixIndex {
    /// A pod that holds at most `capacity` blocks joins, or its capacity changes: then it forgets the
    /// oldest above that. What it needs is allocated as it fills.
    pub fn set_capacity(&mut self, pod: PodId, capacity: usize) {
        self.version += 1;
        let ring = self.rings.entry(pod).or_default();
        ring.capacity = bounded(capacity);
        while ring.len > ring.capacity {
            let slot = ring.forget_oldest(pod, &mut self.holders);
            ring.vacant.push(slot);
        }
    }

    /// A pod leaves.
    pub fn remove(&mut self, pod: PodId) {
        self.version += 1;
        let Some(mut ring) = self.rings.remove(&pod) else { return };
        while ring.len > 0 {
            ring.forget_oldest(pod, &mut self.holders);
        }
    }

    /// Changes whenever an answer of [`Self::matches`] may.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The pods that hold the beginning of a prompt, in the order of their ids, in the place of what
    /// `found` held. Takes a logarithm of look-ups in the length of the prompt for each length that is
    /// held, one when nothing is. `blocks` must be named as [`block_hashes`] does: equal names only after
    /// equal beginnings.
    pub fn matches(&self, blocks: &[u64], found: &mut Vec<Match>) {
        found.clear();
        let holders = |place: usize| Some(&**self.holders.get(blocks.get(place)?)?);
        let mut place = 0;
        while let Some(here) = holders(place) {
            let as_many = |block: &u64| {
                self.holders.get(block).is_some_and(|below| below.len() == here.len())
            };
            let rest = blocks.get(place..).unwrap_or_default();
            let end = place + rest.partition_point(as_many);
            let share = end as f64 / blocks.len() as f64;
            if place == 0 {
                found.extend(here.iter().map(|held| Match { pod: held.pod, share }));
            } else {
                deepen(found, here, share);
            }
            place = end;
        }
    }

    /// How many leading blocks of a prompt one pod holds.
    pub fn matched(&self, pod: PodId, blocks: &[u64]) -> usize {
        let held = |block: &u64| {
            let holders = self.holders.get(block);
            holders.is_some_and(|all| all.binary_search_by_key(&pod, |one| one.pod).is_ok())
        };
        if blocks.first().is_some_and(held) { blocks.partition_point(held) } else { 0 }
    }

    /// Takes note that a pod was sent a prompt of these blocks, named as for [`Self::matches`]. Of a
    /// prompt longer than the capacity, the beginning is kept.
    pub fn insert(&mut self, pod: PodId, blocks: &[u64]) {
        let Some(ring) = self.rings.get_mut(&pod).filter(|_| !blocks.is_empty()) else { return };
        self.version += 1;
        let blocks = blocks.get(..ring.capacity).unwrap_or(blocks);
        ring.touch_all(pod, blocks, &mut self.holders);
    }

    /// Blocks that a pod holds.
    pub fn len_of(&self, pod: PodId) -> usize {
        self.rings.get(&pod).map_or(0, |ring| ring.len)
    }
}

/// Notes a longer match for some of the pods that were found.
fn deepen(found: &mut [Match], holders: &[Held], share: f64) {
    let mut from = 0;
    for held in holders {
        let left = found.get(from..).unwrap_or_default();
        from += left.partition_point(|one| one.pod < held.pod);
        if let Some(one) = found.get_mut(from).filter(|one| one.pod == held.pod) {
            one.share = share;
        }
    }
}

/// The blocks of one pod by age.
#[derive(Clone, Debug)]
struct Ring {
    /// Blocks held at most.
    capacity: usize,
    /// Blocks held.
    len: usize,
    /// [`ENDS`] and the held blocks; grows to the capacity, then evicted nodes are reused.
    nodes: Vec<Node>,
    /// Nodes in no ring since the capacity shrank.
    vacant: Vec<Slot>,
}

/// A run of blocks at the young end of a ring.
#[derive(Clone, Copy, Debug)]
struct Run {
    len: usize,
    youngest: Slot,
    oldest: Slot,
    /// The node that follows it.
    after: Slot,
}

impl Default for Ring {
    fn default() -> Self {
        Self { capacity: 0, len: 0, nodes: vec![ALONE], vacant: Vec::new() }
    }
}

impl Ring {
    /// Makes `blocks` the youngest, the first of them the very youngest.
    fn touch_all(&mut self, pod: PodId, blocks: &[u64], holders: &mut NumberMap<u64, Holders>) {
        let run = self.run_of(blocks);
        let rest = blocks.get(run.len..).unwrap_or_default();
        // While something has to be forgotten for the rest, the run is not to be hidden from it.
        let known = run.len > 0 && self.len + rest.len() <= self.capacity;
        if known && rest.is_empty() {
            return;
        }
        if known {
            self.join(ENDS, run.after);
        }
        let touched = if known { rest } else { blocks };
        for block in touched.iter().rev() {
            self.touch(pod, *block, holders);
        }
        if known {
            self.join(run.oldest, self.node(ENDS).older);
            self.join(ENDS, run.youngest);
        }
    }

    /// The beginning of these blocks that is the youngest of the ring already, as it is after a prompt that began alike: next
    /// to each other in memory, mostly, where looking for each of them would be a walk through all of the table.
    fn run_of(&self, blocks: &[u64]) -> Run {
        let youngest = self.node(ENDS).older;
        let mut run = Run { len: 0, youngest, oldest: ENDS, after: youngest };
        for block in blocks {
            let node = self.node(run.after);
            if run.after == ENDS || node.block != *block {
                break;
            }
            (run.oldest, run.after) = (run.after, node.older);
            run.len += 1;
        }
        run
    }

    /// Makes one node the next older of another.
    fn join(&mut self, younger: Slot, older: Slot) {
        self.edit(younger, |node| node.older = older);
        self.edit(older, |node| node.younger = younger);
    }

    /// Makes `block` the youngest, holding it if it was not.
    fn touch(&mut self, pod: PodId, block: u64, holders: &mut NumberMap<u64, Holders>) {
        let all = holders.entry(block).or_default();
        let held = all.binary_search_by_key(&pod, |one| one.pod);
        let slot = match held.map(|place| all.get(place)) {
            Ok(held) => {
                let slot = held.map_or(ENDS, |held| held.slot);
                self.unlink(slot);
                slot
            }
            Err(place) if self.len < self.capacity => {
                let slot = self.free_slot();
                all.insert(place, Held { pod, slot });
                self.len += 1;
                slot
            }
            Err(place) => {
                let slot = self.forget_oldest(pod, holders);
                holders.entry(block).or_default().insert(place, Held { pod, slot });
                self.len += 1;
                slot
            }
        };
        self.link_youngest(slot, block);
    }

    /// A node for one more block.
    fn free_slot(&mut self) -> Slot {
        self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(ALONE);
            // The capacity is bounded so that every slot fits.
            (self.nodes.len() - 1) as Slot
        })
    }

    /// Forgets the oldest block and returns its node.
    fn forget_oldest(&mut self, pod: PodId, holders: &mut NumberMap<u64, Holders>) -> Slot {
        let slot = self.node(ENDS).younger;
        let block = self.node(slot).block;
        if let Some(all) = holders.get_mut(&block) {
            if let Ok(place) = all.binary_search_by_key(&pod, |one| one.pod) {
                all.remove(place);
            }
            if all.is_empty() {
                holders.remove(&block);
            }
        }
        self.unlink(slot);
        self.len = self.len.saturating_sub(1);
        slot
    }

    fn unlink(&mut self, slot: Slot) {
        let Node { younger, older, .. } = self.node(slot);
        self.join(younger, older);
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

#[cfg(test)]
mod tests;
