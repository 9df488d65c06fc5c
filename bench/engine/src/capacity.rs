//! The arrival rate one pod can hold in steady state, without simulating.
//!
//! Used to choose rates for experiments and to normalise results. A fluid limit: arrivals are evenly spread and every
//! request is the mean one, so a real run meets its objective only somewhat below this rate.

use crate::config::EngineConfig;

/// What stops the rate from growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The step time reaches the TPOT objective.
    Tpot,
    /// `max_num_seqs` sequences run.
    Sequences,
    /// The KV cache is full.
    KvBlocks,
}

/// The steady state at the largest rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FluidCapacity {
    /// Requests per second.
    pub rps: f64,
    /// Milliseconds per step, which is the mean TPOT.
    pub step_ms: f64,
    /// Sequences running.
    pub running: f64,
    /// What stops the rate from growing.
    pub bound: Bound,
}

/// Requests per second at which the steady state's step time equals `tpot_slo_ms`; see [`fluid_capacity`].
pub fn fluid_capacity_rps(
    cfg: &EngineConfig,
    mean_in: f64,
    mean_out: f64,
    mean_hit: f64,
    tpot_slo_ms: f64,
) -> f64 {
    fluid_capacity(cfg, mean_in, mean_out, mean_hit, tpot_slo_ms).rps
}

/// The steady state at the largest rate whose step time is within `tpot_slo_ms`.
///
/// With rate r per millisecond and step time t, x = r*t requests arrive during a step, and the step carries N = x*out decodes
/// (Little's law, a token per step) and the arrivals' x*in*(1-hit) uncached tokens; its mean time by [`crate::step_ms`] must be
/// t. Prompts come whole, not evenly: the mean is over Poisson(x) arrivals per step, because the hinge makes one step with
/// a prompt and nine without dearer than ten with a tenth of it. For long prompts this is
/// `t = (a + (c + d*ctx)*N) / (1 - r*in*(1-hit)*b)`.
///
/// `mean_in` and `mean_out` are tokens, `mean_hit` is the fraction of the prompt found in the cache, 0 to 1. N is also
/// bounded by `max_num_seqs` and by the KV cache, where the hit part of a prompt is taken as shared between residents and
/// therefore as free. With several [ranks](EngineConfig::ranks) the rate is of one of them, as if it never waited for a
/// slower one.
pub fn fluid_capacity(
    cfg: &EngineConfig,
    mean_in: f64,
    mean_out: f64,
    mean_hit: f64,
    tpot_slo_ms: f64,
) -> FluidCapacity {
    let flow = Flow::of(cfg, mean_in, mean_out.max(1.0), mean_hit.clamp(0.0, 1.0));
    let held_tokens = flow.fresh_tokens + flow.out_tokens / 2.0;
    let kv_tokens = f64::from(cfg.usable_blocks()) * f64::from(cfg.block_size);
    let (most, bound) = match (f64::from(cfg.max_num_seqs), kv_tokens / held_tokens.max(1.0)) {
        (seqs, kv) if seqs <= kv => (seqs, Bound::Sequences),
        (_, kv) => (kv, Bound::KvBlocks),
    };
    let rate = flow.rate_at(tpot_slo_ms);
    let running = rate * flow.out_tokens * tpot_slo_ms;
    if running <= most {
        return FluidCapacity {
            rps: rate * 1e3,
            step_ms: tpot_slo_ms,
            running,
            bound: Bound::Tpot,
        };
    }
    let step_ms = flow.step_ms(most / flow.out_tokens);
    let rps = most / (flow.out_tokens * step_ms) * 1e3;
    FluidCapacity { rps, step_ms, running: most, bound }
}

/// Per-request sums of the formula, times in milliseconds.
struct Flow {
    a_ms: f64,
    b_ms: f64,
    c_ms: f64,
    m0: f64,
    out_tokens: f64,
    fresh_tokens: f64,
    /// Milliseconds of attention per request: its decodes' contexts and its prefill's pairs.
    attention_ms: f64,
}

impl Flow {
    fn of(cfg: &EngineConfig, mean_in: f64, mean_out: f64, mean_hit: f64) -> Self {
        let hw = cfg.charged();
        let fresh = mean_in * (1.0 - mean_hit);
        let context = mean_in + mean_out / 2.0;
        let pairs = fresh * (mean_in * mean_hit + fresh / 2.0);
        Self {
            a_ms: hw.a_ms,
            b_ms: hw.b_us * 1e-3,
            c_ms: hw.c_us * 1e-3,
            m0: f64::from(hw.m0),
            out_tokens: mean_out,
            fresh_tokens: fresh,
            attention_ms: hw.d_ns * 1e-6 * context * mean_out + hw.e_ns * 1e-6 * pairs,
        }
    }

    /// Mean step time when this many requests arrive (and leave) during a step.
    fn step_ms(&self, arrivals: f64) -> f64 {
        let decodes = arrivals * self.out_tokens;
        let hinge = |prompts: f64| {
            let tokens = decodes + prompts * self.fresh_tokens;
            self.b_ms * (tokens - self.m0).max(0.0) + self.c_ms * tokens.min(self.m0)
        };
        self.a_ms + arrivals * self.attention_ms + poisson_mean(arrivals, hinge)
    }

    /// Requests per millisecond at which the step takes `t_ms`.
    fn rate_at(&self, t_ms: f64) -> f64 {
        if t_ms <= self.a_ms {
            return 0.0;
        }
        // Between no arrivals and more than the cheapest formula allows; the step time grows with arrivals.
        let cheapest = self.out_tokens * self.c_ms.min(self.b_ms) + self.attention_ms;
        let (mut low, mut high) = (0.0, (t_ms - self.a_ms) / cheapest);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            match self.step_ms(middle) < t_ms {
                true => low = middle,
                false => high = middle,
            }
        }
        low / t_ms
    }
}

/// Mean of `of(K)` for K ~ Poisson(`mean`); above 50 the spread no longer matters.
fn poisson_mean(mean: f64, of: impl Fn(f64) -> f64) -> f64 {
    if mean > 50.0 {
        return of(mean);
    }
    let (mut total, mut weight, mut k) = (0.0, (-mean).exp(), 0.0);
    while k < mean + 10.0 * mean.sqrt() + 20.0 {
        total += weight * of(k);
        k += 1.0;
        weight *= mean / k;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::hardware;

    fn qwen() -> EngineConfig {
        EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap())
    }

    #[test]
    fn at_capacity_the_step_takes_exactly_the_objective_on_both_sides_of_the_hinge() {
        for (mean_in, hit, slo) in [(200.0, 0.9, 18.0), (600.0, 0.0, 50.0)] {
            let found = fluid_capacity(&qwen(), mean_in, 300.0, hit, slo);
            assert_eq!(found.bound, Bound::Tpot);
            let flow = Flow::of(&qwen(), mean_in, 300.0, hit);
            assert!((flow.step_ms(found.rps * 1e-3 * slo) - slo).abs() < 1e-6);
        }
    }

    #[test]
    fn for_long_prompts_the_closed_form_holds() {
        let hw = qwen().charged();
        let (slo, context) = (40.0, 6000.0 + 150.0);
        let prefill_ms = 6000.0 * hw.b_us * 1e-3 + hw.e_ns * 1e-6 * 6000.0 * 3000.0;
        let decode_ms = 300.0 * (hw.c_us * 1e-3 + hw.d_ns * 1e-6 * context);
        let closed_rps = 1e3 * (1.0 - hw.a_ms / slo) / (prefill_ms + decode_ms);
        let rps = fluid_capacity_rps(&qwen(), 6000.0, 300.0, 0.0, slo);
        assert!((rps / closed_rps - 1.0).abs() < 0.05, "{rps} {closed_rps}");
    }

    #[test]
    fn an_objective_below_an_empty_step_has_no_capacity() {
        assert_eq!(fluid_capacity_rps(&qwen(), 100.0, 100.0, 0.0, 13.0), 0.0);
    }

    #[test]
    fn memory_and_sequence_slots_bound_a_loose_objective() {
        let kv = fluid_capacity(&qwen(), 4000.0, 1000.0, 0.0, 1000.0);
        assert_eq!(kv.bound, Bound::KvBlocks);
        assert!((kv.running - 18_999.0 * 16.0 / 4500.0).abs() < 1e-9);
        let few = EngineConfig { max_num_seqs: 8, ..qwen() };
        assert_eq!(fluid_capacity(&few, 100.0, 100.0, 0.0, 1000.0).bound, Bound::Sequences);
    }

    #[test]
    fn a_warmer_cache_holds_more() {
        let at = |hit| fluid_capacity_rps(&qwen(), 3000.0, 300.0, hit, 40.0);
        assert!(at(0.9) > 1.5 * at(0.0));
    }
}
