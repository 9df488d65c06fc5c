//! How much can be run in the time that there is.

use super::{
    case::Case,
    contest::{Entry, Errand, rivals},
    wanted::Ask,
};

/// Numbers of requests per seed that are chosen from: the same machine takes the same one twice.
const STEPS: [usize; 7] = [800, 1200, 1600, 2000, 2500, 3000, 3500];
/// The most of a screening.
const BRIEF: usize = 1600;
/// Seeds of the screening.
pub(super) const SCREEN_SEEDS: [u64; 2] = [1, 2];
/// Seeds of Weir's variants.
pub(super) const VARIANT_SEEDS: [u64; 3] = [1, 2, 3];
/// Share of what is left that is planned with.
const CAUTION: f64 = 0.8;

/// The largest number of requests per seed whose simulation fits, or the smallest there is. `work_s` is how long one thread
/// takes for each request per seed.
pub(super) fn fitting(work_s: f64, threads: usize, seconds: f64) -> usize {
    let affordable = threads as f64 * seconds * CAUTION / work_s.max(1e-9);
    let fits = STEPS.iter().rev().find(|step| **step as f64 <= affordable);
    fits.or(STEPS.first()).copied().unwrap_or_default()
}

/// Requests per seed of each case in so many seconds: all get an equal part of the time, and what the quick ones leave goes to
/// the others. `work_s` is as for [`fitting`].
pub(super) fn shared_out(work_s: &[f64], threads: usize, seconds: f64) -> Vec<usize> {
    let mut order: Vec<(usize, f64)> = work_s.iter().copied().enumerate().collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut requests = vec![0; work_s.len()];
    let mut left = seconds;
    for (done, (place, work)) in order.iter().enumerate() {
        let fits = fitting(*work, threads, left / (order.len() - done) as f64);
        left = (left - fits as f64 * work / threads as f64 / CAUTION).max(0.0);
        if let Some(requests) = requests.get_mut(*place) {
            *requests = fits;
        }
    }
    requests
}

/// How time is shared between the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Parts {
    /// For the screening.
    pub(super) screening_s: f64,
    /// For Weir and the best rivals.
    pub(super) finals_s: f64,
}

/// Shares of so many seconds. What is left is for variants, single requests, limits and the page.
pub(super) fn parts(seconds: f64) -> Parts {
    Parts { screening_s: seconds * 0.3, finals_s: seconds * 0.55 }
}

/// How long one thread takes to screen a case, for each request per seed.
pub(super) fn screening_s(entry: &Entry, per_request_s: f64) -> f64 {
    let errand = Errand::of(&entry.rows).in_brief(None);
    // Weir's own search counts as two more.
    let runs = (2 + rivals(&entry.rows).len()) * errand.simulations() * SCREEN_SEEDS.len();
    runs as f64 * relative(entry.case) * per_request_s
}

/// How long one thread takes for the finals of a case, for each request per seed.
pub(super) fn finals_s(entry: &Entry, seeds: usize, per_request_s: f64) -> f64 {
    let errand = Errand::of(&entry.rows).in_full(entry.case);
    let runs = finalists(entry) * errand.simulations() * seeds;
    runs as f64 * relative(entry.case) * per_request_s
}

/// Weir and the rivals that are run in full, on average.
fn finalists(entry: &Entry) -> usize {
    match entry.rows.first().map(|row| row.ask) {
        Some(ask) if !ask.is_contest() => 2,
        Some(Ask::MeanE2e | Ask::MeanTtft) => 4,
        Some(Ask::MedianE2e | Ask::MedianTtft) => 2,
        _ => 6,
    }
}

/// What a screening gets of these.
pub(super) fn brief(requests: Vec<usize>) -> Vec<usize> {
    requests.into_iter().map(|requests| requests.min(BRIEF)).collect()
}

/// Requests of a case for each usual one.
fn relative(case: &Case) -> f64 {
    case.requests(1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_run_and_at_least_a_little() {
        assert_eq!(fitting(0.2, 2, 200.0), 1600);
        assert_eq!(fitting(0.2, 2, 1000.0), 3500);
        assert_eq!(fitting(1e9, 1, 1.0), 800);
    }

    #[test]
    fn what_quick_cases_leave_goes_to_slow_ones() {
        let alone = fitting(0.2, 1, 500.0);
        assert_eq!(shared_out(&[0.2, 1e-6], 1, 900.0), [fitting(0.2, 1, 890.0), 3500]);
        assert_eq!(shared_out(&[0.2, 0.2], 1, 1000.0), [alone, alone]);
    }
}
