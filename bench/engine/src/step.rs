//! What one step costs: the hinge formula, and the sums it needs.
//!
//! Used by the engine for every step and by [`crate::fluid_capacity_rps`] for the steady state. Pure.

use crate::hardware::Hardware;

/// Milliseconds of one step without noise.
///
/// `prefill_tokens` P and `decode_seqs` D are the step's tokens, `kv_tokens` the sum of the decodes' contexts, and
/// `prefill_ctx` the sum over prefill chunks of `chunk * context_before + chunk^2 / 2`. Below `m0` tokens reading the
/// weights bounds the step, above it arithmetic does, hence the hinge. Source: `calibration/step_time_fits.csv`. The
/// engine passes [`crate::EngineConfig::charged`], which carries the prefill factor.
pub fn step_ms(
    hw: &Hardware,
    prefill_tokens: u32,
    decode_seqs: u32,
    kv_tokens: u64,
    prefill_ctx: f64,
) -> f64 {
    let tokens = f64::from(prefill_tokens) + f64::from(decode_seqs);
    let m0 = f64::from(hw.m0);
    hw.a_ms
        + hw.b_us * 1e-3 * (tokens - m0).max(0.0)
        + hw.c_us * 1e-3 * tokens.min(m0)
        + hw.d_ns * 1e-6 * kv_tokens as f64
        + hw.e_ns * 1e-6 * prefill_ctx
}

/// The four sums over a step's rows that decide its time, and what is waited for before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct StepLoad {
    pub prefill_tokens: u32,
    pub decode_seqs: u32,
    pub kv_tokens: u64,
    pub prefill_ctx: f64,
    /// Milliseconds in which the engine stands still, while adapters are brought.
    pub stands_ms: f64,
}

impl StepLoad {
    pub fn add_decode(&mut self, context_tokens: u32) {
        self.decode_seqs += 1;
        self.kv_tokens += u64::from(context_tokens);
    }

    pub fn add_prefill(&mut self, chunk_tokens: u32, context_before: u32) {
        let chunk = f64::from(chunk_tokens);
        self.prefill_tokens += chunk_tokens;
        self.prefill_ctx += chunk * f64::from(context_before) + chunk * chunk / 2.0;
    }

    pub fn tokens(&self) -> u32 {
        self.prefill_tokens + self.decode_seqs
    }

    pub fn step_ms(&self, hw: &Hardware) -> f64 {
        let Self { prefill_tokens, decode_seqs, kv_tokens, prefill_ctx, stands_ms } = *self;
        step_ms(hw, prefill_tokens, decode_seqs, kv_tokens, prefill_ctx) + stands_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::hardware;

    #[test]
    fn a_step_costs_c_per_token_up_to_the_hinge_and_b_beyond_it() {
        let hw = hardware("h100-qwen3-32b-tp2").unwrap();
        let below = step_ms(hw, 0, 368, 0, 0.0);
        assert!((below - (13.8043 + 368.0 * 25.5522e-3)).abs() < 1e-9);
        assert!((step_ms(hw, 100, 368, 0, 0.0) - below - 100.0 * 52.54e-3).abs() < 1e-9);
        assert!((step_ms(hw, 100, 268, 0, 0.0) - below).abs() < 1e-9, "a token is a token");
    }

    #[test]
    fn context_costs_d_per_decoded_token_and_e_per_prefilled_pair() {
        let hw = hardware("h100-qwen3-32b-tp2").unwrap();
        let mut load = StepLoad::default();
        load.add_decode(1000);
        load.add_prefill(64, 4096);
        let pairs = 64.0 * 4096.0 + 32.0 * 64.0;
        let want = 13.8043 + 65.0 * 25.5522e-3 + 1000.0 * 43.3709e-6 + pairs * 1.5053e-6;
        assert!((load.step_ms(hw) - want).abs() < 1e-9);
        assert_eq!(load.tokens(), 65);
    }
}
