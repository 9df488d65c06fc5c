//! Which blocks of which prompts each pod is believed to have cached.
//!
//! Whoever reads a request names its prompt by [`block_hashes`]; the scheduler keeps one [`PrefixIndex`]
//! for its pods, inserts what it sends there and asks how much of a newcomer each of them holds. The index
//! is a belief: for each pod it mirrors the cache of an engine that evicts the least recently used block,
//! the deepest block of a prompt first, and hears of no eviction inside the engine. It never holds more
//! than a pod's capacity; when that is full, it forgets in that same order.
//!
//! # Layout
//! - `segments`: blocks that were always sent together are one segment, which is found by the name of its first block. A
//!   prompt goes through some segments; one that leaves a segment halfway splits it in two. For each pod that holds some of a
//!   segment it says how much.
//! - `ring`: the segments of one pod by age.
//! - `names`: the names of a segment's blocks.
//!
//! A block's name covers everything before it, so a pod that holds a block was also given all blocks above
//! it, and later: [`PrefixIndex::insert`] touches the deepest segment first. A parent is therefore always younger
//! than its children and outlives them, of a segment the deepest block is forgotten first, and what a pod holds of a prompt is
//! always its beginning.
//!
//! What an insertion and a search cost are the segments of a prompt, each a look-up in a table too large for the processor's
//! caches, and only then its blocks, whose names lie side by side.

mod names;
mod ring;
mod segments;

use xxhash_rust::xxh3::xxh3_64;

use self::{
    ring::Ring,
    segments::{Held, SegmentId, Segments},
};
use crate::{
    PodId,
    spread::{NumberMap, SPREADS},
};

/// Tokens of a block that [`block_hashes`] names: two of an engine's usual blocks of 16. Half as many names wait with a request,
/// and what is believed of a prompt is short by some tokens, whose prefill takes less than a millisecond.
pub const BLOCK_TOKENS: u32 = 32;

/// Bytes of such a block, at about 4 for each token.
pub const BLOCK_BYTES: usize = 4 * BLOCK_TOKENS as usize;

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
    segments: Segments,
    rings: NumberMap<PodId, Ring>,
    /// Those that a prompt goes through, while it is inserted.
    path: Vec<SegmentId>,
    /// Changes whenever anything else does.
    version: u64,
}

impl PrefixIndex {
    /// A pod that holds at most `capacity` blocks joins, or its capacity changes: then it forgets the
    /// oldest above that. What it needs is allocated as it fills.
    pub fn set_capacity(&mut self, pod: PodId, capacity: usize) {
        self.version += 1;
        let ring = self.rings.entry(pod).or_default();
        // What a pod holds of a segment is counted in 32 bits.
        ring.capacity = capacity.min(u32::MAX as usize);
        forget(ring, pod, &mut self.segments);
    }

    /// A pod leaves.
    pub fn remove(&mut self, pod: PodId) {
        self.version += 1;
        let Some(mut ring) = self.rings.remove(&pod) else { return };
        ring.capacity = 0;
        forget(&mut ring, pod, &mut self.segments);
    }

    /// Changes whenever an answer of [`Self::matches`] may.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The pods that hold the beginning of a prompt, in the order of their ids, in the place of what
    /// `found` held. Takes a look-up for each segment that the prompt goes through and one more, and compares the names of
    /// its blocks as far as any pod holds them. `blocks` must be named as [`block_hashes`] does: equal names only after
    /// equal beginnings.
    pub fn matches(&self, blocks: &[u64], found: &mut Vec<Match>) {
        found.clear();
        for step in self.segments.walk(blocks) {
            let matched = step.segment.holders.iter().map(|held| {
                let end = step.place + step.shared.min(held.len as usize);
                Match { pod: held.pod, share: end as f64 / blocks.len() as f64 }
            });
            if step.place == 0 {
                found.extend(matched);
            } else {
                deepen(found, matched);
            }
        }
    }

    /// How many leading blocks of a prompt one pod holds.
    pub fn matched(&self, pod: PodId, blocks: &[u64]) -> usize {
        let held = self.segments.walk(blocks).map_while(|step| {
            let held = step.segment.holders.get(step.segment.place_of(pod).ok()?)?;
            Some(step.shared.min(held.len as usize))
        });
        held.sum()
    }

    /// Takes note that a pod was sent a prompt of these blocks, named as for [`Self::matches`]. Of a
    /// prompt longer than the capacity, the beginning is kept.
    pub fn insert(&mut self, pod: PodId, blocks: &[u64]) {
        let Some(capacity) = self.rings.get(&pod).map(|ring| ring.capacity) else { return };
        if blocks.is_empty() {
            return;
        }
        self.find_path(blocks.get(..capacity).unwrap_or(blocks));
        let Some(ring) = self.rings.get_mut(&pod) else { return };
        let before = ring.len;
        // The deepest first, so that a segment is older than the one above it.
        for id in self.path.iter().rev() {
            hold(ring, pod, *id, &mut self.segments);
        }
        // What is only younger now is found as before.
        self.version += u64::from(ring.len > before);
        forget(ring, pod, &mut self.segments);
    }

    /// Blocks that a pod holds.
    pub fn len_of(&self, pod: PodId) -> usize {
        self.rings.get(&pod).map_or(0, |ring| ring.len)
    }

    /// Lists the segments that these blocks are, splitting the one that they leave and making one of those that are new.
    fn find_path(&mut self, blocks: &[u64]) {
        self.path.clear();
        let mut place = 0;
        while let Some(rest) = blocks.get(place..).filter(|rest| !rest.is_empty()) {
            let Some(step) = self.segments.step(blocks, place) else {
                self.path.push(self.segments.add(rest));
                return;
            };
            let (id, shared) = (step.id, step.shared);
            if !step.is_whole() {
                let rings = &mut self.rings;
                self.segments.split(id, shared, |held, below| {
                    let ring = rings.get_mut(&held.pod);
                    ring.map_or(0, |ring| ring.add_older_than(held.slot, below))
                });
            }
            self.path.push(id);
            place += shared;
        }
    }
}

/// Notes a longer match for some of the pods that were found.
fn deepen(found: &mut [Match], matched: impl Iterator<Item = Match>) {
    let mut from = 0;
    for deeper in matched {
        let left = found.get(from..).unwrap_or_default();
        from += left.partition_point(|one| one.pod < deeper.pod);
        if let Some(one) = found.get_mut(from).filter(|one| one.pod == deeper.pod) {
            *one = deeper;
        }
    }
}

/// Makes a segment the youngest that a pod holds, and all of it held.
fn hold(ring: &mut Ring, pod: PodId, id: SegmentId, segments: &mut Segments) {
    let Some(segment) = segments.get_mut(id) else { return };
    let (len, place) = (segment.len(), segment.place_of(pod));
    match place.map(|place| segment.holders.get_mut(place)) {
        Ok(held) => {
            let Some(held) = held else { return };
            ring.len += (len - held.len) as usize;
            held.len = len;
            ring.make_youngest(held.slot);
        }
        Err(place) => {
            let slot = ring.add_youngest(id);
            segment.holders.insert(place, Held { pod, slot, len });
            ring.len += len as usize;
        }
    }
}

/// Forgets the oldest blocks that a pod holds above its capacity, of a segment the deepest first.
fn forget(ring: &mut Ring, pod: PodId, segments: &mut Segments) {
    while ring.len > ring.capacity {
        let Some((slot, id)) = ring.oldest() else { return };
        let Some(segment) = segments.get_mut(id) else { return };
        let Ok(place) = segment.place_of(pod) else { return };
        let Some(held) = segment.holders.get_mut(place) else { return };
        let above = ring.len - ring.capacity;
        if above < held.len as usize {
            held.len -= above as u32;
            ring.len -= above;
            return;
        }
        ring.len -= held.len as usize;
        segment.holders.remove(place);
        ring.take_out(slot);
        if segment.holders.is_empty() {
            segments.remove(id);
        }
    }
}

#[cfg(test)]
mod tests;
