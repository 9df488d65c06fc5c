//! The command line of `weir-bench instructions`.

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::Args;

use super::{
    TOLERANCE, callgrind,
    stored::{FILE, Stored},
    verdict::{self, Counted, Verdict},
    work::{self, Work},
};
use crate::results::say;

/// Check that the hot path takes no more instructions than are stored: a few small workloads under callgrind
#[derive(Clone, Debug, Args)]
pub struct InstructionsArgs {
    /// Store what is counted in this file instead of checking it
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = FILE)]
    renew: Option<PathBuf>,
    /// Pad every call of the scheduler with so many rounds of idle work, to see the guard trip
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "renew")]
    handicap: u32,
    /// Do one workload here and print how many times over: what runs under callgrind
    #[arg(long, value_name = "NAME", hide = true)]
    workload: Option<String>,
}

impl InstructionsArgs {
    /// Counts and compares; exit code 1 when a workload takes more than it may.
    ///
    /// # Errors
    /// When callgrind or a workload fails, or the file cannot be read or written.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(name) = &self.workload {
            say!("{}", Work::named(name)?.run(self.handicap))?;
            return Ok(ExitCode::SUCCESS);
        }
        if !callgrind::is_installed() {
            eprintln!("instructions: SKIPPED, nothing was counted: valgrind is not installed");
            return Ok(ExitCode::SUCCESS);
        }
        let (stored, started) = (Stored::built_in()?, Instant::now());
        let compiler = callgrind::compiler().unwrap_or_else(|| "unknown".to_owned());
        let same = compiler == stored.compiler;
        let mut counted = Vec::with_capacity(work::ALL.len());
        for work in &work::ALL {
            let count = callgrind::count(work.name, self.handicap)?;
            counted.push(Counted { work, count, stored: stored.counts.get(work.name).copied() });
        }
        say!("{}", verdict::table(&counted, same))?;
        say!("{} in {:.0} s", compiler, started.elapsed().as_secs_f64())?;
        if let Some(path) = &self.renew {
            let counts = counted.iter().map(|one| (one.work.name.to_owned(), one.count)).collect();
            let command = "weir-bench instructions --renew".to_owned();
            Stored { command, compiler, counts }.write(path)?;
            say!("stored in {}", path.display())?;
            return Ok(ExitCode::SUCCESS);
        }
        conclude(&counted, same, &stored.compiler)
    }
}

/// Says what came of it.
fn conclude(counted: &[Counted], same: bool, compiler: &str) -> Result<ExitCode> {
    let percent = TOLERANCE * 100.0;
    let any = |verdict| counted.iter().any(|one| one.verdict(same) == verdict);
    if !same {
        say!(
            "the stored counts are those of {compiler}: nothing is judged; store these with --renew"
        )?;
    }
    if any(Verdict::Fewer) {
        say!("some take over {percent} % less than is stored: store that with --renew")?;
    }
    if any(Verdict::More) {
        say!(
            "some take over {percent} % more than is stored: find out why, or store it with --renew"
        )?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
