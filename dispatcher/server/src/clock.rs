//! The process's clock: monotonic time for decisions, wall time for the spool.
//!
//! Made once at the start and copied to everyone, so that every [`Time`] in the process counts from
//! the same moment.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_core::Time;

/// What it says when it is made. Times of before that have to be told too: what another dispatcher hands over may be older than this
/// process.
const BEGIN: Duration = Duration::from_secs(24 * 3600);

/// Counts from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Time passed since a day before the start; never goes back.
    pub fn now(&self) -> Time {
        Time::ZERO.plus(BEGIN + self.start.elapsed())
    }

    /// Time passed since the start.
    pub fn up(&self) -> Duration {
        self.start.elapsed()
    }

    /// Wall-clock time in milliseconds since 1970; zero on a machine that is set before that.
    pub fn unix_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }
}
