//! One of the engines that step together: its scheduler, and what it counts.
//!
//! Owned by [`crate::Engine`], which keeps the clock and the steps in flight. A rank plans its part of a step and, when the
//! step has ended, says what came of it. Ranks share nothing: neither blocks nor prefix cache nor queue. An engine alone
//! is rank 0.

use std::collections::VecDeque;

use crate::config::EngineConfig;
use crate::hardware::Hardware;
use crate::job::{Job, Output, Rejected, SeqId};
use crate::lora::Adapters;
use crate::metrics::EngineMetrics;
use crate::schedule::{Row, Scheduler};
use crate::sequence::{Phase, SeqIndex, Sequence};

#[derive(Debug, Clone)]
pub(crate) struct Rank {
    number: u16,
    scheduler: Scheduler,
    /// Jobs in the API server or waiting for their KV: when the scheduler will see them, soonest first.
    incoming: VecDeque<(f64, SeqIndex)>,
    incoming_tokens: u64,
    /// Its parts of the steps in flight, two at most: of the one with an even number and of the one with an odd number.
    parts: [Part; 2],
    only_preempted: bool,
    /// Without gauges, without what the scheduler counts, and without what is common to all ranks.
    counters: EngineMetrics,
}

/// What one rank computes in a step: without rows, a dummy pass.
#[derive(Debug, Clone, Default)]
struct Part {
    rows: Vec<Row>,
    tokens: u32,
}

impl Rank {
    pub fn new(number: u16, cfg: &EngineConfig) -> Self {
        Self {
            number,
            scheduler: Scheduler::new(cfg),
            incoming: VecDeque::new(),
            incoming_tokens: 0,
            parts: Default::default(),
            only_preempted: false,
            counters: EngineMetrics::default(),
        }
    }

    /// Takes a job that its scheduler will see at `ready_ms`, unless it can never run or passes a valve.
    pub fn accept(
        &mut self,
        cfg: &EngineConfig,
        job: Job,
        ready_ms: f64,
    ) -> Result<SeqId, Rejected> {
        if let Err(reason) = self.check(cfg, &job) {
            self.counters.rejections += 1;
            return Err(reason);
        }
        let index = self.scheduler.accept(job, ready_ms);
        self.incoming_tokens += self.prompt_tokens(index);
        let place = self.incoming.partition_point(|(ms, _)| *ms <= ready_ms);
        self.incoming.insert(place, (ready_ms, index));
        Ok(self.id(index))
    }

    /// The live sequence of that name.
    pub fn index(&self, id: SeqId) -> Option<SeqIndex> {
        self.scheduler.seqs.index(id)
    }

    pub fn is_kept(&self, index: SeqIndex) -> bool {
        self.scheduler.seqs.at(index).phase == Phase::Kept
    }

    /// Drops a job that has not finished and frees what it holds; false if the scheduler never saw it.
    pub fn abort(&mut self, index: SeqIndex) -> bool {
        self.counters.aborted += 1;
        let seen = self.scheduler.seqs.at(index).phase != Phase::Incoming;
        if !seen {
            self.incoming.retain(|(_, i)| *i != index);
            self.incoming_tokens -= self.prompt_tokens(index);
        }
        self.scheduler.end(index);
        if seen {
            self.scheduler.drop_ended();
        }
        seen
    }

    /// Frees the blocks of a finished job.
    pub fn release(&mut self, index: SeqIndex) {
        self.scheduler.end(index);
    }

    /// Empties its prefix cache, unless something uses a block.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.scheduler.pool.reset()
    }

    /// When its scheduler will see the next job.
    pub fn next_ready_ms(&self) -> Option<f64> {
        self.incoming.front().map(|(ready_ms, _)| *ready_ms)
    }

    /// Whether a job waits for room.
    pub fn has_waiting(&self) -> bool {
        self.scheduler.waiting.len() > 0
    }

    /// Shows the scheduler what is ready by now.
    pub fn see(&mut self, at_ms: f64) {
        while let Some((_, index)) = self.incoming.front().filter(|(ms, _)| *ms <= at_ms).copied() {
            self.incoming.pop_front();
            self.incoming_tokens -= self.prompt_tokens(index);
            self.scheduler.enqueue(index);
        }
    }

    /// Plans its part of the step of that number, and returns how long that would take it, without noise; `None` if it has
    /// nothing to compute.
    pub fn plan(&mut self, number: u64, at_ms: f64, cost: &Hardware) -> Option<f64> {
        let part = part_mut(&mut self.parts, number);
        let before = self.scheduler.tally.preemptions;
        let load = self.scheduler.schedule(at_ms, &mut part.rows);
        part.tokens = load.tokens();
        self.only_preempted = part.rows.is_empty() && self.scheduler.tally.preemptions > before;
        (!part.rows.is_empty()).then(|| load.step_ms(cost))
    }

    /// The step of that number ended at `at_ms`: says what came of its part.
    pub fn process(&mut self, number: u64, at_ms: f64, every_token: bool, out: &mut Vec<Output>) {
        let Self { number: rank, scheduler, parts, counters, .. } = self;
        let part = part_mut(parts, number);
        counters.iteration_tokens += u64::from(part.tokens);
        let mut ended = false;
        for row in &part.rows {
            if !scheduler.sampled(row) {
                continue;
            }
            let id = scheduler.seqs.id(row.seq).of_rank(*rank);
            let seq = scheduler.seqs.at_mut(row.seq);
            count(counters, seq);
            if seq.generated == 1 {
                seq.first_token_ms = Some(at_ms);
            }
            if every_token || seq.generated == 1 {
                out.push(Output::Token { id, index: seq.generated, at_ms });
            }
            if seq.generated >= seq.target {
                out.push(seq.finished(id, at_ms));
                scheduler.finish(row.seq);
                ended = true;
            }
        }
        if ended {
            scheduler.drop_ended();
        }
    }

    /// Gauges and counters, without the steps, which are common to all ranks.
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

    /// Adapters of what runs and of what waits; `None` until a job has named one.
    pub fn adapters(&self) -> Option<Adapters> {
        let mut adapters = self.scheduler.adapters()?;
        let of = |(_, index): &(f64, SeqIndex)| self.scheduler.seqs.at(*index).adapter;
        adapters.waiting.extend(self.incoming.iter().filter_map(of));
        adapters.sort();
        Some(adapters)
    }

    /// Whether all that the last plan did was to preempt.
    pub fn only_preempted(&self) -> bool {
        self.only_preempted
    }

    pub fn generation_tokens(&self) -> u64 {
        self.counters.generation_tokens
    }

    pub fn generated(&self, index: SeqIndex) -> u32 {
        self.scheduler.seqs.at(index).generated
    }

    fn id(&self, index: SeqIndex) -> SeqId {
        self.scheduler.seqs.id(index).of_rank(self.number)
    }

    fn prompt_tokens(&self, index: SeqIndex) -> u64 {
        u64::from(self.scheduler.seqs.at(index).prompt)
    }

    fn waiting(&self) -> u32 {
        (self.scheduler.waiting.len() + self.incoming.len()) as u32
    }

    fn waiting_tokens(&self) -> u64 {
        self.scheduler.waiting.prompt_tokens + self.incoming_tokens
    }

    fn check(&self, cfg: &EngineConfig, job: &Job) -> Result<(), Rejected> {
        let tokens = u64::from(job.prompt_tokens.max(1)) + u64::from(job.output_tokens.max(1));
        let kv_tokens = u64::from(cfg.usable_blocks()) * u64::from(cfg.block_size);
        let budget = u64::from(cfg.max_num_batched_tokens);
        if tokens > kv_tokens {
            return Err(Rejected::TooLongForCache { tokens, kv_tokens });
        }
        if budget == 0 || (!cfg.chunked_prefill && tokens > budget) {
            return Err(Rejected::TooLongForStep { tokens, budget });
        }
        let jobs = self.waiting() + self.scheduler.running.len() as u32;
        if let Some(limit) = cfg.max_num_queued_reqs.filter(|limit| jobs >= *limit) {
            return Err(Rejected::QueuedRequests { jobs, limit });
        }
        if self.scheduler.seqs.is_full() {
            return Err(Rejected::QueuedRequests { jobs, limit: SeqId::MOST_JOBS });
        }
        let waiting_tokens = self.waiting_tokens() + u64::from(job.prompt_tokens);
        match cfg.max_num_queued_tokens.filter(|limit| waiting_tokens > *limit) {
            Some(limit) => Err(Rejected::QueuedTokens { waiting_tokens, limit }),
            None => Ok(()),
        }
    }
}

/// Counts a sequence's newest token.
fn count(counters: &mut EngineMetrics, seq: &Sequence) {
    counters.generation_tokens += 1;
    if seq.generated == 1 {
        counters.prompt_tokens += u64::from(seq.prompt);
        counters.prompt_tokens_cached += u64::from(seq.cached_tokens);
    }
    counters.success += u64::from(seq.generated >= seq.target);
}

fn part_mut(parts: &mut [Part; 2], number: u64) -> &mut Part {
    let [even, odd] = parts;
    if number.is_multiple_of(2) { even } else { odd }
}
