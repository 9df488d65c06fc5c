//! The formula for a pod's capacity against the engine it describes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what broke by panicking"
)]

use weir_engine::{Engine, EngineConfig, Job, Output, fluid_capacity, hardware};

/// Mean TPOT of the second half of evenly spaced arrivals at this rate.
fn mean_tpot_ms(cfg: &EngineConfig, rps: f64, requests: u32) -> f64 {
    let mut engine = Engine::new(EngineConfig { every_token: false, ..cfg.clone() });
    let mut out = Vec::new();
    for i in 0..requests {
        let job = Job {
            prompt_tokens: 1500,
            blocks: vec![],
            output_tokens: 150,
            priority: 0,
            brought_tokens: 0,
            keeps: false,
            adapter: None,
        };
        engine.submit(f64::from(i) * 1e3 / rps, job).unwrap();
    }
    engine.advance(f64::from(requests) * 1e3 / rps, &mut out);
    let tpots = out.iter().filter_map(|output| match output {
        Output::Finished { decode_ms, .. } => Some(decode_ms / 149.0),
        Output::Token { .. } => None,
    });
    let tpots: Vec<f64> = tpots.collect();
    let late = &tpots[tpots.len() / 2..];
    late.iter().sum::<f64>() / late.len() as f64
}

#[test]
fn at_the_capacity_of_the_formula_the_engine_runs_at_the_objective() {
    let cfg = EngineConfig::for_hardware(hardware("h100-qwen3-32b-tp2").unwrap());
    for slo_ms in [30.0, 50.0] {
        let fluid = fluid_capacity(&cfg, 1500.0, 150.0, 0.0, slo_ms);
        let tpot_ms = mean_tpot_ms(&cfg, fluid.rps, 1500);
        let error = tpot_ms / slo_ms - 1.0;
        assert!(error.abs() < 0.15, "{slo_ms} ms asked, {tpot_ms:.1} ms at {:.2} rps", fluid.rps);
    }
}
