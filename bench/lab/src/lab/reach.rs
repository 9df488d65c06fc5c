//! How far a highest load could go: the load beyond which nobody can, and where Weir misses a target what the oracle has in time at the
//! load that the target asks for. The oracle takes minutes of a core for the thousands of requests of a seed, and is asked with two.
//! One stretch of a trace is easy where the next is not: so Weir's share of the very same requests stands beside it.

use std::time::Instant;

use anyhow::Result;

use super::{
    contest::{Showing, WEIR, best},
    effort::SCREEN_SEEDS,
    probe::{Probe, Share},
    progress::Progress,
    stage::Stage,
    wanted::{Ask, Wanted},
};
use crate::{
    contender::Contender,
    limits::{Sight, bound, oracle_attains},
};

/// What there is to have of a row about a highest load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reach {
    /// The share that is to meet both objectives.
    pub(super) at: f64,
    /// The load beyond which no scheduler keeps it.
    pub(super) limit: f64,
    /// Where Weir holds less than the target asks for, what there is to have at that load.
    pub(super) oracle: Option<Beyond>,
}

/// A load that Weir does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beyond {
    pub(super) load: f64,
    /// The shares that the oracle and Weir have in time there, of the same requests.
    pub(super) shares: [f64; 2],
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
            let weir = Contender::named(WEIR)?;
            let own = Probe::new(&stage.setting, &weir, seeds).share_at(load, Share::Attained)?;
            let beyond = Beyond { load, shares: [share, own] };
            progress.say(&format!("oracle {:<17} {}", stage.entry.case.id, beyond.words()));
            Ok::<_, anyhow::Error>(beyond)
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

impl Beyond {
    /// In a few words.
    pub(super) fn words(self) -> String {
        let [oracle, weir] = self.shares.map(|share| share * 100.0);
        let load = self.load;
        format!(
            "at {load:.2} the clairvoyant has {oracle:.1} % of two seeds in time, Weir {weir:.1} %"
        )
    }
}

/// The load that a row's target asks for, to the next hundredth, if Weir does not hold it.
pub(super) fn missing(showings: &[Showing], row: &Wanted, at: f64) -> Option<f64> {
    let held = |showing: &Showing| Some(showing.highest(Share::Attained, at)?.load.value);
    let rival = best(showings, row.ask, 1).into_iter().find_map(held)?;
    let weir = showings.iter().find(|showing| showing.policy == WEIR).and_then(held)?;
    let asked = row.target * rival;
    (weir < asked).then(|| (asked * 100.0 - 1e-6).ceil() / 100.0)
}
