//! Rank: which of two waiting requests goes first.
//!
//! Inside a lane the earliest deadline goes first, which is first come, first served when all have
//! the same objective. Between lanes the band comes before the deadline. Both were measured against
//! slack, violation probability and shortest-first (docs/decisions/001-the-pull-loop.md), which a
//! policy may ask for instead.

use std::{cmp::Reverse, time::Duration};

use crate::{Request, Time, policy::Order};

/// A request without a TTFT objective is due at the latest after this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time that each input token adds to the due time of a request without a TTFT objective: shortest
/// first, with [`PATIENCE`] as the cap on age.
const PATIENCE_PER_TOKEN: Duration = Duration::from_millis(5);

/// Place of a request among others; the greater goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(Reverse<(Time, u64)>);

impl Rank {
    /// The rank of a request that is due at `due` and came as the `arrival`-th.
    pub const fn new(due: Time, arrival: u64) -> Self {
        Self(Reverse((due, arrival)))
    }

    /// When the request is due.
    pub const fn due(self) -> Time {
        self.0.0.0
    }

    /// The request's place in the order of arrivals.
    pub const fn arrival(self) -> u64 {
        self.0.0.1
    }
}

/// When a request is due: its deadline, or a virtual one that puts short prompts first. Under the
/// orders that know no deadline, when it arrived, or that virtual one for everybody.
pub fn due(request: &Request, input_tokens: u32, order: Order) -> Time {
    let patience = PATIENCE_PER_TOKEN.saturating_mul(input_tokens).min(PATIENCE);
    let by_size = request.arrived.plus(patience);
    match order {
        Order::Deadline | Order::Slack | Order::Violation => request.deadline().unwrap_or(by_size),
        Order::SloDeadline => request.deadline().unwrap_or(Time::from_micros(u64::MAX)),
        Order::Fifo => request.arrived,
        Order::ShortestFirst => by_size,
    }
}
