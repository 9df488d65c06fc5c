//! The command line of `weir-bench qps`.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::{
    measure::{Compared, Effort, compare, contender},
    published::POLICIES,
    set_up::{KV_BLOCKS, Reading, SET_UPS},
    table,
};
use crate::{
    bounds,
    results::{ResultFile, command, say},
    study::simulated,
};

/// Do the benchmark of llm-d's predicted-latency scheduling again: time per token and tokens per second against the rate
#[derive(Clone, Debug, Args)]
pub struct QpsArgs {
    /// Only these of A, B, C, D, sharegpt, ladder
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Policies to compare; ratios are over the first of them
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = POLICIES)]
    policy: Vec<String>,
    /// What a turn of A to D carries (docs/workloads.md)
    #[arg(long, value_enum, default_value_t = Reading::Kept)]
    reading: Reading,
    /// KV blocks of a pod of A to D
    #[arg(long, value_name = "N", default_value_t = KV_BLOCKS, value_parser = clap::value_parser!(u32).range(2..))]
    kv_blocks: u32,
    /// How many seeds: the same requests for every policy, others for every seed
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Only the first so many requests of each run
    #[arg(long, value_name = "N")]
    requests: Option<NonZeroUsize>,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Folder for the curves as SVG files
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'a str,
    seconds: f64,
    reading: Reading,
    kv_blocks: u32,
    set_ups: &'a [Compared],
}

impl QpsArgs {
    /// Runs the set-ups and prints the tables.
    ///
    /// # Errors
    /// When a name is not known, or a file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let wanted: Vec<_> = SET_UPS.iter().filter(|one| self.is_wanted(one.name)).collect();
        ensure!(!wanted.is_empty(), "--only: there are A, B, C, D, sharegpt, ladder");
        self.policy.iter().try_for_each(|name| contender(name).map(drop))?;
        let json = ResultFile::asked(self.json.as_deref())?;
        let effort = self.effort();
        let (started, before) = (Instant::now(), simulated());
        let compared = wanted.into_iter().map(|one| compare(*one, &self.policy, &effort));
        let compared = compared.collect::<Result<Vec<_>>>()?;
        let seconds = started.elapsed().as_secs_f64();
        let (command, reading, kv_blocks) = (&command(), self.reading, self.kv_blocks);
        json.json(&Report { command, seconds, reading, kv_blocks, set_ups: &compared })?;
        if let Some(folder) = &self.plots {
            table::plot(&compared, folder)?;
        }
        say!("{}", table::report(&compared, &effort))?;
        say!(
            "{} seeds, paired; {} requests in {seconds:.0} s on {} threads",
            effort.seeds,
            simulated() - before,
            effort.threads
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only.eq_ignore_ascii_case(name))
    }

    fn effort(&self) -> Effort {
        let cores = || std::thread::available_parallelism().ok();
        Effort {
            reading: self.reading,
            kv_blocks: self.kv_blocks,
            seeds: self.seeds,
            most: self.requests.map_or(usize::MAX, NonZeroUsize::get),
            threads: self.threads.or_else(cores).map_or(1, NonZeroUsize::get),
        }
    }
}
