//! The fewest pods that keep the promise at the traffic's own rate.

use anyhow::Result;
use serde::Serialize;

use super::of_top_band;
use crate::{
    contender::Contender,
    sim::Pool,
    study::{Row, Setting, at_load},
};

/// Beyond so many units no more are tried: a run with more of them takes minutes.
const MOST_UNITS: usize = 1024;
/// After so many doublings in a row that brought nobody in time who was not before, more pods bring nobody.
const IN_VAIN: usize = 2;

/// A number of pods, and what they made of the traffic's own rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Held {
    /// Pods, in whole pools where the pool is of several kinds.
    pub pods: usize,
    /// Attainment of the classes of the highest band.
    pub attainment: f64,
    /// All figures of all classes together.
    pub row: Row,
}

/// The fewest pods, and what was tried on the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Needed {
    /// The fewest that keep the promise; `None` when none of those tried does.
    pub pods: Option<usize>,
    /// Everything that was tried, upwards.
    pub tried: Vec<Held>,
}

/// Starts with as many as the pool's highest load says, doubles until they keep the promise, and bisects what lies between
/// those that do and those that do not: one fewer than the answer was tried and does not. Pools of one kind grow by pods,
/// others by whole pools: which kind to buy is not the question.
///
/// # Errors
/// As for [`at_load`].
pub(super) fn fewest(
    setting: &Setting,
    contender: &Contender,
    own_rps: f64,
    pool_rps: f64,
    at: f64,
    seeds: &[u64],
) -> Result<Needed> {
    let unit = unit(&setting.pool);
    let unit_rps = pool_rps * unit.pods.len() as f64 / setting.pool.pods.len().max(1) as f64;
    let guess = if unit_rps > 0.0 { (own_rps / unit_rps).ceil() as usize } else { 1 };
    let mut tried: Vec<Held> = Vec::new();
    let mut pods = None;
    let mut next = Some(guess.clamp(1, MOST_UNITS));
    // No pod at all keeps nothing.
    let (mut fail, mut keep) = (0, None);
    while let Some(units) = next {
        let held = held(setting, contender, &unit, units, own_rps, seeds)?;
        if held.attainment >= at {
            (keep, pods) = (Some(units), Some(held.pods));
        } else {
            fail = units;
        }
        tried.push(held);
        next = match keep {
            Some(keep) => (keep - fail > 1).then_some(usize::midpoint(fail, keep)),
            None if is_in_vain(&tried) => None,
            None => (fail < MOST_UNITS).then_some((2 * fail).min(MOST_UNITS)),
        };
    }
    tried.sort_by_key(|held| held.pods);
    Ok(Needed { pods, tried })
}

/// Whether the last of so many pools that doubled attain no more than the one before them.
fn is_in_vain(tried: &[Held]) -> bool {
    let last = tried.last_chunk::<{ IN_VAIN + 1 }>();
    last.is_some_and(|[before, after @ ..]| {
        before.attainment > 0.0 && after.iter().all(|one| one.attainment <= before.attainment)
    })
}

fn held(
    setting: &Setting,
    contender: &Contender,
    unit: &Pool,
    units: usize,
    own_rps: f64,
    seeds: &[u64],
) -> Result<Held> {
    let setting = Setting { pool: times(unit, units), ..setting.clone() };
    let load = own_rps / setting.capacity_rps();
    let rows = at_load(&setting, contender, load, seeds)?;
    let attainment = of_top_band(&rows, &setting.objectives);
    let row = rows.into_iter().next().unwrap_or_default();
    Ok(Held { pods: setting.pool.pods.len(), attainment, row })
}

/// What a pool grows by.
fn unit(pool: &Pool) -> Pool {
    let mut unit = pool.clone();
    if pool.classes.len() == 1 {
        unit.pods.truncate(1);
    }
    unit
}

fn times(unit: &Pool, units: usize) -> Pool {
    let pods = std::iter::repeat_n(&unit.pods, units).flatten().cloned().collect();
    Pool { pods, ..unit.clone() }
}
