//! How much can be run in the time that there is.

use super::{
    contest::{Entry, Errand, rivals},
    wanted::Ask,
};

/// Numbers of requests per seed that are chosen from: the same machine takes the same one twice.
const STEPS: [usize; 7] = [800, 1200, 1600, 2000, 2500, 3000, 3500];
/// The most of a screening.
const BRIEF: usize = 1600;
/// Seeds of the screening, and of what is compared with limits.
pub(super) const SCREEN_SEEDS: [u64; 2] = [1, 2];
/// Seeds of Weir's variants.
pub(super) const VARIANT_SEEDS: [u64; 3] = [1, 2, 3];
/// Share of what is left that is planned with.
const CAUTION: f64 = 0.8;

/// What a case costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    /// Seconds of one thread for each request per seed.
    pub(super) per_request_s: f64,
    /// Requests per seed that it needs at least, or its run is over before queues can grow.
    pub(super) least: usize,
}

/// The largest number of requests per seed whose simulation fits, or the smallest there is.
fn fitting(work: Work, threads: usize, seconds: f64) -> usize {
    let affordable = threads as f64 * seconds * CAUTION / work.per_request_s.max(1e-9);
    let fits = STEPS.iter().rev().find(|step| **step as f64 <= affordable);
    fits.or(STEPS.first()).copied().unwrap_or_default().max(work.least)
}

/// Requests per seed of each case in so many seconds: all get an equal part of the time, and what the quick ones leave goes to
/// the others.
pub(super) fn shared_out(work: &[Work], threads: usize, seconds: f64) -> Vec<usize> {
    let mut order: Vec<(usize, Work)> = work.iter().copied().enumerate().collect();
    let least_s = |work: &Work| work.per_request_s * work.least.max(1) as f64;
    order.sort_by(|a, b| least_s(&a.1).total_cmp(&least_s(&b.1)));
    let mut requests = vec![0; work.len()];
    let mut left = seconds;
    for (done, (place, work)) in order.iter().enumerate() {
        let fits = fitting(*work, threads, left / (order.len() - done) as f64);
        left = (left - fits as f64 * work.per_request_s / threads as f64 / CAUTION).max(0.0);
        if let Some(requests) = requests.get_mut(*place) {
            *requests = fits;
        }
    }
    requests
}

/// How much of so many seconds is for the screening.
pub(super) fn for_screening(left_s: f64) -> f64 {
    left_s * 0.3
}

/// How much of what the screening left is for Weir and the best rivals. The rest is for variants, single requests, limits and the
/// page.
pub(super) fn for_finals(left_s: f64) -> f64 {
    left_s * 0.8
}

/// Seconds per request of each case: as the screening had it, and where a case has none, as a first short run had it and by as much
/// slower as the others became.
pub(super) fn paces(timed_s: &[f64], screened_s: &[Option<f64>]) -> Vec<f64> {
    let each = || timed_s.iter().copied().zip(screened_s.iter().copied());
    let both = each().filter_map(|(timed, screened)| Some((timed, screened?)));
    let [timed, screened] =
        both.fold([0.0, 0.0], |sums, (timed, screened)| [sums[0] + timed, sums[1] + screened]);
    let slower = if timed > 0.0 { screened / timed } else { 1.0 };
    each().map(|(timed, screened)| screened.unwrap_or(timed * slower)).collect()
}

/// What it costs to screen a case.
pub(super) fn screening(entry: &Entry, per_request_s: f64) -> Work {
    let errand = Errand::of(&entry.rows).in_brief(None);
    // Weir's own search counts as two more.
    let each = errand.loads.len() + errand.sought();
    let runs = (2 + rivals(&entry.rows).len()) * each * screen_seeds(entry.least).len();
    Work { per_request_s: runs as f64 * per_request_s, least: entry.least }
}

/// Seeds of a screening with so many requests in each: where one has as many as two do elsewhere, it is enough to know who is run
/// in full.
pub(super) fn screen_seeds(requests: usize) -> &'static [u64] {
    if requests >= SCREEN_SEEDS.len() * BRIEF { &SCREEN_SEEDS[..1] } else { &SCREEN_SEEDS }
}

/// What the finals of a case cost.
pub(super) fn finals(entry: &Entry, seeds: usize, per_request_s: f64) -> Work {
    let errand = Errand::of(&entry.rows).in_full(entry.case);
    let (all, sought) = finalists(entry);
    let runs = (all * errand.loads.len() + sought * errand.sought()) * seeds;
    Work { per_request_s: runs as f64 * per_request_s, least: entry.least }
}

/// Weir and the rivals that are run in full, on average, and how many of them are asked for a highest load.
fn finalists(entry: &Entry) -> (usize, usize) {
    match entry.rows.first().map(|row| row.ask) {
        Some(ask) if !ask.is_contest() => (2, 2),
        Some(Ask::MeanE2e | Ask::MeanTtft) => (4, 0),
        Some(Ask::MedianE2e | Ask::MedianTtft) => (2, 0),
        _ => (7, 4),
    }
}

/// What a screening gets of these.
pub(super) fn brief(requests: Vec<usize>, entries: &[Entry]) -> Vec<usize> {
    let most = entries.iter().map(|entry| entry.least.max(BRIEF));
    requests.into_iter().zip(most).map(|(requests, most)| requests.min(most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn work(per_request_s: f64) -> Work {
        Work { per_request_s, least: 0 }
    }

    #[test]
    fn what_fits_is_run_and_at_least_what_is_needed() {
        assert_eq!(fitting(work(0.2), 2, 200.0), 1600);
        assert_eq!(fitting(work(0.2), 2, 1000.0), 3500);
        assert_eq!(fitting(work(1e9), 1, 1.0), 800);
        assert_eq!(fitting(Work { least: 4000, ..work(1e9) }, 1, 1.0), 4000);
    }

    #[test]
    fn a_case_without_a_screening_became_as_slow_as_the_others() {
        assert_eq!(paces(&[1.0, 3.0, 2.0], &[Some(4.0), Some(4.0), None]), [4.0, 4.0, 4.0]);
        assert_eq!(paces(&[1.0, 2.0], &[None, None]), [1.0, 2.0]);
    }

    #[test]
    fn what_quick_cases_leave_goes_to_slow_ones() {
        let alone = fitting(work(0.2), 1, 500.0);
        assert_eq!(shared_out(&[work(0.2), work(0.2)], 1, 1000.0), [alone, alone]);
        let rich = fitting(work(0.2), 1, 890.0);
        assert!(rich > alone);
        assert_eq!(shared_out(&[work(0.2), work(1e-6)], 1, 900.0), [rich, 3500]);
    }
}
