//! Step-time coefficients of the configurations that were measured, as data.
//!
//! Owns the eleven (GPU, model, tensor-parallel) rows and nothing else; [`crate::EngineConfig`] copies one of them. The
//! coefficients are the `hinge` rows of `calibration/step_time_fits.csv`: fits to iteration times composed from kernel
//! times that ai-dynamo/aiconfigurator (Apache-2.0) measured with vLLM 0.24 on H100 and H200 and vLLM 0.14 on A100. The
//! fits were checked against 15 real vLLM runs on H100: TPOT error 3.5 % (mean absolute), bias +2.6 %.
//!
//! `num_blocks` is what bf16 weights leave: (0.9 x memory x tp - weights - 3 GiB x tp) / bytes per 16-token block, rounded
//! down to hundreds, except Qwen3-32B on two H100, where 79 GB of KV (19 000 blocks) is the stated figure. Token and
//! sequence limits are vLLM's API-server defaults: 8192 and 1024 on H100 and H200, 2048 and 256 on A100.

use serde::Serialize;

/// One GPU type serving one model: what a step costs and what fits.
///
/// `step = a + b*max(0, P+D-m0) + c*min(P+D, m0) + d*KV + e*PC`, see [`crate::step_ms`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Hardware {
    /// `gpu-model-tpN` in lower case, the key of [`hardware`].
    pub name: &'static str,
    /// GPU type, lower case.
    pub gpu: &'static str,
    /// Model name, lower case.
    pub model: &'static str,
    /// Tensor-parallel degree (GPUs in the pod).
    pub tp: u8,
    /// Tokens in a step below which the weights' memory traffic bounds it and above which compute does.
    pub m0: u32,
    /// Milliseconds of an empty step.
    pub a_ms: f64,
    /// Microseconds per token beyond `m0`.
    pub b_us: f64,
    /// Microseconds per token up to `m0`.
    pub c_us: f64,
    /// Nanoseconds per token of decode context.
    pub d_ns: f64,
    /// Nanoseconds per (prefill token x context token).
    pub e_ns: f64,
    /// KV blocks of 16 tokens that fit beside the weights, null block included.
    pub num_blocks: u32,
    /// vLLM's default `max_num_batched_tokens` on this GPU.
    pub max_num_batched_tokens: u32,
    /// vLLM's default `max_num_seqs` on this GPU.
    pub max_num_seqs: u32,
}

/// The configuration of that name, whatever its case.
pub fn hardware(name: &str) -> Option<&'static Hardware> {
    HARDWARE.iter().find(|h| h.name.eq_ignore_ascii_case(name))
}

/// Every configuration that has measured coefficients.
pub fn all_hardware() -> &'static [Hardware] {
    &HARDWARE
}

/// `[a ms, b us, c us, d ns, e ns]`, in the order of the source's columns.
const fn row(
    name: &'static str,
    (gpu, model, tp): (&'static str, &'static str, u8),
    m0: u32,
    [a_ms, b_us, c_us, d_ns, e_ns]: [f64; 5],
    num_blocks: u32,
    (max_num_batched_tokens, max_num_seqs): (u32, u32),
) -> Hardware {
    Hardware {
        name,
        gpu,
        model,
        tp,
        m0,
        a_ms,
        b_us,
        c_us,
        d_ns,
        e_ns,
        num_blocks,
        max_num_batched_tokens,
        max_num_seqs,
    }
}

const HOPPER: (u32, u32) = (8192, 1024);
const AMPERE: (u32, u32) = (2048, 256);

static HARDWARE: [Hardware; 11] = [
    row(
        "h100-llama-3.1-8b-tp1",
        ("h100", "llama-3.1-8b", 1),
        512,
        [6.3458, 21.3099, 11.5481, 42.1243, 0.7523],
        27_200,
        HOPPER,
    ),
    row(
        "h100-qwen3-32b-tp2",
        ("h100", "qwen3-32b", 2),
        368,
        [13.8043, 52.54, 25.5522, 43.3709, 1.5053],
        19_000,
        HOPPER,
    ),
    row(
        "h100-llama-3.1-70b-tp4",
        ("h100", "llama-3.1-70b", 4),
        336,
        [15.2066, 63.4434, 34.3278, 26.7939, 1.0105],
        28_900,
        HOPPER,
    ),
    row(
        "h100-llama-3.1-70b-tp2",
        ("h100", "llama-3.1-70b", 2),
        304,
        [27.3874, 108.3527, 34.377, 53.9456, 2.0664],
        1_000,
        HOPPER,
    ),
    row(
        "h100-codellama-34b-tp2",
        ("h100", "codellama-34b", 2),
        336,
        [13.346, 54.4164, 21.1517, 32.4359, 1.1872],
        25_100,
        HOPPER,
    ),
    row(
        "h100-llama-2-7b-tp1",
        ("h100", "llama-2-7b", 1),
        512,
        [5.649, 20.3167, 11.1202, 175.0435, 0.779],
        7_100,
        HOPPER,
    ),
    row(
        "h200-llama-3.1-8b-tp1",
        ("h200", "llama-3.1-8b", 1),
        464,
        [4.8384, 21.2468, 12.0245, 30.7588, 0.7617],
        55_200,
        HOPPER,
    ),
    row(
        "h200-qwen3-32b-tp2",
        ("h200", "qwen3-32b", 2),
        336,
        [10.7869, 51.9385, 27.0645, 30.6931, 1.5255],
        47_200,
        HOPPER,
    ),
    row(
        "h200-llama-3.1-70b-tp4",
        ("h200", "llama-3.1-70b", 4),
        176,
        [12.3064, 60.4468, 23.4128, 19.9501, 1.008],
        73_700,
        HOPPER,
    ),
    row(
        "a100-llama-3.1-8b-tp1",
        ("a100", "llama-3.1-8b", 1),
        144,
        [11.1038, 56.4601, 20.6181, 83.2155, 2.8425],
        27_200,
        AMPERE,
    ),
    row(
        "a100-llama-3.1-70b-tp4",
        ("a100", "llama-3.1-70b", 4),
        128,
        [27.8125, 157.2489, 79.3877, 60.3083, 3.2636],
        28_900,
        AMPERE,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_name_in_any_case() {
        for row in all_hardware() {
            assert_eq!(hardware(&row.name.to_uppercase()), Some(row));
            assert_eq!(row.name, format!("{}-{}-tp{}", row.gpu, row.model, row.tp));
        }
        assert_eq!(all_hardware().len(), 11);
        assert_eq!(hardware("h100-qwen3-32b"), None);
    }
}
