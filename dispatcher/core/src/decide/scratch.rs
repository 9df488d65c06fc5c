//! Memory that passes use again and again: once every buffer has grown to its size, a decision allocates
//! nothing for itself.
//!
//! Whoever needs a buffer takes it and puts it back when done. One that is not put back, or is taken twice,
//! costs an allocation and nothing else.

use weir_schema::{Prediction, Row};

use crate::{
    Band, RequestId,
    decide::{pick::Fit, score::Outlooks},
    headroom::Outlook,
    queue::Rank,
};

/// The buffers.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Pods looked at for one head.
    pub outlooks: Outlooks,
    /// Those of them whose gates are open.
    pub open: Vec<Outlook>,
    /// Their rows.
    pub rows: Vec<Row>,
    /// And predictions.
    pub predictions: Vec<Prediction>,
    /// Those that fit.
    pub fits: Vec<Fit>,
    /// Heads of lanes.
    pub heads: Vec<(Band, Rank, RequestId)>,
    /// Heads that can no longer meet their objective.
    pub lost: Vec<RequestId>,
}
