//! One line: Weir and the best push policy under one change.

use anyhow::{Context, Result};
use serde::Serialize;

use super::change::Change;
use crate::{
    contender::Contender,
    study::{Setting, at_load, max_load},
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
    /// The rival with the highest one.
    pub rival: String,
    /// That load.
    pub rival_max_load: f64,
    /// Weir's over the rival's; `None` where that holds nothing.
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
            let ranked = ranked(&asked.rivals, |rival| attained(rival, load))?;
            let (rival, rival_attainment) = *ranked.first().context("no rival")?;
            if order.is_empty() {
                order.extend(ranked.iter().map(|(rival, _)| *rival));
            }
            let (rival, attainment) = (rival.name().to_owned(), attained(&asked.weir, load)?);
            loads.push(AtLoad { load, attainment, rival, rival_attainment });
        }
        let highest = |who: &Contender| -> Result<f64> {
            let rows = max_load(&changed, who, asked.at, &asked.seeds)?;
            Ok(rows.first().and_then(|row| row.max_load).unwrap_or(0.0) / scale)
        };
        let sought: Vec<Contender> = order.into_iter().take(SOUGHT).cloned().collect();
        let ranked = ranked(&sought, highest)?;
        let (rival, rival_max_load) = *ranked.first().context("no load")?;
        let max_load = highest(&asked.weir)?;
        Ok(Self {
            change: change.name(),
            loads,
            max_load,
            rival: rival.name().to_owned(),
            rival_max_load,
            ratio: (rival_max_load > 0.0).then(|| max_load / rival_max_load),
        })
    }
}

/// Contenders with what each shows, the most first.
fn ranked(
    contenders: &[Contender],
    shows: impl Fn(&Contender) -> Result<f64>,
) -> Result<Vec<(&Contender, f64)>> {
    let shown = contenders.iter().map(|one| Ok((one, shows(one)?)));
    let mut shown = shown.collect::<Result<Vec<_>>>()?;
    shown.sort_by(|one, other| other.1.total_cmp(&one.1));
    Ok(shown)
}
