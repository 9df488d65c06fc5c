//! The command line of `weir-bench scale`.
//!
//! Everything that can be wrong with the arguments is found before anything is simulated.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args};
use serde::Serialize;

use super::{
    row::ScaleRow,
    rule::{Limits, Rule},
    run::{Figures, Plan, play},
    series, table,
};
use crate::{
    bounds::{self, LEAST_LOAD, MOST_LOAD, MOST_REQUESTS},
    results::{ResultFile, command, say},
    sim::Pool,
    study::{Setting, in_parallel, knowledge, progress},
    workload::{Objectives, Shape, Source, scenario_held_by},
};

/// Compare rules that scale a pool in virtual time: pod-hours, and requests in time
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("traffic").required(true).args(["trace", "scenario"])))]
pub struct ScaleArgs {
    /// Trace, in any form that `weir-bench sim` reads; FILE+diurnal, FILE+flash:3 or FILE+steps:1,3,2 for a rate that changes.
    /// It begins again where it is shorter than the run
    #[arg(long, value_name = "FILE[+SHAPE]")]
    trace: Option<PathBuf>,
    /// Traffic that is made, with or without a shape: sharegpt+diurnal, production+flash and others (an unknown name lists them)
    #[arg(long, value_name = "NAME[+SHAPE]")]
    scenario: Option<String>,
    /// Rules to compare: fixed:PODS, weir (as many pods as the dispatcher wants), weir-all (those for sheddable requests too),
    /// weir-load:LOAD (the dispatcher's load), running:REQUESTS and kv:SHARE (means per pod), queue:REQUESTS (that wait, for each
    /// pod). All but the first are put through what Kubernetes' autoscaler does by default
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "fixed:6,running:24,kv:0.5,queue:8,weir-load:0.8,weir"
    )]
    rules: Vec<Rule>,
    /// Pods that the load is of; so many are ready at the beginning, but for a fixed number of them
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = bounds::pods())]
    mean_pods: usize,
    /// Load of the mean pods, in the mean of the run; 1 is what they hold by formula
    #[arg(long, default_value_t = 0.7, value_name = "LOAD", value_parser = load)]
    load: f64,
    /// How long requests come
    #[arg(long, default_value_t = 2.0, value_name = "HOURS", value_parser = hours)]
    hours: f64,
    /// Time from the start of a pod until it is ready
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    start: u64,
    /// Pods that a rule has at least
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = bounds::pods())]
    least: usize,
    /// Pods that a rule has at most
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = bounds::pods())]
    most: usize,
    /// What each pod is: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    gpu: String,
    /// Tokens of an engine's step, in place of vLLM's default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// What requests are promised: a file with classes, or the name of built-in objectives
    #[arg(long, default_value = "one", value_name = "FILE|NAME")]
    slo: String,
    /// What the dispatcher knows of the engines: fitted, trained, bundle:DIR, oracle, oracle:ERROR, as for `weir-bench sim`
    #[arg(long, default_value = "fitted", value_name = "HOW")]
    prediction: String,
    /// How many seeds: stretches of the traffic, each with noise of its own
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for what every look at the pods saw in the first seed, as CSV: one line for each 15 s of each rule
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'a str,
    seconds: f64,
    rows: &'a [ScaleRow],
}

fn load(text: &str) -> Result<f64, String> {
    within(text, LEAST_LOAD, MOST_LOAD)
}

fn hours(text: &str) -> Result<f64, String> {
    within(text, 0.01, 1000.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a number from {least} to {most}"))
}

impl ScaleArgs {
    /// Simulates every rule and prints the table.
    ///
    /// # Errors
    /// When the arguments make no such simulation, or a file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let (plan, started) = (self.plan()?, Instant::now());
        let json = ResultFile::asked(self.json.as_deref())?.sparing(self.read_files())?;
        let series = ResultFile::asked(self.series.as_deref())?.sparing(self.read_files())?;
        json.differs(&series, "--json and --series")?;
        let played = self.play(&plan)?;
        let of = |(rule, seeds): &(Rule, Vec<Figures>)| ScaleRow::of(&plan, *rule, seeds);
        let rows: Vec<ScaleRow> = played.iter().map(of).collect();
        let seconds = started.elapsed().as_secs_f64();
        json.json(&Report { command: &command(), seconds, rows: &rows })?;
        series.write(|to| series::write(to, &played))?;
        say!("{}", table::head(&plan))?;
        say!("{}", table::of(&rows))?;
        say!("{seconds:.1} s for {} rules and {} of --seeds", rows.len(), self.seeds)?;
        Ok(ExitCode::SUCCESS)
    }

    /// What all rules share.
    pub(super) fn plan(&self) -> Result<Plan> {
        ensure!(
            self.least <= self.most,
            "--least {} is more than --most {}",
            self.least,
            self.most
        );
        let limits = Limits { least: self.least, most: self.most };
        let pool = Pool::of(&self.gpu, self.mean_pods, self.chunk)?;
        let (mix, objectives) = Objectives::named_or_read(&self.slo).context("--slo")?;
        let source = self.source(pool.most_tokens())?;
        let setting = Setting {
            pool,
            gpu: self.gpu.clone(),
            source,
            objectives,
            mix,
            requests: 0,
            knowledge: knowledge(&self.prediction)?,
            dispatchers: 1,
        };
        let setting = setting.that_holds_some()?;
        let requests = setting.capacity_rps() * self.load * self.hours * 3600.0;
        ensure!(
            (1.0..=MOST_REQUESTS as f64).contains(&requests),
            "{requests:.0} requests would come in {} h, and from 1 to {MOST_REQUESTS} are simulated",
            self.hours
        );
        Ok(Plan {
            setting: Setting { requests: requests.round() as usize, ..setting },
            load: self.load,
            first: self.mean_pods.clamp(self.least, self.most),
            start: Duration::from_secs(self.start),
            limits,
        })
    }

    fn source(&self, most_tokens: u64) -> Result<Arc<dyn Source>> {
        let (name, flag) = match (&self.trace, &self.scenario) {
            (Some(path), _) => {
                let path = path.to_str().context("--trace: its name is not UTF-8")?;
                (format!("trace:{path}"), "--trace")
            }
            (None, name) => (name.clone().unwrap_or_default(), "--scenario"),
        };
        let source = scenario_held_by(&name, 1, most_tokens).context(flag)?;
        ensure!(
            source.stages().is_none(),
            "{} has rates of its own, and rules are compared at a mean load",
            source.name()
        );
        Ok(source)
    }

    /// Every rule with what it did with each seed.
    fn play(&self, plan: &Plan) -> Result<Vec<(Rule, Vec<Figures>)>> {
        let seeds = 1..=self.seeds;
        let bar = progress(self.rules.len() * self.seeds as usize);
        let asked = self.rules.iter().flat_map(|rule| seeds.clone().map(move |seed| (*rule, seed)));
        let job = |(rule, seed)| {
            let bar = &bar;
            let job = move || {
                let figures = play(plan, rule, seed);
                bar.inc(1);
                figures
            };
            Box::new(job) as Box<dyn FnOnce() -> Result<Figures> + Send>
        };
        let figures = in_parallel(asked.map(job).collect(), self.threads());
        bar.finish_and_clear();
        let mut figures = figures.into_iter();
        let mut of = |rule: &Rule| {
            let seeds = figures.by_ref().take(self.seeds as usize);
            Ok((*rule, seeds.collect::<Result<Vec<_>>>()?))
        };
        self.rules.iter().map(&mut of).collect()
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().ok();
        self.threads.or_else(cores).map_or(1, NonZeroUsize::get)
    }

    /// The files that are read, if they are files, by their arguments.
    fn read_files(&self) -> [(&str, Option<&Path>); 2] {
        let trace = self.trace.as_deref().map(without_shape);
        [("--trace", trace), ("--slo", Some(Path::new(&self.slo)))]
    }
}

/// The file of a trace of which the rate may change.
pub(super) fn without_shape(trace: &Path) -> &Path {
    let shaped = trace.to_str().and_then(|text| text.rsplit_once('+'));
    shaped
        .filter(|(_, shape)| shape.parse::<Shape>().is_ok())
        .map_or(trace, |(file, _)| Path::new(file))
}
