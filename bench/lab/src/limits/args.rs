//! The command line of `weir-bench limits`.

use std::{num::NonZeroUsize, process::ExitCode, time::Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;

use super::{
    LIMIT, Sight,
    highest::{Highest, highest},
    lines::compare,
    table,
};
use crate::{
    results::{ResultFile, command, say},
    study::{Setting, SimArgs, note_of_given, notes_of_found},
};

/// How far policies are from what no scheduler could beat, and from one that sees the future
#[derive(Debug, Args)]
#[command(mut_arg("series", |series| series.hide(true)))]
pub struct LimitsArgs {
    #[command(flatten)]
    asked: SimArgs,
    /// Pods that the oracle tries for a request at a time, all by default: fewer are faster
    #[arg(long, value_name = "N")]
    oracle_pods: Option<NonZeroUsize>,
    /// Leave the oracle out
    #[arg(long, conflicts_with = "oracle_pods")]
    no_oracle: bool,
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a, Row> {
    command: &'a str,
    seconds: f64,
    rows: &'a [Row],
}

impl LimitsArgs {
    /// Runs the policies, works out their limits and prints the table.
    ///
    /// # Errors
    /// When the arguments make no study, or the file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let (asked, started) = (&self.asked, Instant::now());
        ensure!(!asked.wants_series(), "limits have no --series: `weir-bench sim` writes it");
        ensure!(
            !asked.wants_several(),
            "limits are of one dispatcher: `weir-bench sim` has several"
        );
        let (mut setting, contenders) = (asked.setting()?, asked.contenders()?);
        setting.pool = setting.pool.undivided()?;
        let json = asked.json_file()?;
        let pods = self.oracle_pods.map(NonZeroUsize::get);
        let sight = Sight { pods: pods.unwrap_or(usize::MAX), ..Sight::default() };
        let sight = (!self.no_oracle).then_some(sight);
        let (seeds, threads) = (asked.seeds(), asked.threads());
        let (of, notes) = match (asked.loads(), asked.at()) {
            (Some(loads), _) => {
                let lines = compare(&setting, &contenders, loads, &seeds, sight, threads)?;
                write(json, started, &lines)?;
                (table::of(&lines), note_of_given(&setting, loads).into_iter().collect())
            }
            (None, Some(at)) => {
                let rows = highest(&setting, &contenders, at, &seeds, sight, threads)?;
                write(json, started, &rows)?;
                (table::of_highest(&rows), notes(&setting, &rows))
            }
            (None, None) => bail!(
                "{} has rates of its own, and limits are those of a load: there are none of such traffic",
                setting.source.name()
            ),
        };
        say!("{}", asked.head(&setting))?;
        say!("{of}")?;
        for note in notes {
            say!("{note}")?;
        }
        say!(
            "{} requests of {} seeds at each load, {:.1} s",
            setting.requests,
            seeds.len(),
            started.elapsed().as_secs_f64()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is to be known of highest loads. The bound is one of the requests that came, however few they were.
pub(super) fn notes(setting: &Setting, rows: &[Highest]) -> Vec<String> {
    let policies = rows.iter().filter(|row| row.policy != LIMIT);
    let found: Vec<_> =
        policies.map(|row| (row.policy.as_str(), row.max_load, row.bounded)).collect();
    notes_of_found(setting, &found)
}

/// The rows, with the command that made them.
fn write<Row: Serialize>(json: ResultFile, started: Instant, rows: &[Row]) -> Result<()> {
    let seconds = started.elapsed().as_secs_f64();
    json.json(&Report { command: &command(), seconds, rows })
}
