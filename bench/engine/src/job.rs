//! What goes into an engine and what comes out of it.

use serde::{Deserialize, Serialize};

/// One generation, as the engine needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Length of the prompt; 0 counts as 1.
    pub prompt_tokens: u32,
    /// Chained hash of each full block of the prompt, first block first; a block beyond the list is shared with nobody,
    /// so an empty list shares nothing. Entries past the prompt's full blocks name the blocks that the output fills, for
    /// a later turn of the same conversation to hit.
    pub blocks: Vec<u64>,
    /// Tokens that will be generated, the cut by `max_tokens` included; 0 counts as 1.
    pub output_tokens: u32,
    /// Used only with `priority_policy`: the lower, the sooner.
    pub priority: i32,
    /// Tokens of the prompt whose KV another engine computed and that are loaded and not computed here; at least one
    /// token is computed all the same.
    pub brought_tokens: u32,
    /// Whether its blocks stay after its last token until [`crate::Engine::release`], for another engine to read them.
    pub keeps: bool,
    /// The LoRA adapter that it runs with, by a number of the caller's; `None` is the model as it is. An adapter has other KV
    /// than the model: the caller's hashes have to differ.
    pub adapter: Option<u32>,
}

/// Names one accepted job within its engine, all ranks together; never reused.
///
/// From the high bits to the low: 32 of generation, so that a slot's next job has another name; 10 of rank; 22 of slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeqId(pub u64);

const SLOT_BITS: u32 = 22;
const RANK_BITS: u32 = 10;

impl SeqId {
    /// The most engines that can step together. DeepSeek's own decoders of DeepSeek-V3 are 144.
    pub const MOST_RANKS: u16 = 1 << RANK_BITS;
    /// The most jobs that a rank has at once.
    pub const MOST_JOBS: u32 = 1 << SLOT_BITS;

    /// The rank that has the job.
    pub fn rank(self) -> u16 {
        (self.0 >> SLOT_BITS) as u16 & (Self::MOST_RANKS - 1)
    }

    /// A name at rank 0.
    pub(crate) fn new(generation: u32, slot: u32) -> Self {
        Self(u64::from(generation) << (RANK_BITS + SLOT_BITS) | u64::from(slot))
    }

    /// This name, of rank 0 so far, at another rank.
    pub(crate) fn of_rank(self, rank: u16) -> Self {
        Self(self.0 | u64::from(rank) << SLOT_BITS)
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> (RANK_BITS + SLOT_BITS)) as u32
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32 & (Self::MOST_JOBS - 1)
    }
}

/// Why a job was not accepted. The first two are vLLM's admission valves (HTTP 503), the others its checks of the request
/// (400).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// `max_num_queued_reqs` is reached, or [`SeqId::MOST_JOBS`], waiting or not.
    #[error("{jobs} jobs wait or run and the limit is {limit}")]
    QueuedRequests {
        /// Jobs that wait or run now.
        jobs: u32,
        /// The configured limit.
        limit: u32,
    },
    /// `max_num_queued_tokens` would be passed.
    #[error("{waiting_tokens} prompt tokens would be waiting and the limit is {limit}")]
    QueuedTokens {
        /// Prompt tokens that would wait with this job.
        waiting_tokens: u64,
        /// The configured limit.
        limit: u64,
    },
    /// Prompt and output together do not fit into the KV cache even alone.
    #[error("{tokens} tokens can never fit into {kv_tokens} tokens of kv cache")]
    TooLongForCache {
        /// Prompt plus output.
        tokens: u64,
        /// Capacity of the KV cache.
        kv_tokens: u64,
    },
    /// Chunked prefill is off and the sequence does not fit into one step.
    #[error("{tokens} tokens can never fit into a step of {budget} without chunked prefill")]
    TooLongForStep {
        /// Prompt plus output.
        tokens: u64,
        /// `max_num_batched_tokens`.
        budget: u64,
    },
    /// The job is for a rank that the engine does not have. No rank counts it.
    #[error("there is no data-parallel rank {rank} among {ranks}, the first of which is 0")]
    NoSuchRank {
        /// Asked for.
        rank: u16,
        /// How many there are.
        ranks: u16,
    },
}

/// Something a client of the engine would notice. All times are on the caller's clock, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum Output {
    /// A token was sampled; only `index` 1 when `every_token` is off.
    Token {
        /// Whose token.
        id: SeqId,
        /// 1 for the first token.
        index: u32,
        /// When the client has it; the API cost is already in it.
        at_ms: f64,
    },
    /// The last token was sampled and the job's memory is free, unless it keeps its blocks. Follows its last `Token`, at the same time.
    Finished {
        /// Which job.
        id: SeqId,
        /// When, as for `Token`.
        at_ms: f64,
        /// Prompt tokens found in the prefix cache at first admission.
        cached_tokens: u32,
        /// How often it was preempted and recomputed.
        preemptions: u32,
        /// From being visible to the scheduler to first being scheduled.
        queue_ms: f64,
        /// From first being scheduled to the first token, the pipelined step included.
        prefill_ms: f64,
        /// From the first token to the last.
        decode_ms: f64,
        /// Tokens generated.
        output_tokens: u32,
    },
}

impl Output {
    /// Whose output this is.
    pub fn id(&self) -> SeqId {
        match self {
            Self::Token { id, .. } | Self::Finished { id, .. } => *id,
        }
    }

    /// When it happens, in milliseconds on the caller's clock.
    pub fn at_ms(&self) -> f64 {
        match self {
            Self::Token { at_ms, .. } | Self::Finished { at_ms, .. } => *at_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_rank_and_is_of_rank_0_what_it_always_was() {
        let id = SeqId::new(7, 5);
        assert_eq!((id, id.rank()), (SeqId(7 << 32 | 5), 0));
        let last = SeqId::new(u32::MAX, SeqId::MOST_JOBS - 1).of_rank(SeqId::MOST_RANKS - 1);
        assert_eq!(last, SeqId(u64::MAX));
        for rank in [0, 1, 513, SeqId::MOST_RANKS - 1] {
            let id = SeqId::new(u32::MAX, 5).of_rank(rank);
            assert_eq!((id.generation(), id.rank(), id.slot()), (u32::MAX, rank, 5));
        }
    }
}
