//! A pod as the scheduler sees it: what it is, what was scraped from it, and whether it may be used.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Time;

/// Names a pod; given by the caller. A pod that restarts is a new pod with a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodId(pub u32);

/// What a pod does. Models learn by it; who gets what is the caller's to say ([`crate::halves`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Prefill and decode.
    #[default]
    Both,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

/// Pods of one GPU type and one engine configuration, which cost alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PodClass {
    /// Its name, in samples and metrics.
    pub name: Arc<str>,
    /// Most tokens the engine puts into one step (`max_num_batched_tokens`).
    pub chunk_tokens: u32,
    /// Most sequences the engine runs at once (`max_num_seqs`).
    pub max_sequences: u32,
    /// KV blocks, until a scrape tells.
    pub kv_blocks: u32,
    /// Tokens per KV block, until a scrape tells.
    pub block_tokens: u32,
    /// Whether what is left of prompts is found again, until a scrape tells.
    pub prefix_caching: bool,
    /// Tokens of prompts that are kept outside of the KV cache, from where they are loaded and not computed again.
    pub offload_tokens: u64,
    /// What its pods do.
    pub role: Role,
    /// Engines of one server (`data_parallel_size`), each a pod. All else here is of each of them.
    pub data_parallel_size: u16,
    /// Most LoRA adapters that the engine runs at once (`max_loras`), until a scrape tells; 0: any number of them.
    pub max_loras: u32,
}

impl Default for PodClass {
    /// vLLM on an H100: 8192 tokens, 1024 sequences; 19,000 blocks is a 32B model on two of them.
    fn default() -> Self {
        Self {
            name: Arc::from("default"),
            chunk_tokens: 8192,
            max_sequences: 1024,
            kv_blocks: 19_000,
            block_tokens: 16,
            prefix_caching: true,
            offload_tokens: 0,
            role: Role::Both,
            data_parallel_size: 1,
            max_loras: 0,
        }
    }
}

impl PodClass {
    /// Tokens that the KV cache of one of its pods holds, by what the pod says and, where it does not, by what its class has.
    pub fn kv_tokens(&self, told: &CacheInfo) -> u64 {
        let blocks = told.blocks.unwrap_or(self.kv_blocks);
        let of_block = told.block_tokens.unwrap_or(self.block_tokens);
        told.tokens.unwrap_or(u64::from(blocks) * u64::from(of_block))
    }

    /// Tokens of the pieces in which such a pod finds a prompt again.
    pub fn grain(&self, told: &CacheInfo) -> u32 {
        told.found_tokens.or(told.block_tokens).unwrap_or(self.block_tokens)
    }

    /// Tokens of prompts that such a pod has cached when it is full, in its KV cache and outside of it.
    pub fn prefix_tokens(&self, told: &CacheInfo) -> u64 {
        let caches = told.prefix_caching.unwrap_or(self.prefix_caching);
        if caches { self.kv_tokens(told).saturating_add(self.offload_tokens) } else { 0 }
    }
}

/// A pod that joins the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSpec {
    /// Its name inside the scheduler.
    pub id: PodId,
    /// Its name for people.
    pub name: Arc<str>,
    /// Index of its class in [`crate::SchedulerConfig::classes`].
    pub class: u16,
    /// Whose steps are its own: each takes all of that name as long as the one that has most to do, as with the engines of a mixture of
    /// experts. `None`: it steps for itself.
    pub group: Option<Arc<str>>,
}

/// Whether new requests may go to a pod.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Takes requests.
    #[default]
    Ready,
    /// Takes none; an operator said so.
    Cordoned,
    /// Takes none; its streams finish and it leaves.
    Draining,
    /// Takes none; its breaker is open.
    Broken,
}

/// Gauges scraped from a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scrape {
    /// Requests the engine is running.
    pub running: u32,
    /// Requests waiting inside the engine.
    pub waiting: u32,
    /// Share of KV blocks in use, 0 to 1.
    pub kv_usage: f32,
    /// What it says of its KV cache.
    pub cache: CacheInfo,
    /// Tokens that it has generated since it started, when it says so.
    pub generated: Option<u64>,
    /// What it has looked up in its prefix cache since it started, when it says so.
    #[serde(default)]
    pub cache_use: Option<CacheUse>,
    /// Most LoRA adapters that it runs at once, when it says so: vLLM does from the first request for one on.
    #[serde(default)]
    pub max_loras: Option<u32>,
    /// Engines behind the pod's port (data parallel), when it says so; else 0.
    pub engines: u32,
    /// Whether the pod is in several pools, so that the gauges count requests that no event of this
    /// pool tells of.
    pub shared: bool,
}

/// What an engine has looked up in its prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Tokens of prompts.
    pub queried: u64,
    /// Those of them that it found.
    pub found: u64,
}

/// What a pod says of its KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheInfo {
    /// Blocks that the engine has.
    pub blocks: Option<u32>,
    /// Tokens of a block.
    pub block_tokens: Option<u32>,
    /// Tokens of which multiples are found again, where those are not whole blocks.
    pub found_tokens: Option<u32>,
    /// Tokens that all of them hold. It is not the product of the two where layers keep unlike parts of a context.
    pub tokens: Option<u64>,
    /// Whether what is left of prompts is found again.
    pub prefix_caching: Option<bool>,
}

impl CacheInfo {
    /// This, and what was said before of what this says nothing of. No engine has a cache of nothing.
    pub fn after(self, before: Self) -> Self {
        Self {
            blocks: self.blocks.filter(|blocks| *blocks > 0).or(before.blocks),
            block_tokens: self.block_tokens.filter(|tokens| *tokens > 0).or(before.block_tokens),
            found_tokens: self.found_tokens.filter(|tokens| *tokens > 0).or(before.found_tokens),
            tokens: self.tokens.filter(|tokens| *tokens > 0).or(before.tokens),
            prefix_caching: self.prefix_caching.or(before.prefix_caching),
        }
    }
}

/// What a pod's streams showed of its steps: every chunk that arrives more than a moment after the
/// one before it, on any stream of the pod, is the end of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Step ends seen since the pod joined.
    pub steps: u64,
    /// When the last one was seen.
    pub last_step_at: Time,
}
