//! Pods of one kind.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::{PodClass, Role};
use weir_schema::profile::Percentile;

use super::seat::Engines;
use crate::{
    config::{Problems, choice, required},
    learn::profile::{RawProfile, percentile_schema},
};

/// More engines than any server has.
const MOST_ENGINES: u16 = 1024;

/// Pods of one GPU type and one engine configuration, which cost alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["name"]))]
pub struct RawClass {
    /// Name, in samples and metrics.
    pub name: String,
    /// Most tokens the engine puts into one step (vLLM: max_num_batched_tokens).
    #[schemars(range(min = 1))]
    pub chunk_tokens: u32,
    /// Most sequences the engine runs at once (vLLM: max_num_seqs). A pod that is seen to run fewer, while prompts wait there beside others
    /// that decode, is given no more.
    #[schemars(range(min = 1))]
    pub max_sequences: u32,
    /// KV blocks of a pod, until a scrape tells.
    #[schemars(range(min = 1))]
    pub kv_blocks: u32,
    /// Tokens per KV block, until a scrape tells.
    #[schemars(range(min = 1))]
    pub block_tokens: u32,
    /// Whether its pods find what is left of prompts again (vLLM: enable_prefix_caching), until a scrape tells.
    pub prefix_caching: bool,
    /// Tokens of prompts that each of its pods keeps outside of the KV cache, in the memory of its host or on a disk (vLLM: kv_offloading_size; LMCache), from where they are loaded and not computed again.
    pub offload_tokens: u64,
    /// Most LoRA adapters that the engine runs at once (vLLM: max_loras), until a scrape tells, which it does from the first request for one
    /// on; 0: any number of them.
    pub max_loras: u32,
    /// Engines of each server (vLLM: data_parallel_size; on one of several nodes data_parallel_size_local). Of more than one each is a pod of
    /// its own, `NAME@0` and so on, that requests reach by `X-data-parallel-rank`; everything else here is of one engine.
    #[schemars(range(min = 1, max = 1024))]
    pub data_parallel_size: u16,
    /// Whether each of these engines has a port of its own, the first one that of the server and each other one the next (vLLM:
    /// data_parallel_multi_port_external_lb).
    pub data_parallel_multi_port: bool,
    /// Which of its pods step together, as the engines of a mixture of experts do: none, those of one server, those of one unit
    /// (`pods[].unit`) or all of a pool.
    #[schemars(schema_with = "together_schema")]
    pub steps_together: StepsTogether,
    /// What its pods do: both, prefill or decode. A model learns by it; whose prompts they compute is said at `pools[].prefill`.
    #[schemars(schema_with = "role_schema")]
    pub role: Role,
    /// Its profile files: of AIBrix, of Llumnix, or a list of both.
    pub profile: Option<RawProfile>,
    /// Which of a Llumnix profile's statistics counts: mean, p50, p95 or p99.
    #[schemars(schema_with = "percentile_schema")]
    pub profile_percentile: Percentile,
}

/// Which pods step together: each step takes all of them as long as the one that has most to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepsTogether {
    /// Each steps for itself.
    None,
    /// The engines of a server.
    #[default]
    Server,
    /// Those of a unit, such as servers on several nodes that are one for the engine.
    Unit,
    /// All of a pool.
    Pool,
}

fn together_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    choice(&["none", "server", "unit", "pool"])
}

fn role_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    choice(&["both", "prefill", "decode"])
}

impl Default for RawClass {
    fn default() -> Self {
        let class = PodClass::default();
        Self {
            name: String::new(),
            chunk_tokens: class.chunk_tokens,
            max_sequences: class.max_sequences,
            kv_blocks: class.kv_blocks,
            block_tokens: class.block_tokens,
            prefix_caching: class.prefix_caching,
            offload_tokens: class.offload_tokens,
            max_loras: class.max_loras,
            data_parallel_size: class.data_parallel_size,
            data_parallel_multi_port: false,
            steps_together: StepsTogether::default(),
            role: class.role,
            profile: None,
            profile_percentile: Percentile::default(),
        }
    }
}

impl RawClass {
    /// The validated class.
    pub fn check(&self, key: &str, problems: &mut Problems) -> PodClass {
        problems.require(
            !self.name.is_empty(),
            &format!("{key}.name"),
            "missing; give the class a name",
        );
        let positive = [
            ("chunk_tokens", self.chunk_tokens),
            ("max_sequences", self.max_sequences),
            ("kv_blocks", self.kv_blocks),
            ("block_tokens", self.block_tokens),
        ];
        for (name, value) in positive {
            problems.require(value > 0, &format!("{key}.{name}"), "must be at least 1");
        }
        let sane = (1..=MOST_ENGINES).contains(&self.data_parallel_size);
        problems.require(sane, &format!("{key}.data_parallel_size"), "must be from 1 to 1024");
        PodClass {
            name: Arc::from(self.name.as_str()),
            chunk_tokens: self.chunk_tokens,
            max_sequences: self.max_sequences,
            kv_blocks: self.kv_blocks,
            block_tokens: self.block_tokens,
            prefix_caching: self.prefix_caching,
            offload_tokens: self.offload_tokens,
            role: self.role,
            data_parallel_size: self.engines().count,
            max_loras: self.max_loras,
        }
    }

    /// The engines of its servers.
    pub fn engines(&self) -> Engines {
        Engines {
            count: self.data_parallel_size.clamp(1, MOST_ENGINES),
            multi_port: self.data_parallel_multi_port,
            together: self.steps_together,
        }
    }
}
