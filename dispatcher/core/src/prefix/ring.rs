//! What one pod holds, by age.

use super::segments::SegmentId;
use crate::spread::NumberMap;

/// Place of a node in a ring.
pub(super) type Slot = u32;

/// The node that closes a ring: its `older` is the youngest, its `younger` the oldest.
const ENDS: Slot = 0;

/// What a pod holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Some of a segment.
    Segment(SegmentId),
    /// Some of an answer that is over.
    Answer(Answer),
    /// Nothing: it is to be used again.
    Nothing,
}

/// An answer that is over, or its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Name of the prompt that it is to; 0 where nobody will ask for it, as once there is another one to that prompt.
    pub(super) to: u64,
    /// Its blocks.
    pub(super) blocks: u32,
    /// Those that are held of them, the first ones; at least one.
    pub(super) held: u32,
}

/// Something that the pod holds.
#[derive(Clone, Copy, Debug)]
struct Node {
    kept: Kept,
    younger: Slot,
    older: Slot,
}

/// An empty ring.
const ALONE: Node = Node { kept: Kept::Nothing, younger: ENDS, older: ENDS };

/// What is held by one pod. What is in use there has a node as well, and is not in the ring until it no longer is.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Blocks held at most.
    pub(super) capacity: usize,
    /// Blocks held.
    pub(super) len: usize,
    /// Blocks that answers under way take beside those.
    pub(super) answers: usize,
    /// [`ENDS`], those of what is held, and those of nothing.
    nodes: Vec<Node>,
    vacant: Vec<Slot>,
    /// The answer that is held to each prompt that has a name, the only one of that name.
    answers_to: NumberMap<u64, Slot>,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            capacity: 0,
            len: 0,
            answers: 0,
            nodes: vec![ALONE],
            vacant: Vec::new(),
            answers_to: NumberMap::default(),
        }
    }
}

impl Ring {
    /// Blocks that are too many.
    pub(super) const fn above(&self) -> usize {
        (self.len + self.answers).saturating_sub(self.capacity)
    }

    /// Blocks more that may be held.
    pub(super) const fn room_left(&self) -> usize {
        self.capacity.saturating_sub(self.len + self.answers)
    }

    /// Makes something that was not held the youngest.
    pub(super) fn add_youngest(&mut self, kept: Kept) -> Slot {
        self.add_older_than(ENDS, kept)
    }

    /// Makes something that was not held the oldest.
    pub(super) fn add_oldest(&mut self, kept: Kept) -> Slot {
        self.add_older_than(self.node(ENDS).younger, kept)
    }

    /// Puts something that was not held behind the one at `younger`, as the next older.
    pub(super) fn add_older_than(&mut self, younger: Slot, kept: Kept) -> Slot {
        let slot = self.add_used(kept);
        self.link(slot, younger);
        slot
    }

    /// A node for something that is in use.
    pub(super) fn add_used(&mut self, kept: Kept) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(ALONE);
            (self.nodes.len() - 1) as Slot
        });
        self.edit(slot, |node| node.kept = kept);
        slot
    }

    /// Makes what a node in the ring has the youngest.
    pub(super) fn make_youngest(&mut self, slot: Slot) {
        if self.node(ENDS).older != slot {
            self.unlink(slot);
            self.link(slot, ENDS);
        }
    }

    /// What a node has is in use from now on.
    pub(super) fn use_it(&mut self, slot: Slot) {
        self.unlink(slot);
    }

    /// It no longer is, and the youngest.
    pub(super) fn leave_it(&mut self, slot: Slot) {
        self.link(slot, ENDS);
    }

    /// Forgets what a node in the ring has.
    pub(super) fn take_out(&mut self, slot: Slot) {
        self.unlink(slot);
        self.edit(slot, |node| node.kept = Kept::Nothing);
        self.vacant.push(slot);
    }

    /// Holds an answer, as the youngest. Nobody will ask for the one before to that prompt.
    pub(super) fn add_answer(&mut self, answer: Answer) {
        self.len += answer.held as usize;
        let slot = self.add_youngest(Kept::Answer(answer));
        if answer.to != 0
            && let Some(before) = self.answers_to.insert(answer.to, slot)
            && let Kept::Answer(other) = self.node(before).kept
        {
            self.edit(before, |node| node.kept = Kept::Answer(Answer { to: 0, ..other }));
        }
    }

    /// Holds some of an answer, at least one block, as the oldest.
    pub(super) fn recall_answer(&mut self, mut answer: Answer) {
        if answer.held == 0 {
            return;
        }
        self.len += answer.held as usize;
        if self.answers_to.contains_key(&answer.to) {
            answer.to = 0;
        }
        let slot = self.add_oldest(Kept::Answer(answer));
        if answer.to != 0 {
            self.answers_to.insert(answer.to, slot);
        }
    }

    /// What is held of the last answer to a prompt.
    pub(super) fn answer_to(&self, prompt: u64) -> Option<Answer> {
        self.find_answer_to(prompt).map(|(_, answer)| answer)
    }

    fn find_answer_to(&self, prompt: u64) -> Option<(Slot, Answer)> {
        let slot = *self.answers_to.get(&prompt)?;
        match self.node(slot).kept {
            Kept::Answer(answer) => Some((slot, answer)),
            Kept::Segment(_) | Kept::Nothing => None,
        }
    }

    /// Holds the last answer to a prompt no longer, if it does and that is the one: a prompt that has it in it comes in its place.
    pub(super) fn take_answer_to(&mut self, prompt: u64, is_it: impl Fn(&Answer) -> bool) {
        if let Some((slot, answer)) = self.find_answer_to(prompt).filter(|(_, one)| is_it(one)) {
            self.shorten(slot, answer, answer.held as usize);
        }
    }

    /// Forgets up to so many blocks of an answer.
    pub(super) fn shorten(&mut self, slot: Slot, answer: Answer, by: usize) {
        if by < answer.held as usize {
            self.len -= by;
            let left = Answer { held: answer.held - by as u32, ..answer };
            self.edit(slot, |node| node.kept = Kept::Answer(left));
            return;
        }
        self.len -= answer.held as usize;
        self.take_out(slot);
        self.answers_to.remove(&answer.to);
    }

    /// The oldest of what is not in use.
    pub(super) fn oldest(&self) -> Option<(Slot, Kept)> {
        let slot = self.node(ENDS).younger;
        (slot != ENDS).then(|| (slot, self.node(slot).kept))
    }

    /// What is not in use, oldest first.
    pub(super) fn oldest_to_youngest(&self) -> impl Iterator<Item = Kept> {
        let next = |node: Node| (node.younger != ENDS).then(|| self.node(node.younger));
        std::iter::successors(next(self.node(ENDS)), move |node| next(*node)).map(|node| node.kept)
    }

    /// The segments of which it holds some, in use or not, in no order.
    pub(super) fn segments(&self) -> impl Iterator<Item = SegmentId> {
        self.nodes.iter().filter_map(|node| match node.kept {
            Kept::Segment(id) => Some(id),
            Kept::Answer(_) | Kept::Nothing => None,
        })
    }

    fn link(&mut self, slot: Slot, younger: Slot) {
        let older = self.node(younger).older;
        self.edit(slot, |node| (node.younger, node.older) = (younger, older));
        self.edit(older, |node| node.younger = slot);
        self.edit(younger, |node| node.older = slot);
    }

    fn unlink(&mut self, slot: Slot) {
        let Node { younger, older, .. } = self.node(slot);
        self.edit(younger, |node| node.older = older);
        self.edit(older, |node| node.younger = younger);
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

#[cfg(test)]
impl Ring {
    /// Segments for which there is room.
    pub(super) fn room(&self) -> usize {
        self.nodes.len() - 1
    }
}
