//! What calls of the scheduler cost: the clocks, and what they add up to.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::allocations;

/// Empty intervals measured to know what measuring costs.
const EMPTY: usize = 2000;

/// Time that this thread has run on a processor.
fn thread_cpu() -> Duration {
    let at = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(at.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(at.tv_nsec).unwrap_or_default())
}

/// Measures calls. Reading the thread's clock costs a system call, the usual cost of which is taken off every call.
#[derive(Debug)]
pub(super) struct Meter {
    /// Cost of measuring nothing; `None`: no clock is read.
    empty_us: Option<f64>,
}

/// What one call cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) cpu_us: f64,
    pub(super) wall_us: f64,
    pub(super) allocations: u64,
}

impl Meter {
    /// One that reads the clocks, or counts allocations only: under a simulated processor times mean nothing.
    pub(super) fn new(is_timed: bool) -> Self {
        let mut meter = Self { empty_us: is_timed.then_some(0.0) };
        if is_timed {
            let mut empty: Vec<f64> = (0..EMPTY).map(|_| meter.of(|| ()).cpu_us).collect();
            meter.empty_us = Some(quantile(&mut empty, 0.5));
        }
        meter
    }

    /// Runs something and says what it cost.
    pub(super) fn of(&self, work: impl FnOnce()) -> Cost {
        let allocated = allocations::count();
        let Some(empty_us) = self.empty_us else {
            work();
            let allocations = allocations::count() - allocated;
            return Cost { allocations, ..Cost::default() };
        };
        let wall = Instant::now();
        let cpu = thread_cpu();
        work();
        let cpu_us = thread_cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
        let allocations = allocations::count() - allocated;
        let wall_us = wall.elapsed().as_secs_f64() * 1e6;
        Cost { cpu_us: (cpu_us - empty_us).max(0.0), wall_us, allocations }
    }
}

/// A quantile of some values, which are put in order; 0 of none.
pub(super) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len().saturating_sub(1)) as f64 * share;
    values.get(place.round() as usize).copied().unwrap_or_default()
}

/// What all calls of a run cost.
#[derive(Debug, Default)]
pub(super) struct Bill {
    pub(super) events: u64,
    pub(super) dispatched: u64,
    pub(super) refused: u64,
    pub(super) cpu_us: f64,
    pub(super) allocations: u64,
    /// Of the calls that gave a request to a pod.
    pub(super) deciding: Vec<Cost>,
    /// The CPU time by kind of event.
    pub(super) by_kind: std::collections::BTreeMap<&'static str, (u64, f64)>,
}

impl Bill {
    /// A call is over that gave out so many requests.
    pub(super) fn add(&mut self, kind: &'static str, cost: Cost, dispatched: u64) {
        self.events += 1;
        self.dispatched += dispatched;
        self.cpu_us += cost.cpu_us;
        self.allocations += cost.allocations;
        let (count, cpu_us) = self.by_kind.entry(kind).or_default();
        *count += 1;
        *cpu_us += cost.cpu_us;
        if dispatched > 0 {
            self.deciding.push(cost);
        }
    }
}
