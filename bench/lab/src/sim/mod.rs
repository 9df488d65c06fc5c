//! Weir's scheduler in front of modelled engines, in virtual time: thousands of requests in a second, the same ones every
//! time.
//!
//! [`drive`] owns the clock and lets happen whatever is due next: an arrival, the end of an engine's step, a scrape, a tick. It
//! drives a [`Dispatcher`], which is [`weir_core::Scheduler`] or a rival of it, with the same events at the same moments as the
//! real dispatcher has them (ticks only while something waits, streams swept at most once in [`weir_core::TICK`], steps read
//! off the chunks of streams), so that what is measured here is the decision and not a model of it. What a request really took
//! comes from the engine, also for a response that is not streamed, of which the dispatcher sees nothing but the end. There is
//! no network: a request reaches its pod, and a token its client, at once.
//!
//! Every request gets exactly one [`Outcome`], in the order of `requests`; one that an engine does not take is
//! [`Outcome::Rejected`].
//!
//! # Layout
//! - `world`: the loop, and in it the pods that come and go while somebody scales them; `pod`: an engine and what its streams show
//! - `adapters`: LoRA adapters and what pods say of them
//! - `dispatcher`: what stands in front of the pods; `several`: more than one of it; `halves`: one for prompts and one for answers
//! - `pool`: the pods of a study; `oracle`: predictions of a chosen error; `mix`: the built-in mix as requests

mod adapters;
mod dispatcher;
mod halves;
mod mix;
mod oracle;
mod pod;
mod pool;
mod several;
#[cfg(test)]
mod tests;
mod world;

use std::time::Duration;

use weir_core::{PodId, RefusalReason, Request, Scheduler, SchedulerConfig, Snapshot, Time};
use weir_engine::{EngineConfig, EngineMetrics};
use weir_schema::{Predict, Prediction, Sample};

pub use adapters::{AdapterNames, LoraScrape};
pub use dispatcher::Dispatcher;
pub use halves::Halves;
pub use mix::Mix;
pub use oracle::Oracle;
pub use pool::Pool;
pub use several::Several;
pub use world::{Growth, SCALE_EVERY, Scaled, Scaler, View, drive, drive_scaled, drive_while};

/// A pool to be simulated behind Weir's scheduler.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// What the scheduler is told.
    pub scheduler: SchedulerConfig,
    /// The pods, in the order of their ids.
    pub pods: Vec<SimPod>,
    /// Time between two scrapes of a pod.
    pub scrape_every: Duration,
}

/// A pod of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct SimPod {
    /// Its engine.
    pub engine: EngineConfig,
    /// Index of its class in the scheduler's configuration.
    pub class: u16,
    /// Whether it computes prompts for others, and answers nobody.
    pub prefills: bool,
    /// Engines of one number are of one server and step together; they are alike, and of one class.
    pub server: Option<u32>,
    /// Those of one number are said to step together.
    pub group: Option<u32>,
    /// Whether it says how many adapters it runs at once.
    pub tells_max_loras: bool,
}

impl SimPod {
    /// One that does both, and steps for itself.
    pub const fn of(engine: EngineConfig, class: u16) -> Self {
        Self { engine, class, prefills: false, server: None, group: None, tells_max_loras: true }
    }

    /// With noise of its own: that of the pod of this number, from 0 on.
    #[must_use]
    pub fn seeded(&self, seed: u64, number: usize) -> Self {
        let seed = seed.wrapping_mul(1000).wrapping_add(number as u64 + 1);
        Self { engine: EngineConfig { seed, ..self.engine.clone() }, ..self.clone() }
    }
}

/// One request, and how long its answer will be.
#[derive(Clone, Debug)]
pub struct SimRequest {
    /// What the dispatcher is told. Its id is its place in the list of requests, and its prompt is one sequence.
    pub request: Request,
    /// Index of its class, for figures.
    pub class: usize,
    /// Length of the prompt in tokens.
    pub input_tokens: u32,
    /// Length of the answer in tokens, before the cut by the request's own bound.
    pub output_tokens: u32,
    /// Hashes of the blocks that prompt and answer fill together; more than [`Request::blocks`] where a later turn of the
    /// same conversation will hit the answer too. `None`: those of the request.
    pub blocks_with_answer: Option<std::sync::Arc<[u64]>>,
    /// Place of a request that must be over before this one arrives (the turn before it); it arrives then, or at its own
    /// time if that is later.
    pub after: Option<usize>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It was served.
    Served(Served),
    /// The dispatcher refused it.
    Refused(RefusalReason),
    /// The engine did not take it.
    Rejected,
}

/// What a served request was told and what it got. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Where.
    pub pod: PodId,
    /// Whether its tokens were seen by the dispatcher.
    pub streamed: bool,
    /// What was predicted at the dispatch.
    pub predicted: Prediction,
    /// When it arrived.
    pub arrived: Time,
    /// From arrival to dispatch.
    pub wait_ms: f64,
    /// From dispatch to the first token.
    pub ttft_ms: f64,
    /// Mean per token after the first; `None` for an answer of one token.
    pub tpot_ms: Option<f64>,
    /// From arrival to the last token.
    pub e2e_ms: f64,
    /// Tokens of the answer.
    pub output_tokens: u32,
    /// Prompt tokens that the engine found in its cache.
    pub cached_tokens: u32,
    /// How often the engine preempted it.
    pub preemptions: u32,
}

impl Served {
    /// From arrival to the first token, in milliseconds: what the TTFT objective is about.
    pub fn ttft_from_arrival_ms(&self) -> f64 {
        self.wait_ms + self.ttft_ms
    }
}

/// A whole simulation.
#[derive(Clone, Debug)]
pub struct Run {
    /// One per request, in their order.
    pub outcomes: Vec<Outcome>,
    /// What the dispatcher gave for the spool, in the order of the ends. `at_unix_ms` is virtual time.
    pub samples: Vec<Sample>,
    /// The dispatcher when everything was over, where it has such a view.
    pub end: Option<Snapshot>,
    /// What each engine counted.
    pub engines: Vec<EngineMetrics>,
    /// When everything was over.
    pub ended: Time,
}

impl Run {
    /// The requests that were served.
    pub fn served(&self) -> impl Iterator<Item = &Served> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Served(served) => Some(served),
            Outcome::Refused(_) | Outcome::Rejected => None,
        })
    }
}

/// Serves `requests`, which are in the order of their arrivals, with Weir's scheduler.
pub fn run(config: SimConfig, predictor: Box<dyn Predict>, requests: &[SimRequest]) -> Run {
    let scheduler = Scheduler::new(config.scheduler, predictor);
    drive(&config.pods, config.scrape_every, Box::new(scheduler), requests)
}
