//! Who decides: whoever started first.
//!
//! So a dispatcher that joins mostly takes nothing over. Clocks need not agree: they only have to say something different, and the
//! same to everybody. One that joins with a clock that is behind decides from then on, with what the others hand over to it.

use std::hash::{BuildHasher, RandomState};

use serde::{Deserialize, Serialize};

/// The order of dispatchers; the least decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Rank {
    /// When it started, in milliseconds since 1970 by its own clock.
    pub started_unix_ms: u64,
    /// Tells those apart that started at once.
    pub lot: u64,
}

impl Rank {
    /// That of a dispatcher which starts now.
    pub(super) fn drawn(now_unix_ms: u64) -> Self {
        Self { started_unix_ms: now_unix_ms, lot: RandomState::new().hash_one(now_unix_ms) }
    }
}
