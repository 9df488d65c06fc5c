//! A pod as the scheduler sees it: what it is, what was scraped from it, and whether it may be used.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Time;

/// Names a pod; given by the caller. A pod that restarts is a new pod with a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodId(pub u32);

/// What a pod does.
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
    /// Tokens per KV block.
    pub block_tokens: u32,
    /// What its pods do.
    pub role: Role,
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
            role: Role::Both,
        }
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
    /// KV blocks the engine has, when it says so.
    pub kv_blocks: Option<u32>,
    /// Engines behind the pod's port (data parallel), when it says so; else 0.
    pub engines: u32,
    /// Whether the pod is in several pools, so that the gauges count requests that no event of this
    /// pool tells of.
    pub shared: bool,
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
