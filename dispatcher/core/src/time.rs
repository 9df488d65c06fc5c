//! Time as an argument: a point in microseconds since the owner's own start.
//!
//! Core never reads a clock. The server passes its monotonic clock, a simulator its virtual one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, in microseconds since an epoch that the owner of the scheduler chooses.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// A point that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// A point `micros` after the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A point `millis` after the epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The point `duration` later; saturates.
    pub fn plus(self, duration: Duration) -> Self {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Milliseconds passed since `earlier`; zero when `earlier` is later.
    pub const fn ms_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1000.0
    }

    /// Milliseconds from now until this point; negative once it has passed.
    pub const fn ms_until(self, now: Self) -> f64 {
        (self.0 as f64 - now.0 as f64) / 1000.0
    }
}
