//! Which tokens the next step computes: vLLM's `Scheduler.schedule()`, without its clock.
//!
//! Owned by the engine, which calls [`Scheduler::schedule`] for each step and [`Scheduler::sampled`] when a step's output
//! is processed. Owns the sequences, the blocks and the two lists. Running sequences come first, in order of admission;
//! when memory is short the last admitted is preempted and recomputed later; waiting ones are admitted from the head
//! until one does not fit, but for those whose adapter has to wait ([`crate::lora`]). Semantics were read in vLLM 0.33 (`v1/core/sched/scheduler.py`, `kv_cache_manager.py`).

use crate::block_pool::{BlockId, BlockPool};
use crate::config::EngineConfig;
use crate::job::Job;
use crate::lora::{Adapters, Loras};
use crate::sequence::{Phase, SeqIndex, Sequence, Slab};
use crate::step::StepLoad;
use crate::waiting::{WaitKey, WaitQueue};

/// One sequence's part of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub seq: SeqIndex,
    /// The slot's epoch when scheduled: the row is void once it changed.
    pub epoch: u32,
    pub tokens: u32,
    pub before: u32,
    /// Whether the step computes the last known token and so samples the next.
    pub samples: bool,
}

/// Counters that only the scheduler can count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    pub preemptions: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Scheduler {
    cfg: EngineConfig,
    pub pool: BlockPool,
    pub seqs: Slab,
    pub waiting: WaitQueue,
    pub running: Vec<SeqIndex>,
    pub tally: Tally,
    loras: Loras,
    submitted: u64,
    /// Blocks found for the head of the queue; kept to reuse its memory.
    hits: Vec<BlockId>,
}

/// What one call has planned so far.
struct Pass<'a> {
    now_ms: f64,
    budget: u32,
    preempted: bool,
    rows: &'a mut Vec<Row>,
}

impl Scheduler {
    pub fn new(cfg: &EngineConfig) -> Self {
        Self {
            cfg: cfg.clone(),
            pool: BlockPool::new(cfg.num_blocks),
            seqs: Slab::default(),
            waiting: WaitQueue::new(cfg.priority_policy),
            running: Vec::new(),
            tally: Tally::default(),
            loras: Loras::new(cfg.max_loras),
            submitted: 0,
            hits: Vec::new(),
        }
    }

    /// Registers a job that will be visible at `ready_ms`.
    pub fn accept(&mut self, job: Job, ready_ms: f64) -> SeqIndex {
        self.submitted += 1;
        self.loras.came(job.adapter);
        self.seqs.insert(job, self.submitted, ready_ms)
    }

    /// Makes an accepted job visible.
    pub fn enqueue(&mut self, index: SeqIndex) {
        let seq = self.seqs.at(index);
        let key = self.waiting.push(index, seq.priority, seq.order, seq.prompt);
        self.seqs.at_mut(index).phase = Phase::Waiting(key);
    }

    /// Plans the next step into `rows` (empty if there is nothing to do) and returns what it will cost. Sequences move on
    /// at once: what is planned here counts as computed for the next call.
    pub fn schedule(&mut self, now_ms: f64, rows: &mut Vec<Row>) -> StepLoad {
        rows.clear();
        let budget = self.cfg.max_num_batched_tokens;
        let mut pass = Pass { now_ms, budget, preempted: false, rows };
        self.continue_running(&mut pass);
        self.loras.begin(pass.rows.iter().filter_map(|row| self.seqs.at(row.seq).adapter));
        if !pass.preempted {
            self.admit_waiting(&mut pass);
        }
        self.commit(rows)
    }

    /// A row's output is processed: true if it is the sequence's next token. A row of a sequence that was preempted or
    /// aborted since is void.
    pub fn sampled(&mut self, row: &Row) -> bool {
        if !row.samples || self.seqs.epoch(row.seq) != row.epoch {
            return false;
        }
        let seq = self.seqs.at_mut(row.seq);
        seq.sampling -= 1;
        seq.generated += 1;
        true
    }

    /// Frees everything a sequence holds. The caller calls [`Self::drop_ended`] after the last one of a batch.
    pub fn end(&mut self, index: SeqIndex) {
        if let Phase::Waiting(key) = self.seqs.at(index).phase {
            self.waiting.remove(key, self.seqs.at(index).prompt);
        }
        self.release_blocks(index);
        self.seqs.at_mut(index).phase = Phase::Ended;
        self.seqs.remove(index);
    }

    /// Its last token was sampled: ends it, unless another engine will read its blocks, which stay until [`Self::end`].
    /// The caller calls [`Self::drop_ended`] after the last one of a batch.
    pub fn finish(&mut self, index: SeqIndex) {
        let seq = self.seqs.at_mut(index);
        match seq.keeps {
            true => seq.phase = Phase::Kept,
            false => self.end(index),
        }
    }

    /// The adapters of what runs and of what waits here, each as often as it is used; `None` until a job has named one.
    pub fn adapters(&self) -> Option<Adapters> {
        let of = |index: SeqIndex| self.seqs.at(index).adapter;
        self.loras.named().then(|| Adapters {
            running: self.running.iter().copied().filter_map(of).collect(),
            waiting: self.waiting.behind(None).filter_map(|(_, index)| of(index)).collect(),
        })
    }

    /// Takes ended sequences off the running list.
    pub fn drop_ended(&mut self) {
        let seqs = &self.seqs;
        self.running.retain(|index| seqs.at(*index).phase == Phase::Running);
    }

    fn continue_running(&mut self, pass: &mut Pass<'_>) {
        let mut at = 0;
        while pass.budget > 0 {
            let Some(index) = self.running.get(at).copied() else { return };
            let seq = self.seqs.at(index);
            if seq.ends_in_flight() {
                at += 1;
                continue;
            }
            let tokens = self.chunk(seq.needs()).min(pass.budget);
            if !self.make_room(index, tokens, &mut at, pass) {
                return;
            }
            self.grow(index, tokens);
            self.plan(index, tokens, pass);
            at += 1;
        }
    }

    /// Preempts until `tokens` more fit; false if that took the sequence itself.
    fn make_room(
        &mut self,
        index: SeqIndex,
        tokens: u32,
        at: &mut usize,
        pass: &mut Pass<'_>,
    ) -> bool {
        while self.blocks_missing(self.seqs.at(index), tokens) > self.pool.free() {
            let Some(victim) = self.victim() else { return false };
            let position = self.preempt(victim);
            pass.preempted = true;
            if victim == index {
                return false;
            }
            if position < *at {
                *at -= 1;
                pass.cancel(victim);
            }
        }
        true
    }

    fn blocks_missing(&self, seq: &Sequence, tokens: u32) -> u32 {
        let held = seq.blocks.len() as u32 * self.cfg.block_size;
        match (seq.computed + tokens).saturating_sub(held) {
            0 => 0,
            short => short.div_ceil(self.cfg.block_size),
        }
    }

    /// The last admitted, or under the priority policy the least important, and of those the latest to arrive.
    fn victim(&self) -> Option<SeqIndex> {
        if !self.cfg.priority_policy {
            return self.running.last().copied();
        }
        let rank = |index: &SeqIndex| (self.seqs.at(*index).priority, self.seqs.at(*index).order);
        self.running.iter().copied().max_by_key(rank)
    }

    /// Recompute preemption: all blocks go back, what was brought included; generated tokens stay, a token in flight is
    /// discarded. Returns where in the running list it was.
    fn preempt(&mut self, index: SeqIndex) -> usize {
        let position = self.running.iter().rposition(|i| *i == index).unwrap_or_default();
        self.running.remove(position);
        self.leave_blocks(index);
        self.release_blocks(index);
        self.seqs.void_work_in_flight(index);
        self.tally.preemptions += 1;
        let seq = self.seqs.at_mut(index);
        seq.computed = 0;
        seq.brought = 0;
        seq.sampling = 0;
        seq.preemptions += 1;
        let key = self.waiting.push(index, seq.priority, seq.order, seq.prompt);
        seq.phase = Phase::Waiting(key);
        position
    }

    /// Makes the full blocks of a sequence that will come back for them findable.
    fn leave_blocks(&mut self, index: SeqIndex) {
        let seq = self.seqs.at(index);
        let own = (0..seq.published).zip(&seq.blocks).skip(seq.hashes.len());
        for (number, block) in own {
            self.pool.publish(*block, seq.block_hash(number));
        }
    }

    fn release_blocks(&mut self, index: SeqIndex) {
        let seq = self.seqs.at_mut(index);
        while let Some(block) = seq.blocks.pop() {
            self.pool.release(block);
        }
    }

    fn admit_waiting(&mut self, pass: &mut Pass<'_>) {
        let mut passed = None;
        while pass.budget > 0 && self.running.len() < self.cfg.max_num_seqs as usize {
            let Some(index) = self.next_waiting(&mut passed) else { return };
            self.find_prefix(index);
            let Some(tokens) = self.admissible(index, pass.budget) else { return };
            self.admit(index, pass.now_ms);
            self.grow(index, tokens);
            self.plan(index, tokens, pass);
        }
    }

    /// The first that waits and whose adapter may be in the step. Those that it passes keep their places, and are not looked at
    /// again in this step: `passed` is the last of them.
    fn next_waiting(&self, passed: &mut Option<WaitKey>) -> Option<SeqIndex> {
        if !self.loras.full() {
            return self.waiting.head();
        }
        let mut behind = self.waiting.behind(*passed);
        let takes = |(key, index): &(WaitKey, SeqIndex)| {
            let held = self.loras.holds(self.seqs.at(*index).adapter);
            if held {
                *passed = Some(*key);
            }
            !held
        };
        behind.find(takes).map(|(_, index)| index)
    }

    /// Fills `hits` with the longest run of leading blocks in the cache. At least one token is always computed, so a
    /// fully cached prompt misses its last block.
    fn find_prefix(&mut self, index: SeqIndex) {
        self.hits.clear();
        if !self.cfg.prefix_caching {
            return;
        }
        let seq = self.seqs.at(index);
        let most = seq.known().saturating_sub(1) / self.cfg.block_size;
        let found = (0..most).map_while(|i| self.pool.find(seq.block_hash(i)));
        self.hits.extend(found);
    }

    /// How many tokens of a waiting sequence the step may take, or `None` if it does not fit.
    fn admissible(&self, index: SeqIndex, budget: u32) -> Option<u32> {
        let seq = self.seqs.at(index);
        let hits = self.hits.len() as u32;
        let given = seq.given(hits * self.cfg.block_size);
        let wanted = self.chunk(seq.known() - given);
        if !self.cfg.chunked_prefill && wanted > budget {
            return None;
        }
        let tokens = wanted.min(budget);
        let until = if self.cfg.reserve_full_isl { seq.known() } else { given + tokens };
        let fresh = until.div_ceil(self.cfg.block_size) - hits;
        let woken = self.hits.iter().filter(|id| self.pool.is_free(**id)).count() as u32;
        (fresh + woken + self.reserve() <= self.pool.free()).then_some(tokens)
    }

    /// Blocks the watermark keeps free; nothing is kept from an engine that runs nothing, or it could wait for ever.
    fn reserve(&self) -> u32 {
        if self.running.is_empty() {
            return 0;
        }
        (self.cfg.watermark * f64::from(self.cfg.num_blocks)) as u32
    }

    fn admit(&mut self, index: SeqIndex, now_ms: f64) {
        let hit_tokens = self.hits.len() as u32 * self.cfg.block_size;
        let seq = self.seqs.at_mut(index);
        if let Phase::Waiting(key) = seq.phase {
            self.waiting.remove(key, seq.prompt);
        }
        seq.phase = Phase::Running;
        seq.computed = seq.given(hit_tokens);
        seq.published = self.hits.len() as u32;
        if seq.scheduled_ms.is_none() {
            seq.scheduled_ms = Some(now_ms);
            seq.cached_tokens = hit_tokens;
            let looked_up = if self.cfg.prefix_caching { seq.prompt } else { 0 };
            self.tally.prefix_queries += u64::from(looked_up);
            self.tally.prefix_hits += u64::from(hit_tokens);
        }
        for block in self.hits.drain(..) {
            self.pool.share(block);
            seq.blocks.push(block);
        }
        self.loras.join(seq.adapter);
        self.running.push(index);
    }

    /// `long_prefill_token_threshold`, which a sequence alone in the engine is spared.
    fn chunk(&self, needs: u32) -> u32 {
        let alone = self.running.len() + self.waiting.len() == 1;
        match self.cfg.long_prefill_token_threshold {
            threshold if threshold > 0 && !alone => needs.min(threshold),
            _ => needs,
        }
    }

    /// Allocates for what is computed and `tokens` more, and publishes the blocks whose tokens are known and that become full: they can be hit
    /// from now on, before the step has run. A block that is shared with nobody could only be hit by its own sequence, and
    /// waits for that: see [`Self::leave_blocks`].
    fn grow(&mut self, index: SeqIndex, tokens: u32) {
        let size = self.cfg.block_size;
        let seq = self.seqs.at_mut(index);
        let until = seq.computed + tokens;
        while (seq.blocks.len() as u32 * size) < until {
            let Some(block) = self.pool.take() else { break };
            seq.blocks.push(block);
        }
        if !self.cfg.prefix_caching {
            return;
        }
        let hashable = until.min(seq.known());
        while (seq.published + 1) * size <= hashable {
            let Some(block) = seq.blocks.get(seq.published as usize).copied() else { break };
            match seq.hashes.get(seq.published as usize) {
                Some(hash) => self.pool.publish(block, *hash),
                None => self.pool.fill(block),
            }
            seq.published += 1;
        }
    }

    fn plan(&self, index: SeqIndex, tokens: u32, pass: &mut Pass<'_>) {
        let (epoch, before) = (self.seqs.epoch(index), self.seqs.at(index).computed);
        pass.budget -= tokens;
        pass.rows.push(Row { seq: index, epoch, tokens, before, samples: false });
    }

    /// After planning, because a row may still be cancelled by a later one's preemption.
    fn commit(&mut self, rows: &mut [Row]) -> StepLoad {
        let stands_ms = f64::from(self.loras.bring()) * self.cfg.lora_load_ms;
        let mut load = StepLoad { stands_ms, ..StepLoad::default() };
        for row in rows {
            let seq = self.seqs.at_mut(row.seq);
            seq.computed += row.tokens;
            if seq.needs() == 0 {
                seq.sampling += 1;
                row.samples = true;
            }
            match row.tokens == 1 && row.before >= seq.prompt {
                true => load.add_decode(seq.computed),
                false => load.add_prefill(row.tokens, row.before),
            }
        }
        load
    }
}

impl Pass<'_> {
    /// Takes back the row of a sequence that was preempted after it had been planned.
    fn cancel(&mut self, victim: SeqIndex) {
        if let Some(at) = self.rows.iter().position(|row| row.seq == victim) {
            self.budget += self.rows.remove(at).tokens;
        }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
