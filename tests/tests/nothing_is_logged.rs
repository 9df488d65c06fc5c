//! Prompts and keys stay between client and pod: not in a log at any level, not in metrics, the
//! snapshot, the spool or the state.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::{fs, path::Path};

use serde_json::json;
use sha2::{Digest, Sha256};
use weir_tests::{Call, Plan, Stage, eventually};

const CANARIES: [&str; 6] = [
    "canary-prompt",
    "canary-system",
    "canary-key",
    "canary-wrong-key",
    "canary-model",
    "canary-tier",
];

fn keyed(call: Call, key: &str) -> Call {
    call.header("authorization", &format!("Bearer {key}"))
}

#[tokio::test]
async fn the_library_that_evaluates_models_reports_to_nobody() {
    let stage = Stage::simple().await;
    stage.weir.program.logs("onnx runtime loaded").await;
    // Where it keeps what it has still to report.
    let files = format!("/proc/{}/fd", stage.weir.program.id());
    for file in fs::read_dir(files).unwrap() {
        // One that was closed meanwhile has no name any more.
        let name = fs::read_link(file.unwrap().path()).unwrap_or_default();
        assert!(!name.to_string_lossy().contains("onnxruntime.db"), "{name:?}");
    }
}

/// Calls of every fate, each with something in it that must not be seen again.
async fn make_calls(stage: &Stage) {
    let fields = json!({
        "messages": [
            {"role": "system", "content": "canary-system"},
            {"role": "user", "content": "canary-prompt ".repeat(200)},
        ],
        "user": "canary-prompt", "service_tier": "canary-tier",
    });
    let chat = |more: serde_json::Value| {
        let mut fields = fields.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        keyed(Call::chat_with(20, &fields), "canary-key")
    };
    let ordinary = chat(json!({}));
    stage.call(&ordinary).await.assert_whole();
    stage.call(&chat(json!({"stream": false}))).await.assert_whole();
    stage.call(&chat(json!({"model": "canary-model"}))).await.assert_error(404, "model_not_found");
    stage.call(&chat(json!({"max_tokens": -1}))).await;
    let broken = Call::post("/v1/chat/completions", "{\"model\": canary-prompt");
    stage.call(&keyed(broken, "canary-key")).await.assert_error(400, "invalid_json");
    stage
        .call(&keyed(Call::chat(3), "canary-wrong-key"))
        .await
        .assert_error(401, "invalid_api_key");

    for kind in ["die_mid_stream", "stall", "hang", "status_500"] {
        stage.pods[0].fault(json!({"kind": kind, "count": 1})).await;
        let reply = stage.call(&ordinary).await;
        assert!(!reply.is_whole(), "{kind}: {reply:?}");
    }
    stage.pods[0].fault(json!({"kind": "none"})).await;
    let mut live = ordinary.open(stage.weir.api).await;
    live.first_token().await;
    drop(live);
}

fn assert_clean(what: &str, text: &str) {
    for canary in CANARIES {
        let at = text.find(canary);
        let around = at.map(|at| text.get(at.saturating_sub(300)..(at + 100).min(text.len())));
        assert!(at.is_none(), "{canary} in {what}: {around:?}");
    }
}

fn texts_below(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()).collect()
}

async fn prompts_and_keys_stay_unseen(level: &str) {
    let digest = format!("{:x}", Sha256::digest("canary-key"));
    let mut stage = Plan::default()
        .config(json!({
            "keys": [{"sha256": digest, "tenant": "acme", "trust_headers": true}],
            "log": {"level": level},
            "upstream": {"first_token_timeout_s": 1, "stall_timeout_s": 1},
        }))
        .raise()
        .await;
    make_calls(&stage).await;
    stage.assert_settled().await;
    eventually("samples are on disk", async || {
        let written = stage.weir.metrics().await.sum("weir_samples_written_total", &[]);
        if written > 0.0 { Ok(()) } else { Err(written) }
    })
    .await;

    assert_clean("/metrics", &stage.weir.metrics().await.0);
    assert_clean("/snapshot", &stage.weir.overview().await.to_string());
    let spool = texts_below(&stage.path("spool"));
    assert!(!spool.is_empty());
    assert_clean("the spool", &spool);
    stage.weir.program.terminate();
    stage.weir.program.exit().await;
    let state = texts_below(&stage.path("state"));
    assert!(state.contains("acme"), "it was written at the end");
    assert_clean("the state", &state);
    let log = stage.weir.program.log();
    assert!(log.contains("pod-0"), "something was logged");
    assert_clean("the log", &log);
}

#[tokio::test]
async fn prompts_and_keys_are_nowhere_at_the_usual_log_level() {
    prompts_and_keys_stay_unseen("info").await;
}

#[tokio::test]
async fn prompts_and_keys_are_nowhere_at_the_most_verbose_log_level() {
    prompts_and_keys_stay_unseen("trace").await;
}
