//! The pipeline of steps on the caller's clock.
//!
//! Owned and driven by the caller: [`Engine::submit_to`], [`Engine::abort`] and [`Engine::release`] at any time,
//! [`Engine::next_event_ms`] to know when to come back, [`Engine::advance`] to collect what happened. Promises: outputs come
//! in order of time and none is later than asked for; every accepted job ends exactly once, with [`Output::Finished`] or
//! with an `abort` that returned true; the same calls give the same outputs; an idle engine has no events, and nor has one
//! whose jobs all wait for kept blocks. (One that half fits beside them may be preempted over and over until they are
//! released.) A job that can never run, or that passes a valve, is [`Rejected`].

use std::collections::VecDeque;
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;

use crate::config::EngineConfig;
use crate::hardware::Hardware;
use crate::job::{Job, Output, Rejected, SeqId};
use crate::lora::Adapters;
use crate::metrics::EngineMetrics;
use crate::rank::Rank;
use crate::sequence::SeqIndex;

/// A step-level model of one vLLM engine in virtual time, or of several that step together.
///
/// With async scheduling two steps are in flight: when step k-1 ends its output is processed and step k+1 is scheduled,
/// while step k runs. A job therefore waits for a step boundary, then for the step already queued, then for its own: at low
/// load TTFT is about 2.5 steps plus the API cost, which is what real runs show (3.35 ms + 2.855 x TPOT). The API cost is
/// charged once, before the scheduler sees the job.
///
/// With several [ranks](EngineConfig::ranks) each has its own scheduler, blocks, prefix cache and queue, but every step is
/// one of all ranks: it starts for all at once and ends for all when the slowest has done its part, with one noise factor.
/// A rank with nothing to compute makes a dummy pass, and what arrives there waits for the common boundary. Source: vLLM's
/// `data_parallel_deployment.md` ("forward passes must be aligned") and `DPEngineCoreProc.run_busy_loop`. Not modelled:
/// that the ranks go on with dummy passes for up to 32 steps after the last job.
///
/// `Clone` copies the whole state, so that a caller can ask what would happen.
#[derive(Debug, Clone)]
pub struct Engine {
    cfg: EngineConfig,
    cost: Hardware,
    /// By number.
    ranks: Vec<Rank>,
    /// Scheduled steps that have not ended, oldest first.
    in_flight: VecDeque<Step>,
    /// Something ended at this time while no step was in flight: whoever waited for kept blocks may fit now.
    look_ms: Option<f64>,
    now_ms: f64,
    /// Outputs of time that passed in `submit_to`, `abort` or `release`, not yet handed over.
    pending: Vec<Output>,
    noise: SmallRng,
    /// Steps that ended, which is the number of the oldest in flight.
    steps: u64,
    busy_ms: f64,
}

#[derive(Debug, Clone)]
struct Step {
    took_ms: f64,
    end_ms: f64,
}

impl Engine {
    /// An idle engine at time 0. A block size or number of sequences or ranks of 0 counts as 1, and ranks beyond
    /// [`SeqId::MOST_RANKS`] do not exist.
    pub fn new(mut cfg: EngineConfig) -> Self {
        cfg.block_size = cfg.block_size.max(1);
        cfg.max_num_seqs = cfg.max_num_seqs.max(1);
        cfg.ranks = cfg.ranks.clamp(1, SeqId::MOST_RANKS);
        Self {
            cost: cfg.charged(),
            ranks: (0..cfg.ranks).map(|number| Rank::new(number, &cfg)).collect(),
            in_flight: VecDeque::new(),
            look_ms: None,
            now_ms: 0.0,
            pending: Vec::new(),
            noise: SmallRng::seed_from_u64(cfg.seed),
            steps: 0,
            busy_ms: 0.0,
            cfg,
        }
    }

    /// [`Self::submit_to`] rank 0.
    pub fn submit(&mut self, now_ms: f64, job: Job) -> Result<SeqId, Rejected> {
        self.submit_to(now_ms, 0, job)
    }

    /// Hands a job over to a rank at `now_ms`. Events before `now_ms` happen first; their outputs come with the next
    /// [`Self::advance`]. Time does not go back: an earlier `now_ms` counts as the latest one seen.
    pub fn submit_to(&mut self, now_ms: f64, rank: u16, job: Job) -> Result<SeqId, Rejected> {
        self.catch_up(now_ms);
        let ready_ms = self.now_ms + self.cfg.api_cost_ms + self.transfer_ms(&job);
        let ranks = self.cfg.ranks;
        let Some(found) = self.ranks.get_mut(usize::from(rank)) else {
            return Err(Rejected::NoSuchRank { rank, ranks });
        };
        found.accept(&self.cfg, job, ready_ms)
    }

    /// Drops a job and frees what it holds; false if it had already ended. Steps in flight still take their time. A job
    /// that finished and keeps its blocks is released.
    pub fn abort(&mut self, now_ms: f64, id: SeqId) -> bool {
        self.catch_up(now_ms);
        let Some((rank, index)) = self.find_mut(id) else { return false };
        if rank.is_kept(index) {
            return self.release(now_ms, id);
        }
        if rank.abort(index) {
            self.look_again(id.rank());
        }
        true
    }

    /// Frees the blocks of a finished job that keeps them, because another engine has read them; false if there is none.
    /// Until then its name stays valid.
    pub fn release(&mut self, now_ms: f64, id: SeqId) -> bool {
        self.catch_up(now_ms);
        let kept = |(rank, index): &(&mut Rank, SeqIndex)| rank.is_kept(*index);
        let Some((rank, index)) = self.find_mut(id).filter(kept) else { return false };
        rank.release(index);
        self.look_again(id.rank());
        true
    }

    /// Empties the prefix cache of each rank that uses no block, as vLLM's `POST /reset_prefix_cache`; false if one does.
    pub fn reset_prefix_cache(&mut self, now_ms: f64) -> bool {
        self.catch_up(now_ms);
        self.ranks.iter_mut().map(Rank::reset_prefix_cache).filter(|reset| !reset).count() == 0
    }

    /// When something will next happen, or `None` while idle. [`Self::advance`] to this time does it.
    pub fn next_event_ms(&self) -> Option<f64> {
        self.pending.first().map(Output::at_ms).or_else(|| self.next_step_event_ms())
    }

    /// Runs to `to_ms`, that moment included, and appends what happened, in order of time and, where a step ended, of rank.
    pub fn advance(&mut self, to_ms: f64, out: &mut Vec<Output>) {
        out.append(&mut self.pending);
        while let Some(at_ms) = self.next_step_event_ms().filter(|at_ms| *at_ms <= to_ms) {
            self.boundary(at_ms, out);
        }
        self.now_ms = self.now_ms.max(to_ms);
    }

    /// Gauges and counters of all ranks at the latest time seen: their sum, but the mean of `kv_usage`, and steps are
    /// common.
    pub fn metrics(&self) -> EngineMetrics {
        let mut sum =
            EngineMetrics { steps: self.steps, busy_ms: self.busy_ms, ..EngineMetrics::default() };
        for rank in &self.ranks {
            sum.add(&rank.metrics());
        }
        sum.kv_usage /= self.ranks.len() as f64;
        sum
    }

    /// The rank that vLLM's internal load balancing gives a job to (`DPLBAsyncMPClient.get_core_engine_for_request`): the first
    /// of those with the least of four times the waiting and the running. Its counts are up to 100 ms old there, and what it
    /// placed since is added to them.
    pub fn least_loaded(&self) -> u16 {
        self.least_loaded_of(0..self.cfg.ranks)
    }

    /// [`Self::least_loaded`] of some of the ranks, as a node of several balances over its own; the first where there is none.
    pub fn least_loaded_of(&self, ranks: Range<u16>) -> u16 {
        let load = |rank: &u16| {
            let EngineMetrics { waiting, running, .. } = self.metrics_of(*rank);
            4 * u64::from(waiting) + u64::from(running)
        };
        let first = ranks.start;
        if ranks.len() == 1 { first } else { ranks.min_by_key(load).unwrap_or(first) }
    }

    /// Gauges and counters of one rank, beside the steps of all; all zero if there is no such rank.
    pub fn metrics_of(&self, rank: u16) -> EngineMetrics {
        let found = self.ranks.get(usize::from(rank)).map(Rank::metrics);
        found.map_or_else(EngineMetrics::default, |own| EngineMetrics {
            steps: self.steps,
            busy_ms: self.busy_ms,
            ..own
        })
    }

    /// The adapters that run and wait at all ranks; `None` until a job has named one, as vLLM says nothing until then.
    pub fn adapters(&self) -> Option<Adapters> {
        let each = self.ranks.iter().filter_map(Rank::adapters);
        each.reduce(|mut sum, rank| {
            sum.add(&rank);
            sum
        })
    }

    /// Those of one rank, likewise; `None` if there is no such rank.
    pub fn adapters_of(&self, rank: u16) -> Option<Adapters> {
        self.ranks.get(usize::from(rank)).and_then(Rank::adapters)
    }

    /// Tokens that a job has so far; `None` once it is over and keeps nothing.
    pub fn generated(&self, id: SeqId) -> Option<u32> {
        let rank = self.ranks.get(usize::from(id.rank()))?;
        rank.index(id).map(|index| rank.generated(index))
    }

    /// Tokens that all jobs have had so far: [`EngineMetrics::generation_tokens`] alone.
    pub fn generation_tokens(&self) -> u64 {
        self.ranks.iter().map(Rank::generation_tokens).sum()
    }

    /// What it was started with.
    pub fn config(&self) -> &EngineConfig {
        &self.cfg
    }

    /// The rank of a live job, and the job there.
    fn find_mut(&mut self, id: SeqId) -> Option<(&mut Rank, SeqIndex)> {
        let rank = self.ranks.get_mut(usize::from(id.rank()))?;
        let index = rank.index(id)?;
        Some((rank, index))
    }

    /// All brought tokens count, those that the prefix cache turns out to have as well.
    fn transfer_ms(&self, job: &Job) -> f64 {
        let tokens = job.brought_tokens.min(job.prompt_tokens);
        f64::from(tokens) * self.cfg.transfer_us_per_token / 1e3
    }

    /// What ended may make room in its rank, and no step's end will tell: only kept blocks let a job wait beside an idle
    /// engine.
    fn look_again(&mut self, rank: u16) {
        let waits = self.ranks.get(usize::from(rank)).is_some_and(Rank::has_waiting);
        if self.in_flight.is_empty() && waits {
            self.look_ms = Some(self.now_ms);
        }
    }

    /// Lets everything strictly before `now_ms` happen. What is due at `now_ms` itself waits for `advance`, so that jobs
    /// submitted at the same moment are seen together.
    fn catch_up(&mut self, now_ms: f64) {
        let mut pending = std::mem::take(&mut self.pending);
        while let Some(at_ms) = self.next_step_event_ms().filter(|at_ms| *at_ms < now_ms) {
            self.boundary(at_ms, &mut pending);
        }
        self.pending = pending;
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// The engine looks up only when a step ends, or when it is idle and a job arrives or one ends.
    fn next_step_event_ms(&self) -> Option<f64> {
        let step_ms = self.in_flight.front().map(|step| step.end_ms);
        let seen_ms = || self.ranks.iter().filter_map(Rank::next_ready_ms).min_by(f64::total_cmp);
        step_ms.or(self.look_ms).or_else(seen_ms)
    }

    /// One turn of the engine's loop: process the step that ended, see what arrived, keep the pipeline full.
    fn boundary(&mut self, at_ms: f64, out: &mut Vec<Output>) {
        self.now_ms = self.now_ms.max(at_ms);
        self.look_ms = None;
        let ended = self.in_flight.front().is_some_and(|step| step.end_ms <= at_ms);
        if ended && let Some(step) = self.in_flight.pop_front() {
            self.process(&step, out);
        }
        for rank in &mut self.ranks {
            rank.see(at_ms);
        }
        let depth = if self.cfg.async_scheduling { 2 } else { 1 };
        while self.in_flight.len() < depth && self.launch(at_ms) {}
    }

    /// Schedules one step behind those in flight; false if no rank has anything to do.
    fn launch(&mut self, at_ms: f64) -> bool {
        let Some(slowest_ms) = self.plan(at_ms) else { return false };
        let took_ms = slowest_ms * self.noise_factor();
        let start_ms = self.in_flight.back().map_or(at_ms, |step| step.end_ms);
        let end_ms = start_ms + took_ms;
        self.in_flight.push_back(Step { took_ms, end_ms });
        true
    }

    /// Milliseconds of the step's slowest part; `None` if there is nothing to do.
    ///
    /// A plan may come out empty because all it did was to preempt. With nothing in flight no later boundary would plan
    /// again, so it is done at once; it ends because each turn has fewer sequences to preempt.
    fn plan(&mut self, at_ms: f64) -> Option<f64> {
        let number = self.steps + self.in_flight.len() as u64;
        loop {
            let plan = |rank: &mut Rank| rank.plan(number, at_ms, &self.cost);
            let slowest_ms = self.ranks.iter_mut().filter_map(plan).reduce(f64::max);
            let idle = slowest_ms.is_none() && self.in_flight.is_empty();
            if !(idle && self.ranks.iter().any(Rank::only_preempted)) {
                return slowest_ms;
            }
        }
    }

    fn noise_factor(&mut self) -> f64 {
        if self.cfg.noise_sigma <= 0.0 {
            return 1.0;
        }
        let normal: f64 = self.noise.sample(StandardNormal);
        (self.cfg.noise_sigma * normal).exp()
    }

    fn process(&mut self, step: &Step, out: &mut Vec<Output>) {
        for rank in &mut self.ranks {
            rank.process(self.steps, step.end_ms, self.cfg.every_token, out);
        }
        self.steps += 1;
        self.busy_ms += step.took_ms;
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
