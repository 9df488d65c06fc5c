//! `weir-bench lab`: the whole table of targets, from scratch, in the time that there is.
//!
//! Every case of the table is run in three rounds. All rivals are screened with one or two seeds; Weir and those of them that
//! did best are then run in full, with at least five seeds, and judged; Weir's variants and single requests are
//! for the pictures. How many requests a seed has is chosen before each of the two, from how fast this machine is and how much time
//! is left, and is in every command that repeats a row. The result is `summary.json` with every row of the table, run files in `runs/`, one
//! page and its pictures.
//!
//! What needs a recorded trace is not run, and said so, where `WEIR_TRACES` does not have it. What cannot be run at all is an
//! error; a missed target is not.
//!
//! # Layout
//! - `case`: the settings; `wanted`: the table; `contest`: who is run where
//! - `probe`: one policy load by load; `reading`: a figure and its interval; `effort`: how much fits
//! - `guard`: `weir-bench guard`, a few small slices of it that CI runs
//! - `stage`: the rounds; `race`: which rival holds the highest load; `reach`: how far a highest load could go; `judge`: rows from what was shown
//! - `output`: files; `progress`: what is said meanwhile

mod case;
mod contest;
mod effort;
mod guard;
mod judge;
mod output;
mod probe;
mod progress;
mod race;
mod reach;
mod reading;
mod stage;
#[cfg(test)]
mod tests;
mod wanted;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Result, ensure};
use clap::Args;

use crate::{
    bounds,
    limits::Line,
    report::{Series, Summary, Target},
    results::command,
    study::simulated,
};
use case::{CASES, Case, check_folder, check_only, folder, is_asked};
use contest::{Entry, Showing};
use effort::{Work, screen_seeds};
use judge::{Evidence, not_run};
use output::Output;
use progress::Progress;
use reach::Reach;
use stage::Stage;
use wanted::{Wanted, table};

pub use guard::GuardArgs;

/// Run the whole table of targets and write what came out: summary.json, a page, its pictures and every row
#[derive(Clone, Debug, Args)]
pub struct LabArgs {
    /// Folder to write; what an earlier run left in it is replaced
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    out: PathBuf,
    /// Folder of recorded traces; without it only what is generated is run
    #[arg(long, value_name = "DIR", env = "WEIR_TRACES")]
    traces: Option<PathBuf>,
    /// Minutes that it may take, about
    #[arg(long, value_name = "N", default_value_t = 32.0)]
    minutes: f64,
    /// Seeds of Weir and its best rivals
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = bounds::seeds(3))]
    seeds: u64,
    /// Requests per seed, in place of what fits into the time
    #[arg(long, value_name = "N", value_parser = bounds::requests())]
    requests: Option<usize>,
    /// Only cases whose name begins like this
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

/// A week.
const MOST_MINUTES: f64 = 10_080.0;

/// How much was run.
#[derive(Clone, Debug, PartialEq)]
struct Effort {
    seeds: Vec<u64>,
    /// Requests per seed in full, by case.
    requests: Vec<usize>,
    /// The same of the screening.
    screening: Vec<usize>,
}

impl LabArgs {
    /// Runs the table.
    ///
    /// # Errors
    /// When nothing can be run, a study fails, or a file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        self.check()?;
        let (started, before) = (Instant::now(), simulated());
        let (entries, left) = self.entries()?;
        let output = Output::prepare(&self.out)?;
        let progress = Progress::new(started, 0);
        reasons(&left).iter().for_each(|line| progress.say(line));
        let rounds = self.rounds(&entries, started)?;
        let mut targets = rounds.targets(self.traces());
        targets.extend(left.iter().flat_map(Left::targets));
        targets.sort_by_key(|target| table().iter().position(|row| row.id() == target.id));
        output.runs(&rounds, self.traces())?;
        let seconds = started.elapsed().as_secs_f64();
        let summary = Summary {
            command: command(),
            seconds,
            requests_per_s: (simulated() - before) as f64 / seconds.max(1e-9),
            notes: notes(&rounds.effort),
            targets,
        };
        output.summary(&summary)?;
        progress.say(&output.page()?);
        Ok(ExitCode::SUCCESS)
    }

    /// Before the last lab is removed for this one.
    fn check(&self) -> Result<()> {
        ensure!(self.seeds >= 3, "--seeds must be at least 3: an interval needs them");
        ensure!(self.requests != Some(0), "--requests must be above zero");
        let minutes = self.minutes;
        let fine = minutes > 0.0 && minutes <= MOST_MINUTES;
        ensure!(fine, "--minutes must be above zero and at most {MOST_MINUTES}, not {minutes}");
        let known: Vec<&str> = CASES.iter().map(|case| case.id).collect();
        check_only(&self.only, &known, "cases")?;
        check_folder(self.traces.as_deref())
    }

    fn traces(&self) -> Option<&Path> {
        folder(self.traces.as_deref())
    }

    /// The cases that can be run, and those that cannot.
    fn entries(&self) -> Result<(Vec<Entry>, Vec<Left>)> {
        let traces = self.traces();
        let (mut entries, mut left) = (Vec::new(), Vec::new());
        for case in CASES.iter().filter(|case| is_asked(case.id, &self.only)) {
            let rows: Vec<Wanted> = table().into_iter().filter(|row| row.case == case.id).collect();
            let setting = case.setting(traces, 1)?;
            let why = match &setting {
                Some(setting) => case.obstacle(setting),
                None => Some(case.missing(traces)),
            };
            match (why, setting) {
                (None, Some(setting)) => {
                    let least = case.least(&setting);
                    entries.push(Entry { case, rows, least });
                }
                (why, _) => left.push(Left { case, rows, why: why.unwrap_or_default() }),
            }
        }
        ensure!(!entries.is_empty(), "nothing to run: {}", reasons(&left).join("; "));
        Ok((entries, left))
    }

    /// How much is screened.
    fn screening(&self, entries: &[Entry], started: Instant) -> Result<Screening> {
        let threads = self.threads();
        if let Some(requests) = self.requests {
            let requests = vec![requests.div_ceil(2); entries.len()];
            return Ok(Screening { requests, timed_s: Vec::new() });
        }
        let timed_s = stage::timed(entries, self.traces(), threads)?;
        let seconds = effort::for_screening(self.left_s(started));
        let each = entries.iter().zip(&timed_s);
        let work: Vec<Work> = each.map(|(entry, pace)| effort::screening(entry, *pace)).collect();
        let requests = effort::brief(effort::shared_out(&work, threads, seconds), entries);
        Ok(Screening { requests, timed_s })
    }

    /// Requests per seed in full, by case: what fits into the time that the screening left, at the pace that the screening had. A
    /// machine may be slower by then than it was in its first seconds.
    fn in_full(&self, screening: &Screening, stages: &[Stage<'_>], started: Instant) -> Vec<usize> {
        if let Some(requests) = self.requests {
            return vec![requests; stages.len()];
        }
        let progress = Progress::new(started, 0);
        let shown: Vec<Option<f64>> = stages.iter().map(Stage::per_request_s).collect();
        let paces = effort::paces(&screening.timed_s, &shown);
        let each = || stages.iter().zip(&paces);
        let finals = |(stage, pace): (&Stage<'_>, &f64)| {
            effort::finals(stage.entry, self.seeds as usize, *pace)
        };
        let work: Vec<Work> = each().map(finals).collect();
        let seconds = effort::for_finals(self.left_s(started));
        let requests = effort::shared_out(&work, self.threads(), seconds);
        for ((stage, pace), (screened, requests)) in
            each().zip(screening.requests.iter().zip(&requests))
        {
            progress.say(&format!(
                "{:<17} {:6.0} requests/s and thread: {screened} per seed in the screening, {requests} in full",
                stage.entry.case.id,
                1.0 / pace.max(1e-9),
            ));
        }
        requests
    }

    /// Seconds of the time there is that are left.
    fn left_s(&self, started: Instant) -> f64 {
        (self.minutes * 60.0 - started.elapsed().as_secs_f64()).max(0.0)
    }

    fn threads(&self) -> usize {
        let threads = self.threads.or_else(|| std::thread::available_parallelism().ok());
        threads.map_or(1, NonZeroUsize::get)
    }

    fn rounds<'a>(&self, entries: &'a [Entry], started: Instant) -> Result<Rounds<'a>> {
        let (traces, threads) = (self.traces(), self.threads());
        let seeds: Vec<u64> = (1..=self.seeds).collect();
        let screening = self.screening(entries, started)?;
        let stages = stage::stages(entries, traces, &screening.requests)?;
        let screened = stage::screen(&stages, threads, started)?;
        let requests = self.in_full(&screening, &stages, started);
        let stages = stage::stages(entries, traces, &requests)?;
        let finals = stage::finals(&stages, &screened, &seeds, threads, started)?;
        let variants = stage::variants(&stages, threads, started)?;
        let series = stage::series(&stages, &finals, threads)?;
        let limits = stage::limits(&stages, &finals, threads)?;
        let reach = reach::reach(&stages, &finals, &seeds, threads, started)?;
        let effort = Effort { seeds, requests, screening: screening.requests };
        Ok(Rounds { effort, stages, screened, finals, variants, series, limits, reach })
    }
}

/// How much is screened.
struct Screening {
    /// Requests per seed, by case.
    requests: Vec<usize>,
    /// Seconds per request of a first short run of each case, where requests per seed are not given.
    timed_s: Vec<f64>,
}

/// What all rounds came to; lists are by case.
struct Rounds<'a> {
    effort: Effort,
    stages: Vec<Stage<'a>>,
    screened: Vec<Vec<Showing>>,
    finals: Vec<Vec<Showing>>,
    variants: Vec<Vec<Showing>>,
    series: Vec<Series>,
    limits: Vec<Vec<Line>>,
    reach: Vec<Vec<Reach>>,
}

impl Rounds<'_> {
    fn targets(&self, traces: Option<&Path>) -> Vec<Target> {
        let shown = self.stages.iter().zip(&self.finals).zip(&self.variants);
        let bounds = self.limits.iter().zip(&self.reach);
        let judged =
            shown.zip(bounds).flat_map(|(((stage, showings), variants), (limits, reach))| {
                let evidence = Evidence {
                    case: stage.entry.case,
                    showings,
                    variants,
                    limits,
                    reach,
                    seeds: self.effort.seeds.len(),
                    requests: stage.setting.requests,
                    traces,
                };
                stage.entry.rows.iter().map(|row| evidence.judge(row)).collect::<Vec<_>>()
            });
        judged.collect()
    }
}

/// A case that is not run.
struct Left {
    case: &'static Case,
    rows: Vec<Wanted>,
    why: String,
}

impl Left {
    fn targets(&self) -> Vec<Target> {
        self.rows.iter().map(|row| not_run(row, self.why.clone())).collect()
    }
}

/// Each reason why cases are not run, with those that it is the reason of.
fn reasons(left: &[Left]) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    left.iter().for_each(|one| {
        if !reasons.contains(&one.why.as_str()) {
            reasons.push(&one.why);
        }
    });
    let of = |why: &&str| {
        let cases = left.iter().filter(|one| one.why == *why).map(|one| one.case.id);
        format!("{}: {why}", cases.collect::<Vec<_>>().join(", "))
    };
    reasons.iter().map(of).collect()
}

fn notes(effort: &Effort) -> Vec<String> {
    let each = effort.screening.iter().map(|requests| screen_seeds(*requests).len());
    let screen_seeds: Vec<usize> = each.collect();
    vec![
        format!(
            "All rivals were screened with {} seeds and {} requests per seed, at a few loads around the one that Weir held; Weir and the best three per question (two of each kind for goodput) were then run with {} seeds and {} requests per seed, and only these figures are in the table. The rival of a highest load is the one of all that holds most: the first of the screening was searched in full, everybody else was run a step above it, and whoever held that was searched in turn.",
            range(&screen_seeds), range(&effort.screening), effort.seeds.len(), range(&effort.requests),
        ),
        "The same seed is the same arrivals, lengths, classes and noise for everybody. Intervals are jackknifed over the seeds, paired.".to_owned(),
        "All policies predict by step times that they learn in the run; metrics are scraped every 50 ms.".to_owned(),
    ]
}

/// The least and the most of these.
fn range(values: &[usize]) -> String {
    match (values.iter().min(), values.iter().max()) {
        (Some(low), Some(high)) if low < high => format!("{low} to {high}"),
        (low, _) => low.copied().unwrap_or_default().to_string(),
    }
}
