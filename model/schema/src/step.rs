//! The step-time formula of an engine and the observations it is fitted from.
//!
//! Source of the form: a measured iteration time of a continuous-batching engine is close to linear
//! in decoding sequences, their KV tokens and the prompt tokens of the step.

use serde::{Deserialize, Serialize};

/// What a step takes at least, in milliseconds, and so either latency. Tokens that come faster, as all at once from a machine that
/// stood still or from an answer that something between kept back, say nothing of the engine.
pub const LEAST_STEP_MS: f64 = 0.02;

/// Coefficients of `step_ms = base + per_decode x D + per_kv x KV + per_prefill x P`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// Cost of a step that does nothing else, in milliseconds.
    pub base_ms: f64,
    /// Cost of one decoding sequence, in milliseconds.
    pub per_decode_ms: f64,
    /// Cost of one token of decode context, in milliseconds.
    pub per_kv_ms: f64,
    /// Cost of one prompt token, in milliseconds.
    pub per_prefill_ms: f64,
    /// Cost of one prompt token that attends to one token before it, in milliseconds: small, but a long
    /// prompt has many such pairs.
    pub per_pair_ms: f64,
    /// What a request pays outside the steps: network and the pod's API server, in milliseconds.
    pub api_ms: f64,
    /// Steps that a token of a sequence takes: 1, and less where an engine brings several tokens with a step. The dispatcher knows,
    /// who fits a step's time says 1.
    pub steps_per_token: f64,
}

/// What was found out of the step times of a pod class, as one process leaves it to the next. Whoever takes it up looks whether it can
/// be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepsLearned {
    /// The coefficients of [`StepTime`] up to `per_pair_ms`, as multiples of those of its default.
    pub multiples: [f64; 5],
    /// How uncertain they are, and how they go together.
    pub covariance: [[f64; 5]; 5],
    /// Past which the variance of none of them grows.
    pub ceiling: [f64; 5],
    /// Recent mean of the size by which strides were predicted wrong, as a share.
    pub usual_residual: f64,
    /// Recent mean of the same with its sign, as a share.
    pub lean: f64,
    /// Strides that it rests on.
    pub strides: u64,
    /// What a request pays outside the steps, in milliseconds.
    pub outside_ms: f64,
    /// Recent mean distance of first tokens from that, in milliseconds.
    pub outside_usual_ms: f64,
}

impl Default for StepTime {
    /// A 32B model on two H100: the middle of the field's deployments, used until strides arrive.
    fn default() -> Self {
        Self {
            base_ms: 14.0,
            per_decode_ms: 0.026,
            per_kv_ms: 4.4e-5,
            per_prefill_ms: 0.055,
            per_pair_ms: 1.5e-6,
            api_ms: 5.0,
            steps_per_token: 1.0,
        }
    }
}

impl StepTime {
    /// Time of one step with `decodes` sequences holding `kv_tokens` and `prefill_tokens` of
    /// prompts, in milliseconds.
    pub fn step_ms(&self, decodes: f64, kv_tokens: f64, prefill_tokens: f64) -> f64 {
        self.base_ms
            + self.per_decode_ms * decodes
            + self.per_kv_ms * kv_tokens
            + self.per_prefill_ms * prefill_tokens
    }

    /// Time that a token takes each of `decodes` sequences that hold `kv_tokens`, in milliseconds, while no prompt is computed.
    pub fn pace_ms(&self, decodes: f64, kv_tokens: f64) -> f64 {
        self.step_ms(decodes, kv_tokens, 0.0) * self.steps_per_token
    }

    /// Time that prompts add to the steps that compute them, in milliseconds.
    pub fn prefill_ms(&self, prefill_tokens: f64, prefill_pairs: f64) -> f64 {
        self.per_prefill_ms * prefill_tokens + self.per_pair_ms * prefill_pairs
    }
}

/// Pairs of a prompt token and a token before it, for so many tokens to compute behind so many cached ones.
pub fn prefill_pairs(uncached_tokens: f64, cached_tokens: f64) -> f64 {
    uncached_tokens * (cached_tokens + uncached_tokens / 2.0)
}

/// When a first token came, and how much of that time is of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct FirstToken {
    /// The pod's class.
    pub pod_class: u16,
    /// From dispatch to the first token, in milliseconds.
    pub measured_ms: f64,
    /// What the formula had for the steps alone, in milliseconds.
    pub steps_ms: f64,
}

/// A stretch of a pod's work between two looks at it; sums over its steps.
///
/// Sums, because the sum of a linear formula over any number of steps is linear too: nothing need
/// be known about which step did what.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Stride {
    /// The pod's class.
    pub pod_class: u16,
    /// Steps seen to end.
    pub steps: f64,
    /// Time the pod was busy, in milliseconds.
    pub busy_ms: f64,
    /// Decoding sequences, summed over the steps: the tokens streamed, over those that each gets by a step.
    pub decode_steps: f64,
    /// Decode context, in tokens, summed over the steps.
    pub kv_token_steps: f64,
    /// Uncached prompt tokens computed.
    pub prefill_tokens: f64,
    /// Pairs of them and a token before each.
    pub prefill_pairs: f64,
}
