//! The highest load at which a share of the requests of the highest band meets its objectives.
//!
//! Attainment falls with the load but not everywhere: bursts fall together differently at every rate. So loads are climbed in
//! steps until two in a row fail, and what is bisected is the gap above the highest one that passed. A load is given up as soon
//! as the seeds that are left cannot save it.

use anyhow::{Context, Result, ensure};

use super::{Asked, Row, Setting, figures::Figures, figures_of, rows};
use crate::contender::Contender;

/// How finely the load is sought.
const RESOLUTION: f64 = 0.01;
/// Where the climb starts: most contenders hold this much of most workloads.
const START: f64 = 0.5;
/// A step of the climb.
const STEP: f64 = 1.25;
/// No pool holds this many times what the formula says.
const MOST: f64 = 16.0;

/// The nearest load that is a multiple of the resolution.
fn on_grid(load: f64) -> f64 {
    (load / RESOLUTION).round() / RESOLUTION.recip()
}

/// The highest load at which the mean attainment over the seeds, of the classes of the highest band, is at least `at`, to
/// within 0.01, and the figures there: all classes together first, then each that has requests. Where no load does, the
/// highest load is 0 and the figures are those of load 0.01.
///
/// # Errors
/// As for [`super::at_load`], and when nothing of the highest band comes.
pub fn max_load(
    setting: &Setting,
    contender: &Contender,
    at: f64,
    seeds: &[u64],
) -> Result<Vec<Row>> {
    ensure!(!seeds.is_empty(), "a study needs a seed");
    ensure!(at > 0.0 && at <= 1.0, "an attainment is above 0 and at most 1, not {at}");
    let mut best = None;
    let highest = seek(|load| {
        let passed = attained(setting, contender, load, at, seeds)?;
        let passes = passed.is_some();
        best = passed.map(|figures| (load, figures)).or(best.take());
        Ok(passes)
    })?;
    let figures = match best {
        Some((_, figures)) => figures,
        None => {
            let one = |seed: &u64| figures_of(setting, contender, RESOLUTION, *seed);
            seeds.iter().map(one).collect::<Result<_>>()?
        }
    };
    let asked = Asked { load: None, max_load: Some(highest), at: Some(at) };
    Ok(rows(setting, contender, &figures, asked))
}

/// The figures of the seeds, if they attain `at` in the mean.
fn attained(
    setting: &Setting,
    contender: &Contender,
    load: f64,
    at: f64,
    seeds: &[u64],
) -> Result<Option<Vec<Figures>>> {
    let needed = at * seeds.len() as f64;
    let mut sum = 0.0;
    let mut passed = Vec::new();
    for (done, seed) in (1..).zip(seeds) {
        let figures = figures_of(setting, contender, load, *seed)?;
        sum += figures.of_top_band.context("no request of the highest band came")?;
        // Rounding must not fail an attainment of exactly `at`.
        if sum + ((seeds.len() - done) as f64) < needed - 1e-9 {
            return Ok(None);
        }
        passed.push(figures);
    }
    Ok(Some(passed))
}

/// The highest load that passes; loads are tried so that the last one that passed is it.
pub(crate) fn seek(mut passes: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    let (mut low, mut high) = climb(&mut passes)?;
    while high - low > RESOLUTION * 1.5 {
        let middle = on_grid((low + high) / 2.0);
        if passes(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// A load that passes, or zero, and one above it that does not.
fn climb(passes: &mut impl FnMut(f64) -> Result<bool>) -> Result<(f64, f64)> {
    let (mut low, mut failed) = (0.0, None);
    let mut load = START;
    while load < MOST {
        match (passes(load)?, failed) {
            (true, _) => (low, failed) = (load, None),
            (false, None) => failed = Some(load),
            (false, Some(first)) => {
                return if low > 0.0 { Ok((low, first)) } else { descend(passes, START) };
            }
        }
        load = on_grid(load * STEP);
    }
    Ok((low, failed.unwrap_or(MOST)))
}

/// The same from a load downwards that does not pass.
fn descend(passes: &mut impl FnMut(f64) -> Result<bool>, from: f64) -> Result<(f64, f64)> {
    let mut high = from;
    while high > RESOLUTION {
        let load = on_grid(high / 2.0).max(RESOLUTION);
        if passes(load)? {
            return Ok((load, high));
        }
        high = load;
    }
    Ok((0.0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn highest(passes: impl Fn(f64) -> bool) -> (f64, usize) {
        let mut tried = 0;
        let found = seek(|load| {
            tried += 1;
            Ok(passes(load))
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn the_limit_is_found_to_a_hundredth_wherever_it_is() {
        for limit in [0.01, 0.02, 0.137, 0.33, 0.5, 0.799, 1.0, 1.63, 4.2] {
            let (found, tried) = highest(|load| load <= limit + 1e-9);
            assert!(found <= limit + 1e-9 && limit - found < 0.0151, "{found} for {limit}");
            assert!(tried < 20, "{tried} tries for {limit}");
        }
    }

    #[test]
    fn what_never_passes_has_a_limit_of_zero_and_what_always_passes_ends() {
        assert_eq!(highest(|_| false).0, 0.0);
        assert!(highest(|_| true).0 > 10.0);
    }

    #[test]
    fn a_dip_on_the_way_up_does_not_stop_the_climb() {
        let (found, _) = highest(|load| load <= 1.1 && !(0.6..0.7).contains(&load));
        assert!((found - 1.1).abs() < 0.015, "{found}");
    }
}
