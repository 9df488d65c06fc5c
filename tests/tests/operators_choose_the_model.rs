//! An operator sees the versions of the latency model, keeps to one, goes back to the one before, and
//! takes in a new one at once, from the command line.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::{Value, json};
use weir_schema::manifest::{CURRENT_FILE, bundle_name};
use weir_tests::{
    Plan, Stage,
    command::{FAILED, NOT_FOUND, run},
    eventually, graph, samples,
};

/// A stage that serves a bundle of the trainer, with enough in its spool for the next one.
async fn stage() -> Stage {
    let plan = Plan::default();
    samples::bundle_into(&plan.path("bundles"));
    samples::write(&plan.path("spool"), 1, &samples::made_up(1200));
    plan.raise().await
}

/// Waits until a version decides, and returns what `weir model ls -o json` says.
async fn serves(stage: &Stage, version: u64) -> Value {
    eventually(&format!("version {version} serves"), async || {
        // A bundle comes into service with the next decision.
        stage.assert_serves().await;
        let models = run(stage, &["model", "ls", "-o", "json"]).await.json();
        if models["pools"][0]["serving"] == version { Ok(models) } else { Err(models) }
    })
    .await
}

fn states(models: &Value) -> Vec<(u64, String)> {
    let versions = models["pools"][0]["versions"].as_array().unwrap();
    let state = |one: &Value| one["state"].as_str().unwrap().to_owned();
    versions.iter().map(|one| (one["version"].as_u64().unwrap(), state(one))).collect()
}

#[tokio::test]
async fn versions_are_listed_pinned_rolled_back_and_taken_in_from_the_command_line() {
    let mut stage = stage().await;
    serves(&stage, 1).await;
    let alone = run(&stage, &["model", "rollback"]).await;
    alone.assert_failed(FAILED, "no bundle before");

    let trained = samples::train_once(&stage.path(""));
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let told = run(&stage, &["model", "reload"]).await.out();
    assert!(told.starts_with("POOL") && told.lines().count() == 3, "{told}");
    let models = serves(&stage, 2).await;
    assert_eq!(states(&models), [(2, "serving".into()), (1, "available".into())]);
    assert!(models["pools"][0]["versions"][0]["rows"].as_u64() >= Some(1200), "{models}");
    let table = run(&stage, &["model", "ls"]).await.out();
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains("serving") && row.contains('%'), "{table}");

    let shown = run(&stage, &["model", "show", "2"]).await.out();
    for part in ["serving", "holdout:", "in service:", "FEATURE", "uncached_tokens"] {
        assert!(shown.contains(part), "{part} is not said:\n{shown}");
    }
    let pinned = run(&stage, &["model", "pin", "1"]).await.out();
    assert!(pinned.lines().any(|line| line.ends_with("pinned")), "{pinned}");
    let models = serves(&stage, 1).await;
    assert_eq!(models["pools"][0]["pinned"], 1);
    run(&stage, &["model", "unpin"]).await.out();
    assert_eq!(serves(&stage, 2).await["pools"][0]["pinned"], Value::Null);
    run(&stage, &["model", "rollback"]).await.out();
    assert_eq!(serves(&stage, 1).await["pools"][0]["pinned"], 1);

    run(&stage, &["model", "pin", "9"]).await.assert_failed(NOT_FOUND, "\"9\"");
    run(&stage, &["model", "show", "9"]).await.assert_failed(NOT_FOUND, "\"9\"");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_version_that_cannot_serve_is_listed_with_the_reason_and_cannot_be_pinned() {
    let mut stage = stage().await;
    serves(&stage, 1).await;
    let (one, two) =
        (stage.path("bundles").join(bundle_name(1)), stage.path("bundles").join(bundle_name(2)));
    std::fs::create_dir(&two).unwrap();
    for file in std::fs::read_dir(&one).unwrap().map(|file| file.unwrap().path()) {
        std::fs::copy(&file, two.join(file.file_name().unwrap())).unwrap();
    }
    graph::sign(&two, |manifest| {
        manifest["version"] = json!(2);
        manifest["schema"] = json!("0123456789abcdef");
    });
    let table = run(&stage, &["model", "ls"]).await.out();
    let row = table.lines().nth(1).unwrap();
    assert!(row.contains("refused") && row.contains("0123456789abcdef"), "{table}");
    let refused = run(&stage, &["model", "pin", "2"]).await;
    refused.assert_failed(FAILED, "bundle v2 is refused");
    let shown = run(&stage, &["model", "show", "2"]).await.out();
    assert!(shown.contains("0123456789abcdef"), "{shown}");
    assert_eq!(serves(&stage, 1).await["pools"][0]["pinned"], Value::Null);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_version_that_was_taken_out_says_so_and_the_one_before_it_is_that_before_what_serves() {
    let mut stage = stage().await;
    serves(&stage, 1).await;
    // It answers no number, so it is taken out after three calls.
    let aside = stage.path("aside");
    graph::write_nan_bundle(&aside);
    let (nan, two) = (aside.join(bundle_name(1)), stage.path("bundles").join(bundle_name(2)));
    graph::sign(&nan, |manifest| manifest["version"] = json!(2));
    std::fs::rename(nan, two).unwrap();
    std::fs::write(stage.path("bundles").join(CURRENT_FILE), bundle_name(2)).unwrap();
    run(&stage, &["model", "reload"]).await.out();
    eventually("version 2 is taken out", async || {
        stage.assert_serves().await;
        let models = run(&stage, &["model", "ls", "-o", "json"]).await.json();
        let said = [(2, "rolled_back".into()), (1, "serving".into())];
        if states(&models) == said { Ok(()) } else { Err(models) }
    })
    .await;
    let shown = run(&stage, &["model", "show", "2"]).await.out();
    assert!(shown.contains("rolled back to v1"), "{shown}");
    run(&stage, &["model", "rollback"]).await.assert_failed(FAILED, "no bundle before");
    stage.assert_settled().await;
}
