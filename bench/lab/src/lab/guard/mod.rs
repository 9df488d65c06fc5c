//! `weir-bench guard`: whether Weir still serves as much more than its best rival as it did when the ratios were stored.
//!
//! A few slices, each with more requests than its pods can serve in time, so that goodput tells policies apart. On each of them
//! Weir is compared with whichever rival does best, seed by seed: both get the same requests, so the ratio varies far less than
//! either goodput. The command fails when a ratio is below the stored one by more than the stored 95 % interval. Everything is
//! decided by the seeds: while nothing that is run has changed, a ratio is the stored one to its last digit, on the same kind of
//! machine and with any number of threads. A change that is meant is stored with `--renew`.
//!
//! Slices that are generated are always run. Slices of traces are run where `WEIR_TRACES` has them, and judged where the file
//! is the one that was stored: another part of the same traffic has another ratio. What was not run is said by name.
//!
//! # Layout
//! - `slice`: what is guarded and how it is measured; `stored`: the file of ratios; `verdict`: the comparison and its table

mod slice;
mod stored;
#[cfg(test)]
mod tests;
mod verdict;

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{
    case::{check_folder, check_only, folder, is_asked},
    contest::WEIR,
};
use crate::{contender::Contender, results::say, study::simulated};
use slice::{SLICES, Slice};
use stored::{Measured, Stored};
use verdict::{Judged, Verdict, judge, words};

/// Where the ratios are kept in the repository.
const FILE: &str = "bench/lab/guard.json";

/// Check that Weir's goodput has not fallen against its best rival's: a few small slices in under five minutes
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// Folder of recorded traces; without it only slices that are generated are run
    #[arg(long, value_name = "DIR", env = "WEIR_TRACES")]
    traces: Option<PathBuf>,
    /// Store what is measured in this file instead of checking it; slices that are not run keep what they have
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = FILE)]
    renew: Option<PathBuf>,
    /// Policy that stands in for weir, to see the guard trip
    #[arg(long, value_name = "NAME", default_value = WEIR, conflicts_with = "renew")]
    subject: String,
    /// Only slices whose name begins like this
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl GuardArgs {
    /// Measures the slices and compares them with what is stored; exit code 1 when one has fallen.
    ///
    /// # Errors
    /// When a slice cannot be run, or a file cannot be read or written.
    pub fn run(self) -> Result<ExitCode> {
        let stored = match &self.renew {
            Some(path) => Stored::read(path)?,
            None => Stored::built_in()?,
        };
        let wanted = self.wanted()?;
        let (started, before) = (Instant::now(), simulated());
        let (measured, left) = self.measured(&wanted)?;
        let seconds = started.elapsed().as_secs_f64();
        let judged = judge(&measured, &stored);
        say!("{}", verdict::table(&judged, &self.subject))?;
        say!("{} requests in {seconds:.0} s on {} threads", simulated() - before, self.threads())?;
        if let Some(path) = &self.renew {
            stored.renewed(measured).write(path)?;
            for line in left {
                say!("{line}")?;
            }
            say!("stored in {}", path.display())?;
            return Ok(ExitCode::SUCCESS);
        }
        say!("{}", words(&judged, &self.subject, &left))?;
        Ok(exit_code(&judged))
    }

    /// The slices that are asked for.
    ///
    /// # Errors
    /// When a name in `--only` begins no slice's, or the folder of traces is not there: who named one wants them run.
    fn wanted(&self) -> Result<Vec<&'static Slice>> {
        check_folder(self.traces.as_deref())?;
        let known: Vec<&str> = SLICES.iter().map(Slice::name).collect();
        check_only(&self.only, &known, "slices")?;
        let is_wanted = |slice: &&Slice| is_asked(slice.name(), &self.only);
        Ok(SLICES.iter().filter(is_wanted).collect())
    }

    /// What was measured, and a line about each slice that could not be.
    fn measured(&self, wanted: &[&Slice]) -> Result<(Vec<Measured>, Vec<String>)> {
        let subject = Contender::asked("--subject", &self.subject)?;
        let traces = folder(self.traces.as_deref());
        let (mut measured, mut left) = (Vec::new(), Vec::new());
        for slice in wanted {
            let one = slice.measure(&subject, traces, self.threads());
            match one.with_context(|| slice.name())? {
                Some(one) => measured.push(one),
                None => left.push(format!("{}: {}", slice.name(), slice.case.missing(traces))),
            }
        }
        ensure!(!measured.is_empty(), "nothing to measure: {}", left.join(", "));
        Ok((measured, left))
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().ok();
        self.threads.or_else(cores).map_or(1, NonZeroUsize::get)
    }
}

fn exit_code(judged: &[Judged<'_>]) -> ExitCode {
    let has_failed =
        judged.iter().any(|one| matches!(one.verdict, Verdict::Fallen | Verdict::Unknown));
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
