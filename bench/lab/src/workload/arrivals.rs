//! When requests come: Poisson processes with a fixed number of arrivals, steady or in stages.
//!
//! The gaps are exponential and then scaled so that exactly the asked number falls into the time it takes at the rate, which
//! is what the load generator behind the published scenarios does (inference-perf, load_timer.py). The draws do not depend on
//! the rate: the same seed at twice the rate is the same traffic in half the time.

use anyhow::{Result, ensure};
use rand::{Rng, rngs::SmallRng};
use rand_distr::Exp1;

use super::draw::stream;

/// Seconds of a stage of the published ladders.
pub(super) const STAGE_S: f64 = 100.0;

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    /// When, in seconds from the start.
    pub(super) at_s: f64,
    /// In which stage.
    pub(super) stage: usize,
    /// Which one of its stage, from 0.
    pub(super) index: usize,
}

/// So many arrivals at one rate; they count as stages of [`STAGE_S`].
pub(super) fn steady(rate_rps: f64, count: usize, seed: u64) -> Result<Vec<Call>> {
    above_zero(rate_rps, count)?;
    let per_stage = ((rate_rps * STAGE_S).round() as usize).max(1);
    let times = times(count, count as f64 / rate_rps, &mut stream(seed, "arrivals"));
    let call = |(place, at_s)| Call { at_s, stage: place / per_stage, index: place % per_stage };
    Ok(times.into_iter().enumerate().map(call).collect())
}

/// The arrivals of stages, at most so many: stages behind the last of them are not made.
pub(super) fn staged(stages: &[(f64, f64)], count: usize, seed: u64) -> Vec<Call> {
    let mut rng = stream(seed, "arrivals");
    let (mut calls, mut start_s) = (Vec::new(), 0.0);
    for (stage, &(rate_rps, for_s)) in stages.iter().enumerate() {
        if calls.len() >= count {
            break;
        }
        let times = times((rate_rps * for_s).round() as usize, for_s, &mut rng);
        let call = |(index, at_s)| Call { at_s: start_s + at_s, stage, index };
        calls.extend(times.into_iter().enumerate().map(call));
        start_s += for_s;
    }
    calls.truncate(count);
    calls
}

/// What every source asks of a rate and a count.
pub(super) fn above_zero(rate_rps: f64, count: usize) -> Result<()> {
    ensure!(rate_rps.is_finite() && rate_rps > 0.0, "a rate must be above zero, not {rate_rps}");
    ensure!(count > 0, "no requests are asked for");
    Ok(())
}

/// A Poisson process of which it is known how many arrivals it has in that time.
fn times(count: usize, for_s: f64, rng: &mut SmallRng) -> Vec<f64> {
    let mut at = 0.0;
    let mut next = || {
        at += rng.sample::<f64, _>(Exp1);
        at
    };
    let mut times: Vec<f64> = (0..count).map(|_| next()).collect();
    let end = next();
    times.iter_mut().for_each(|at| *at *= for_s / end);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_those_of_a_poisson_process_and_scale_with_the_rate() {
        let calls = steady(5.0, 10_000, 1).unwrap();
        assert!(calls.iter().all(|call| call.at_s < 2000.0));
        assert!(calls.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
        let gaps: Vec<f64> = calls.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        let variation = (square - mean * mean).sqrt() / mean;
        assert!((mean - 0.2).abs() < 0.001 && (variation - 1.0).abs() < 0.03, "{mean} {variation}");
        let faster = steady(10.0, 10_000, 1).unwrap();
        assert!((faster[99].at_s * 2.0 - calls[99].at_s).abs() < 1e-9);
    }

    #[test]
    fn a_stage_has_exactly_its_requests_in_its_time() {
        let calls = staged(&[(2.0, 100.0), (0.0, 50.0), (5.0, 10.0)], usize::MAX, 3);
        let of = |stage| calls.iter().filter(move |call| call.stage == stage);
        assert_eq!((of(0).count(), of(1).count(), of(2).count()), (200, 0, 50));
        assert!(of(0).all(|call| call.at_s < 100.0));
        assert!(of(2).all(|call| (150.0..160.0).contains(&call.at_s)));
        assert_eq!(of(2).map(|call| call.index).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
        assert_eq!(staged(&[(2.0, 100.0)], 7, 3).len(), 7);
        let first = staged(&[(2.0, 100.0), (0.0, 50.0), (5.0, 10.0)], 210, 3);
        assert_eq!(first, calls[..210], "the same requests where fewer are asked for");
    }

    #[test]
    fn no_rate_and_no_requests_are_errors() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(steady(rate, 1, 1).is_err(), "{rate}");
        }
        assert!(steady(1.0, 0, 1).is_err());
    }
}
