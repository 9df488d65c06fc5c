//! The command line of `weir-bench limits`.

use std::{
    fs::File,
    io::{BufWriter, Write},
    num::NonZeroUsize,
    path::Path,
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::{Sight, highest::highest, lines::compare, table};
use crate::study::SimArgs;

/// How far policies are from what no scheduler could beat, and from one that sees the future
#[derive(Debug, Args)]
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
        let (setting, contenders) = (asked.setting()?, asked.contenders()?);
        let mut json = asked.create_json()?;
        let pods = self.oracle_pods.map(NonZeroUsize::get);
        let sight = Sight { pods: pods.unwrap_or(usize::MAX), ..Sight::default() };
        let sight = (!self.no_oracle).then_some(sight);
        let (seeds, threads) = (asked.seeds(), asked.threads());
        let of = match (asked.loads(), asked.at()) {
            (Some(loads), _) => {
                let lines = compare(&setting, &contenders, loads, &seeds, sight, threads)?;
                write(&mut json, started, &lines)?;
                table::of(&lines)
            }
            (None, Some(at)) => {
                let rows = highest(&setting, &contenders, at, &seeds, sight, threads)?;
                write(&mut json, started, &rows)?;
                table::of_highest(&rows)
            }
            (None, None) => bail!("limits are those of a load: give --load or --at"),
        };
        println!("{}", asked.head(&setting));
        println!("{of}");
        println!(
            "{} requests of {} seeds at each load, {:.1} s",
            setting.requests,
            seeds.len(),
            started.elapsed().as_secs_f64()
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// The rows, with the command that made them, if there is a file for them.
fn write<Row: Serialize>(
    json: &mut Option<(&Path, BufWriter<File>)>,
    started: Instant,
    rows: &[Row],
) -> Result<()> {
    let Some((path, file)) = json else { return Ok(()) };
    let command: Vec<String> = std::env::args().skip(1).collect();
    let command = &format!("weir-bench {}", command.join(" "));
    let seconds = started.elapsed().as_secs_f64();
    serde_json::to_writer_pretty(&mut *file, &Report { command, seconds, rows })?;
    file.flush().with_context(|| format!("cannot write {}", path.display()))
}
