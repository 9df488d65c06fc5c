//! Jobs on threads.

use parking_lot::Mutex;

/// Does the jobs on so many threads, at least one, and returns what they returned, in their order. A job that panics ends
/// the whole.
pub fn in_parallel<'a, T: Send>(
    jobs: Vec<Box<dyn FnOnce() -> T + Send + 'a>>,
    threads: usize,
) -> Vec<T> {
    let threads = threads.clamp(1, jobs.len().max(1));
    let left = Mutex::new(jobs.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some((place, job)) = left.lock().next() else { return };
            let result = job();
            done.lock().push((place, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut done = done.into_inner();
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs_whoever_ends_first() {
        let together = Barrier::new(2);
        let job = |number: usize| {
            let together = &together;
            let job = move || {
                // The first two jobs only end together: on two threads, or never.
                if number < 2 {
                    together.wait();
                }
                number
            };
            Box::new(job) as Box<dyn FnOnce() -> usize + Send>
        };
        assert_eq!(in_parallel((0..9).map(job).collect(), 2), (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn no_job_and_no_thread_are_no_matter() {
        assert_eq!(in_parallel::<u8>(Vec::new(), 4), Vec::<u8>::new());
        assert_eq!(in_parallel(vec![Box::new(|| 5)], 0), vec![5]);
    }
}
