//! The pipeline of steps on the caller's clock.
//!
//! Owned and driven by the caller: [`Engine::submit`], [`Engine::abort`] and [`Engine::release`] at any time,
//! [`Engine::next_event_ms`] to know when to come back, [`Engine::advance`] to collect what happened. Promises: outputs come
//! in order of time and none is later than asked for; every accepted job ends exactly once, with [`Output::Finished`] or
//! with an `abort` that returned true; the same calls give the same outputs; an idle engine has no events, and nor has one
//! whose jobs all wait for kept blocks. (One that half fits beside them may be preempted over and over until they are
//! released.) A job that can never run, or that passes a valve, is [`Rejected`].

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;

use crate::config::EngineConfig;
use crate::hardware::Hardware;
use crate::job::{Job, Output, Rejected, SeqId};
use crate::metrics::EngineMetrics;
use crate::schedule::{Row, Scheduler};
use crate::sequence::{Phase, SeqIndex};
use crate::step::StepLoad;

/// A step-level model of one vLLM engine in virtual time.
///
/// With async scheduling two steps are in flight: when step k-1 ends its output is processed and step k+1 is scheduled,
/// while step k runs. A job therefore waits for a step boundary, then for the step already queued, then for its own: at low
/// load TTFT is about 2.5 steps plus the API cost, which is what real runs show (3.35 ms + 2.855 x TPOT). The API cost is
/// charged once, before the scheduler sees the job.
///
/// `Clone` copies the whole state, so that a caller can ask what would happen.
#[derive(Debug, Clone)]
pub struct Engine {
    cfg: EngineConfig,
    cost: Hardware,
    scheduler: Scheduler,
    /// Scheduled steps that have not ended, oldest first.
    in_flight: VecDeque<Step>,
    /// Jobs in the API server or waiting for their KV: when the scheduler will see them, soonest first.
    incoming: VecDeque<(f64, SeqIndex)>,
    incoming_tokens: u64,
    /// Something ended at this time while no step was in flight: whoever waited for kept blocks may fit now.
    look_ms: Option<f64>,
    now_ms: f64,
    /// Outputs of time that passed in `submit`, `abort` or `release`, not yet handed over.
    pending: Vec<Output>,
    noise: SmallRng,
    counters: EngineMetrics,
    spare_rows: Vec<Vec<Row>>,
}

#[derive(Debug, Clone)]
struct Step {
    rows: Vec<Row>,
    tokens: u32,
    took_ms: f64,
    end_ms: f64,
}

impl Engine {
    /// An idle engine at time 0. A block size or number of sequences of 0 counts as 1.
    pub fn new(mut cfg: EngineConfig) -> Self {
        cfg.block_size = cfg.block_size.max(1);
        cfg.max_num_seqs = cfg.max_num_seqs.max(1);
        Self {
            cost: cfg.charged(),
            scheduler: Scheduler::new(&cfg),
            in_flight: VecDeque::new(),
            incoming: VecDeque::new(),
            incoming_tokens: 0,
            look_ms: None,
            now_ms: 0.0,
            pending: Vec::new(),
            noise: SmallRng::seed_from_u64(cfg.seed),
            counters: EngineMetrics::default(),
            spare_rows: Vec::new(),
            cfg,
        }
    }

    /// Hands a job over at `now_ms`. Events before `now_ms` happen first; their outputs come with the next
    /// [`Self::advance`]. Time does not go back: an earlier `now_ms` counts as the latest one seen.
    pub fn submit(&mut self, now_ms: f64, job: Job) -> Result<SeqId, Rejected> {
        self.catch_up(now_ms);
        if let Err(reason) = self.check(&job) {
            self.counters.rejections += 1;
            return Err(reason);
        }
        let ready_ms = self.now_ms + self.cfg.api_cost_ms + self.transfer_ms(&job);
        let index = self.scheduler.accept(job, ready_ms);
        self.incoming_tokens += u64::from(self.scheduler.seqs.at(index).prompt);
        let place = self.incoming.partition_point(|(ms, _)| *ms <= ready_ms);
        self.incoming.insert(place, (ready_ms, index));
        Ok(self.scheduler.seqs.id(index))
    }

    /// Drops a job and frees what it holds; false if it had already ended. Steps in flight still take their time. A job
    /// that finished and keeps its blocks is released.
    pub fn abort(&mut self, now_ms: f64, id: SeqId) -> bool {
        self.catch_up(now_ms);
        let Some(index) = self.scheduler.seqs.index(id) else { return false };
        if self.scheduler.seqs.at(index).phase == Phase::Kept {
            return self.release(now_ms, id);
        }
        match self.scheduler.seqs.at(index).phase {
            Phase::Incoming => {
                self.incoming.retain(|(_, i)| *i != index);
                self.incoming_tokens -= u64::from(self.scheduler.seqs.at(index).prompt);
                self.scheduler.end(index);
            }
            _ => {
                self.scheduler.end(index);
                self.scheduler.drop_ended();
                self.look_again();
            }
        }
        self.counters.aborted += 1;
        true
    }

    /// Frees the blocks of a finished job that keeps them, because another engine has read them; false if there is none.
    /// Until then its name stays valid.
    pub fn release(&mut self, now_ms: f64, id: SeqId) -> bool {
        self.catch_up(now_ms);
        let kept = |index: &SeqIndex| self.scheduler.seqs.at(*index).phase == Phase::Kept;
        let Some(index) = self.scheduler.seqs.index(id).filter(kept) else { return false };
        self.scheduler.end(index);
        self.look_again();
        true
    }

    /// When something will next happen, or `None` while idle. [`Self::advance`] to this time does it.
    pub fn next_event_ms(&self) -> Option<f64> {
        self.pending.first().map(Output::at_ms).or_else(|| self.next_step_event_ms())
    }

    /// Runs to `to_ms`, that moment included, and appends what happened, in order of time.
    pub fn advance(&mut self, to_ms: f64, out: &mut Vec<Output>) {
        out.append(&mut self.pending);
        while let Some(at_ms) = self.next_step_event_ms().filter(|at_ms| *at_ms <= to_ms) {
            self.boundary(at_ms, out);
        }
        self.now_ms = self.now_ms.max(to_ms);
    }

    /// Gauges and counters at the latest time seen.
    pub fn metrics(&self) -> EngineMetrics {
        let (scheduler, tally) = (&self.scheduler, self.scheduler.tally);
        EngineMetrics {
            running: scheduler.running.len() as u32,
            waiting: self.waiting(),
            waiting_tokens: self.waiting_tokens(),
            kv_usage: scheduler.pool.usage(),
            prefix_queries: tally.prefix_queries,
            prefix_hits: tally.prefix_hits,
            preemptions: tally.preemptions,
            ..self.counters
        }
    }

    /// Tokens that a job has so far; `None` once it is over and keeps nothing.
    pub fn generated(&self, id: SeqId) -> Option<u32> {
        let index = self.scheduler.seqs.index(id)?;
        Some(self.scheduler.seqs.at(index).generated)
    }

    /// Tokens that all jobs have had so far: [`EngineMetrics::generation_tokens`] alone.
    pub fn generation_tokens(&self) -> u64 {
        self.counters.generation_tokens
    }

    /// What it was started with.
    pub fn config(&self) -> &EngineConfig {
        &self.cfg
    }

    fn waiting(&self) -> u32 {
        (self.scheduler.waiting.len() + self.incoming.len()) as u32
    }

    fn waiting_tokens(&self) -> u64 {
        self.scheduler.waiting.prompt_tokens + self.incoming_tokens
    }

    fn check(&self, job: &Job) -> Result<(), Rejected> {
        let cfg = &self.cfg;
        let tokens = u64::from(job.prompt_tokens.max(1)) + u64::from(job.output_tokens.max(1));
        let kv_tokens = u64::from(cfg.usable_blocks()) * u64::from(cfg.block_size);
        let budget = u64::from(cfg.max_num_batched_tokens);
        if tokens > kv_tokens {
            return Err(Rejected::TooLongForCache { tokens, kv_tokens });
        }
        if budget == 0 || (!cfg.chunked_prefill && tokens > budget) {
            return Err(Rejected::TooLongForStep { tokens, budget });
        }
        let waiting = self.waiting();
        if let Some(limit) = cfg.max_num_queued_reqs.filter(|limit| waiting >= *limit) {
            return Err(Rejected::QueuedRequests { waiting, limit });
        }
        let waiting_tokens = self.waiting_tokens() + u64::from(job.prompt_tokens);
        match cfg.max_num_queued_tokens.filter(|limit| waiting_tokens > *limit) {
            Some(limit) => Err(Rejected::QueuedTokens { waiting_tokens, limit }),
            None => Ok(()),
        }
    }

    /// All brought tokens count, those that the prefix cache turns out to have as well.
    fn transfer_ms(&self, job: &Job) -> f64 {
        let tokens = job.brought_tokens.min(job.prompt_tokens);
        f64::from(tokens) * self.cfg.transfer_us_per_token / 1e3
    }

    /// What ended may make room, and no step's end will tell: only kept blocks let a job wait beside an idle engine.
    fn look_again(&mut self) {
        if self.in_flight.is_empty() && self.scheduler.waiting.len() > 0 {
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
        let seen_ms = || self.incoming.front().map(|(ready_ms, _)| *ready_ms);
        step_ms.or(self.look_ms).or_else(seen_ms)
    }

    /// One turn of the engine's loop: process the step that ended, see what arrived, keep the pipeline full.
    fn boundary(&mut self, at_ms: f64, out: &mut Vec<Output>) {
        self.now_ms = self.now_ms.max(at_ms);
        self.look_ms = None;
        let ended = self.in_flight.front().is_some_and(|step| step.end_ms <= at_ms);
        if ended && let Some(step) = self.in_flight.pop_front() {
            self.process(step, out);
        }
        while let Some((_, index)) = self.incoming.front().filter(|(ms, _)| *ms <= at_ms).copied() {
            self.incoming.pop_front();
            self.incoming_tokens -= u64::from(self.scheduler.seqs.at(index).prompt);
            self.scheduler.enqueue(index);
        }
        let depth = if self.cfg.async_scheduling { 2 } else { 1 };
        while self.in_flight.len() < depth && self.launch(at_ms) {}
    }

    /// Schedules one step behind those in flight; false if there was nothing to do.
    fn launch(&mut self, at_ms: f64) -> bool {
        let mut rows = self.spare_rows.pop().unwrap_or_default();
        let load = self.plan(at_ms, &mut rows);
        if rows.is_empty() {
            self.spare_rows.push(rows);
            return false;
        }
        let took_ms = load.step_ms(&self.cost) * self.noise_factor();
        let start_ms = self.in_flight.back().map_or(at_ms, |step| step.end_ms);
        let end_ms = start_ms + took_ms;
        self.in_flight.push_back(Step { rows, tokens: load.tokens(), took_ms, end_ms });
        true
    }

    /// A plan may come out empty because all it did was to preempt. With nothing in flight no later boundary would plan
    /// again, so it is done at once; it ends because each turn has fewer sequences to preempt.
    fn plan(&mut self, at_ms: f64, rows: &mut Vec<Row>) -> StepLoad {
        loop {
            let before = self.scheduler.tally.preemptions;
            let load = self.scheduler.schedule(at_ms, rows);
            let only_preempted = rows.is_empty() && self.scheduler.tally.preemptions > before;
            if !only_preempted || !self.in_flight.is_empty() {
                return load;
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

    fn process(&mut self, step: Step, out: &mut Vec<Output>) {
        self.counters.steps += 1;
        self.counters.iteration_tokens += u64::from(step.tokens);
        self.counters.busy_ms += step.took_ms;
        let mut ended = false;
        for row in &step.rows {
            if self.scheduler.sampled(row) {
                ended |= self.token(row.seq, step.end_ms, out);
            }
        }
        if ended {
            self.scheduler.drop_ended();
        }
        self.spare_rows.push(step.rows);
    }

    /// Tells the client about a sequence's newest token; true if it was the last.
    fn token(&mut self, index: SeqIndex, at_ms: f64, out: &mut Vec<Output>) -> bool {
        let id = self.scheduler.seqs.id(index);
        let seq = self.scheduler.seqs.at_mut(index);
        self.counters.generation_tokens += 1;
        if seq.generated == 1 {
            seq.first_token_ms = Some(at_ms);
            self.counters.prompt_tokens += u64::from(seq.prompt);
            self.counters.prompt_tokens_cached += u64::from(seq.cached_tokens);
        }
        if self.cfg.every_token || seq.generated == 1 {
            out.push(Output::Token { id, index: seq.generated, at_ms });
        }
        if seq.generated < seq.target {
            return false;
        }
        let scheduled_ms = seq.scheduled_ms.unwrap_or(at_ms);
        let first_ms = seq.first_token_ms.unwrap_or(at_ms);
        out.push(Output::Finished {
            id,
            at_ms,
            cached_tokens: seq.cached_tokens,
            preemptions: seq.preemptions,
            queue_ms: scheduled_ms - seq.ready_ms,
            prefill_ms: first_ms - scheduled_ms,
            decode_ms: at_ms - first_ms,
            output_tokens: seq.generated,
        });
        self.counters.success += 1;
        match seq.keeps {
            true => self.scheduler.keep(index),
            false => self.scheduler.end(index),
        }
        true
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
