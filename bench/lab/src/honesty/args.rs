//! The command line of `weir-bench honesty`.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{Prediction, compare::Comparison, figures::Figures, real, simulated, slice::Slice};
use crate::{
    bounds,
    children::{INTERRUPTED, unless_interrupted},
    demo::{Group, Place, local},
    results::{ResultFile, say},
    sim::Pool,
};

/// Send the same requests through the real program and through the simulation, and compare
#[derive(Clone, Debug, Args)]
pub struct HonestyArgs {
    /// Trace whose requests are sent; the demo's mix when left out
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// First second of the trace
    #[arg(long = "from", default_value_t = 0.0, value_name = "SECONDS", requires = "trace")]
    from_s: f64,
    /// How long requests come
    #[arg(long = "for", default_value_t = 90.0, value_name = "SECONDS")]
    for_s: f64,
    /// Load; 1 is what the pods hold by formula
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// How latencies are predicted, on both sides
    #[arg(long, value_enum, default_value = "fitted")]
    prediction: Prediction,
    /// How many pods
    #[arg(long, default_value_t = 3, value_name = "N", conflicts_with = "engines")]
    pods: u16,
    /// Where engines of your own listen, as address:port: they are asked in place of simulated pods. The requests say how
    /// long their answers are (max_tokens, ignore_eos)
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    engines: Vec<SocketAddr>,
    /// The model that these serve; that of --gpu when left out
    #[arg(long, value_name = "NAME", requires = "engines")]
    model: Option<String>,
    /// What each pod is, or is simulated as: GPU, model and tensor parallelism
    #[arg(long, default_value = "h100-qwen3-32b-tp2", value_name = "NAME")]
    gpu: String,
    /// Tokens of an engine's step, in place of vLLM's default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Option<u32>,
    /// Simulations, each with noise of its own
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = bounds::seeds(1))]
    seeds: u64,
    /// Decides arrivals, lengths and noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Port of Weir's OpenAI API
    #[arg(long, default_value_t = 8180)]
    port: u16,
    /// Port of Weir's admin side
    #[arg(long, default_value_t = 8181)]
    admin_port: u16,
    /// Port of the first pod; the others follow
    #[arg(long, default_value_t = 18101)]
    pod_port: u16,
    /// Folder for the configuration, logs, samples and bundles
    #[arg(long, default_value = "target/honesty")]
    dir: PathBuf,
    /// File for the comparison as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl HonestyArgs {
    /// Runs both and prints the comparison.
    ///
    /// # Errors
    /// When the arguments make no run, or one of the two cannot be run.
    pub fn run(self) -> Result<ExitCode> {
        let pool = self.pool()?;
        let slice = self.slice(&pool)?;
        let json = ResultFile::asked(self.json.as_deref())?
            .sparing([("--trace", self.trace.as_deref())])?;
        say!(
            "{}: {} requests in {:.0} s, {:.2} per second (load {:.2}); {} pods of {}, chunk {}; predictions {}.",
            slice.name,
            slice.requests.len(),
            self.for_s,
            slice.rps,
            self.load,
            pool.pods.len(),
            self.gpu,
            self.group(&pool)?.engine.max_num_batched_tokens,
            self.prediction.name(),
        )?;
        let seeds: Vec<u64> = (self.seed..).take(self.seeds as usize).collect();
        let simulated = simulated::run(&slice, &pool, self.prediction, &seeds)?;
        say!("Simulated {} times; now the real program.", seeds.len())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (pods, place) = (self.real_pods(&pool)?, self.place());
        let real = real::run(&slice, pods, &place, self.prediction);
        let real = runtime.block_on(unless_interrupted(Box::pin(real)))?;
        let Some((real, lag_p99_ms)) = real else {
            return Ok(ExitCode::from(INTERRUPTED));
        };
        let network_ms = slice.network_ms(&real, &simulated);
        let real = Figures::of(&slice, &real, 0.0);
        let simulated: Vec<Figures> =
            simulated.iter().map(|run| Figures::of(&slice, run, network_ms)).collect();
        let comparison = Comparison::new(&slice, &real, &simulated, (network_ms, lag_p99_ms));
        json.json(&comparison)?;
        say!("{}", comparison.for_people())?;
        Ok(ExitCode::from(u8::from(!comparison.holds)))
    }

    pub(super) fn pool(&self) -> Result<Pool> {
        ensure!(self.pods > 0, "--pods must be above zero");
        let pods = match self.engines.len() {
            0 => usize::from(self.pods),
            own => own,
        };
        let mut pool = Pool::of(&self.gpu, pods, self.chunk)?;
        pool.scrape_every = real::SCRAPE_EVERY;
        pool.named_tokens = weir_core::prefix::BLOCK_TOKENS;
        Ok(pool)
    }

    pub(super) fn slice(&self, pool: &Pool) -> Result<Slice> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        ensure!(positive(self.for_s) && positive(self.load), "--for and --load must be above zero");
        let slice = match &self.trace {
            Some(path) => {
                Slice::of_trace(path, pool, (self.from_s, self.for_s), self.load, self.seed)
            }
            None => Slice::of_mix(pool, self.for_s, self.load, self.seed),
        }?;
        Ok(if self.engines.is_empty() { slice } else { slice.exact() })
    }

    fn group(&self, pool: &Pool) -> Result<Group> {
        let engine = pool.pods.first().context("no pod")?.engine.clone();
        if !self.engines.is_empty() {
            return Ok(Group { engine, pods: self.engines.clone() });
        }
        let port = |number: u16| local(self.pod_port.saturating_add(number));
        Ok(Group { engine, pods: (0..self.pods).map(port).collect() })
    }

    pub(super) fn real_pods(&self, pool: &Pool) -> Result<real::Pods> {
        let group = self.group(pool)?;
        let model = self.model.clone().unwrap_or_else(|| group.engine.hardware.model.to_owned());
        Ok(real::Pods { group, model, run_already: !self.engines.is_empty() })
    }

    fn place(&self) -> Place {
        let (api, admin) = (local(self.port), local(self.admin_port));
        Place { api, admin, dir: self.dir.clone(), seed: self.seed }
    }
}
