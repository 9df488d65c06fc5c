//! The command line of `weir-bench advise`.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use clap::{ArgGroup, Args};

use super::{
    chunk::{self, Sweep},
    pods,
    report::{Advice, CURVE},
    spool,
    traffic::Traffic,
};
use crate::{
    bounds,
    contender::Contender,
    results::{ResultFile, name_of_file, say},
    sim::Pool,
    study::{Knowledge, Setting, at_load, in_parallel, read_pool},
    trace::TRACE_HELP,
    workload::{Objectives, Replay, Source},
};

/// Say what pods hold of your own traffic, how many it takes, and which chunk to give the engines
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("traffic").required(true).args(["trace", "spool"])))]
pub struct AdviseArgs {
    #[arg(long, help = TRACE_HELP, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Folder of samples instead, as `weir serve` writes them. They hold what was served: refused requests are not in them
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Model whose samples are meant, where the folder has several
    #[arg(long, value_name = "NAME", conflicts_with = "trace")]
    model: Option<String>,
    /// How many pods the curve is of
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = bounds::pods())]
    pods: usize,
    /// What each pod is: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    gpu: String,
    /// File that describes the pods instead, of one kind or several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pods", "gpu"])]
    pool: Option<PathBuf>,
    /// What requests are promised: a file with classes, or the name of built-in objectives
    #[arg(long, default_value = "one", value_name = "FILE|NAME")]
    slo: String,
    /// Policy that gives requests to pods
    #[arg(long, default_value = "weir", value_name = "NAME")]
    policy: String,
    /// Chunks to try, in tokens of an engine's step: of every pod, whatever a pool file says
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = chunk::TRIED)]
    chunks: Vec<u32>,
    /// Share of the requests of the highest band that is to meet both objectives, below 1
    #[arg(long, default_value_t = 0.99, value_name = "SHARE", allow_negative_numbers = true)]
    at: f64,
    /// How many seeds: stretches of the traffic, each with noise of its own
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Requests of each seed, of which the first 5 % are the warm-up. The fewest pods are sought with all of the traffic, or as
    /// much of it as can be afforded
    #[arg(long, default_value_t = 4000, value_name = "N", value_parser = bounds::requests())]
    requests: usize,
    /// Simulations at once; all cores by default
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// File for the advice as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl AdviseArgs {
    /// Simulates, and prints the advice.
    ///
    /// # Errors
    /// When the arguments make no question, or a file cannot be read or written.
    pub fn run(self) -> Result<ExitCode> {
        let ((setting, replay), contender) =
            (self.setting()?, Contender::asked("--policy", &self.policy)?);
        let json = ResultFile::asked(self.json.as_deref())?.sparing([
            ("--trace", self.trace.as_deref()),
            ("--pool", self.pool.as_deref()),
            ("--slo", Some(Path::new(&self.slo))),
        ])?;
        let advice = self.advice(setting, &contender, replay)?;
        json.json(&advice)?;
        say!("{}", advice.for_people())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Everything that the simulations share, and the traffic as it was recorded.
    pub(super) fn setting(&self) -> Result<(Setting, Arc<Replay>)> {
        ensure!(self.at > 0.0 && self.at < 1.0, "--at is a share between 0 and 1, not {}", self.at);
        ensure!(
            !self.chunks.is_empty() && self.chunks.iter().all(|chunk| *chunk >= 16),
            "--chunks are at least 16 tokens each"
        );
        let (mix, objectives) = Objectives::named_or_read(&self.slo).context("--slo")?;
        objectives.check_promised(&self.slo)?;
        let (pool, gpu) = match &self.pool {
            Some(path) => (read_pool(path)?.undivided().context("--pool")?, name_of_file(path)),
            None => (Pool::of(&self.gpu, self.pods, None)?, self.gpu.clone()),
        };
        let replay = match (&self.trace, &self.spool) {
            (Some(trace), _) => Replay::read(trace)?,
            (None, Some(dir)) => spool::read(dir, self.model.as_deref())?,
            (None, None) => anyhow::bail!("give --trace or --spool"),
        };
        let replay = replay.held_by(pool.most_tokens())?;
        let replay = Arc::new(replay);
        let source: Arc<dyn Source> = replay.clone();
        let (knowledge, requests) = (Knowledge::default(), self.requests);
        let setting =
            Setting { pool, gpu, source, objectives, mix, requests, knowledge, dispatchers: 1 };
        Ok((setting.that_holds_some()?, replay))
    }

    fn advice(
        &self,
        setting: Setting,
        contender: &Contender,
        replay: Arc<Replay>,
    ) -> Result<Advice> {
        let seeds: Vec<u64> = (1..=self.seeds).collect();
        let sweep = Sweep::of(&setting, contender, &self.chunks, self.at, &seeds, self.threads())?;
        let best = sweep.best().context("no chunk was tried")?.clone();
        let at_best =
            Setting { pool: chunk::with_chunk(&setting.pool, best.chunk_tokens), ..setting };
        let loads = CURVE.map(|share| share * best.max_load.max(0.01));
        let (asked, sown) = (&at_best, &seeds);
        let job = |load: f64| {
            let job = move || at_load(asked, contender, load, sown);
            Box::new(job) as Box<dyn FnOnce() -> _ + Send>
        };
        let curve = in_parallel(loads.map(job).into(), self.threads());
        let curve = curve.into_iter().collect::<Result<Vec<_>>>()?;
        let traffic = replay.is_timed().then(|| Traffic::of(replay, &at_best, self.seeds));
        let fewest = |traffic| pods::fewest(&at_best, contender, traffic, best.rps, self.at);
        let needed = traffic.as_ref().map(fewest).transpose()?;
        let asked = (traffic.map(|traffic| traffic.own_rps()), self.at);
        Ok(Advice::new(&at_best, contender.name(), asked, sweep, needed, &curve))
    }

    fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().ok();
        self.threads.or_else(cores).map_or(1, NonZeroUsize::get)
    }
}
