//! The command line of `weir-bench instructions`.

use std::{collections::BTreeMap, env, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Result, bail};
use clap::Args;

use super::{
    callgrind,
    hop::Weir,
    stored::{FILE, Stored},
    verdict::{self, Counted, Verdict},
    work::{self, Work},
};
use crate::{children::INTERRUPTED, results::say};

/// Check that the hot path takes no more instructions than are stored: a few small workloads under callgrind
///
/// Decisions and the queue are those of the scheduler in this program; a request and a token are those of `weir serve`, in all of its threads.
#[derive(Clone, Debug, Args)]
pub struct InstructionsArgs {
    /// Store what is counted in this file instead of checking it
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = FILE)]
    renew: Option<PathBuf>,
    /// Pad every call of the scheduler with so many rounds of idle work, and every prompt that is sent with so many bytes, to see the guard
    /// trip
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "renew")]
    handicap: u32,
    /// Only workloads whose name begins like one of these; with `--renew` the others keep what is stored of this compiler
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// The dispatcher. Left out: beside this program
    #[arg(long, value_name = "FILE")]
    weir: Option<PathBuf>,
    /// Folder of its configuration and log
    #[arg(long, default_value = "target/instructions", value_name = "DIR")]
    dir: PathBuf,
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
            say!("{}", Work::named(name)?.run(self.handicap)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let chosen = self.chosen()?;
        if !callgrind::is_installed() {
            eprintln!("instructions: SKIPPED, nothing was counted: valgrind is not installed");
            return Ok(ExitCode::SUCCESS);
        }
        let program = match &self.weir {
            Some(named) => named.clone(),
            None => env::current_exe()?.with_file_name("weir"),
        };
        let weir = Weir { program, dir: self.dir.clone() };
        let (stored, started) = (Stored::built_in()?, Instant::now());
        let compiler = callgrind::compiler().unwrap_or_else(|| "unknown".to_owned());
        let same = compiler == stored.compiler;
        let mut counted = Vec::with_capacity(chosen.len());
        for work in chosen {
            let Some(count) = work.count(&weir, self.handicap)? else {
                return Ok(ExitCode::from(INTERRUPTED));
            };
            counted.push(Counted { work, count, stored: stored.counts.get(work.name).copied() });
        }
        say!("{}", verdict::table(&counted, same))?;
        say!("{} in {:.0} s", compiler, started.elapsed().as_secs_f64())?;
        if let Some(path) = &self.renew {
            let kept = if same { stored.counts } else { BTreeMap::new() };
            let new = counted.iter().map(|one| (one.work.name.to_owned(), one.count));
            let counts = kept.into_iter().chain(new).collect();
            let command = "weir-bench instructions --renew".to_owned();
            Stored { command, compiler, counts }.write(path)?;
            say!("stored in {}", path.display())?;
            return Ok(ExitCode::SUCCESS);
        }
        conclude(&counted, same, &stored.compiler)
    }

    /// The workloads that are asked for.
    pub(super) fn chosen(&self) -> Result<Vec<&'static Work>> {
        let named = |start: &String| work::ALL.iter().any(|work| work.name.starts_with(start));
        if let Some(unknown) = self.only.iter().find(|start| !named(start)) {
            let names = work::ALL.map(|work| work.name).join(", ");
            bail!("no workload begins with {unknown:?}; there are {names}");
        }
        let is_chosen = |work: &&Work| {
            self.only.is_empty() || self.only.iter().any(|start| work.name.starts_with(start))
        };
        Ok(work::ALL.iter().filter(is_chosen).collect())
    }
}

/// Says what came of it.
fn conclude(counted: &[Counted], same: bool, compiler: &str) -> Result<ExitCode> {
    let any = |verdict| counted.iter().any(|one| one.verdict(same) == verdict);
    if !same {
        say!(
            "the stored counts are those of {compiler}: nothing is judged; store these with --renew"
        )?;
    }
    if any(Verdict::Fewer) {
        say!(
            "some take less than is stored, by more than they may differ: store that with --renew"
        )?;
    }
    if any(Verdict::More) {
        say!(
            "some take more than is stored, by more than they may: find out why, or store it with --renew"
        )?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
