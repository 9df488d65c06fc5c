//! Profiles of the pods of a pool, as AIBrix's profiler would measure them.
//!
//! For each pattern of input and output tokens the profile has the highest rate at which the objective for the time per token
//! holds, and the latencies there. Here both come from the engine's own coefficients in its steady state, so that a policy that
//! rests on profiles has exact ones. There is no objective for the first token in it: a prompt that no pod can prefill in time
//! would have no rate, and a policy that knows nothing else would never serve it.

use std::sync::Arc;

use serde_json::json;
use weir_core::Profiles;
use weir_engine::{EngineConfig, fluid_capacity};
use weir_schema::{Profile, profile::Percentile};

use crate::sim::{Pool, SimRequest};

/// The objective of a profile where nobody says which: that of the default class.
const TPOT_MS: f64 = 50.0;
/// Powers of two of the input tokens of the patterns, first and last.
const INPUT: [u32; 2] = [6, 17];
/// Powers of two of the output tokens of the patterns, first and last.
const OUTPUT: [u32; 2] = [2, 13];
/// A rate that is as good as none. A pattern without any would never be served.
const LEAST_RPS: f64 = 1e-3;

/// The tightest time per token that any of the requests is promised.
pub(super) fn tightest_tpot_ms(requests: &[SimRequest]) -> f64 {
    let promised = requests.iter().filter_map(|one| one.request.slo.tpot);
    promised.min().map_or(TPOT_MS, |tpot| tpot.as_secs_f64() * 1000.0)
}

/// A profile of every class of a pool under an objective for the time per token.
pub(super) fn of(pool: &Pool, tpot_ms: f64) -> Profiles {
    let mut profiles = Profiles::default();
    for class in 0..pool.classes.len() {
        let class = u16::try_from(class).unwrap_or(u16::MAX);
        let pod = pool.pods.iter().find(|pod| pod.class == class);
        let text = pod.map(|pod| text(&pod.engine, tpot_ms));
        let mut profile = Profile::default();
        let read = text.is_some_and(|text| profile.add(&text, Percentile::P50).is_ok());
        if let Some(patterns) = profile.patterns.filter(|_| read) {
            profiles.insert(class, Arc::clone(&patterns));
        }
    }
    profiles
}

fn text(engine: &EngineConfig, tpot_ms: f64) -> String {
    let powers =
        |[first, last]: [u32; 2]| -> Vec<u32> { (first..=last).map(|power| 1 << power).collect() };
    let (inputs, outputs) = (powers(INPUT), powers(OUTPUT));
    let matrix = |of: fn([f64; 3]) -> f64| -> Vec<Vec<f64>> {
        let cell = |input: &u32, output: &u32| of(cell(engine, *input, *output, tpot_ms));
        outputs
            .iter()
            .map(|output| inputs.iter().map(|input| cell(input, output)).collect())
            .collect()
    };
    json!({
        "gpu": engine.hardware.name,
        "cost": 1.0,
        "indexes": [outputs, inputs],
        "tputs": matrix(|[rps, _, _]| rps),
        "e2e": matrix(|[_, e2e_s, _]| e2e_s),
        "ttft": matrix(|[_, _, ttft_s]| ttft_s),
        "created": 0.0,
        "slos": { "percentile": 0, "tpot": tpot_ms / 1000.0 },
    })
    .to_string()
}

/// Rate, end-to-end latency and TTFT of a pattern in the steady state at the objective, per second and in seconds.
fn cell(engine: &EngineConfig, input: u32, output: u32, tpot_ms: f64) -> [f64; 3] {
    let (input, output) = (f64::from(input), f64::from(output));
    let steady = fluid_capacity(engine, input, output, 0.0, tpot_ms);
    let chunks = (input / f64::from(engine.max_num_batched_tokens.max(1))).ceil();
    let prefill_ms = engine.charged().b_us / 1e3 * input;
    let ttft_ms = engine.api_cost_ms + (chunks + 0.5) * steady.step_ms + prefill_ms;
    let e2e_ms = ttft_ms + (output - 1.0) * steady.step_ms;
    [steady.rps.max(LEAST_RPS), e2e_ms / 1e3, ttft_ms / 1e3]
}

#[cfg(test)]
mod tests {
    use weir_core::SchedulerConfig;

    use super::*;

    fn config(tpot_ms: f64) -> SchedulerConfig {
        let pool = Pool::of("h100-qwen3-32b-tp2", 1, None).unwrap();
        SchedulerConfig {
            classes: pool.classes.clone(),
            profiles: of(&pool, tpot_ms),
            ..SchedulerConfig::default()
        }
    }

    /// AIBrix, issue 642: "Capacity(P) = RPS(P) x E2E(P)", "Load(P) = 1 / Capacity(P)"; by Little's law that is what is in
    /// flight in the steady state.
    #[test]
    fn a_load_is_one_over_the_requests_in_flight_at_the_highest_rate() {
        let pool = Pool::of("h100-qwen3-32b-tp2", 1, None).unwrap();
        let steady = fluid_capacity(&pool.pods[0].engine, 1024.0, 256.0, 0.0, 50.0);
        let load = config(50.0).load(0, 1024, 256).unwrap();
        assert!(
            (1.0 / load / steady.running - 1.0).abs() < 0.05,
            "{} {}",
            1.0 / load,
            steady.running
        );
    }

    #[test]
    fn every_pattern_has_a_load_and_a_tighter_objective_a_larger_one() {
        let (tight, loose) = (config(30.0), config(60.0));
        for input in [1, 300, 5000, 100_000, 1_000_000] {
            for output in [1, 40, 3000, 50_000] {
                let loads = (tight.load(0, input, output), loose.load(0, input, output));
                let (Some(tight), Some(loose)) = loads else {
                    panic!("{input} {output} {loads:?}")
                };
                assert!(tight >= loose, "{input} {output}: {tight} {loose}");
                // Where memory ends before the pace does, the objective says nothing.
                assert!(output > 3000 || tight > loose, "{input} {output}: {tight} {loose}");
            }
        }
    }
}
