//! What one pod holds, by age.

use super::segments::SegmentId;

/// Place of a node in a ring.
pub(super) type Slot = u32;

/// The node that closes a ring: its `older` is the youngest, its `younger` the oldest.
const ENDS: Slot = 0;

/// A segment of which the pod holds some.
#[derive(Clone, Copy, Debug)]
struct Node {
    segment: SegmentId,
    younger: Slot,
    older: Slot,
}

/// An empty ring.
const ALONE: Node = Node { segment: 0, younger: ENDS, older: ENDS };

/// The segments of one pod.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Blocks held at most.
    pub(super) capacity: usize,
    /// Blocks held.
    pub(super) len: usize,
    /// [`ENDS`], the nodes of segments, and those in no ring.
    nodes: Vec<Node>,
    vacant: Vec<Slot>,
}

impl Default for Ring {
    fn default() -> Self {
        Self { capacity: 0, len: 0, nodes: vec![ALONE], vacant: Vec::new() }
    }
}

impl Ring {
    /// Makes a segment that was not held the youngest.
    pub(super) fn add_youngest(&mut self, segment: SegmentId) -> Slot {
        self.add_older_than(ENDS, segment)
    }

    /// Puts a segment that was not held behind the one at `younger`, as the next older.
    pub(super) fn add_older_than(&mut self, younger: Slot, segment: SegmentId) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(ALONE);
            (self.nodes.len() - 1) as Slot
        });
        self.link(slot, segment, younger);
        slot
    }

    /// Makes the segment of a node the youngest.
    pub(super) fn make_youngest(&mut self, slot: Slot) {
        if self.node(ENDS).older != slot {
            self.unlink(slot);
            self.link(slot, self.node(slot).segment, ENDS);
        }
    }

    /// Takes out the segment of a node.
    pub(super) fn take_out(&mut self, slot: Slot) {
        self.unlink(slot);
        self.vacant.push(slot);
    }

    /// The oldest segment.
    pub(super) fn oldest(&self) -> Option<(Slot, SegmentId)> {
        let slot = self.node(ENDS).younger;
        (slot != ENDS).then(|| (slot, self.node(slot).segment))
    }

    fn link(&mut self, slot: Slot, segment: SegmentId, younger: Slot) {
        let older = self.node(younger).older;
        self.edit(slot, |node| *node = Node { segment, younger, older });
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
    pub(super) fn oldest_to_youngest(&self) -> Vec<SegmentId> {
        let next = |node: &Node| (node.younger != ENDS).then(|| self.nodes[node.younger as usize]);
        std::iter::successors(next(&self.nodes[0]), next).map(|node| node.segment).collect()
    }

    /// Segments for which there is room.
    pub(super) fn room(&self) -> usize {
        self.nodes.len() - 1
    }
}
