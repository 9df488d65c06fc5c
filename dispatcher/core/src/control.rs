//! What an operator does to a pool while it serves.
//!
//! Controls are events like any other: they go through [`crate::Scheduler::handle`], are booked
//! completely before it returns, and a control that names what is not there changes nothing.

use crate::{Band, RequestId, queue::LaneKey};

/// A change that an operator makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Refuse these, as far as they wait: each gets
    /// [`RefusalReason::Cancelled`](crate::RefusalReason::Cancelled).
    Cancel(Vec<RequestId>),
    /// Put a waiting request into another band, at the rank it had when it arrived.
    Move(RequestId, Band),
    /// Hold what is behind a gate: it is accepted and waits, inside the bounds of every wait, and
    /// keeps nobody else from going.
    Pause(Gate),
    /// Let what is behind a gate go again. [`Gate::Pool`] opens every gate of the pool.
    Resume(Gate),
}

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// Everything.
    Pool,
    /// A band.
    Band(Band),
    /// A lane. Requests that have a lane to themselves are paused with the lane they would be in.
    Lane(LaneKey),
}
