//! Stretches of blocks that were always sent together, and which pods hold how much of each.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    names::{Names, Pieces},
    ring::Slot,
};
use crate::{PodId, spread::NumberMap};

/// Number of a segment.
pub(super) type SegmentId = u32;

/// A pod that holds the beginning of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) pod: PodId,
    /// The node that it has there.
    pub(super) slot: Slot,
    /// How many blocks, at least one; of what is in use all.
    pub(super) len: u32,
    /// Requests under way there that have it in their prompts.
    pub(super) users: u32,
}

/// Blocks that follow each other in every prompt that has them.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Names of its blocks. Nothing else begins with the first.
    names: Names,
    /// The pods that hold some of it, in the order of their ids. Most segments are on one.
    pub(super) holders: SmallVec<[Held; 2]>,
}

impl Segment {
    /// How many blocks.
    pub(super) const fn len(&self) -> u32 {
        self.names.len
    }

    /// Has a pod that holds some of it hold all. Says of how many blocks more, or the place where what it holds would be.
    pub(super) fn whole(&mut self, pod: PodId) -> Result<(&mut Held, usize), usize> {
        let (len, place) = (self.len(), self.place_of(pod)?);
        let held = self.holders.get_mut(place).ok_or(place)?;
        let more = len - held.len;
        held.len = len;
        Ok((held, more as usize))
    }

    /// What a pod holds of it, or the place where that would be.
    pub(super) fn place_of(&self, pod: PodId) -> Result<usize, usize> {
        self.holders.binary_search_by_key(&pod, |one| one.pod)
    }
}

/// A segment on the way through a prompt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    pub(super) id: SegmentId,
    pub(super) segment: &'a Segment,
    /// Blocks of the prompt before it.
    pub(super) place: usize,
    /// How many of its blocks, from the first on, are the prompt's.
    pub(super) shared: usize,
}

impl Step<'_> {
    /// Whether the prompt has all of it.
    pub(super) const fn is_whole(&self) -> bool {
        self.shared == self.segment.len() as usize
    }
}

/// All segments that some pod holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    by_first: NumberMap<u64, SegmentId>,
    all: Vec<Segment>,
    /// Those that are not used.
    vacant: Vec<SegmentId>,
    pieces: Pieces,
}

impl Segments {
    /// The segments that a prompt goes through, as far as it is known.
    pub(super) fn walk<'a>(&'a self, blocks: &'a [u64]) -> impl Iterator<Item = Step<'a>> {
        let mut place = Some(0);
        std::iter::from_fn(move || {
            let step = self.step(blocks, place?)?;
            place = step.is_whole().then_some(step.place + step.shared);
            Some(step)
        })
    }

    /// The segment that a prompt enters after so many of its blocks.
    pub(super) fn step(&self, blocks: &[u64], place: usize) -> Option<Step<'_>> {
        let rest = blocks.get(place..)?;
        let id = *self.by_first.get(rest.first()?)?;
        let segment = self.all.get(id as usize)?;
        // By the first name it was found.
        let shared = self.pieces.shared(segment.names, rest).max(1);
        Some(Step { id, segment, place, shared })
    }

    /// Names of the blocks of a segment that a pod holds; `None` where it holds none.
    pub(super) fn names_held(&self, id: SegmentId, pod: PodId) -> Option<Arc<[u64]>> {
        let segment = self.all.get(id as usize)?;
        let held = segment.holders.get(segment.place_of(pod).ok()?)?;
        Some(self.pieces.begin(segment.names, held.len as usize).collect())
    }

    /// That segment.
    pub(super) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.all.get_mut(id as usize)
    }

    /// What a pod holds of it.
    pub(super) fn held_mut(&mut self, id: SegmentId, pod: PodId) -> Option<&mut Held> {
        let segment = self.all.get_mut(id as usize)?;
        let place = segment.place_of(pod).ok()?;
        segment.holders.get_mut(place)
    }

    /// A segment of these blocks, of which there is at least one, that no pod holds yet.
    pub(super) fn add(&mut self, blocks: &[u64]) -> SegmentId {
        let names = self.pieces.keep(blocks);
        self.put(names)
    }

    /// Makes one of more than `at` blocks one of that many. The others are a segment of their own if a pod holds any; `place`
    /// finds a node for each that does, given what it holds of both and the new segment.
    pub(super) fn split(
        &mut self,
        id: SegmentId,
        at: usize,
        mut place: impl FnMut(&Held, SegmentId) -> Slot,
    ) {
        let Some(segment) = self.all.get_mut(id as usize) else { return };
        if segment.holders.iter().all(|held| held.len as usize <= at) {
            self.pieces.truncate(&mut segment.names, at);
            return;
        }
        let rest = self.pieces.split(&mut segment.names, at);
        let below = self.put(rest);
        let mut holders = SmallVec::new();
        let upper = self.all.get_mut(id as usize).into_iter().flat_map(|one| &mut one.holders);
        for held in upper.filter(|held| held.len as usize > at) {
            let slot = place(held, below);
            holders.push(Held {
                pod: held.pod,
                slot,
                len: held.len - at as u32,
                users: held.users,
            });
            held.len = at as u32;
        }
        if let Some(below) = self.all.get_mut(below as usize) {
            below.holders = holders;
        }
    }

    /// Forgets that a pod holds some of a segment. Says how much that was, and where its node is.
    pub(super) fn forget(&mut self, id: SegmentId, pod: PodId) -> Option<Held> {
        let segment = self.all.get_mut(id as usize)?;
        let held = segment.holders.remove(segment.place_of(pod).ok()?);
        if segment.holders.is_empty() {
            self.remove(id);
        }
        Some(held)
    }

    /// Forgets a segment that no pod holds any more.
    fn remove(&mut self, id: SegmentId) {
        let Some(segment) = self.all.get(id as usize) else { return };
        let first = self.pieces.first(segment.names);
        // One that was recalled without what is before it may be found no more: another has its name.
        if let Some(other) = self.by_first.remove(&first).filter(|found| *found != id) {
            self.by_first.insert(first, other);
        }
        self.pieces.forget(segment.names);
        self.vacant.push(id);
    }

    fn put(&mut self, names: Names) -> SegmentId {
        let segment = Segment { names, holders: SmallVec::new() };
        let id = self.vacant.pop().unwrap_or(self.all.len() as SegmentId);
        match self.all.get_mut(id as usize) {
            Some(room) => *room = segment,
            None => self.all.push(segment),
        }
        self.by_first.insert(self.pieces.first(names), id);
        id
    }
}

#[cfg(test)]
impl Segments {
    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    /// Segments and pieces of names for which there is room.
    pub(super) fn room(&self) -> (usize, usize) {
        (self.all.len(), self.pieces.room())
    }

    /// The same of those that are in use.
    pub(super) fn used(&self) -> (usize, usize) {
        (self.all.len() - self.vacant.len(), self.pieces.used())
    }

    /// Blocks of a segment that a pod holds.
    pub(super) fn held(&self, id: SegmentId, pod: PodId) -> Vec<u64> {
        self.names_held(id, pod).unwrap().to_vec()
    }

    /// Blocks held, by all pods, of the segments that can be found.
    pub(super) fn held_by_all(&self) -> usize {
        let found = self.by_first.values().map(|id| &self.all[*id as usize]);
        found.flat_map(|one| &one.holders).map(|held| held.len as usize).sum()
    }
}
