//! Rank: which of two waiting requests goes first.
//!
//! Inside a lane the earliest deadline goes first, which is first come, first served when all have
//! the same objective. Between lanes the band comes before the deadline. Both were measured against
//! slack, violation probability and shortest-first (docs/decisions/001-the-pull-loop.md), which a
//! policy may ask for instead. Weir's own order gives a long prompt a head start while requests hardly
//! wait ([`super::strain`]); of what is promised nothing it counts what the pod that had most of it cached would have had to compute
//! when it came.

use std::{cmp::Reverse, time::Duration};

use crate::{Band, Request, RequestId, Time, policy::Order, request::PATIENCE};

/// A prompt of so many tokens is due after half of that, and a short one after about 10 ms per token: shortest first for prompts of
/// any length, with [`PATIENCE`] as the cap on age.
const HALF_PATIENCE_TOKENS: u32 = 6000;

/// Place of a request among others; the greater goes first. Of two that are due at the same moment that is the one named first,
/// which came first where names are given in the order of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(Reverse<(Time, RequestId)>);

impl Rank {
    /// The rank of a request that is due at `due`.
    pub const fn new(due: Time, id: RequestId) -> Self {
        Self(Reverse((due, id)))
    }

    /// When the request is due.
    pub const fn due(self) -> Time {
        self.0.0.0
    }

    /// The request.
    pub const fn id(self) -> RequestId {
        self.0.0.1
    }
}

/// The head of a lane: its band, and its place there.
pub type Head = (Band, Rank);

/// When a request is due: its deadline, or a virtual one that puts short prompts first, by so many tokens of it. Under the
/// orders that know no deadline, when it arrived, or that virtual one for everybody. `head_start` is how much sooner than
/// its deadline the order of that name has it due, but never before it came.
pub fn due(request: &Request, tokens: u32, order: Order, head_start: Duration) -> Time {
    let by_size = request.arrived.plus(patience(tokens));
    match order {
        Order::HeadStart => request
            .slo
            .ttft
            .map_or(by_size, |ttft| request.arrived.plus(ttft.saturating_sub(head_start))),
        Order::Deadline | Order::Slack | Order::Violation => request.deadline().unwrap_or(by_size),
        Order::SloDeadline => request.deadline().unwrap_or(Time::NEVER),
        Order::Fifo => request.arrived,
        Order::ShortestFirst => by_size,
    }
}

/// How long after its arrival a prompt of so many tokens is due.
fn patience(tokens: u32) -> Duration {
    let tokens = f64::from(tokens);
    PATIENCE.mul_f64(tokens / (tokens + f64::from(HALF_PATIENCE_TOKENS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_of_two_prompts_is_due_first_whatever_their_lengths() {
        let lengths = [0, 1, 100, 1000, 8000, 30_000, 120_000, 1_000_000];
        let due = lengths.map(patience);
        assert!(due.is_sorted_by(|one, next| one < next), "{due:?}");
        assert!(patience(u32::MAX) <= PATIENCE);
        assert_eq!(patience(HALF_PATIENCE_TOKENS), PATIENCE / 2);
    }
}
