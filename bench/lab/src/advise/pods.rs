//! The fewest pods that keep the promise at the traffic's own rate, with all of its peaks.

use anyhow::Result;
use serde::Serialize;

use super::{
    of_top_band,
    traffic::{Looked, Traffic},
};
use crate::{
    contender::Contender,
    sim::Pool,
    study::{Row, Setting, at_load},
};

/// Beyond so many units no more are tried: a run with more of them takes minutes.
const MOST_UNITS: usize = 1024;
/// After so many doublings in a row that brought nobody in time who was not before, more pods bring nobody.
const IN_VAIN: usize = 2;

/// A share of exactly what is promised may lie below it in floating point.
const ROUNDING: f64 = 1e-9;

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
    /// What of the traffic they were tried with.
    pub looked: Looked,
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
    traffic: &Traffic,
    pool_rps: f64,
    at: f64,
) -> Result<Needed> {
    let (unit, own_rps) = (unit(&setting.pool), traffic.own_rps());
    let unit_rps = pool_rps * unit.pods.len() as f64 / setting.pool.pods.len().max(1) as f64;
    let guess = if unit_rps > 0.0 { (own_rps / unit_rps).ceil() as usize } else { 1 };
    let mut tried: Vec<Held> = Vec::new();
    let mut pods = None;
    let mut next = Some(guess.clamp(1, MOST_UNITS));
    // No pod at all keeps nothing.
    let (mut fail, mut keep) = (0, None);
    while let Some(units) = next {
        let held = held(setting, contender, traffic, &times(&unit, units))?;
        if held.attainment + ROUNDING >= at {
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
    Ok(Needed { pods, tried, looked: traffic.looked.clone() })
}

/// Whether the last of so many pools that doubled attain no more than the one before them.
fn is_in_vain(tried: &[Held]) -> bool {
    let last = tried.last_chunk::<{ IN_VAIN + 1 }>();
    last.is_some_and(|[before, after @ ..]| {
        before.attainment > 0.0 && after.iter().all(|one| one.attainment <= before.attainment)
    })
}

fn held(setting: &Setting, contender: &Contender, traffic: &Traffic, pool: &Pool) -> Result<Held> {
    let setting = Setting { pool: pool.clone(), ..traffic.in_place_of(setting) };
    let load = traffic.own_rps() / setting.capacity_rps();
    let rows = at_load(&setting, contender, load, &traffic.seeds())?;
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
