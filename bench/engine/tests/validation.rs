//! The model against logs of real engines, when the folder that holds them is named by `WEIR_CALIBRATION`.
#![expect(clippy::expect_used, reason = "a test says what broke by panicking")]

use std::path::{Path, PathBuf};

use weir_engine::validate::{Logged, Times, study, table, times};

fn log(folder: &Path, model: &str) -> Vec<Times> {
    let name = format!("llmservingsim_vllm_requests_RTXPRO6000_{model}.jsonl");
    let text = std::fs::read_to_string(folder.join(&name)).expect(&name);
    let lines: Vec<Logged> =
        text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    times(&lines)
}

#[test]
fn held_back_requests_of_a_real_engine_are_predicted() {
    let Some(folder) = std::env::var_os("WEIR_CALIBRATION").map(PathBuf::from) else {
        println!("skipped: WEIR_CALIBRATION does not name the folder of the logs");
        return;
    };
    let readings = study(&log(&folder, "Llama-3_1-8B"), &log(&folder, "Qwen3-32B")).unwrap();
    println!("{}", table(&readings));
    for reading in &readings {
        println!("{:<34}{:?}", reading.fitted, reading.cfg.hardware);
    }
    let [small, large, carried, paced, serial] = readings.as_slice() else { panic!() };
    for within in [small, large] {
        let c = &within.comparison;
        assert!(c.ttft.median < 0.05 && c.queue.median < 0.05, "{}: {c:?}", within.checked);
        assert!(c.tpot.median < 0.05 && c.e2e.median < 0.05, "{}: {c:?}", within.checked);
        assert!(c.prefill.median < 0.30, "{}: {c:?}", within.checked);
    }
    let c = &paced.comparison;
    assert!(c.ttft.median < 0.30 && c.queue.median < 0.30 && c.e2e.median < 0.20, "{c:?}");
    let c = &carried.comparison;
    assert!(c.tpot.median < 0.75 && c.e2e.median < 0.75, "{c:?}");
    let c = &serial.comparison;
    let worse = c.prefill.median / small.comparison.prefill.median;
    assert!(worse > 1.5, "without the pipelined step the same fit must do worse: {worse}");
}
