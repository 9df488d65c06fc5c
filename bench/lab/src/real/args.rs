//! What is sent, where, and in front of what.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{
    Pods, Prediction, Slice,
    run::SCRAPE_EVERY,
    slice::{Rate, Stretch},
};
use crate::{
    demo::{Group, Place, local},
    load::{Class, parse_classes},
    sim::Pool,
};

/// What real programs are asked, and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct RealArgs {
    /// Trace whose requests are sent; the demo's mix when left out
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// First second of the trace
    #[arg(long = "from", default_value_t = 0.0, value_name = "SECONDS", requires = "trace")]
    from_s: f64,
    /// How long requests come
    #[arg(long = "for", default_value_t = 90.0, value_name = "SECONDS")]
    pub(crate) for_s: f64,
    /// Load; 1 is what the pods hold by formula
    #[arg(long, default_value_t = 0.7, conflicts_with = "rps")]
    load: f64,
    /// Requests per second, in place of --load: for engines that are not like any of --gpu
    #[arg(long, value_name = "N")]
    rps: Option<f64>,
    /// How latencies are predicted
    #[arg(long, value_enum, default_value = "fitted")]
    pub(crate) prediction: Prediction,
    /// How many pods
    #[arg(long, default_value_t = 3, value_name = "N", conflicts_with = "engines")]
    pods: u16,
    /// Where engines of your own listen, as address:port: they are asked in place of simulated pods. The requests say how
    /// long their answers are (max_tokens, ignore_eos)
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub(crate) engines: Vec<SocketAddr>,
    /// The model that these serve; that of --gpu when left out
    #[arg(long, value_name = "NAME", requires = "engines")]
    model: Option<String>,
    /// What each pod is, or is simulated as: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    pub(crate) gpu: String,
    /// Tokens of an engine's step, in place of vLLM's default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// Decides arrivals, lengths and noise
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Port of Weir's OpenAI API
    #[arg(long, default_value_t = 8180)]
    port: u16,
    /// Port of Weir's admin side
    #[arg(long, default_value_t = 8181)]
    admin_port: u16,
    /// Port of the first pod; the others follow
    #[arg(long, default_value_t = 18101)]
    pod_port: u16,
}

/// The classes of the demo's mix, and of a trace.
const OF_MIX: [&str; 3] = ["interactive:0.5", "standard:0.2", "batch:0.3"];
const OF_TRACE: [&str; 1] = ["interactive"];

impl RealArgs {
    /// The pods as they are simulated.
    pub(crate) fn pool(&self) -> Result<Pool> {
        ensure!(self.pods > 0, "--pods must be above zero");
        let pods = match self.engines.len() {
            0 => usize::from(self.pods),
            own => own,
        };
        let mut pool = Pool::of(&self.gpu, pods, self.chunk)?;
        pool.scrape_every = SCRAPE_EVERY;
        pool.named_tokens = weir_core::prefix::BLOCK_TOKENS;
        Ok(pool)
    }

    /// The classes where none are named.
    pub(crate) fn usual_classes(&self) -> Result<Vec<Class>> {
        let usual: &[&str] = if self.trace.is_some() { &OF_TRACE } else { &OF_MIX };
        let shares: Vec<String> = usual.iter().map(|text| (*text).to_owned()).collect();
        parse_classes(&shares, &[])
    }

    /// The requests of a round, the first of which is 0: every round has others.
    pub(crate) fn slice(&self, pool: &Pool, classes: &[Class], round: usize) -> Result<Slice> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let rate = self.rps.map_or(Rate::Load(self.load), Rate::PerSecond);
        let (Rate::Load(much) | Rate::PerSecond(much)) = rate;
        ensure!(
            positive(self.for_s) && positive(much),
            "--for, --load and --rps must be above zero"
        );
        let seed = self.seed.wrapping_add(round as u64);
        let slice = match &self.trace {
            Some(path) => {
                let stretch = Stretch { from_s: self.from_s, for_s: self.for_s, number: round };
                Slice::of_trace(path, pool, stretch, rate, classes, seed)
            }
            None => Slice::of_mix(pool, self.for_s, rate, classes, seed),
        }?;
        Ok(if self.engines.is_empty() { slice } else { slice.exact() })
    }

    /// What sets the words of a first run apart from all others: engines of one's own may still have in their caches what an earlier
    /// call sent them.
    pub(crate) fn first_words(&self) -> u64 {
        if self.engines.is_empty() {
            return self.seed;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.seed ^ since.as_micros() as u64
    }

    /// The pods and how they are told to Weir.
    pub(crate) fn pods(&self, pool: &Pool) -> Result<Pods> {
        let group = self.group(pool)?;
        let model = self.model.clone().unwrap_or_else(|| group.engine.hardware.model.to_owned());
        Ok(Pods { group, model, run_already: !self.engines.is_empty() })
    }

    fn group(&self, pool: &Pool) -> Result<Group> {
        let engine = pool.pods.first().context("no pod")?.engine.clone();
        if !self.engines.is_empty() {
            return Ok(Group { engine, pods: self.engines.clone() });
        }
        let port = |number: u16| local(self.pod_port.saturating_add(number));
        Ok(Group { engine, pods: (0..self.pods).map(port).collect() })
    }

    /// Where everything is.
    pub(crate) fn place(&self, dir: &Path) -> Place {
        let (api, admin) = (local(self.port), local(self.admin_port));
        Place { api, admin, dir: dir.to_owned(), seed: self.seed }
    }

    /// What is sent and where, for people.
    pub(crate) fn words(&self, pool: &Pool, slice: &Slice) -> Result<String> {
        Ok(format!(
            "{}: {} requests in {:.0} s, {:.2} per second{}; {} pods of {}, chunk {}; predictions {}.",
            slice.name,
            slice.requests.len(),
            self.for_s,
            slice.rps,
            if self.rps.is_none() { format!(" (load {:.2})", self.load) } else { String::new() },
            pool.pods.len(),
            self.gpu,
            self.group(pool)?.engine.max_num_batched_tokens,
            self.prediction.name(),
        ))
    }
}
