//! The command line of `weir-bench sim`: a question about policies, asked in one line.
//!
//! Everything that can be wrong with the arguments is found before anything is simulated.

use std::{
    collections::HashSet,
    io::IsTerminal,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{
    Knowledge, Row, Setting, as_it_comes, at_load, enough, in_parallel, max_load, pool_file,
    simulated, table,
};
use crate::{
    bounds,
    contender::Contender,
    learned::recorded,
    report::SeriesFile,
    results::{ResultFile, command, name_of_file, say},
    sim::Pool,
    trace::TRACE_HELP,
    workload::{Adapted, Objectives, Replay, Source, scenario_held_by, staged_requests},
};

/// Compare policies in virtual time: the same requests, pods and seeds for each of them
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("traffic").required(true).args(["trace", "scenario"])))]
#[command(group(ArgGroup::new("question").args(["load", "at"])))]
pub struct SimArgs {
    #[arg(long, help = TRACE_HELP, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Traffic that is made: A to D, sharegpt, production, ladder, demo and others (an unknown name lists them)
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Policies to compare: names, or all, rivals, caps, variants (an unknown name lists them)
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "weir,pattern-pull,flow-control,predicted-latency,load-prefix-322,least-request"
    )]
    policy: Vec<String>,
    /// How many pods
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = bounds::pods())]
    pods: usize,
    /// What each pod is: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    gpu: String,
    /// Tokens of an engine's step, in place of vLLM's default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// File that describes the pods instead, of one kind or several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pods", "gpu", "chunk"])]
    pool: Option<PathBuf>,
    /// Different LoRA adapters that each pod runs at once; 0: any number
    #[arg(long, value_name = "N", conflicts_with = "pool")]
    max_loras: Option<u32>,
    /// Milliseconds in which a pod stands still for each adapter that it brings onto the GPU; 20
    #[arg(long, value_name = "MS", conflicts_with = "pool", value_parser = bounds::lora_load_ms)]
    lora_load_ms: Option<f64>,
    /// Have each request ask for one of so many LoRA adapters, those whose prompts begin alike for the same one
    #[arg(long, value_name = "N", value_parser = bounds::adapters())]
    adapters: Option<u32>,
    /// Exponent of Zipf's law by which some adapters are asked for more often than others; 0: all equally often
    #[arg(long, value_name = "S", default_value_t = Adapted::SKEW, requires = "adapters")]
    adapters_skew: f64,
    /// What requests are promised: a file with classes, or one (TTFT 2 s, TPOT 50 ms), two (70 % at 1 s and 40 ms, 30 % batch
    /// at 30 s and 100 ms), three, none; one-long and two-long give long prompts more time
    #[arg(long, default_value = "one", value_name = "FILE|NAME")]
    slo: String,
    /// Loads to compare at; 1 is what the pods hold by formula
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    load: Option<Loads>,
    /// Seek each policy's highest load at which this share of the requests of the highest band meets both objectives
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    at: Option<f64>,
    /// How many seeds: stretches of the workload, each with noise of its own
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Requests of each seed, of which the first 5 % are the warm-up; 5000, or all of a scenario with rates of its own
    #[arg(long, value_name = "N", value_parser = bounds::requests())]
    requests: Option<usize>,
    /// What dispatchers know of the engines: fitted (step times fitted to what is seen), trained (that, and the trainer in the
    /// loop), bundle:DIR (that, and a recorded bundle), oracle (the engines' own line of step times, off by 5 %), oracle:ERROR
    /// (the standard deviation of the log of a factor: 0.05 is 5 %)
    #[arg(long, default_value = "fitted", value_name = "HOW")]
    prediction: String,
    /// How many dispatchers stand in front of the pods: requests go to one after the other, each decides for itself, and what
    /// the others send it sees only in scrapes
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = bounds::dispatchers())]
    dispatchers: usize,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for the rows as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for what single requests of the first seed got at each --load, as JSON, for weir-bench report
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    series: Option<PathBuf>,
}

/// Loads in one argument.
#[derive(Clone, Debug, PartialEq)]
struct Loads(Vec<f64>);

impl FromStr for Loads {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let one = |word: &str| {
            let load = word.trim().parse::<f64>().ok();
            let load = load.filter(|load| (bounds::LEAST_LOAD..=bounds::MOST_LOAD).contains(load));
            load.ok_or_else(|| {
                format!(
                    "{word:?} is not a number from {} to {}",
                    bounds::LEAST_LOAD,
                    bounds::MOST_LOAD
                )
            })
        };
        list.split(',').map(one).collect::<Result<_, _>>().map(Self)
    }
}

/// What the file holds.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'a str,
    seconds: f64,
    requests_per_s: f64,
    rows: &'a [Row],
}

/// A load to show, an attainment to keep, or traffic as it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    Load(f64),
    At(f64),
    AsItComes,
}

/// Requests of each seed.
const REQUESTS: usize = 5000;

impl SimArgs {
    /// Runs the study and prints its table.
    ///
    /// # Errors
    /// When the arguments make no study, or the file cannot be written.
    pub fn run(self) -> Result<ExitCode> {
        let (setting, contenders) = (self.setting()?, self.contenders()?);
        let series = ResultFile::asked(self.series.as_deref())?.sparing(self.read_files())?;
        let json = self.json_file()?;
        json.differs(&series, "--json and --series")?;
        let (started, before) = (Instant::now(), simulated());
        let rows = self.rows(&setting, &contenders)?;
        let (seconds, requests) = (started.elapsed().as_secs_f64(), simulated() - before);
        let requests_per_s = requests as f64 / seconds.max(1e-9);
        json.json(&Report { command: &command(), seconds, requests_per_s, rows: &rows })?;
        if self.series.is_some() {
            let loads = self.loads().unwrap_or_default();
            SeriesFile::run(&setting, &contenders, loads, self.threads())?.write(series)?;
        }
        say!("{}", table::head(&setting))?;
        say!("{}", table::of(&rows))?;
        for note in enough::notes(&setting, &rows) {
            say!("{note}")?;
        }
        say!(
            "{requests} requests in {seconds:.1} s on {} threads, {requests_per_s:.0} per second",
            self.threads()
        )?;
        Ok(ExitCode::SUCCESS)
    }

    /// Everything that the contenders share.
    pub(crate) fn setting(&self) -> Result<Setting> {
        if let Some(at) = self.at {
            ensure!(at > 0.0 && at <= 1.0, "--at is a share above 0 and at most 1, not {at}");
        }
        let (pool, gpu) = match &self.pool {
            Some(path) => (pool_file::read(path)?, name_of_file(path)),
            None => (self.pool_of_one_kind()?, self.gpu.clone()),
        };
        let (mix, objectives) = Objectives::named_or_read(&self.slo).context("--slo")?;
        self.at.map_or(Ok(()), |_| objectives.check_promised(&self.slo))?;
        let source = self.source(&pool)?;
        let stages = source.stages().map(staged_requests);
        let requests = self.requests.or(stages).unwrap_or(REQUESTS);
        let knowledge = knowledge(&self.prediction)?;
        let dispatchers = self.dispatchers;
        Setting { pool, gpu, source, objectives, mix, requests, knowledge, dispatchers }
            .that_holds_some()
    }

    fn pool_of_one_kind(&self) -> Result<Pool> {
        let mut pool = Pool::of(&self.gpu, self.pods, self.chunk)?;
        pool.limit_loras(self.max_loras.unwrap_or_default(), self.lora_load_ms);
        Ok(pool)
    }

    fn source(&self, pool: &Pool) -> Result<Arc<dyn Source>> {
        let source: Arc<dyn Source> = match (&self.trace, &self.scenario) {
            (Some(path), _) => Arc::new(Replay::read(path)?.held_by(pool.most_tokens())?),
            (None, name) => {
                let name = name.as_deref().unwrap_or_default();
                scenario_held_by(name, 1, pool.most_tokens()).context("--scenario")?
            }
        };
        let source = match self.adapters {
            Some(count) => Arc::new(Adapted::new(source, count, self.adapters_skew)?),
            None => source,
        };
        match (source.stages().is_some(), self.load.is_some() || self.at.is_some()) {
            (true, true) => bail!("{} has rates of its own: no --load and no --at", source.name()),
            (true, false) if self.series.is_some() => {
                bail!("{} has rates of its own: --series is of a --load", source.name())
            }
            (false, false) => bail!("a question is missing: --load LIST or --at SHARE"),
            _ => Ok(source),
        }
    }

    pub(crate) fn contenders(&self) -> Result<Vec<Contender>> {
        let several = |word: &String| {
            // The name first: those that are known are many.
            Contender::several(word.trim()).map_err(|error| {
                let known = Contender::all().join(", ");
                anyhow!("{error:#}; known are all, rivals, caps, variants, {known}")
            })
        };
        let asked: Vec<_> = self.policy.iter().map(several).collect::<Result<_>>()?;
        let mut seen = HashSet::new();
        let once = |contender: &Contender| seen.insert(contender.name().to_owned());
        Ok(asked.into_iter().flatten().filter(once).collect())
    }

    fn questions(&self) -> Vec<Question> {
        let loads = self.load.iter().flat_map(|loads| &loads.0);
        let asked = loads.copied().map(Question::Load).chain(self.at.map(Question::At));
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() { vec![Question::AsItComes] } else { asked }
    }

    /// All rows: for each question, each policy.
    fn rows(&self, setting: &Setting, contenders: &[Contender]) -> Result<Vec<Row>> {
        let seeds: Vec<u64> = (1..=self.seeds).collect();
        let questions = self.questions();
        let bar = progress(questions.len() * contenders.len());
        let asked =
            questions.iter().flat_map(|asked| contenders.iter().map(move |who| (*asked, who)));
        let job = |(question, who)| {
            let (seeds, bar) = (&seeds, &bar);
            let job = move || {
                let rows = match question {
                    Question::Load(load) => at_load(setting, who, load, seeds),
                    Question::At(at) => max_load(setting, who, at, seeds),
                    Question::AsItComes => as_it_comes(setting, who, seeds),
                };
                bar.inc(1);
                rows
            };
            Box::new(job) as Box<dyn FnOnce() -> Result<Vec<Row>> + Send>
        };
        let rows = in_parallel(asked.map(job).collect(), self.threads());
        bar.finish_and_clear();
        Ok(rows.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().ok();
        self.threads.or_else(cores).map_or(1, NonZeroUsize::get)
    }
}

/// What other commands take of these arguments.
impl SimArgs {
    /// The loads, where they are given and not sought.
    pub(crate) fn loads(&self) -> Option<&[f64]> {
        self.load.as_ref().map(|loads| loads.0.as_slice())
    }

    /// The share to keep, where the load is sought.
    pub(crate) const fn at(&self) -> Option<f64> {
        self.at
    }

    pub(crate) fn seeds(&self) -> Vec<u64> {
        (1..=self.seeds).collect()
    }

    pub(crate) fn head(&self, setting: &Setting) -> String {
        table::head(setting)
    }

    /// Whether single requests are asked for too.
    pub(crate) const fn wants_series(&self) -> bool {
        self.series.is_some()
    }

    /// Whether more than one dispatcher is asked for.
    pub(crate) const fn wants_several(&self) -> bool {
        self.dispatchers > 1
    }

    /// The file for the rows.
    pub(crate) fn json_file(&self) -> Result<ResultFile> {
        ResultFile::asked(self.json.as_deref())?.sparing(self.read_files())
    }

    /// The files that are read, if they are files, by their arguments.
    fn read_files(&self) -> [(&str, Option<&Path>); 3] {
        let slo = Path::new(&self.slo);
        [("--trace", self.trace.as_deref()), ("--pool", self.pool.as_deref()), ("--slo", Some(slo))]
    }
}

/// The largest error of an oracle: most of its predictions are off by more than a factor of 7.
const MOST_ERROR: f64 = 3.0;

/// What `--prediction` means.
pub(crate) fn knowledge(how: &str) -> Result<Knowledge> {
    let error = match how {
        "fitted" => return Ok(Knowledge::Fitted),
        "oracle" => return Ok(Knowledge::CALIBRATED),
        "trained" => return Ok(Knowledge::Trained(Box::default())),
        other if other.starts_with("bundle:") => {
            let dir = other.trim_start_matches("bundle:");
            // Before anything is simulated, like every other argument.
            recorded(Path::new(dir)).with_context(|| format!("--prediction {other}"))?;
            return Ok(Knowledge::Recorded(dir.into()));
        }
        other => match other.strip_prefix("oracle:") {
            Some(error) => error,
            None => bail!(
                "--prediction {other:?}: known are oracle, oracle:ERROR, fitted, trained and bundle:DIR"
            ),
        },
    };
    let number = error.parse().ok().filter(|error: &f64| error.is_finite() && *error >= 0.0);
    let error =
        number.with_context(|| format!("--prediction oracle:{error}: no number from 0 on"))?;
    ensure!(
        error <= MOST_ERROR,
        "--prediction oracle:{error}: the error is the standard deviation of the log of a factor, at most {MOST_ERROR}; 0.05 is 5 %"
    );
    Ok(Knowledge::Oracle { error })
}

/// A bar on a terminal, nothing elsewhere.
pub(crate) fn progress(jobs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} in {elapsed}");
    let bar = ProgressBar::new(jobs as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.tick();
    bar
}
