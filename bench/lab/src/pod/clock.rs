//! The engine's time: wall-clock time times a speed that may change.
//!
//! Engine time decides and nothing drifts: a sleep that overshoots delays the bytes it delivers, never the steps after it.

use std::time::Duration;

use tokio::time::Instant;

/// Maps between wall-clock time and the engine's milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    anchor: Instant,
    anchor_ms: f64,
    speed: f64,
}

impl Clock {
    /// A clock that starts at engine time 0.
    pub(super) fn new(now: Instant, speed: f64) -> Self {
        Self { anchor: now, anchor_ms: 0.0, speed }
    }

    /// Engine time at a moment of wall-clock time.
    pub(super) fn ms(&self, now: Instant) -> f64 {
        let wall_ms = now.saturating_duration_since(self.anchor).as_secs_f64() * 1e3;
        self.anchor_ms + wall_ms * self.speed
    }

    /// The moment at which engine time will be `ms`, never before it.
    pub(super) fn instant(&self, ms: f64) -> Instant {
        let wall_ns = ((ms - self.anchor_ms) / self.speed * 1e6).max(0.0).ceil();
        self.anchor + Duration::from_nanos(wall_ns as u64 + 1)
    }

    /// Runs at another speed from now on.
    pub(super) fn set_speed(&mut self, now: Instant, speed: f64) {
        *self = Self { anchor: now, anchor_ms: self.ms(now), speed };
    }

    /// Wall-clock seconds that `ms` milliseconds of engine time take.
    pub(super) fn wall_s(&self, ms: f64) -> f64 {
        ms / self.speed / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_at_the_speed_and_never_jumps_when_it_changes() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut clock = Clock::new(start, 8.0);
        assert!((clock.ms(after(100)) - 800.0).abs() < 1e-6);
        clock.set_speed(after(100), 2.0);
        assert!((clock.ms(after(100)) - 800.0).abs() < 1e-6);
        assert!((clock.ms(after(150)) - 900.0).abs() < 1e-6);
    }

    #[test]
    fn a_sleep_until_the_moment_of_an_event_reaches_it() {
        let start = Instant::now();
        let clock = Clock::new(start, 3.0);
        for ms in [0.0, 0.1, 13.337, 1e6 / 3.0] {
            assert!(clock.ms(clock.instant(ms)) >= ms, "{ms}");
        }
    }
}
