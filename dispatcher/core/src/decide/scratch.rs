//! Memory that passes use again and again: once every buffer has grown to its size, a decision allocates
//! nothing for itself.
//!
//! Whoever needs a buffer takes it and puts it back when done. One that is not put back, or is taken twice,
//! costs an allocation and nothing else.

use std::collections::BinaryHeap;

use weir_schema::{Prediction, Row};

use crate::{
    PodId, RequestId,
    decide::{
        grounds::Grounds,
        plain::{Candidate, Likely},
        score::Outlooks,
        scorer::Score,
    },
    headroom::Outlook,
    queue::Head,
};

/// The buffers.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Pods looked at for one head.
    pub outlooks: Outlooks,
    /// Those of them whose cheap gates are open, and how good they are.
    pub(super) open: Vec<(Score, Outlook)>,
    /// What every look at a pod begins with.
    pub(super) grounds: Grounds,
    /// How good each pod is, by its place.
    pub(super) likely: Vec<Likely>,
    /// The likeliest of them, by their places.
    pub(super) likeliest: BinaryHeap<(Likely, u32)>,
    /// Pods that may still be the best.
    pub(super) candidates: Vec<Candidate>,
    /// Those that are looked at at once.
    pub(super) batch: Vec<Candidate>,
    /// Rows of some of them.
    pub rows: Vec<Row>,
    /// And predictions.
    pub predictions: Vec<Prediction>,
    /// Heads of lanes.
    pub heads: Vec<Head>,
    /// Heads that can no longer meet their objective.
    pub lost: Vec<RequestId>,
    /// Streams that have come further: pod, which and where it was, how far each of its sequences is, and new events.
    pub moved: Vec<(PodId, (RequestId, usize), [u32; 2])>,
    /// In which order they are told of: pods above 32 bits, places among them below.
    pub order: Vec<u64>,
}
