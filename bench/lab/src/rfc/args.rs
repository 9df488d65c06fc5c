//! The command line of `weir-bench rfc`.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Result, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;

use super::{
    Check, Compared, OnEngines, SetUp, Verdict, checks, compare, on_engines, set_ups, table,
};
use crate::{
    bounds::{self, MOST_REQUESTS},
    results::{ResultFile, command, say},
};

/// Do the queue simulation of AIBrix's RFC again, and say which of its result lines hold
#[derive(Debug, Args)]
pub struct RfcArgs {
    /// How many seeds, at least two for an interval: the same arrivals for every policy, others for every seed
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = bounds::seeds(2))]
    seeds: u64,
    /// Seconds in which requests come
    #[arg(long, default_value_t = 1000.0, value_name = "S", allow_negative_numbers = true)]
    horizon: f64,
    /// Requests of each seed over modelled engines; 0 leaves engines out
    #[arg(long, default_value_t = 1500, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(..=MOST_REQUESTS as u64))]
    requests: usize,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'a str,
    seconds: f64,
    checks: &'a [Check],
    set_ups: &'a [Compared],
    engines: &'a [OnEngines],
}

impl RfcArgs {
    /// Simulates, judges and prints the tables.
    ///
    /// # Errors
    /// When the arguments make no simulation, or the file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        check_horizon(self.horizon)?;
        let json = ResultFile::asked(self.json.as_deref())?;
        let cores = || std::thread::available_parallelism().ok();
        let threads = self.threads.or_else(cores).map_or(1, NonZeroUsize::get);
        let (started, seeds) = (Instant::now(), (1..=self.seeds).collect::<Vec<u64>>());
        let compared = compare(&seeds, self.horizon, threads)?;
        let checks: Vec<Check> = compared.iter().flat_map(checks).collect();
        let tells = checks.iter().any(|check| check.verdict != Verdict::Nothing);
        ensure!(tells, "nobody waits in --horizon {} s: there is nothing to compare", self.horizon);
        let engines = match self.requests {
            0 => Vec::new(),
            requests => on_engines(&seeds, requests, threads)?,
        };
        let seconds = started.elapsed().as_secs_f64();
        let (command, set_ups, checks) = (&command(), &compared[..], &checks[..]);
        json.json(&Report { command, seconds, checks, set_ups, engines: &engines })?;
        say!("{}", table::report(&compared, checks, &engines))?;
        say!(
            "{} seeds of {:.0} s each, paired; intervals are of 95 %; {seconds:.0} s on {threads} threads",
            self.seeds,
            self.horizon
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses seconds in which nobody can come, or more come than memory is taken to hold.
fn check_horizon(horizon_s: f64) -> Result<()> {
    ensure!(horizon_s > 0.0, "--horizon must be above zero");
    let rate_rps = set_ups().iter().map(SetUp::rate_rps).fold(0.0, f64::max);
    let requests = rate_rps * horizon_s;
    ensure!(
        requests <= MOST_REQUESTS as f64,
        "--horizon {horizon_s} s is of {requests:.0} requests of a seed, and at most {MOST_REQUESTS} are made: fewer seconds"
    );
    Ok(())
}
