//! llm-d's test vectors. Read from the folder named by `WEIR_VECTORS`; skipped, with a line, without.

use std::path::Path;

use serde_json::Value;
use weir_schema::{Feature, Features, StepTime};

use super::{pod, room, scrape};
use crate::{
    Time,
    decide::{
        saturation::{ceiling, refusal_chance, soft_period},
        scorer::latency_scores,
    },
    fleet::Others,
    headroom::{Demand, Outlook, features},
    policy::{Strategy, UsageLimit},
};

fn vectors() -> Option<Value> {
    let Ok(folder) = std::env::var("WEIR_VECTORS") else {
        println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
        return None;
    };
    let text = std::fs::read_to_string(Path::new(&folder).join("llmd_vectors.json")).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

fn cases<'a>(vectors: &'a Value, name: &str) -> &'a [Value] {
    let cases = vectors[name].as_array().unwrap();
    assert!(!cases.is_empty());
    cases
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Whoever adds cases finds here that nothing reads them yet; docs/policies.md says what does.
#[test]
fn every_part_of_the_vectors_is_known() {
    let Some(vectors) = vectors() else { return };
    let parts: Vec<&str> = vectors.as_object().unwrap().keys().map(String::as_str).collect();
    let known = [
        "feature_vectors",
        "flow_control_http",
        "header_aliases",
        "latency_scorer",
        "priority_holdback_rank",
        "probabilistic_admitter",
        "quantile_metrics",
        "slo_deadline_header",
        "soft_reflective",
        "source",
    ];
    assert_eq!(parts, known);
}

#[test]
fn the_scores_are_those_of_llm_ds_latency_scorer() {
    let Some(vectors) = vectors() else { return };
    for case in cases(&vectors, "latency_scorer") {
        let strategy: Strategy = serde_json::from_value(case["strategy"].clone()).unwrap();
        let pods = case["endpoints"].as_array().unwrap();
        let rooms: Vec<_> = pods
            .iter()
            .map(|pod| room(number(&pod["ttft_headroom"]), number(&pod["tpot_headroom"])))
            .collect();
        let idle: Vec<bool> = pods.iter().map(|pod| pod["dispatched"] == 0).collect();
        let scores = latency_scores(&rooms, &idle, [0.8, 0.2], strategy);
        for (pod, score) in pods.iter().zip(scores) {
            let want = number(&case["expected"][pod["id"].as_str().unwrap()]);
            assert!((score - want).abs() < 1e-9, "{}: {score} for {pod}", case["name"]);
        }
    }
}

#[test]
fn the_chance_of_refusal_is_that_of_llm_ds_probabilistic_admitter() {
    let Some(vectors) = vectors() else { return };
    for case in cases(&vectors, "probabilistic_admitter") {
        let chance = refusal_chance(number(&case["saturation"]), 5.0, 300.0);
        assert!((chance - number(&case["p"])).abs() < 1e-12, "{case}");
    }
}

#[test]
fn the_ceilings_are_those_of_llm_ds_usage_limits() {
    let Some(vectors) = vectors() else { return };
    let holdback = &vectors["priority_holdback_rank"];
    let limit = UsageLimit::PriorityHoldback {
        min_ceiling: number(&holdback["min"]),
        max_ceiling: number(&holdback["max"]),
    };
    let ceilings = holdback["ceilings"].as_array().unwrap();
    for (rank, want) in ceilings.iter().enumerate() {
        let got = ceiling(limit, rank, ceilings.len(), 0.5);
        assert!((got - number(want)).abs() < 1e-12, "{rank}: {got}");
    }
    for case in cases(&vectors, "soft_reflective") {
        let saturation = number(&case["saturation"]);
        let ceilings = case["ceilings"].as_array().unwrap();
        for (rank, want) in ceilings.iter().enumerate() {
            let got = ceiling(UsageLimit::SoftReflective, rank, ceilings.len(), saturation);
            assert!((got - number(want)).abs() < 1e-12, "{case}: {got}");
        }
        assert_eq!(soft_period(saturation), number(&case["period"]), "{case}");
    }
}

/// The features that both know mean the same; docs/policies.md lists those that only one has.
#[test]
fn the_features_that_both_know_are_those_of_llm_ds_predictor() {
    let Some(vectors) = vectors() else { return };
    for case in cases(&vectors, "feature_vectors") {
        let input = &case["input"];
        let [ttft, tpot] = ["ttft", "tpot"].map(|target| &case["features"][target]);
        let waiting = u32::try_from(input["num_request_waiting"].as_u64().unwrap()).unwrap();
        let kv = number(&input["kv_cache_percentage"]) as f32;
        let pod = pod(0, scrape(waiting, kv));
        let input_tokens = number(&input["input_token_length"]);
        let demand = Demand { input_tokens, output_tokens: 100.0, sequences: 1.0 };
        let share = number(&input["prefix_cache_score"]);
        let outlook =
            Outlook::of(&pod, &StepTime::default(), demand, share, Others::default(), 1.0);
        let row = Features(features::row(&pod, demand, &outlook, Time::ZERO, 2000));
        let close = |feature, name: &str, slack: f64| {
            let got = f64::from(row.get(feature));
            // Weir has one row for both; where both have a feature, theirs agree too.
            for theirs in [ttft, tpot].into_iter().filter_map(|features| features.get(name)) {
                let want = number(theirs);
                assert!((got - want).abs() <= slack, "{name}: {got}, not {want}");
            }
        };
        close(Feature::KvUsage, "kv_cache_percentage", 1e-6);
        close(Feature::InputTokens, "input_token_length", 0.0);
        close(Feature::QueueDepth, "num_request_waiting", 0.0);
        // An engine always computes at least one token of a prompt.
        close(Feature::UncachedTokens, "effective_input_tokens", 1.0);
        if input_tokens > 0.0 {
            close(Feature::PrefixMatch, "prefix_cache_score", 1.0 / input_tokens + 1e-6);
        }
        for features in [ttft, tpot] {
            assert_eq!(row.get(Feature::QueueDepth) > 0.0, features["is_queued"] == 1);
        }
    }
}
