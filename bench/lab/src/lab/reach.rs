//! How far a highest load could go: the load beyond which nobody can, and where Weir misses a target what the oracle has in time at the
//! load that the target asks for. The oracle takes minutes of a core for the thousands of requests of a seed, and is asked with two.

use std::time::Instant;

use anyhow::Result;

use super::{
    contest::{Showing, WEIR, best},
    effort::SCREEN_SEEDS,
    probe::Share,
    progress::Progress,
    stage::Stage,
    wanted::{Ask, Wanted},
};
use crate::limits::{Sight, bound, oracle_attains};

/// What there is to have of a row about a highest load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// The share that is to meet both objectives.
    pub(super) at: f64,
    /// The load beyond which no scheduler keeps it.
    pub(super) limit: f64,
    /// The load that the target asks for where Weir holds less, and the share that the oracle attains there.
    pub(super) oracle: Option<(f64, f64)>,
}

/// That of every row about a highest load, by stage.
///
/// # Errors
/// When requests cannot be made.
pub(super) fn reach(
    stages: &[Stage<'_>],
    finals: &[Vec<Showing>],
    seeds: &[u64],
    threads: usize,
    started: Instant,
) -> Result<Vec<Vec<Reach>>> {
    let progress = Progress::new(started, 0);
    let row = |stage: &Stage<'_>, showings: &[Showing], row: &Wanted| {
        let Ask::Load(at) = row.ask else { return Ok(None) };
        let oracle = missing(showings, row, at).map(|load| {
            let (seeds, sight) = (&SCREEN_SEEDS, Sight::default());
            let share = oracle_attains(&stage.setting, load, seeds, sight, threads)?;
            let told = format!("{:.1} % at load {load}, {at} wanted", share * 100.0);
            progress.say(&format!("oracle {:<17} {told}", stage.entry.case.id));
            Ok::<_, anyhow::Error>((load, share))
        });
        let limit = bound(&stage.setting, at, seeds)?.load;
        Ok(Some(Reach { at, limit, oracle: oracle.transpose()? }))
    };
    let of_stage = |(stage, showings): (&Stage<'_>, &Vec<Showing>)| {
        let rows = stage.entry.rows.iter().map(|wanted| row(stage, showings, wanted));
        rows.filter_map(Result::transpose).collect()
    };
    stages.iter().zip(finals).map(of_stage).collect()
}

/// The load that a row's target asks for, to the next hundredth, if Weir does not hold it.
pub(super) fn missing(showings: &[Showing], row: &Wanted, at: f64) -> Option<f64> {
    let held = |showing: &Showing| Some(showing.highest(Share::Attained, at)?.load.value);
    let rival = best(showings, row.ask, 1).into_iter().find_map(held)?;
    let weir = showings.iter().find(|showing| showing.policy == WEIR).and_then(held)?;
    let asked = row.target * rival;
    (weir < asked).then(|| (asked * 100.0 - 1e-6).ceil() / 100.0)
}
