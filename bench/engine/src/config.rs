//! What an engine is started with: vLLM's flags that matter to time and memory, and the model's own knobs.
//!
//! Built with [`EngineConfig::for_hardware`] and changed field by field; the engine copies it and never changes it. Field
//! names are vLLM's where vLLM has one. Nothing here can fail: a cache or token budget too small for a job makes the engine
//! reject it (see [`crate::Rejected`]).

use serde::Serialize;

use crate::hardware::Hardware;

/// Everything that decides how an engine behaves; the same configuration and jobs give the same outputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EngineConfig {
    /// Step-time coefficients; an own copy, so that a caller may change them.
    pub hardware: Hardware,
    /// Engines that step together, as of a mixture of experts under vLLM's `--data-parallel-size`; every limit here is of
    /// each of them; 0 counts as 1.
    pub ranks: u16,
    /// Tokens in a KV block.
    pub block_size: u32,
    /// KV blocks, one of which is vLLM's null block and never used.
    pub num_blocks: u32,
    /// Tokens in one step, decodes (one each) included.
    pub max_num_batched_tokens: u32,
    /// Sequences running at once.
    pub max_num_seqs: u32,
    /// Most prefill tokens one sequence gets in a step while it has company; 0 is off.
    pub long_prefill_token_threshold: u32,
    /// Whether a prompt may be split over steps. Off, a job longer than the token budget is rejected.
    pub chunked_prefill: bool,
    /// Whether full blocks are kept by hash after their sequence ended, and looked up on admission.
    pub prefix_caching: bool,
    /// Admit only when the whole current sequence fits (vLLM `scheduler_reserve_full_isl`, on by default).
    pub reserve_full_isl: bool,
    /// Fraction of blocks kept free when a waiting sequence is admitted beside running ones.
    pub watermark: f64,
    /// `--scheduling-policy priority`: lower value first, and the largest value is preempted first.
    pub priority_policy: bool,
    /// Step k+1 is scheduled before the output of step k is processed (vLLM's default).
    pub async_scheduling: bool,
    /// Multiplies `b_us`: kernel times are ideal, and steps of pure prefill were not in the validation runs.
    pub prefill_factor: f64,
    /// Standard deviation of the log of each step's multiplicative noise (an assumption: 1 to 3 %).
    pub noise_sigma: f64,
    /// Milliseconds in the API server (HTTP, tokeniser, IPC) before the scheduler can see a job; measured 4 to 9.
    pub api_cost_ms: f64,
    /// Microseconds to load the KV of one brought token from another engine.
    pub transfer_us_per_token: f64,
    /// Different LoRA adapters in one step, and slots for their weights on the GPU (`--max-loras`); 0 is no bound.
    pub max_loras: u32,
    /// Milliseconds for which the engine stands still for each adapter that a step brings into a slot.
    pub lora_load_ms: f64,
    /// Jobs, waiting or running, with which a new one is rejected; `None` is vLLM's default.
    pub max_num_queued_reqs: Option<u32>,
    /// Prompt tokens waiting beyond which a new job is rejected; `None` is vLLM's default.
    pub max_num_queued_tokens: Option<u64>,
    /// Whether every token is an output, or only the first one (a simulator that reads only TTFT and the end is faster).
    pub every_token: bool,
    /// Seed of the noise.
    pub seed: u64,
}

impl EngineConfig {
    /// vLLM's defaults on this hardware, async scheduling and prefix caching on.
    pub fn for_hardware(hardware: &Hardware) -> Self {
        Self {
            hardware: *hardware,
            ranks: 1,
            block_size: 16,
            num_blocks: hardware.num_blocks,
            max_num_batched_tokens: hardware.max_num_batched_tokens,
            max_num_seqs: hardware.max_num_seqs,
            long_prefill_token_threshold: 0,
            chunked_prefill: true,
            prefix_caching: true,
            reserve_full_isl: true,
            watermark: 0.0,
            priority_policy: false,
            async_scheduling: true,
            prefill_factor: 1.15,
            noise_sigma: 0.02,
            api_cost_ms: 5.0,
            // An assumption: 262 KB per token of Qwen3-32B are 5.2 us at 400 Gb/s, and a bit.
            transfer_us_per_token: 6.0,
            max_loras: 0,
            // An assumption: 300 MB over PCIe 5 are 6 ms, and vLLM copies them layer by layer in a loop of Python.
            lora_load_ms: 20.0,
            max_num_queued_reqs: None,
            max_num_queued_tokens: None,
            every_token: true,
            seed: 0,
        }
    }

    /// The coefficients with `prefill_factor` applied: what the engine charges for a step.
    pub fn charged(&self) -> Hardware {
        Hardware { b_us: self.hardware.b_us * self.prefill_factor, ..self.hardware }
    }

    /// Blocks that sequences can use.
    pub fn usable_blocks(&self) -> u32 {
        self.num_blocks.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::hardware;

    #[test]
    fn budgets_are_the_defaults_of_vllms_api_server_for_the_gpu() {
        let limits = |name| {
            let cfg = EngineConfig::for_hardware(hardware(name).unwrap());
            (cfg.max_num_batched_tokens, cfg.max_num_seqs)
        };
        assert_eq!(limits("h100-qwen3-32b-tp2"), (8192, 1024));
        assert_eq!(limits("h200-llama-3.1-8b-tp1"), (8192, 1024), "141 GB is below 160 GiB");
        assert_eq!(limits("a100-llama-3.1-70b-tp4"), (2048, 256));
        let qwen = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
        assert_eq!((qwen.num_blocks, qwen.usable_blocks()), (19_000, 18_999));
        assert!(qwen.charged().b_us > qwen.hardware.b_us);
    }
}
