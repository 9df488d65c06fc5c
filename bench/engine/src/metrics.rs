//! What vLLM's `/metrics` would say: gauges of this moment and counters since the start.
//!
//! A snapshot by value, taken with [`crate::Engine::metrics`] of all ranks or [`crate::Engine::metrics_of`] of one; it is
//! never stale, so staleness of a scrape is the caller's to model. vLLM's latency histograms are not here: their
//! observations are in the outputs (`queue_ms` and the like).

use serde::{Deserialize, Serialize};

/// One engine's gauges and counters; each line names the vLLM metric it stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineMetrics {
    /// `vllm:num_requests_running`.
    pub running: u32,
    /// `vllm:num_requests_waiting` (all of them for want of capacity), jobs still in the API server included.
    pub waiting: u32,
    /// Prompt tokens of the waiting jobs (what `max_num_queued_tokens` is compared with).
    pub waiting_tokens: u64,
    /// `vllm:kv_cache_usage_perc`, 0 to 1; cached blocks that nobody uses count as free.
    pub kv_usage: f64,
    /// `vllm:prompt_tokens`, counted at the first token as vLLM does.
    pub prompt_tokens: u64,
    /// `vllm:prompt_tokens_cached`, likewise.
    pub prompt_tokens_cached: u64,
    /// `vllm:generation_tokens`.
    pub generation_tokens: u64,
    /// `vllm:prefix_cache_queries`: tokens looked up at first admission.
    pub prefix_queries: u64,
    /// `vllm:prefix_cache_hits`: tokens found at first admission.
    pub prefix_hits: u64,
    /// `vllm:num_preemptions`.
    pub preemptions: u64,
    /// `vllm:request_success`.
    pub success: u64,
    /// Jobs aborted by the caller.
    pub aborted: u64,
    /// `vllm:admission_rejections`, length errors included.
    pub rejections: u64,
    /// Steps that ran.
    pub steps: u64,
    /// Sum of `vllm:iteration_tokens_total`: tokens computed in all steps, prefill and decode.
    pub iteration_tokens: u64,
    /// Milliseconds during which a step was running.
    pub busy_ms: f64,
}

impl EngineMetrics {
    /// Adds what another rank has; steps are common to all ranks and stay. The caller divides `kv_usage`.
    pub(crate) fn add(&mut self, rank: &Self) {
        self.running += rank.running;
        self.waiting += rank.waiting;
        self.waiting_tokens += rank.waiting_tokens;
        self.kv_usage += rank.kv_usage;
        self.prompt_tokens += rank.prompt_tokens;
        self.prompt_tokens_cached += rank.prompt_tokens_cached;
        self.generation_tokens += rank.generation_tokens;
        self.prefix_queries += rank.prefix_queries;
        self.prefix_hits += rank.prefix_hits;
        self.preemptions += rank.preemptions;
        self.success += rank.success;
        self.aborted += rank.aborted;
        self.rejections += rank.rejections;
        self.iteration_tokens += rank.iteration_tokens;
    }
}
