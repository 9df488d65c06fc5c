//! The process's clock: monotonic time for decisions, wall time for the spool.
//!
//! Made once at the start and copied to everyone, so that every [`Time`] in the process counts from
//! the same moment.
//!
//! A process may not run for a while: it is stopped, or its machine sleeps, or moves. What it measures over that is its own standing
//! still and nothing of a pod's. So a thread that does nothing else beats ten times a second, and where the last beat is half a second old
//! nobody ran in between. Who looks before it beats again sees that by the age of the last beat. The thread asks the wall's clock as well, for the
//! monotonic one stands still while the machine sleeps, and that of the wall in some machines that are moved. One that is set forward looks the same, and
//! costs a few samples.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{select, time::sleep};
use weir_core::Time;

use crate::worker::Stop;

/// What it says when it is made. Times of before that have to be told too: what another dispatcher hands over may be older than this
/// process.
const BEGIN: Duration = Duration::from_secs(24 * 3600);

/// Time between two beats.
const BEAT: Duration = Duration::from_millis(100);
/// A beat that is so old was the last one that the process ran for: no busy machine keeps a thread that long that wants so little.
const STOOD_STILL: Duration = Duration::from_millis(500);

/// Counts from the moment it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    beats: &'static Beats,
}

/// When the process last showed that it runs. Zero until the first beat.
#[derive(Debug, Default)]
struct Beats {
    /// When it was last back from standing still, in microseconds of the clock.
    back_at_us: AtomicU64,
    /// When it last beat, on the clock. Read first and written last: who sees a new one sees what came with it.
    at_us: AtomicU64,
    /// The same on the wall, which only the one that beats asks.
    wall_ms: AtomicU64,
}

impl Beats {
    /// How long nobody ran before now, if that is long.
    fn silence(&self, now: Time) -> Option<Duration> {
        let last = Time::from_micros(self.at_us.load(Acquire));
        let silence = now.since(last);
        (last != Time::ZERO && silence >= STOOD_STILL).then_some(silence)
    }

    fn back_at(&self, now: Time) -> Time {
        match self.silence(now) {
            Some(_) => now,
            None => Time::from_micros(self.back_at_us.load(Acquire)),
        }
    }

    /// Returns how long nobody ran before it, if that is long.
    fn beat(&self, now: Time, wall_ms: u64) -> Option<Duration> {
        let by_wall = match self.wall_ms.swap(wall_ms, Relaxed) {
            0 => Duration::ZERO,
            before => Duration::from_millis(wall_ms.saturating_sub(before)),
        };
        let by_wall = Some(by_wall).filter(|silence| *silence >= STOOD_STILL);
        let silence = self.silence(now).max(by_wall);
        if silence.is_some() {
            self.back_at_us.store(now.as_micros(), Release);
        }
        self.at_us.store(now.as_micros(), Release);
        silence
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that starts now. What it remembers is kept as long as the process.
    pub fn new() -> Self {
        Self { start: Instant::now(), beats: Box::leak(Box::default()) }
    }

    /// Time passed since a day before the start; never goes back.
    pub fn now(&self) -> Time {
        Time::ZERO.plus(BEGIN + self.start.elapsed())
    }

    /// Time passed since the start.
    pub fn up(&self) -> Duration {
        self.start.elapsed()
    }

    /// When the process was last back from standing still, as far as `now` knows: what began before measures that too.
    pub fn back_at(&self, now: Time) -> Time {
        self.beats.back_at(now)
    }

    /// Wall-clock time in milliseconds since 1970; zero on a machine that is set before that.
    pub fn unix_ms(&self) -> u64 {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Beats until it is told to stop. Belongs on a thread of its own: what keeps it from beating is taken for the process standing still.
pub async fn beat(clock: Clock, mut stop: Stop) {
    loop {
        if let Some(silence) = clock.beats.beat(clock.now(), clock.unix_ms()) {
            tracing::warn!(
                silence_ms = silence.as_millis(),
                "the process stood still, or its clock was set: nothing is learned of what was under way"
            );
        }
        select! {
            () = stop.requested() => return,
            () = sleep(BEAT) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> (Time, u64) {
        (Time::from_millis(1000 + ms), 5_000_000 + ms)
    }

    #[test]
    fn who_looks_before_the_next_beat_sees_that_nobody_ran() {
        let beats = Beats::default();
        let look = |ms| beats.back_at(at(ms).0);
        let beat = |ms| beats.beat(at(ms).0, at(ms).1);
        assert_eq!(look(5000), Time::ZERO, "nobody beats");
        assert_eq!(beat(5000), None, "the first one");
        assert_eq!((look(5400), beat(5400)), (Time::ZERO, None), "a busy machine");
        assert_eq!(look(7400), at(7400).0, "before the beat");
        assert_eq!(beat(7410), Some(Duration::from_millis(2010)));
        assert_eq!(look(7420), at(7410).0, "after it");
        assert_eq!((beat(7510), look(7520)), (None, at(7410).0));
    }

    #[test]
    fn a_machine_that_sleeps_is_seen_by_the_wall_and_a_clock_that_is_set_back_is_not() {
        let beats = Beats::default();
        let (now, wall_ms) = at(0);
        assert_eq!(beats.beat(now, wall_ms), None);
        assert_eq!(beats.beat(now.plus(BEAT), wall_ms - 60_000), None, "set back");
        let later = now.plus(2 * BEAT);
        assert_eq!(beats.beat(later, wall_ms), Some(Duration::from_secs(60)), "it slept");
        assert_eq!(beats.back_at(later.plus(BEAT)), later);
    }
}
