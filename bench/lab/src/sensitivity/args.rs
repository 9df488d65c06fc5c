//! The command line of `weir-bench sensitivity`.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{
    change::ALL,
    line::{Line, Question},
    table,
};
use crate::{
    bounds,
    contender::Contender,
    results::{ResultFile, say},
    sim::Pool,
    study::{Knowledge, Setting, in_parallel, note_of_given, notes_of_found},
    workload::{Objectives, Replay},
};

/// Who is compared with all others.
const WEIR: &str = "weir";

/// Change one assumption of the lab after the other, and compare Weir with the best push policy under each
#[derive(Debug, Args)]
pub struct SensitivityArgs {
    /// Trace to replay
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// How many pods
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = bounds::pods())]
    pods: usize,
    /// What each pod is: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    gpu: String,
    /// What requests are promised: a file with classes, or the name of built-in objectives
    #[arg(long, default_value = "one", value_name = "FILE|NAME")]
    slo: String,
    /// Policies that Weir is compared with: the best of them on each line
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "pl-most,jspt,load-prefix-322,sglang-cache-aware,dynamo-kv,llmd-composite,least-request"
    )]
    rivals: Vec<String>,
    /// Loads to compare at; 1 is what the pods hold by formula, before anything is changed
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.7,0.9",
        allow_negative_numbers = true
    )]
    load: Vec<f64>,
    /// Share of the requests of the highest band that is to meet both objectives at the highest load
    #[arg(long, default_value_t = 0.99, value_name = "SHARE", allow_negative_numbers = true)]
    at: f64,
    /// How many seeds: stretches of the traffic, each with noise of its own
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Requests of each seed, of which the first 5 % are the warm-up
    #[arg(long, default_value_t = 3000, value_name = "N", value_parser = bounds::requests())]
    requests: usize,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for the lines as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is said of highest loads that are told as such.
const UNBOUNDED: &str =
    "\"at least\": the search ended there, and the load is not bounded by this run";

impl SensitivityArgs {
    /// Simulates, and prints the table.
    ///
    /// # Errors
    /// When the arguments make no study, or a file cannot be read or written.
    pub fn run(self) -> Result<ExitCode> {
        let (setting, question) = (self.setting()?, self.question()?);
        let slo = Path::new(&self.slo);
        let json = ResultFile::asked(self.json.as_deref())?
            .sparing([("--trace", Some(&*self.trace)), ("--slo", Some(slo))])?;
        let started = Instant::now();
        let lines = self.lines(&setting, &question)?;
        json.json(&lines)?;
        say!(
            "{}, objectives {}, {} pods of {}; load 1 is {:.2} requests/s; {} seeds of {} requests, {:.0} s",
            crate::workload::Source::name(setting.source.as_ref()),
            setting.mix,
            setting.pool.pods.len(),
            setting.gpu,
            setting.capacity_rps(),
            self.seeds,
            self.requests,
            started.elapsed().as_secs_f64(),
        )?;
        say!("{}", table::of(&lines, self.at))?;
        for note in self.notes(&setting, &lines) {
            say!("{note}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A line for each change.
    pub(super) fn lines(&self, setting: &Setting, question: &Question) -> Result<Vec<Line>> {
        let job = |change| {
            let job = move || Line::of(setting, change, question);
            Box::new(job) as Box<dyn FnOnce() -> Result<Line> + Send>
        };
        in_parallel(ALL.map(job).into(), self.threads()).into_iter().collect()
    }

    /// Highest loads that are not bounded, or none, and loads for which the run is too short: all of the pool that is not changed.
    pub(super) fn notes(&self, setting: &Setting, lines: &[Line]) -> Vec<String> {
        let most = |load: fn(&Line) -> f64| lines.iter().map(load).fold(0.0, f64::max);
        // Where the search ends is another load of the unchanged pool on each line: a note of its own tells of that.
        let found = [
            (WEIR, most(|line| line.max_load), true),
            ("its rivals", most(|line| line.rival_max_load), true),
        ];
        let given = note_of_given(setting, &self.load);
        let is_bounded = |line: &Line| line.bounded && line.rival_bounded;
        let unbounded = (!lines.iter().all(is_bounded)).then(|| UNBOUNDED.to_owned());
        notes_of_found(setting, &found).into_iter().chain(unbounded).chain(given).collect()
    }

    /// Everything that is not changed.
    pub(super) fn setting(&self) -> Result<Setting> {
        let (mix, objectives) = Objectives::named_or_read(&self.slo).context("--slo")?;
        objectives.check_promised(&self.slo)?;
        let pool = Pool::of(&self.gpu, self.pods, None)?;
        let source = Arc::new(Replay::read(&self.trace)?.held_by(pool.most_tokens())?);
        let setting = Setting {
            pool,
            gpu: self.gpu.clone(),
            source,
            objectives,
            mix,
            requests: self.requests,
            knowledge: Knowledge::default(),
            dispatchers: 1,
        };
        setting.that_holds_some()
    }

    pub(super) fn question(&self) -> Result<Question> {
        ensure!(self.at > 0.0 && self.at <= 1.0, "--at is above 0 and at most 1, not {}", self.at);
        let positive = |load: &f64| load.is_finite() && *load > 0.0;
        ensure!(self.load.iter().all(positive), "every --load must be above zero");
        let rivals = self.rivals.iter().map(|name| rival(name.trim()));
        Ok(Question {
            weir: Contender::named(WEIR)?,
            rivals: rivals.collect::<Result<_>>()?,
            loads: self.load.clone(),
            at: self.at,
            seeds: (1..=self.seeds).collect(),
        })
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().ok();
        self.threads.or_else(cores).map_or(1, NonZeroUsize::get)
    }
}

/// A rival by its name.
fn rival(name: &str) -> Result<Contender> {
    ensure!(name != WEIR, "--rivals {name:?}: that is who they are compared with");
    Contender::asked("--rivals", name)
}
