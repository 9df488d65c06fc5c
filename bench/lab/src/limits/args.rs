//! The command line of `weir-bench limits`.

use std::{io::Write, num::NonZeroUsize, process::ExitCode, time::Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::{
    Sight,
    lines::{Line, compare},
    table,
};
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
struct Report<'a> {
    command: &'a str,
    seconds: f64,
    rows: &'a [Line],
}

impl LimitsArgs {
    /// Runs the policies, works out their limits and prints the table.
    ///
    /// # Errors
    /// When the arguments make no study, or the file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let asked = &self.asked;
        let loads = asked.loads().context("limits are those of a load: give --load, not --at")?;
        let (setting, contenders) = (asked.setting()?, asked.contenders()?);
        let json = asked.create_json()?;
        let started = Instant::now();
        let pods = self.oracle_pods.map(|pods| Sight { pods: pods.get() });
        let sight = (!self.no_oracle).then(|| pods.unwrap_or_default());
        let seeds = asked.seeds();
        let lines = compare(&setting, &contenders, loads, &seeds, sight, asked.threads())?;
        let seconds = started.elapsed().as_secs_f64();
        println!("{}", asked.head(&setting));
        println!("{}", table::of(&lines));
        println!(
            "{} requests of {} seeds at each load, {seconds:.1} s",
            setting.requests,
            seeds.len()
        );
        if let Some((path, mut file)) = json {
            let command: Vec<String> = std::env::args().skip(1).collect();
            let command = &format!("weir-bench {}", command.join(" "));
            serde_json::to_writer_pretty(&mut file, &Report { command, seconds, rows: &lines })?;
            file.flush().with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
