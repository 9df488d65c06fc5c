//! One job's progress through the engine, and the slab that holds all of them.
//!
//! Owned by the scheduler. vLLM has no prefill or decode phase: a sequence has tokens (prompt, generated, and the one a
//! step in flight will sample) and computed tokens, and a step computes some of the difference.

use crate::block_pool::BlockId;
use crate::job::{Job, Output, SeqId};
use crate::waiting::WaitKey;

/// Index into the slab; valid until the sequence is removed.
pub(crate) type SeqIndex = u32;

#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Phase {
    /// In the API server, not yet visible to the scheduler.
    #[default]
    Incoming,
    /// New or preempted.
    Waiting(WaitKey),
    Running,
    /// Finished, with its blocks held for another engine until they are released.
    Kept,
    /// Finished or aborted; the slot is about to be reused.
    Ended,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Sequence {
    pub phase: Phase,
    pub prompt: u32,
    /// Tokens to generate in all.
    pub target: u32,
    pub priority: i32,
    /// Tokens whose KV came from another engine and was not lost since.
    pub brought: u32,
    /// Whether its blocks stay after its last token.
    pub keeps: bool,
    /// Its LoRA adapter.
    pub adapter: Option<u32>,
    /// Order of submission, unique: FCFS order, and the source of the hashes nobody shares.
    pub order: u64,
    pub hashes: Vec<u64>,
    pub blocks: Vec<BlockId>,
    /// Leading blocks already published (or found) under their hash.
    pub published: u32,
    /// Tokens computed once every scheduled step has run.
    pub computed: u32,
    /// Tokens sampled and seen by the scheduler.
    pub generated: u32,
    /// Tokens that steps in flight will sample.
    pub sampling: u32,
    pub cached_tokens: u32,
    pub preemptions: u32,
    pub ready_ms: f64,
    pub scheduled_ms: Option<f64>,
    pub first_token_ms: Option<f64>,
}

impl Sequence {
    /// Known tokens: those whose blocks can be hashed.
    pub fn known(&self) -> u32 {
        self.prompt + self.generated
    }

    /// Tokens left to compute, the one being sampled by a step in flight included.
    pub fn needs(&self) -> u32 {
        (self.known() + self.sampling).saturating_sub(self.computed)
    }

    /// Whether the steps in flight will sample its last token.
    pub fn ends_in_flight(&self) -> bool {
        self.generated + self.sampling >= self.target
    }

    /// Tokens that an admission need not compute: what was brought, less the token that is computed all the same, or
    /// what the cache has if that is more.
    pub fn given(&self, hit_tokens: u32) -> u32 {
        hit_tokens.max(self.brought.min(self.prompt - 1))
    }

    /// What to tell of it when its last token is sampled.
    pub fn finished(&self, id: SeqId, at_ms: f64) -> Output {
        let scheduled_ms = self.scheduled_ms.unwrap_or(at_ms);
        let first_ms = self.first_token_ms.unwrap_or(at_ms);
        Output::Finished {
            id,
            at_ms,
            cached_tokens: self.cached_tokens,
            preemptions: self.preemptions,
            queue_ms: scheduled_ms - self.ready_ms,
            prefill_ms: first_ms - scheduled_ms,
            decode_ms: at_ms - first_ms,
            output_tokens: self.generated,
        }
    }

    /// Hash of its block number `index`: the caller's, or one that no other sequence has.
    pub fn block_hash(&self, index: u32) -> u64 {
        let own = || splitmix(splitmix(self.order) ^ u64::from(index));
        self.hashes.get(index as usize).copied().unwrap_or_else(own)
    }
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[derive(Debug, Clone, Default)]
struct Slot {
    /// Changes whenever work in flight for this slot becomes void: at preemption and at removal.
    epoch: u32,
    /// Changes at removal: part of `SeqId`.
    generation: u32,
    live: bool,
    seq: Sequence,
}

/// Sequences by index. A removed slot keeps its vectors' memory for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    vacant: Vec<SeqIndex>,
}

impl Slab {
    pub fn insert(&mut self, job: Job, order: u64, ready_ms: f64) -> SeqIndex {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as SeqIndex
        });
        let slot = self.slot_mut(index);
        slot.live = true;
        let mut blocks = std::mem::take(&mut slot.seq.blocks);
        blocks.clear();
        slot.seq = Sequence {
            prompt: job.prompt_tokens.max(1),
            target: job.output_tokens.max(1),
            priority: job.priority,
            brought: job.brought_tokens.min(job.prompt_tokens),
            keeps: job.keeps,
            adapter: job.adapter,
            order,
            hashes: job.blocks,
            blocks,
            ready_ms,
            ..Sequence::default()
        };
        index
    }

    pub fn remove(&mut self, index: SeqIndex) {
        let slot = self.slot_mut(index);
        slot.live = false;
        slot.epoch = slot.epoch.wrapping_add(1);
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
    }

    /// Whether one more could not be named.
    pub fn is_full(&self) -> bool {
        self.vacant.is_empty() && self.slots.len() >= SeqId::MOST_JOBS as usize
    }

    /// Its name, as of rank 0.
    pub fn id(&self, index: SeqIndex) -> SeqId {
        SeqId::new(self.slot(index).generation, index)
    }

    /// The live sequence of that name, whatever its rank.
    pub fn index(&self, id: SeqId) -> Option<SeqIndex> {
        let index = id.slot();
        let slot = self.slots.get(index as usize)?;
        (slot.live && slot.generation == id.generation()).then_some(index)
    }

    pub fn epoch(&self, index: SeqIndex) -> u32 {
        self.slot(index).epoch
    }

    pub fn void_work_in_flight(&mut self, index: SeqIndex) {
        let slot = self.slot_mut(index);
        slot.epoch = slot.epoch.wrapping_add(1);
    }

    pub fn at(&self, index: SeqIndex) -> &Sequence {
        &self.slot(index).seq
    }

    pub fn at_mut(&mut self, index: SeqIndex) -> &mut Sequence {
        &mut self.slot_mut(index).seq
    }

    #[expect(clippy::indexing_slicing, reason = "indices come from this slab, which never shrinks")]
    fn slot(&self, index: SeqIndex) -> &Slot {
        &self.slots[index as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "indices come from this slab, which never shrinks")]
    fn slot_mut(&mut self, index: SeqIndex) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(blocks: Vec<u64>) -> Job {
        Job {
            prompt_tokens: 64,
            blocks,
            output_tokens: 3,
            priority: 0,
            brought_tokens: 0,
            keeps: false,
            adapter: None,
        }
    }

    #[test]
    fn a_removed_sequence_is_not_found_by_its_old_name() {
        let mut slab = Slab::default();
        let first = slab.insert(job(vec![]), 0, 0.0);
        let old = slab.id(first);
        slab.remove(first);
        let second = slab.insert(job(vec![]), 1, 0.0);
        assert_eq!(first, second, "the slot is reused");
        assert_eq!(slab.index(old), None);
        assert_eq!(slab.index(slab.id(second)), Some(second));
    }

    #[test]
    fn blocks_without_a_given_hash_are_shared_with_nobody() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert(job(vec![5]), 0, 0.0), slab.insert(job(vec![5]), 1, 0.0));
        assert_eq!(slab.at(a).block_hash(0), slab.at(b).block_hash(0));
        assert_ne!(slab.at(a).block_hash(1), slab.at(b).block_hash(1));
        assert_eq!(slab.at(a).block_hash(1), slab.at(a).block_hash(1));
    }
}
