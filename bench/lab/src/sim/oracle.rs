//! Predictions of a chosen error: the engines' own coefficients, off by as much as one wants.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::StandardNormal;
use weir_engine::EngineConfig;
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Source, Status, StepTime, Stride,
};

use super::Pool;

/// Standard normal quantile of 90 %.
const Z90: f64 = 1.2816;

/// Knows what a step costs, and multiplies each prediction by lognormal noise of its own.
#[derive(Clone, Debug)]
pub struct Oracle {
    steps: Vec<StepTime>,
    error: f64,
    /// From the median to the 90th percentile.
    spread: f64,
    noise: SmallRng,
}

impl Oracle {
    /// Knows the pods of `pool`; `error` is the standard deviation of the log of the noise, 0 for none.
    pub fn new(pool: &Pool, error: f64, seed: u64) -> Self {
        let of_class = |class: usize| {
            let pod = pool.pods.iter().find(|pod| usize::from(pod.class) == class);
            pod.map_or_else(StepTime::default, |pod| steps(&pod.engine))
        };
        let steps = (0..pool.classes.len()).map(of_class).collect();
        let spread = (error * Z90).exp();
        Self { steps, error, spread, noise: SmallRng::seed_from_u64(seed) }
    }

    fn quantiles(&mut self, median_ms: f64) -> Quantiles {
        let normal: f64 = self.noise.sample(StandardNormal);
        let p50 = median_ms * (self.error * normal).exp();
        Quantiles { p50: p50 as f32, p90: (p50 * self.spread) as f32 }
    }
}

/// The hinge as a line from an empty step to one full of prompt tokens, which is what a fit of a line finds: a full chunk
/// takes as long as it does. The slope beyond the hinge alone would price one of 512 tokens at 1.7 times that.
fn steps(engine: &EngineConfig) -> StepTime {
    let (hardware, chunk) = (engine.charged(), engine.max_num_batched_tokens.max(1));
    let beyond_us = hardware.b_us * f64::from(chunk.saturating_sub(hardware.m0));
    let below_us = hardware.c_us * f64::from(chunk.min(hardware.m0));
    StepTime {
        base_ms: hardware.a_ms,
        per_decode_ms: hardware.c_us / 1e3,
        per_kv_ms: hardware.d_ns / 1e6,
        per_prefill_ms: (beyond_us + below_us) / f64::from(chunk) / 1e3,
        per_pair_ms: hardware.e_ns / 1e6,
        api_ms: engine.api_cost_ms,
        steps_per_token: 1.0,
    }
}

impl Predict for Oracle {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        for (row, prediction) in rows.iter().zip(out) {
            let row = Features(*row);
            *prediction = Prediction {
                ttft_ms: self.quantiles(f64::from(row.get(Feature::PriorTtftMs))),
                tpot_ms: self.quantiles(f64::from(row.get(Feature::PriorTpotMs))),
                ttft_source: Source::Prior,
                tpot_source: Source::Prior,
                ..Prediction::default()
            };
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.steps.get(usize::from(pod_class)).copied().unwrap_or_default()
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}
