//! How much can be run in the time that there is.

use super::{
    case::Case,
    contest::{Entry, Errand, rivals},
};

/// Numbers of requests per seed that are chosen from: the same machine takes the same one twice.
const STEPS: [usize; 9] = [400, 700, 1000, 1500, 2000, 2500, 3000, 3500, 5000];
/// Seeds of the screening.
pub(super) const SCREEN_SEEDS: [u64; 2] = [1, 2];
/// Seeds of Weir's variants.
pub(super) const VARIANT_SEEDS: [u64; 3] = [1, 2, 3];
/// Finalists of a case on average, with Weir.
const FINALISTS: f64 = 6.0;
/// Share of the time that is given to the screening.
const SCREENING: f64 = 0.4;
/// Share of what is left that is planned with.
const CAUTION: f64 = 0.8;

/// The largest number of requests per seed whose simulation fits, or the smallest there is. `work_s` is how long one thread
/// takes for each request per seed.
pub(super) fn fitting(work_s: f64, threads: usize, seconds: f64) -> usize {
    let affordable = threads as f64 * seconds * CAUTION / work_s.max(1e-9);
    let fits = STEPS.iter().rev().find(|step| **step as f64 <= affordable);
    fits.or(STEPS.first()).copied().unwrap_or(400)
}

/// Seconds of these that are for the screening.
pub(super) fn for_screening(seconds: f64) -> f64 {
    seconds * SCREENING
}

/// How long one thread takes to screen a case, for each request per seed.
pub(super) fn screening_s(entry: &Entry, per_request_s: f64) -> f64 {
    let errand = Errand::of(&entry.rows);
    let runs = rivals(&entry.rows).len() * errand.simulations() * SCREEN_SEEDS.len();
    runs as f64 * relative(entry.case) * per_request_s
}

/// How long one thread takes for the finals of a case, for each request per seed.
pub(super) fn finals_s(entry: &Entry, seeds: usize, per_request_s: f64) -> f64 {
    let errand = Errand::of(&entry.rows).in_full(entry.case);
    FINALISTS * (errand.simulations() * seeds) as f64 * relative(entry.case) * per_request_s
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
        assert_eq!(fitting(0.2, 2, 100.0), 700);
        assert_eq!(fitting(0.2, 2, 1000.0), 5000);
        assert_eq!(fitting(1e9, 1, 1.0), 400);
    }
}
