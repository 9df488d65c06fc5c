//! Weir learns from what it serves: models replace each other under load, and nobody notices.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use weir_tests::{
    Call, Live, Load, Plan, Reply, Stage, built, command::Done, samples, wait::within,
};

/// Clients of different habits, so that there is something to learn.
fn varied(client: usize, turn: usize) -> Call {
    let unique = format!("client {client} turn {turn} ");
    let input = 100 + (client * 7 + turn * 13) % 12 * 150;
    let output = 8 + (client * 5 + turn * 3) % 40;
    Call::long_chat(input, output as u32, &unique)
}

async fn learning_stage() -> Stage {
    let trainer = json!({
        "run": true, "interval_s": 1, "min_samples": 60, "min_new_samples": 20, "trees": 20, "depth": 3,
    });
    Plan::default().pods(2).config(json!({"trainer": trainer})).raise().await
}

/// The versions that decided something.
async fn versions_served(stage: &Stage) -> Vec<Value> {
    let versions = stage.weir.overview().await["pools"][0]["model"]["versions"].clone();
    let versions = versions.as_array().unwrap().iter();
    versions.filter(|version| version["served"].as_u64() > Some(0)).cloned().collect()
}

#[tokio::test]
async fn models_are_published_and_replaced_under_load_and_no_request_fails() {
    let mut stage = learning_stage().await;
    let load = Load::start(stage.weir.api, 10, varied);
    let versions = within(Duration::from_secs(60), "two versions served", async || {
        let versions = versions_served(&stage).await;
        if versions.len() >= 2 { Ok(versions) } else { Err(stage.weir.overview().await) }
    })
    .await;
    let replies = load.stop().await;
    let failed: Vec<&Reply> = replies.iter().filter(|reply| !reply.is_whole()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:#?}", failed.len(), replies.len());

    let numbers: Vec<u64> = versions.iter().map(|of| of["version"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert!(
        versions.iter().any(|of| of["mape_ttft"].is_f64() && of["rows_ttft"].as_u64() > Some(0))
    );
    let metrics = stage.weir.metrics().await;
    for number in numbers {
        assert!(metrics.has("weir_version_served", &[("version", &number.to_string())]));
    }
    assert!(metrics.sum("weir_bundles_total", &[("result", "loaded")]) >= 2.0);
    assert_eq!(metrics.sum("weir_bundles_total", &[("result", "refused")]), 0.0);
    assert_eq!(metrics.sum("weir_predictor_failures_total", &[]), 0.0);
    let ages = ["weir_trainer_round_age_seconds", "weir_trainer_published_age_seconds"];
    assert!(ages.iter().all(|age| metrics.has(age, &[])), "{}", metrics.0);
    assert_eq!(metrics.sum("weir_trainer_round_failed", &[]), 0.0);
    stage.assert_settled().await;
    assert_samples(&stage, replies.len());
}

/// Every line of the spool is a sample of this schema; there is one per request at most.
fn assert_samples(stage: &Stage, requests: usize) {
    let samples = samples::read(&stage.path("spool"));
    assert!(!samples.is_empty() && samples.len() <= requests, "{} of {requests}", samples.len());
    for sample in &samples {
        assert_eq!(sample.schema, weir_schema::schema_hash());
        assert!(
            sample.ttft_ms.is_some_and(|ms| ms > 0.0) && sample.output_tokens > 0,
            "{sample:?}"
        );
    }
    let decided = samples.iter().filter(|sample| sample.predicted.model_version > 0).count();
    assert!(decided > 0, "no sample says which model decided it");
}

#[tokio::test]
async fn a_dispatcher_that_stood_still_learns_nothing_of_that_and_a_pod_that_did_is_learned_of() {
    let mut stage = Plan::default().speed(2.0).raise().await;
    let call = Call::chat(200);
    let streams = (0..10).map(|_| call.open(stage.weir.api));
    let mut streams: Vec<_> = join_all(streams).await;
    for stream in &mut streams {
        stream.first_token().await;
    }
    stage.weir.program.hang();
    // Some two seconds; nobody takes what the pod answers.
    within(Duration::from_secs(30), "the pod has answered", async || {
        let busy = stage.pods[0].busy().await;
        if busy == 0.0 { Ok(()) } else { Err(busy) }
    })
    .await;
    stage.weir.program.go_on();
    for reply in join_all(streams.into_iter().map(Live::rest)).await {
        reply.assert_whole();
    }
    stage.weir.program.logs("stood still").await;

    let mut stream = call.open(stage.weir.api).await;
    stream.first_token().await;
    stage.pods[0].hang();
    stage.weir.without_pods().await;
    stage.pods[0].go_on();
    stream.rest().await.assert_whole();
    stage.assert_settled().await;
    stage.weir.program.terminate();
    assert!(stage.weir.program.exit().await.success());
    let samples = samples::read(&stage.path("spool"));
    assert_eq!(samples.len(), 1, "{samples:#?}");
    assert!(samples[0].e2e_ms > 2000.0 && samples[0].tpot_ms > Some(10.0), "{samples:#?}");
}

/// The process of the trainer that the dispatcher has started.
async fn trainer_of(stage: &Stage) -> u32 {
    within(Duration::from_secs(20), "the trainer runs", async || {
        let serve = stage.weir.program.id().to_string();
        let found =
            std::process::Command::new("ps").args(["-o", "pid=", "--ppid", &serve]).output();
        let text = String::from_utf8(found.unwrap().stdout).unwrap();
        text.trim().parse::<u32>().map_err(|_| text)
    })
    .await
}

#[tokio::test]
async fn a_trainer_ends_in_the_middle_of_a_round_when_its_dispatcher_is_killed() {
    // Of so many trees that the round does not end by itself.
    let trainer = json!({"run": true, "interval_s": 1, "trees": 10_000, "depth": 8});
    let plan = Plan::default().config(json!({"trainer": trainer}));
    samples::write(&plan.path("spool"), 1, &samples::made_up(20_000));
    let mut stage = plan.raise().await;
    let trainer = trainer_of(&stage).await;
    let round = stage.path("bundles").join(weir_schema::round::ROUND_FILE);
    within(Duration::from_secs(20), "a round begins", async || {
        if round.exists() { Ok(()) } else { Err("not yet") }
    })
    .await;
    stage.weir.program.kill();
    within(Duration::from_secs(5), "the trainer is gone", async || {
        let status = std::fs::read_to_string(format!("/proc/{trainer}/status"));
        // One that nobody has asked about is over, too.
        let is_over = status.as_ref().map_or(true, |status| status.contains("State:\tZ"));
        if is_over { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(!stage.path("bundles").join("current").exists(), "the round was under way");
}

#[tokio::test]
async fn a_trainer_that_is_killed_is_started_again_and_no_request_fails() {
    let mut stage = learning_stage().await;
    let mut load = Load::start(stage.weir.api, 4, varied);
    load.answers(10).await;
    let trainer = trainer_of(&stage).await;
    let killed = std::process::Command::new("kill").args(["-KILL", &trainer.to_string()]).status();
    assert!(killed.unwrap().success());
    within(Duration::from_secs(20), "the trainer was started again", async || {
        let metrics = stage.weir.metrics().await;
        let restarts = metrics.sum("weir_trainer_restarts_total", &[]);
        let up = metrics.sum("weir_trainer_up", &[]);
        if (restarts, up) == (1.0, 1.0) { Ok(()) } else { Err((restarts, up)) }
    })
    .await;
    load.answers(10).await;
    let replies = load.stop().await;
    assert!(replies.iter().all(Reply::is_whole));
    stage.assert_settled().await;
}

#[test]
fn the_program_that_measures_training_trains_with_the_program_that_serves() {
    let mut bench = std::process::Command::new(built::binary("weir-bench"));
    bench.args(["train", "--only", "process", "--rows", "1000", "--weir"]);
    let done = Done::of(bench.arg(built::binary("weir")).output().unwrap());
    let table = done.out();
    assert!(table.contains("weir train --once") && table.contains("peak memory"), "{table}");
}
