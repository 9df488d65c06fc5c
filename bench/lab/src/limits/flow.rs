//! How soon one preemptive server can be through with jobs that come over time.
//!
//! [`shortest_remaining`] is the least sum of times from release to end (SRPT is optimal on one server). [`mean_busy`] is the
//! least sum of the mean moments at which the jobs are worked on, from their release: served by size, the smaller before
//! the larger. A job on a pool of `n` pods is worked on by one of them at a time, so its end lies behind that mean by half of its own
//! time at least, and that half is added by the caller: on few large jobs this is the better bound of the two.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A job: when it comes, and its work, both in milliseconds.
pub(super) type Arrival = (f64, f64);

/// Least sum of the times from release to end.
pub(super) fn shortest_remaining(jobs: &[Arrival], speed: f64) -> f64 {
    serve(jobs, speed, |left_ms, _| left_ms).ends_ms
}

/// Least sum of the times from release to the mean moment of being worked on.
pub(super) fn mean_busy(jobs: &[Arrival], speed: f64) -> f64 {
    serve(jobs, speed, |_, work_ms| work_ms).means_ms
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ends_ms: f64,
    means_ms: f64,
}

/// Serves jobs by the least `rank` of what is left and of the whole; `jobs` may be in any order.
fn serve(jobs: &[Arrival], speed: f64, rank: fn(f64, f64) -> f64) -> Sums {
    let mut coming: Vec<Arrival> =
        jobs.iter().copied().filter(|(_, work_ms)| *work_ms > 0.0).collect();
    coming.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut coming = coming.into_iter().peekable();
    // Positive numbers are in the order of their bits.
    let mut ready: BinaryHeap<Reverse<(u64, Ready)>> = BinaryHeap::new();
    let (mut now_ms, mut sums) = (0.0_f64, Sums::default());
    loop {
        if ready.is_empty() {
            let Some((release_ms, _)) = coming.peek() else { return sums };
            now_ms = now_ms.max(*release_ms);
        }
        while let Some((release_ms, work_ms)) = coming.next_if(|(at_ms, _)| *at_ms <= now_ms) {
            let job = Ready { release_ms, work_ms, left_ms: work_ms };
            ready.push(Reverse((rank(work_ms, work_ms).to_bits(), job)));
        }
        let Some(Reverse((_, mut job))) = ready.pop() else { return sums };
        let end_ms = now_ms + job.left_ms / speed;
        let until_ms = coming.peek().map_or(end_ms, |(at_ms, _)| at_ms.min(end_ms));
        let middle_ms = (now_ms + until_ms) / 2.0 - job.release_ms;
        let done_ms = if until_ms < end_ms { (until_ms - now_ms) * speed } else { job.left_ms };
        sums.means_ms += middle_ms * done_ms / job.work_ms;
        job.left_ms -= done_ms;
        now_ms = until_ms;
        if job.left_ms > 0.0 {
            ready.push(Reverse((rank(job.left_ms, job.work_ms).to_bits(), job)));
        } else {
            sums.ends_ms += now_ms - job.release_ms;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    release_ms: f64,
    work_ms: f64,
    left_ms: f64,
}

impl PartialEq for Ready {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ready {}

impl PartialOrd for Ready {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ready {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.release_ms.total_cmp(&other.release_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_job_interrupts_the_longer_one() {
        // 10 from 0 on, 2 at 3: the second ends at 5, the first at 12.
        assert_eq!(shortest_remaining(&[(0.0, 10.0), (3.0, 2.0)], 1.0), 2.0 + 12.0);
        // Twice as fast: the first ends at 6 with the 1 ms of the second in it.
        assert_eq!(shortest_remaining(&[(3.0, 2.0), (0.0, 10.0)], 2.0), 1.0 + 6.0);
    }

    #[test]
    fn what_is_nearly_through_is_not_interrupted() {
        assert_eq!(shortest_remaining(&[(0.0, 10.0), (9.0, 3.0)], 1.0), 10.0 + 4.0);
        assert_eq!(shortest_remaining(&[(5.0, 0.0)], 1.0), 0.0, "no work takes no time");
    }

    #[test]
    fn the_mean_moment_of_an_uninterrupted_job_is_its_middle() {
        assert_eq!(mean_busy(&[(4.0, 10.0)], 1.0), 5.0);
        // By size: 3 of the 10 before 9, 3 of the other until 12, 1 after.
        let interrupted = (4.5 * 9.0 + 12.5 * 1.0) / 10.0;
        assert_eq!(mean_busy(&[(0.0, 10.0), (9.0, 3.0)], 1.0), interrupted + 1.5);
    }
}
