//! The admin API does what its description says, whatever it is asked: schemathesis makes calls from
//! `/api/v1/openapi.json`, good and bad, to every operation, and judges the answers.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a scenario says what broke")]

use std::{path::Path, process::Command};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use weir_tests::{Call, Plan, Stage, eventually, graph::write_nan_bundle, tool};

const VERSION: &str = "4.32.5";
const TOKEN: &str = "a-token-that-may-write";

/// What there is in the stage, so that calls reach it: a request that waits, a pod, a bundle.
const KNOWN: &str = r#"
[parameters]
"path.id" = "held-1"
"path.name" = "pod-0"
"path.version" = 1
"path.chart" = "queue.svg"
"#;

/// Calls every operation: with any names in its path, or with those that are `known`.
fn judge(tool: &Path, stage: &Stage, known: &str, examples: u32) {
    let config = stage.path("schemathesis.toml");
    std::fs::write(&config, known).unwrap();
    let run = Command::new(tool)
        .arg("--config-file")
        .arg(&config)
        .arg("run")
        .arg(format!("http://{}/api/v1/openapi.json", stage.weir.admin))
        .args(["-H", &format!("Authorization: Bearer {TOKEN}")])
        .args(["--seed", "7", "--max-examples", &examples.to_string()])
        .args(["--checks", "all", "--request-timeout", "60", "--suppress-health-check", "all"])
        // It never ends; a test of the admin side reads it.
        .args(["--exclude-path", "/api/v1/events"])
        .env("NO_COLOR", "1")
        .current_dir(stage.path(""))
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&run.stdout));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

fn token() -> (&'static str, String) {
    ("authorization", format!("Bearer {TOKEN}"))
}

#[tokio::test]
async fn every_operation_answers_as_it_is_described_to_good_and_bad_calls() {
    let Some(tool) = tool::python("schemathesis", VERSION, "st") else { return };
    let sha256 = format!("{:x}", Sha256::digest(TOKEN));
    let tokens = json!([{"name": "checker", "sha256": sha256, "scope": "write"}]);
    let plan = Plan::default().pods(2).config(json!({"admin": {"tokens": tokens}}));
    write_nan_bundle(&plan.path("bundles"));
    let stage = plan.start().await;
    stage.weir.ready().await;
    stage.call(&Call::chat(3)).await.assert_whole();
    let (name, value) = token();
    let pause = Call::post("/api/v1/queues/pause", "{}").header(name, &value);
    assert_eq!(pause.to(stage.weir.admin).await.status, 200);
    let mut held = JoinSet::new();
    for number in 1..=3 {
        let call = Call::chat(3).header("x-request-id", &format!("held-{number}"));
        let api = stage.weir.api;
        held.spawn(async move { call.to(api).await });
    }
    eventually("they wait", async || {
        let call = Call::get("/api/v1/overview").header(name, &value);
        let overview = call.to(stage.weir.admin).await.json();
        if overview["pools"][0]["waiting"] == 3 { Ok(()) } else { Err(overview) }
    })
    .await;
    let judged = tokio::task::spawn_blocking(move || {
        judge(&tool, &stage, KNOWN, 10);
        judge(&tool, &stage, "", 25);
    });
    judged.await.unwrap();
}
