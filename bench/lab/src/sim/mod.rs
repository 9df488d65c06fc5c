//! Weir's scheduler in front of modelled engines, in virtual time: thousands of requests in a second, the same ones every
//! time.
//!
//! [`run`] owns the clock and lets happen whatever is due next: an arrival, the end of an engine's step, a scrape, a tick. It
//! drives [`weir_core::Scheduler`] with the same events at the same moments as the dispatcher does (ticks only while
//! something waits, streams swept at most once in [`weir_core::TICK`], steps read off the chunks of streams), so that what is
//! measured here is the decision and not a model of it. What a request really took comes from the engine, also for a response
//! that is not streamed, of which the scheduler sees nothing but the end. There is no network: a request reaches its pod, and a
//! token its client, at once.
//!
//! Every request gets exactly one [`Outcome`], in the order of `requests`; one that an engine does not take is
//! [`Outcome::Rejected`].
//!
//! # Layout
//! - `world`: the loop; `pod`: an engine and what its streams show; `workload`: the built-in mix as requests

mod pod;
#[cfg(test)]
mod tests;
mod workload;
mod world;

use std::time::Duration;

use weir_core::{PodId, RefusalReason, Request, SchedulerConfig, Snapshot};
use weir_engine::EngineConfig;
use weir_schema::{Prediction, Sample};

pub use workload::Workload;
pub use world::run;

/// A pool to be simulated.
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
#[derive(Clone, Debug)]
pub struct SimPod {
    /// Its engine.
    pub engine: EngineConfig,
    /// Index of its class in the scheduler's configuration.
    pub class: u16,
}

/// One request, and how long its answer will be.
#[derive(Clone, Debug)]
pub struct SimRequest {
    /// What the scheduler is told; its id must be its own, and its prompt is one sequence.
    pub request: Request,
    /// Length of the prompt in tokens.
    pub input_tokens: u32,
    /// Length of the answer in tokens, before the cut by the request's own bound.
    pub output_tokens: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It was served.
    Served(Served),
    /// The scheduler refused it.
    Refused(RefusalReason),
    /// The engine did not take it.
    Rejected,
}

/// What a served request was told and what it got. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// Where.
    pub pod: PodId,
    /// Whether its tokens were seen by the scheduler.
    pub streamed: bool,
    /// What was predicted at the dispatch.
    pub predicted: Prediction,
    /// From arrival to dispatch.
    pub wait_ms: f64,
    /// From dispatch to the first token.
    pub ttft_ms: f64,
    /// Mean per token after the first; `None` for an answer of one token.
    pub tpot_ms: Option<f64>,
}

/// A whole simulation.
#[derive(Clone, Debug)]
pub struct Run {
    /// One per request, in their order.
    pub outcomes: Vec<Outcome>,
    /// What the scheduler gave for the spool, in the order of the ends.
    pub samples: Vec<Sample>,
    /// The scheduler when everything was over.
    pub end: Snapshot,
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
