//! One line: Weir and the best push policy under one change.

use anyhow::{Context, Result};
use serde::Serialize;

use super::change::Change;
use crate::{
    contender::Contender,
    study::{Found, Setting, at_load, max_load},
};

/// Rivals whose highest load is sought: the best at the first given load.
const SOUGHT: usize = 2;

/// What is asked of every change.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// Who is compared with all others.
    pub weir: Contender,
    /// Those it is compared with.
    pub rivals: Vec<Contender>,
    /// Loads, of which 1 is what the unchanged pool holds by formula.
    pub loads: Vec<f64>,
    /// Share that the highest load keeps.
    pub at: f64,
    pub seeds: Vec<u64>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    /// What is changed.
    pub change: String,
    /// At the given loads.
    pub loads: Vec<AtLoad>,
    /// The highest load of Weir.
    pub max_load: f64,
    /// Whether a higher one was tried that does not keep the share: false where the search ended before one did not.
    pub bounded: bool,
    /// The rival with the highest one.
    pub rival: String,
    /// That load.
    pub rival_max_load: f64,
    /// Whether a higher one was tried of it.
    pub rival_bounded: bool,
    /// Weir's over the rival's, and no less where Weir's is not bounded; `None` where the rival's is not, or it holds nothing.
    pub ratio: Option<f64>,
}

/// Attainment of all requests at a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct AtLoad {
    /// The load.
    pub load: f64,
    /// Weir's.
    pub attainment: f64,
    /// The rival that attains most here.
    pub rival: String,
    /// What it attains.
    pub rival_attainment: f64,
}

impl Line {
    /// Simulates everybody under a change of the setting.
    ///
    /// # Errors
    /// When a simulation cannot be run, or there is no rival or no load.
    pub(super) fn of(setting: &Setting, change: Change, asked: &Question) -> Result<Self> {
        let changed = change.of(setting);
        // A load of the unchanged pool is the same rate under every change.
        let scale = setting.capacity_rps() / changed.capacity_rps();
        let attained = |who: &Contender, load: f64| -> Result<f64> {
            let rows = at_load(&changed, who, load * scale, &asked.seeds)?;
            Ok(rows.first().context("a study without a row")?.attainment)
        };
        let mut loads = Vec::new();
        let mut order: Vec<&Contender> = Vec::new();
        for &load in &asked.loads {
            let ranked = ranked(&asked.rivals, |rival| attained(rival, load), |share| *share)?;
            let (rival, rival_attainment) = *ranked.first().context("no rival")?;
            if order.is_empty() {
                order.extend(ranked.iter().map(|(rival, _)| *rival));
            }
            let (rival, attainment) = (rival.name().to_owned(), attained(&asked.weir, load)?);
            loads.push(AtLoad { load, attainment, rival, rival_attainment });
        }
        let highest = |who: &Contender| -> Result<Found> {
            let rows = max_load(&changed, who, asked.at, &asked.seeds)?;
            let row = rows.first().context("a study without a row")?;
            Ok(Found { load: row.max_load.unwrap_or(0.0) / scale, bounded: row.bounded })
        };
        let sought: Vec<Contender> = order.into_iter().take(SOUGHT).cloned().collect();
        let ranked = ranked(&sought, highest, |found| found.load)?;
        let (rival, theirs) = *ranked.first().context("no load")?;
        let own = highest(&asked.weir)?;
        let is_known = theirs.bounded && theirs.load > 0.0;
        Ok(Self {
            change: change.name(),
            loads,
            max_load: own.load,
            bounded: own.bounded,
            rival: rival.name().to_owned(),
            rival_max_load: theirs.load,
            rival_bounded: theirs.bounded,
            ratio: is_known.then(|| own.load / theirs.load),
        })
    }
}

/// Contenders with what each shows, the most first.
fn ranked<Shown>(
    contenders: &[Contender],
    shows: impl Fn(&Contender) -> Result<Shown>,
    by: impl Fn(&Shown) -> f64,
) -> Result<Vec<(&Contender, Shown)>> {
    let shown = contenders.iter().map(|one| Ok((one, shows(one)?)));
    let mut shown = shown.collect::<Result<Vec<_>>>()?;
    shown.sort_by(|one, other| by(&other.1).total_cmp(&by(&one.1)));
    Ok(shown)
}
