//! Rank: which of two waiting requests goes first.
//!
//! Inside a lane the earliest deadline goes first, which is first come, first served when all have
//! the same objective. Between lanes the band comes before the deadline. Both were measured against
//! slack, violation probability and shortest-first (docs/decisions/001-the-pull-loop.md).

use std::{cmp::Reverse, time::Duration};

use crate::{Request, Time};

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

/// When a request is due: its deadline, or a virtual one that puts short prompts first.
pub fn due(request: &Request, input_tokens: u32) -> Time {
    request.deadline().unwrap_or_else(|| {
        let patience = PATIENCE_PER_TOKEN.saturating_mul(input_tokens).min(PATIENCE);
        request.arrived.plus(patience)
    })
}
