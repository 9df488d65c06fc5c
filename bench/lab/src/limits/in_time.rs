//! How many jobs one preemptive server can end in time at most.
//!
//! The relaxation in which a part of a job counts as that part of it: then work is spread over windows of time, what can be spread is
//! a polymatroid, and the best is found greedily. Jobs come by their due times; a window that would be overfull gives work
//! back, that of the largest job released in it first (Moore and Hodgson's rule, for jobs that are released at different
//! times). Windows are tried from the shortest on, which is the order in which nested constraints are met at the least
//! cost. The sum of the parts that are left is an upper bound of the whole jobs of any schedule, and less than one above
//! what dropping whole jobs by the same rule leaves for each job that is cut.
//!
//! Takes `n log n` time.

use super::tree::{Largest, Loads};

/// Work in a window of time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) release_ms: f64,
    pub(super) due_ms: f64,
    pub(super) work_ms: f64,
}

/// Work that rounding may leave in excess.
const ROUNDING_MS: f64 = 1e-6;

/// The largest sum of parts of jobs that a server of this speed can end in time.
pub(super) fn most_in_time(jobs: &[Job], speed: f64) -> f64 {
    let mut by_release: Vec<&Job> = jobs.iter().filter(|job| job.work_ms > 0.0).collect();
    let free = jobs.len() - by_release.len();
    by_release.sort_by(|one, other| one.release_ms.total_cmp(&other.release_ms));
    let mut by_due: Vec<(usize, &Job)> = by_release.iter().copied().enumerate().collect();
    by_due.sort_by(|(_, one), (_, other)| one.due_ms.total_cmp(&other.due_ms));
    let starts: Vec<f64> = by_release.iter().map(|job| speed * job.release_ms).collect();
    let mut sweep = Sweep {
        loads: Loads::new(&starts),
        sizes: Largest::new(by_release.len()),
        left_ms: vec![0.0; by_release.len()],
    };
    for (place, job) in by_due {
        let released = by_release.partition_point(|other| other.release_ms < job.due_ms);
        sweep.add(place, job.work_ms);
        sweep.drop_excess(released, speed * job.due_ms);
    }
    let parts = by_release.iter().zip(&sweep.left_ms).map(|(job, left_ms)| left_ms / job.work_ms);
    free as f64 + parts.sum::<f64>()
}

struct Sweep {
    /// For each release: the work of the jobs released from then on, and what the server could do until then.
    loads: Loads,
    /// Sizes of the jobs of which something is left.
    sizes: Largest,
    left_ms: Vec<f64>,
}

impl Sweep {
    fn add(&mut self, place: usize, work_ms: f64) {
        if let Some(left_ms) = self.left_ms.get_mut(place) {
            *left_ms = work_ms;
        }
        self.sizes.set(place, work_ms);
        self.loads.add(place + 1, work_ms);
    }

    /// Takes work back until no window that ends now is overfull.
    fn drop_excess(&mut self, released: usize, until_ms: f64) {
        while let Some((from, load_ms)) = self.loads.last_above(released, until_ms + ROUNDING_MS) {
            let Some(largest) = self.sizes.from(from) else { return };
            let Some(left_ms) = self.left_ms.get_mut(largest) else { return };
            let back_ms = left_ms.min(load_ms - until_ms);
            *left_ms -= back_ms;
            if *left_ms <= ROUNDING_MS {
                self.sizes.set(largest, f64::NEG_INFINITY);
            }
            self.loads.add(largest + 1, -back_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    fn job(release_ms: f64, due_ms: f64, work_ms: f64) -> Job {
        Job { release_ms, due_ms, work_ms }
    }

    /// Whether earliest-due-first ends all of them in time, a millisecond at a time.
    fn feasible(jobs: &[Job], speed: u32) -> bool {
        let mut left: Vec<(Job, f64)> = jobs.iter().map(|job| (*job, job.work_ms)).collect();
        for now in 0..60 {
            for _ in 0..speed {
                let ready = left
                    .iter_mut()
                    .filter(|(job, left)| job.release_ms <= f64::from(now) && *left > 0.0);
                let first = ready.min_by(|(one, _), (two, _)| one.due_ms.total_cmp(&two.due_ms));
                if let Some((job, left)) = first {
                    if job.due_ms < f64::from(now) + 1.0 {
                        return false;
                    }
                    *left -= 1.0;
                }
            }
        }
        left.iter().all(|(_, left)| *left <= 0.0)
    }

    /// The most whole jobs, over all subsets.
    fn most_whole(jobs: &[Job], speed: u32) -> usize {
        let subsets = 0..1_u32 << jobs.len();
        let chosen = |subset: u32| -> Vec<Job> {
            let kept = jobs.iter().enumerate().filter(|(bit, _)| subset >> bit & 1 == 1);
            kept.map(|(_, job)| *job).collect()
        };
        let fits = subsets.filter(|subset| feasible(&chosen(*subset), speed));
        fits.map(|subset| subset.count_ones() as usize).max().unwrap_or_default()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let jobs = [job(0.0, 10.0, 4.0), job(2.0, 8.0, 4.0), job(3.0, 20.0, 9.0)];
        assert!((most_in_time(&jobs, 1.0) - 3.0).abs() < 1e-6);
    }

    #[test]
    fn the_largest_job_of_an_overfull_window_gives_way() {
        // 12 of work until 10: two of the job of 8 do not fit.
        let jobs = [job(0.0, 10.0, 8.0), job(0.0, 10.0, 4.0)];
        assert!((most_in_time(&jobs, 1.0) - 1.75).abs() < 1e-6);
        assert!((most_in_time(&jobs, 2.0) - 2.0).abs() < 1e-6);
    }

    #[test]
    fn a_large_job_outside_the_overfull_window_stays() {
        // The window from 20 to 30 holds 10 of its 16; what was due before is not touched.
        let jobs = [job(0.0, 20.0, 19.0), job(20.0, 30.0, 8.0), job(20.0, 30.0, 8.0)];
        assert!((most_in_time(&jobs, 1.0) - 2.25).abs() < 1e-6);
    }

    #[test]
    fn no_schedule_ends_more_whole_jobs_in_time() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut tight = 0;
        for round in 0..300 {
            let speed = 1 + round % 3;
            let jobs: Vec<Job> = (0..rng.random_range(1..8))
                .map(|_| {
                    let release = rng.random_range(0..20);
                    let due = release + rng.random_range(1..15);
                    job(f64::from(release), f64::from(due), f64::from(rng.random_range(1..9)))
                })
                .collect();
            let bound = most_in_time(&jobs, f64::from(speed));
            let whole = most_whole(&jobs, speed);
            assert!(bound + 1e-6 >= whole as f64, "{bound} {whole} {jobs:?}");
            tight += u32::from((bound + 1e-6).floor() as usize == whole);
        }
        assert!(tight > 200, "the bound was attained {tight} times of 300");
    }
}
