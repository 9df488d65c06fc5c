//! The highest load at which a share of the requests of the highest band meets its objectives.
//!
//! Attainment falls with the load but not everywhere: bursts fall together differently at every rate. So loads are climbed in
//! steps until two in a row fail, and what is bisected is the gap above the highest one that passed. A load is given up at the
//! first miss that is one too many, and the seed in which that was is the first to be asked at the next load.

use anyhow::{Result, ensure};

use super::{
    Asked, Row, Setting,
    figures::{Figures, TopBand},
    figures_at, once_while, requests_of, rows,
};
use crate::{
    contender::Contender,
    sim::{Outcome, Run, SimRequest},
};

/// How finely the load is sought.
pub(crate) const RESOLUTION: f64 = 0.01;
/// Where the climb starts: most contenders hold this much of most workloads.
const START: f64 = 0.5;
/// A step of the climb.
const STEP: f64 = 1.25;
/// No pool holds this many times what the formula says.
const MOST: f64 = 16.0;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The highest load that passes; 0 where none does.
    pub(crate) load: f64,
    /// Whether a higher one was tried that does not: the search ends somewhere, and its end is no finding.
    pub(crate) bounded: bool,
}

/// A highest load as people read it.
pub(crate) fn told(load: f64, bounded: bool) -> String {
    match (bounded, load > 0.0) {
        (false, _) => format!("at least {MOST:.0}"),
        (true, false) => "none".to_owned(),
        (true, true) => format!("{load:.2}"),
    }
}

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
    let play = |seed, requests: &[SimRequest], goes_on: GoesOn<'_>| {
        once_while(setting, contender, seed, requests, goes_on)
    };
    let (highest, best) = max_load_of(setting, &play, at, seeds)?;
    let figures = match best {
        Some(figures) => figures,
        None => figures_at(setting, contender, RESOLUTION, seeds)?,
    };
    let asked = Asked { load: None, max_load: Some(highest), at: Some(at) };
    Ok(rows(setting, contender, &figures, asked))
}

/// Says of each request, by its place, and its outcome whether the simulation goes on.
pub(crate) type GoesOn<'a> = &'a mut dyn FnMut(usize, &Outcome) -> bool;

/// Serves the requests of a seed; `None` once it did not go on.
pub(crate) type Play<'a> = dyn Fn(u64, &[SimRequest], GoesOn<'_>) -> Result<Option<Run>> + 'a;

/// The same of whoever plays, with the figures of each seed there, if any load keeps the promise.
///
/// # Errors
/// As for [`max_load`].
pub(crate) fn max_load_of(
    setting: &Setting,
    play: &Play<'_>,
    at: f64,
    seeds: &[u64],
) -> Result<(Found, Option<Vec<Figures>>)> {
    ensure!(!seeds.is_empty(), "a study needs a seed");
    ensure!(at > 0.0 && at <= 1.0, "an attainment is above 0 and at most 1, not {at}");
    let mut trial = Trial { setting, play, at, seeds, hardest: 0 };
    let mut best = None;
    let highest = seek(|load| {
        let passed = trial.at(load)?;
        let passes = passed.is_some();
        best = passed.or(best.take());
        Ok(passes)
    })?;
    Ok((highest, best))
}

/// A player and the promise it is held to.
struct Trial<'a> {
    setting: &'a Setting,
    play: &'a Play<'a>,
    at: f64,
    seeds: &'a [u64],
    /// Place of the seed that failed last.
    hardest: usize,
}

impl Trial<'_> {
    /// The figures of the seeds, if they keep the promise in the mean.
    fn at(&mut self, load: f64) -> Result<Option<Vec<Figures>>> {
        let count = self.seeds.len();
        // Rounding must not fail an attainment of exactly `at`.
        let mut spare = (1.0 - self.at) * count as f64 + 1e-9;
        let mut passed: Vec<Option<Figures>> = vec![None; count];
        let first = self.hardest;
        for place in (0..count).map(|turn| (first + turn) % count) {
            let figures = self.seed_at(load, place, &mut spare)?;
            if figures.is_none() {
                self.hardest = place;
                return Ok(None);
            }
            passed.get_mut(place).into_iter().for_each(|slot| slot.clone_from(&figures));
        }
        Ok(Some(passed.into_iter().flatten().collect()))
    }

    /// The figures of a seed, unless it misses more than is left to spare, in shares of a seed.
    fn seed_at(&self, load: f64, place: usize, spare: &mut f64) -> Result<Option<Figures>> {
        let Some(seed) = self.seeds.get(place).copied() else { return Ok(None) };
        let requests = requests_of(self.setting, load, seed)?;
        let band = TopBand::of(&requests, &self.setting.objectives);
        ensure!(band.requests > 0, "no request of the highest band came");
        let each = 1.0 / band.requests as f64;
        let (most, mut missed) = (*spare, 0_usize);
        let mut goes_on = |place: usize, outcome: &Outcome| {
            let asked = requests.get(place);
            missed += usize::from(asked.is_some_and(|asked| band.missed(place, asked, outcome)));
            missed as f64 * each <= most
        };
        let run = (self.play)(seed, &requests, &mut goes_on)?;
        *spare -= missed as f64 * each;
        Ok(run.map(|run| Figures::of(&requests, &run, &self.setting.objectives)))
    }
}

/// The highest load that passes; loads are tried so that the last one that passed is it.
pub(crate) fn seek(mut passes: impl FnMut(f64) -> Result<bool>) -> Result<Found> {
    let (mut low, mut high) = climb(&mut passes)?;
    while high - low > RESOLUTION * 1.5 {
        let middle = on_grid((low + high) / 2.0);
        if passes(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Found { load: low, bounded: high < MOST })
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
        (found.unwrap().load, tried)
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
    fn the_end_of_the_search_is_no_finding() {
        let found = |limit: f64| seek(|load| Ok(load <= limit)).unwrap();
        assert!(!found(f64::INFINITY).bounded && !found(15.993).bounded);
        assert!(found(15.5).bounded && found(4.0).bounded && found(0.0).bounded);
    }

    #[test]
    fn a_dip_on_the_way_up_does_not_stop_the_climb() {
        let (found, _) = highest(|load| load <= 1.1 && !(0.6..0.7).contains(&load));
        assert!((found - 1.1).abs() < 0.015, "{found}");
    }
}
