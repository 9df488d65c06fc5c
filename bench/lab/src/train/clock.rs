//! Time on a processor.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Took {
    /// By the clock on the wall, in seconds.
    pub wall_s: f64,
    /// On a processor, in seconds.
    pub cpu_s: f64,
}

/// Does it, on this thread, and says what it took.
pub(super) fn took<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let done = work();
    let cpu_s = thread_cpu().saturating_sub(cpu).as_secs_f64();
    (done, Took { wall_s: wall.elapsed().as_secs_f64(), cpu_s })
}

/// Time that this thread has been on a processor.
fn thread_cpu() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(at.tv_nsec).unwrap_or_default())
}
