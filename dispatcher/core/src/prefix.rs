//! Which blocks of which prompts each pod is believed to have cached.
//!
//! Whoever reads a request names its prompt by [`block_hashes`]; the scheduler keeps one [`PrefixIndex`]
//! for its pods, says when a prompt goes there and when its request is over, and asks how much of a newcomer each of them holds.
//! The index is a belief: for each pod it mirrors the cache of an engine and hears of no eviction inside that. An engine keeps
//! what its requests use, their answers too, and of the rest evicts first what has not been used for longest, of a request the
//! answer before the prompt and of that the deepest block first. So what a prompt is made of is in use from [`PrefixIndex::enter`]
//! to [`PrefixIndex::leave`], when it is the youngest, and the answer that comes takes room like any other. It never holds more
//! than a pod's capacity but for what is in use; above that it forgets in that same order.
//!
//! # Layout
//! - `segments`: blocks that were always sent together are one segment, which is found by the name of its first block. A
//!   prompt goes through some segments; one that leaves a segment halfway splits it in two. For each pod that holds some of a
//!   segment it says how much.
//! - `ring`: what one pod holds by age.
//! - `names`: the names of a segment's blocks.
//! - [`Cached`]: what one pod holds, for another index.
//!
//! A block's name covers everything before it, so a pod that holds a block was also given all blocks above
//! it, and who uses a block uses those above it: the deepest segment is touched and left first. A parent is therefore in use as long as its
//! children, always younger than they are, and outlives them, of a segment the deepest block is forgotten first, and what a pod
//! holds of a prompt is always its beginning.
//!
//! What an insertion and a search cost are the segments of a prompt, each a look-up in a table too large for the processor's
//! caches, and only then its blocks, whose names lie side by side.

mod cached;
mod names;
mod ring;
mod segments;
mod turn;

use xxhash_rust::xxh3::xxh3_64;

pub use self::cached::{Cached, Part, as_bytes};
pub use self::turn::{Reply, Turn, prompt_name};
use self::{
    ring::{Answer, Kept, Ring},
    segments::{Held, SegmentId, Segments, Step},
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
    /// Share of what is believed that is found, of pods that find less than all.
    found: NumberMap<PodId, f64>,
    /// Tokens of the pieces that a prompt is found again in, of pods where they are larger than the blocks that are named here.
    grains: NumberMap<PodId, u32>,
    /// Those that a prompt goes through, while it is inserted.
    path: Vec<SegmentId>,
    /// Changes whenever anything else does.
    version: u64,
}

impl PrefixIndex {
    /// A pod that holds at most `capacity` blocks joins, or its capacity changes: then it forgets the
    /// oldest above that; one that finds no prompt again, of which it is 0, what it uses as well. What it needs is allocated as it
    /// fills.
    pub fn set_capacity(&mut self, pod: PodId, capacity: usize) {
        if capacity == 0 {
            self.remove(pod);
        }
        self.version += 1;
        let ring = self.rings.entry(pod).or_default();
        // What a pod holds of a segment is counted in 32 bits.
        ring.capacity = capacity.min(u32::MAX as usize);
        forget(ring, pod, &mut self.segments);
    }

    /// A pod leaves.
    pub fn remove(&mut self, pod: PodId) {
        self.version += 1;
        self.found.remove(&pod);
        self.grains.remove(&pod);
        let Some(ring) = self.rings.remove(&pod) else { return };
        for id in ring.segments() {
            self.segments.forget(id, pod);
        }
    }

    /// What a pod is believed to hold counts for that share of it from now on.
    pub fn set_found(&mut self, pod: PodId, share: f64) {
        let before =
            if share < 1.0 { self.found.insert(pod, share) } else { self.found.remove(&pod) };
        self.version += u64::from(before.unwrap_or(1.0).total_cmp(&share).is_ne());
    }

    /// A pod finds prompts again in pieces of so many tokens; of 0, in any.
    pub fn set_grain(&mut self, pod: PodId, tokens: u32) {
        let before = match tokens {
            0 => self.grains.remove(&pod),
            tokens => self.grains.insert(pod, tokens),
        };
        self.version += u64::from(before.unwrap_or(0) != tokens);
    }

    /// Changes whenever what [`Self::matches`] finds of named blocks may. An answer comes and goes without: who asks for it has
    /// read it, and so came when it was there.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The pods that hold the beginning of a prompt, in the order of their ids, in the place of what
    /// `found` held. Takes a look-up for each segment that the prompt goes through and one more, and compares the names of
    /// its blocks as far as any pod holds them. `blocks` must be named as [`block_hashes`] does: equal names only after
    /// equal beginnings. A pod that gave the answer from which the prompt goes on holds that too.
    pub fn matches(&self, blocks: &[u64], turn: &Turn, found: &mut Vec<Match>) {
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
        if let Some(reply) = turn.reply {
            for one in &mut *found {
                let Some(answer) = self.answer_to(one.pod, reply.to) else { continue };
                let held = reply.held((one.share * blocks.len() as f64).round() as usize, &answer);
                one.share = held.min(blocks.len()) as f64 / blocks.len() as f64;
            }
        }
    }

    /// The same for a prompt of so many tokens, with what each pod will find of what it holds: whole pieces alone, of which the last
    /// token of a prompt is in none, and less where it finds less than is believed.
    pub fn finds(&self, (blocks, tokens): (&[u64], f64), turn: &Turn, found: &mut Vec<Match>) {
        self.matches(blocks, turn, found);
        if !self.grains.is_empty() {
            for one in &mut *found {
                let Some(grain) = self.grains.get(&one.pod).map(|grain| f64::from(*grain)) else {
                    continue;
                };
                let held = (one.share * tokens).min(tokens - 1.0);
                one.share = ((held / grain).floor() * grain / tokens).max(0.0);
            }
            found.retain(|one| one.share > 0.0);
        }
        if !self.found.is_empty() {
            for one in found {
                one.share *= self.found.get(&one.pod).copied().unwrap_or(1.0);
            }
        }
    }

    /// All pods with all of a prompt, in the place of what `found` held: they need not have it.
    pub fn all(&self, found: &mut Vec<Match>) {
        found.clear();
        found.extend(self.rings.keys().map(|pod| Match { pod: *pod, share: 1.0 }));
        found.sort_unstable_by_key(|one| one.pod);
    }

    /// What a pod holds of the last answer to a prompt of that name.
    fn answer_to(&self, pod: PodId, prompt: u64) -> Option<Answer> {
        self.rings.get(&pod)?.answer_to(prompt)
    }

    /// How many leading blocks of a prompt one pod holds, without what it holds of answers.
    pub fn matched(&self, pod: PodId, blocks: &[u64]) -> usize {
        let held = self.segments.walk(blocks).map_while(|step| {
            let held = step.segment.holders.get(step.segment.place_of(pod).ok()?)?;
            Some(step.shared.min(held.len as usize))
        });
        held.sum()
    }

    /// Takes note that a pod was sent a prompt of these blocks, named as for [`Self::matches`], by somebody who does not say when that
    /// is over. Of a prompt longer than the capacity, the beginning is kept.
    pub fn insert(&mut self, pod: PodId, blocks: &[u64]) {
        self.take(pod, blocks, 0);
    }

    /// Takes note that a pod was sent a prompt of these blocks, which it uses until [`Self::leave`]. Returns how many of them it
    /// keeps, all but of a prompt longer than the capacity. The answers that come there take so many blocks now; the one from
    /// which it goes on has names from here on.
    pub fn enter(&mut self, pod: PodId, blocks: &[u64], turn: &Turn, answers: usize) -> usize {
        if let Some(ring) = self.rings.get_mut(&pod) {
            ring.answers = answers;
            if let Some(reply) = &turn.reply {
                ring.take_answer_to(reply.to, |answer| reply.is(answer));
            }
        }
        self.take(pod, blocks, 1)
    }

    /// A request is over of whose prompt, of that name, a pod kept these blocks, with an answer of so many. Those that still
    /// come there take `answers`.
    pub fn leave(
        &mut self,
        pod: PodId,
        (blocks, name): (&[u64], u64),
        answer: usize,
        answers: usize,
    ) {
        let Some(ring) = self.rings.get_mut(&pod) else { return };
        ring.answers = answers;
        // More than its capacity is forgotten at once.
        let held = answer.min(ring.capacity) as u32;
        if held > 0 {
            ring.add_answer(Answer { to: name, blocks: answer as u32, held });
        }
        self.path.clear();
        let whole = self.segments.walk(blocks).filter(Step::is_whole);
        self.path.extend(whole.map(|step| step.id));
        for id in self.path.iter().rev() {
            let Some(held) = self.segments.held_mut(*id, pod).filter(|held| held.users > 0) else {
                continue;
            };
            held.users -= 1;
            if held.users == 0 {
                ring.leave_it(held.slot);
            }
        }
        let forgot = forget(ring, pod, &mut self.segments);
        self.version += u64::from(forgot);
    }

    /// Blocks that a pod holds.
    pub fn len_of(&self, pod: PodId) -> usize {
        self.rings.get(&pod).map_or(0, |ring| ring.len)
    }

    /// Has a pod hold a prompt, with so many requests more that use it, as far as it keeps that. Says how far.
    fn take(&mut self, pod: PodId, blocks: &[u64], users: u32) -> usize {
        let Some(capacity) = self.rings.get(&pod).map(|ring| ring.capacity) else { return 0 };
        let kept = blocks.get(..capacity).unwrap_or(blocks);
        self.find_path(kept);
        let Some(ring) = self.rings.get_mut(&pod) else { return 0 };
        let before = ring.len;
        // The deepest first, so that a segment is older than the one above it.
        for id in self.path.iter().rev() {
            hold(ring, (pod, users), *id, &mut self.segments);
        }
        // What is only younger now is found as before.
        let came = ring.len > before;
        let forgot = forget(ring, pod, &mut self.segments);
        self.version += u64::from(came || forgot);
        kept.len()
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
                    let (ring, below) = (rings.get_mut(&held.pod), Kept::Segment(below));
                    ring.map_or(0, |ring| match held.users {
                        0 => ring.add_older_than(held.slot, below),
                        _ => ring.add_used(below),
                    })
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

/// Has a pod hold all of a segment, with so many requests more that use it. The youngest that it holds, if none does.
fn hold(ring: &mut Ring, (pod, more): (PodId, u32), id: SegmentId, segments: &mut Segments) {
    let Some(segment) = segments.get_mut(id) else { return };
    let len = segment.len();
    match segment.whole(pod) {
        Ok((held, blocks)) => {
            ring.len += blocks;
            match (held.users, more) {
                (0, 0) => ring.make_youngest(held.slot),
                (0, _) => ring.use_it(held.slot),
                _ => {}
            }
            held.users += more;
        }
        Err(place) => {
            let kept = Kept::Segment(id);
            let slot = if more == 0 { ring.add_youngest(kept) } else { ring.add_used(kept) };
            segment.holders.insert(place, Held { pod, slot, len, users: more });
            ring.len += len as usize;
        }
    }
}

/// Forgets the oldest blocks that a pod holds above its capacity and does not use, of a segment the deepest first. Says whether any
/// were of a prompt.
fn forget(ring: &mut Ring, pod: PodId, segments: &mut Segments) -> bool {
    let mut any = false;
    while ring.above() > 0 {
        let above = ring.above();
        match ring.oldest() {
            Some((slot, Kept::Answer(answer))) => ring.shorten(slot, answer, above),
            Some((slot, Kept::Segment(id))) => {
                any = true;
                let held = segments.held_mut(id, pod).filter(|held| above < held.len as usize);
                if let Some(held) = held {
                    held.len -= above as u32;
                    ring.len -= above;
                } else {
                    ring.len -= segments.forget(id, pod).map_or(0, |held| held.len as usize);
                    ring.take_out(slot);
                }
            }
            Some((_, Kept::Nothing)) | None => break,
        }
    }
    any
}

#[cfg(test)]
mod tests;
