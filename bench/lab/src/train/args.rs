//! The command line of `weir-bench train`.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::{
    fresh::{Setup, fresh},
    process, round, rows,
    samples::samples,
    swap,
    table::Report,
};
use crate::{
    children::unless_interrupted,
    results::{ResultFile, say},
};

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// A round in this process
    Round,
    /// A round by `weir train`, with its memory
    Process,
    /// A row by either evaluator
    Rows,
    /// Decisions while bundles are swapped
    Swap,
    /// From a sample to the model that serves
    Fresh,
}

/// Measure what training costs, how soon it shows, and what a swap of bundles does to decisions
#[derive(Clone, Debug, Args)]
pub struct TrainArgs {
    /// Samples that are trained on, each with both targets
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000))]
    rows: u32,
    /// Only these parts
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum, default_values_t = Part::value_variants().to_vec())]
    only: Vec<Part>,
    /// Rounds in this process; the median is what counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Stretches with swaps, and as many without
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    turns: u32,
    /// Seconds of a stretch
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    stretch: u64,
    /// Seconds between two rounds of the trainer that `weir serve` runs
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    interval: u64,
    /// Bundles of that trainer that are waited for, after the first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    bundles: u32,
    /// First of four ports for `weir serve` and its pods
    #[arg(long, default_value_t = 18_900)]
    port: u16,
    /// The program; the one beside this by default
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl TrainArgs {
    /// Measures and prints the tables.
    ///
    /// # Errors
    /// When a native library or the program is missing, or something that was to be measured failed.
    pub fn run(self) -> Result<ExitCode> {
        let json = ResultFile::asked(self.json.as_deref())?;
        let report = self.measure()?;
        json.json(&report)?;
        say!("{}", report.for_people())?;
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self) -> Result<Report> {
        let wants = |part: Part| self.only.contains(&part);
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let samples = samples(self.rows as usize)?;
        let mut report = Report::new(self.rows);
        if wants(Part::Process) {
            let process = process::train(&self.weir()?, &samples, &folder.path().join("process"))?;
            report.process = Some(process);
        }
        if wants(Part::Round) || wants(Part::Rows) || wants(Part::Swap) {
            let rounds = round::rounds(&samples, folder.path(), self.rounds as usize)?;
            if wants(Part::Rows) {
                report.evaluators = Some(rows::costs(&rounds.bundle, &samples)?);
            }
            if wants(Part::Swap) {
                let swaps = folder.path().join("swaps");
                let (turns, decisions) = (self.turns as usize, self.stretch * swap::RATE_RPS);
                report.swaps = Some(swap::swaps(&rounds.bundle, &swaps, turns, decisions)?);
            }
            report.rounds = Some(rounds);
        }
        if wants(Part::Fresh) {
            let setup = Setup {
                interval: Duration::from_secs(self.interval),
                bundles: self.bundles as usize,
                port: self.port,
                folder: &folder.path().join("fresh"),
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let fresh = runtime.block_on(unless_interrupted(Box::pin(fresh(&samples, &setup))))?;
            report.fresh = Some(fresh.context("interrupted")?);
        }
        Ok(report)
    }

    fn weir(&self) -> Result<PathBuf> {
        let weir = match &self.weir {
            Some(named) => named.clone(),
            None => std::env::current_exe()?.with_file_name("weir"),
        };
        let hint = "build it, for example with `make build`, or name it with --weir";
        ensure!(weir.is_file(), "{} is missing: {hint}", weir.display());
        Ok(weir)
    }
}
