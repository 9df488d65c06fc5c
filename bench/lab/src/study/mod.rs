//! Studies in virtual time: who serves how much of a workload inside its objectives, at which load.
//!
//! A [`Setting`] is what all contenders share: the pool, the traffic, the objectives, and what is known of the engines. The
//! same seed means the same arrivals, lengths, classes and noise for every contender, so that two of them are compared request
//! by request. [`once`] is one simulation, [`at_load`] the figures of one load over the seeds, [`max_load`] the highest load
//! that still keeps the promise. Load 1 is [`Pool::capacity_rps`] at the tightest pace that a class is promised.
//!
//! Nothing here depends on the machine or on the number of threads: a study says the same every time.
//!
//! # Layout
//! - `row`: a line of results; `fingerprints`: what it is of; `figures`: a run as figures; `spread`: means, percentiles and intervals; `seek`: the highest load;
//!   `enough`: how long a run has to be
//! - `parallel`: jobs on threads; `args`, `pool_file`: the command line of `weir-bench sim`; `table`: results for people

mod args;
mod enough;
mod figures;
mod fingerprints;
mod parallel;
mod pool_file;
mod row;
mod seek;
mod spread;
mod table;
#[cfg(test)]
mod tests;

use std::{
    cell::Cell,
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Result, bail, ensure};
use weir_predict::Chain;
use weir_schema::Predict;

use crate::{
    contender::Contender,
    learned::{Training, dispatcher, recorded},
    sim::{
        Dispatcher, Halves, Oracle, Outcome, Pool, Run, Several, SimRequest, drive, drive_while,
    },
    workload::{Objectives, Source},
};
pub(crate) use figures::{Figures, TopBand, in_time, warm_up, warm_up_of};
pub use fingerprints::Fingerprints;

pub use args::SimArgs;
pub(crate) use args::{knowledge, progress};
pub(crate) use enough::{least_requests, least_span_s, note_of_given, notes_of_found, too_short};
pub use parallel::in_parallel;
pub(crate) use pool_file::read as read_pool;
pub use row::Row;
pub(crate) use row::one_dispatcher;
pub use seek::max_load;
pub(crate) use seek::{Found, GoesOn, RESOLUTION, max_load_of, seek, told};
pub(crate) use spread::{Quantiles, half_width};

/// What all contenders of a study share.
#[derive(Clone)]
pub struct Setting {
    /// The pods.
    pub pool: Pool,
    /// What the pods are called in results.
    pub gpu: String,
    /// The traffic.
    pub source: Arc<dyn Source>,
    /// What its requests are promised.
    pub objectives: Objectives,
    /// What the objectives are called in results.
    pub mix: String,
    /// Requests of one seed, those of the warm-up included.
    pub requests: usize,
    /// What dispatchers know of the engines.
    pub knowledge: Knowledge,
    /// How many dispatchers stand in front of the pods, each with its share of the requests; none is one.
    pub dispatchers: usize,
}

/// Makes a predictor for a pool and a seed.
pub type MakePredictor = dyn Fn(&Pool, u64) -> Box<dyn Predict> + Send + Sync;

/// What dispatchers know of the engines: the predictor that each of them gets.
#[derive(Clone)]
pub enum Knowledge {
    /// The engines' own coefficients, each prediction off by lognormal noise.
    Oracle {
        /// Standard deviation of the log of the noise.
        error: f64,
    },
    /// The evaluators that serve, which fit the step times to what they see.
    Fitted,
    /// The same, with the trainer that serves in the loop.
    Trained(Box<Training>),
    /// The same, with a bundle as it is: its folder.
    Recorded(PathBuf),
    /// Another predictor for a pool and a seed.
    Custom(Arc<MakePredictor>),
}

impl Default for Knowledge {
    /// What a dispatcher has when it starts on a new pool.
    fn default() -> Self {
        Self::Fitted
    }
}

impl fmt::Debug for Knowledge {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oracle { error } => write!(to, "Oracle({error})"),
            Self::Fitted => to.write_str("Fitted"),
            Self::Trained(training) => write!(to, "Trained({:?})", training.interval),
            Self::Recorded(dir) => write!(to, "Recorded({})", dir.display()),
            Self::Custom(_) => to.write_str("Custom"),
        }
    }
}

impl Knowledge {
    /// Error of the oracle unless another is asked for: what a trained model is expected to reach.
    const ERROR: f64 = 0.05;
    /// The engines' own coefficients, off by so much.
    pub const CALIBRATED: Self = Self::Oracle { error: Self::ERROR };

    /// What `--prediction` calls it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Oracle { error } if *error == Self::ERROR => "oracle".to_owned(),
            Self::Oracle { error } => format!("oracle:{error}"),
            Self::Fitted => "fitted".to_owned(),
            Self::Trained(_) => "trained".to_owned(),
            Self::Recorded(dir) => format!("bundle:{}", dir.display()),
            Self::Custom(_) => "custom".to_owned(),
        }
    }

    /// One dispatcher of a contender that knows so much.
    ///
    /// # Errors
    /// When a model is asked for and its native library, or its bundle, is missing.
    pub fn dispatcher(
        &self,
        contender: &Contender,
        pool: &Pool,
        seed: u64,
    ) -> Result<Box<dyn Dispatcher>> {
        let predictor: Box<dyn Predict> = match self {
            Self::Oracle { error } => Box::new(Oracle::new(pool, *error, seed)),
            Self::Fitted => Box::new(Chain::new()),
            Self::Trained(training) => return dispatcher(contender, pool, training, seed),
            Self::Recorded(dir) => Box::new(recorded(dir)?),
            Self::Custom(make) => make(pool, seed),
        };
        Ok(contender.build(pool, predictor, seed))
    }
}

/// Where a dispatcher's place goes in its seed: above all seeds that a study has, so that no two are alike.
const PLACE_BITS: u32 = 32;

impl Setting {
    /// What stands in front of the pods: a dispatcher of a contender, or several that decide and learn apart. The first has the
    /// seed of the one that would stand there alone.
    ///
    /// # Errors
    /// As for [`Knowledge::dispatcher`].
    pub fn dispatcher(&self, contender: &Contender, seed: u64) -> Result<Box<dyn Dispatcher>> {
        let of = |pool: &Pool, seed| self.knowledge.dispatcher(contender, pool, seed);
        if self.pool.is_split() {
            ensure!(
                self.dispatchers <= 1,
                "several dispatchers in front of pods that prefill are not simulated"
            );
            let [first, second] = [true, false].map(|half| of(&self.pool.half(half), seed));
            return Ok(Box::new(Halves::new(first?, second?, &self.pool)));
        }
        let one = |seed| of(&self.pool, seed);
        if self.dispatchers <= 1 {
            return one(seed);
        }
        let places = 0..self.dispatchers as u64;
        let each = places.map(|place| one(seed ^ (place << PLACE_BITS)));
        Ok(Box::new(Several::new(each.collect::<Result<_>>()?)))
    }

    /// Requests per second at load 1.
    pub fn capacity_rps(&self) -> f64 {
        self.pool.capacity_rps(&self.source.means(), self.objectives.tightest_tpot_ms())
    }

    /// The same setting, if its pods hold some of the traffic: load 1 of none would be no rate. Traffic with rates of its own
    /// needs no load.
    ///
    /// # Errors
    /// When they hold none of it, with what may be why.
    pub(crate) fn that_holds_some(self) -> Result<Self> {
        if self.source.stages().is_some() || self.capacity_rps() > 0.0 {
            return Ok(self);
        }
        let engines = || self.pool.pods.iter().map(|pod| &pod.engine);
        let step_ms = engines().map(|engine| engine.hardware.a_ms).reduce(f64::min);
        let blocks = engines().map(|engine| engine.num_blocks).max();
        bail!(
            "the pods hold nothing of this: an empty step takes at least {:.1} ms and the tightest objective is {} ms per token; a pod has at most {} KV blocks, one of them for the engine itself",
            step_ms.unwrap_or_default(),
            self.objectives.tightest_tpot_ms(),
            blocks.unwrap_or_default(),
        )
    }
}

/// Requests that this process has simulated: speed is told in them.
static SIMULATED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static SIMULATED_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Requests that this process has simulated so far, in all studies.
pub fn simulated() -> u64 {
    SIMULATED.load(Ordering::Relaxed)
}

/// Those of them that this thread has.
pub fn simulated_here() -> u64 {
    SIMULATED_HERE.get()
}

fn count_simulated(requests: u64) {
    SIMULATED.fetch_add(requests, Ordering::Relaxed);
    SIMULATED_HERE.set(SIMULATED_HERE.get() + requests);
}

/// One simulation: the requests of a seed at a load, and what became of them.
///
/// # Errors
/// When the load is not above zero, the source makes no requests of it, or there is no model where one is asked for.
pub fn once(
    setting: &Setting,
    contender: &Contender,
    load: f64,
    seed: u64,
) -> Result<(Vec<SimRequest>, Run)> {
    let requests = requests_of(setting, load, seed)?;
    let pool = &setting.pool;
    let dispatcher = setting.dispatcher(contender, seed)?;
    let run = drive(&pool.seeded(seed), pool.scrape_every, dispatcher, &requests);
    count_simulated(requests.len() as u64);
    Ok((requests, run))
}

/// The same of requests that were made before, for as long as `goes_on` says so of each outcome; `None` once it did not.
fn once_while(
    setting: &Setting,
    contender: &Contender,
    seed: u64,
    requests: &[SimRequest],
    mut goes_on: impl FnMut(usize, &Outcome) -> bool,
) -> Result<Option<Run>> {
    let pool = &setting.pool;
    let dispatcher = setting.dispatcher(contender, seed)?;
    let mut over = 0;
    let counted = |place: usize, outcome: &Outcome| {
        over += 1;
        goes_on(place, outcome)
    };
    let run = drive_while(&pool.seeded(seed), pool.scrape_every, dispatcher, requests, counted);
    count_simulated(over);
    Ok(run)
}

pub(crate) fn requests_of(setting: &Setting, load: f64, seed: u64) -> Result<Vec<SimRequest>> {
    ensure!(load.is_finite() && load > 0.0, "a load must be above zero, not {load}");
    let rate_rps = load * setting.capacity_rps();
    setting.source.requests(rate_rps, setting.requests, &setting.objectives, seed)
}

/// The figures of one load over the seeds: all classes together first, then each that has requests.
///
/// # Errors
/// As for [`once`], and when there is no seed.
pub fn at_load(
    setting: &Setting,
    contender: &Contender,
    load: f64,
    seeds: &[u64],
) -> Result<Vec<Row>> {
    let figures = figures_at(setting, contender, load, seeds)?;
    Ok(rows(setting, contender, &figures, Asked { load: Some(load), ..Asked::default() }))
}

/// The same of a source with rates of its own, at these.
///
/// # Errors
/// As for [`at_load`].
pub fn as_it_comes(setting: &Setting, contender: &Contender, seeds: &[u64]) -> Result<Vec<Row>> {
    // Such a source does not heed a load.
    let figures = figures_at(setting, contender, 1.0, seeds)?;
    Ok(rows(setting, contender, &figures, Asked::default()))
}

fn figures_at(
    setting: &Setting,
    contender: &Contender,
    load: f64,
    seeds: &[u64],
) -> Result<Vec<Figures>> {
    ensure!(!seeds.is_empty(), "a study needs a seed");
    seeds.iter().map(|seed| figures_of(setting, contender, load, *seed)).collect()
}

pub(crate) fn figures_of(
    setting: &Setting,
    contender: &Contender,
    load: f64,
    seed: u64,
) -> Result<Figures> {
    let (requests, run) = once(setting, contender, load, seed)?;
    Ok(Figures::of(&requests, &run, &setting.objectives))
}

/// Which question a row answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) load: Option<f64>,
    pub(crate) max_load: Option<Found>,
    pub(crate) at: Option<f64>,
}

impl Asked {
    /// Whether the run has too few requests for its load to show.
    fn is_too_short(&self, setting: &Setting) -> bool {
        let load = self.max_load.map(|found| found.load).or(self.load);
        load.is_some_and(|load| least_requests(setting, load) > setting.requests)
    }
}

/// What rows of all classes together are called.
pub(crate) const ALL: &str = "all";

pub(crate) fn rows(
    setting: &Setting,
    contender: &Contender,
    seeds: &[Figures],
    asked: Asked,
) -> Vec<Row> {
    let blank = Row {
        workload: setting.source.name().to_owned(),
        mix: setting.mix.clone(),
        gpu: setting.gpu.clone(),
        pods: setting.pool.pods.len(),
        chunk_tokens: setting.pool.classes.first().map_or(0, |class| class.chunk_tokens),
        policy: contender.name().to_owned(),
        prediction: setting.knowledge.name(),
        dispatchers: setting.dispatchers,
        fingerprints: Fingerprints::of(setting),
        load: asked.load,
        max_load: asked.max_load.map(|found| found.load),
        bounded: asked.max_load.is_none_or(|found| found.bounded),
        too_short: asked.is_too_short(setting),
        at: asked.at,
        seeds: seeds.len(),
        ..Row::default()
    };
    let classes = setting.objectives.classes.iter().map(|class| class.name.as_str());
    let named = std::iter::once(ALL).chain(classes).enumerate();
    // The one class of the objectives that promise nothing is called so too, and its row would say the same again.
    let named = named.filter(|(part, class)| *part == 0 || *class != ALL);
    let row = |(part, class): (usize, &str)| {
        let row = figures::row(&blank, seeds, part)?;
        Some(Row { class: class.to_owned(), ..row })
    };
    named.filter_map(row).collect()
}
