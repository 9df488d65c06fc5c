//! Everything that learning needs may break or be missing: requests are served all the same, and the
//! metrics say what is wrong.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use weir_schema::{
    manifest::{CURRENT_FILE, MODEL_FILE},
    spool::segment_name,
};
use weir_tests::{Call, Load, Plan, Program, Reply, Stage, built, graph, samples, wait::within};

/// Where `make native` puts ONNX Runtime.
fn onnxruntime() -> PathBuf {
    let folder = built::root().join(".native/onnxruntime/capi");
    let mut entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let library = entries.find(|path| path.to_string_lossy().contains("libonnxruntime.so"));
    library.expect("these scenarios need ONNX Runtime: run `make native`")
}

async fn serves_version(stage: &Stage, version: f64) {
    within(Duration::from_secs(20), "the bundle serves", async || {
        // Nobody asks for anything meanwhile.
        let metrics = stage.weir.metrics().await;
        if metrics.sum("weir_model_version", &[]) == version { Ok(()) } else { Err(metrics) }
    })
    .await;
}

/// Serves on the prior, and says in snapshot and metrics why.
async fn serves_on_the_prior(stage: &mut Stage, reason: &str) {
    for _ in 0..3 {
        stage.assert_serves().await;
    }
    within(Duration::from_secs(20), "the reason is told", async || {
        let told = stage.weir.overview().await["pools"][0]["model"]["reason"].clone();
        if told.as_str().is_some_and(|told| told.contains(reason)) { Ok(()) } else { Err(told) }
    })
    .await;
    within(Duration::from_secs(20), "the metrics tell it too", async || {
        stage.assert_serves().await;
        let metrics = stage.weir.metrics().await;
        let fallback = metrics.0.lines().find(|line| line.starts_with("weir_predictor_fallback{"));
        if fallback.is_some_and(|line| line.contains(reason)) { Ok(()) } else { Err(metrics) }
    })
    .await;
    let metrics = stage.weir.metrics().await;
    for target in ["ttft", "tpot"] {
        let labels = [("target", target), ("source", "prior")];
        assert_eq!(metrics.sum("weir_predictor_source", &labels), 1.0, "{}", metrics.0);
    }
    assert_eq!(metrics.sum("weir_model_version", &[]), 0.0);
    stage.assert_settled().await;
}

/// A stage that starts with a bundle that `spoil` was at.
async fn stage_with(spoil: impl FnOnce(&Path)) -> Stage {
    let plan = Plan::default();
    let bundle = samples::bundle_into(&plan.path("bundles"));
    spoil(&bundle);
    plan.raise().await
}

async fn refused(spoil: impl FnOnce(&Path), reason: &str) {
    let mut stage = stage_with(spoil).await;
    serves_on_the_prior(&mut stage, reason).await;
    let metrics = stage.weir.metrics().await;
    assert!(metrics.sum("weir_bundles_total", &[("result", "refused")]) >= 1.0);
    assert_eq!(metrics.sum("weir_onnxruntime_found", &[]), 1.0);
}

#[tokio::test]
async fn what_serves_goes_on_serving_when_trainer_bundles_and_library_are_taken_away_under_load() {
    let plan = Plan::default().pods(2);
    let library = plan.path("libonnxruntime.so");
    fs::copy(onnxruntime(), &library).unwrap();
    samples::bundle_into(&plan.path("bundles"));
    let config = json!({"model": {"onnxruntime": library}, "trainer": {"interval_s": 1}});
    let mut stage = plan.config(config).raise().await;
    serves_version(&stage, 1.0).await;

    let mut load = Load::start(stage.weir.api, 6, |_, _| Call::chat(10));
    let mut train = Command::new(built::binary("weir"));
    train.args(["train", "--config"]).arg(stage.config());
    let mut trainer = Program::start(&mut train, &stage.path("train.log"));
    trainer.says("the trainer works", |line| line.contains("trainer ready").then_some(())).await;
    load.answers(20).await;
    trainer.kill();
    load.answers(20).await;
    fs::remove_dir_all(stage.path("bundles")).unwrap();
    load.answers(20).await;
    fs::rename(&library, stage.path("gone.so")).unwrap();
    fs::remove_file(stage.path("gone.so")).unwrap();
    load.answers(20).await;
    within(Duration::from_secs(20), "the missing bundle is told", async || {
        let missing = stage.weir.metrics().await.sum("weir_bundle_missing", &[]);
        if missing == 1.0 { Ok(()) } else { Err(missing) }
    })
    .await;
    load.answers(20).await;

    let replies = load.stop().await;
    let failed: Vec<&Reply> = replies.iter().filter(|reply| !reply.is_whole()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:#?}", failed.len(), replies.len());
    assert!(stage.weir.metrics().await.sum("weir_model_version", &[]) >= 1.0, "it still serves");
    stage.assert_settled().await;
}

#[tokio::test]
async fn without_a_bundle_it_serves_on_the_prior() {
    let mut stage = Stage::simple().await;
    serves_on_the_prior(&mut stage, "no bundle").await;
}

#[tokio::test]
async fn a_truncated_model_is_refused() {
    let truncate = |bundle: &Path| {
        let path = bundle.join(MODEL_FILE);
        let model = fs::read(&path).unwrap();
        fs::write(path, &model[..model.len() / 2]).unwrap();
    };
    refused(truncate, "sha256_mismatch").await;
    let signed = |bundle: &Path| {
        truncate(bundle);
        graph::sign(bundle, |_| {});
    };
    refused(signed, "corrupt_model").await;
}

#[tokio::test]
async fn a_bundle_of_another_schema_is_refused() {
    let other = |manifest: &mut Value| manifest["schema"] = "0123456789abcdef".into();
    refused(|bundle| graph::sign(bundle, other), "schema_mismatch").await;
}

#[tokio::test]
async fn a_pointer_to_nothing_is_told() {
    let unmake = |bundle: &Path| fs::remove_dir_all(bundle).unwrap();
    refused(unmake, "missing").await;
    let garble = |bundle: &Path| {
        fs::write(bundle.parent().unwrap().join(CURRENT_FILE), "../../etc").unwrap();
    };
    let mut stage = stage_with(garble).await;
    serves_on_the_prior(&mut stage, "no").await;
}

#[tokio::test]
async fn without_the_library_a_bundle_is_evaluated_by_its_trees() {
    for text in [None, Some("no library")] {
        let plan = Plan::default();
        let library = plan.path("libonnxruntime.so");
        if let Some(text) = text {
            fs::write(&library, text).unwrap();
        }
        samples::bundle_into(&plan.path("bundles"));
        let plan = plan.config(json!({"model": {"onnxruntime": library}}));
        let mut stage = plan.raise().await;
        serves_version(&stage, 1.0).await;
        let metrics = stage.weir.metrics().await;
        let labels = [("evaluator", "forest"), ("reason", "")];
        assert_eq!(metrics.sum("weir_bundle_evaluator", &labels), 1.0, "{}", metrics.0);
        assert_eq!(metrics.sum("weir_onnxruntime_found", &[]), 0.0);
        stage.assert_settled().await;
    }
}

#[tokio::test]
async fn a_library_that_is_wanted_and_cannot_be_had_leaves_the_prior() {
    for (text, reason) in [(None, "no onnx runtime library found"), (Some(""), "cannot be used")] {
        let plan = Plan::default();
        let library = plan.path("libonnxruntime.so");
        if let Some(text) = text {
            fs::write(&library, text).unwrap();
        }
        samples::bundle_into(&plan.path("bundles"));
        let model = json!({"onnxruntime": library, "evaluator": "ort"});
        let mut stage = plan.config(json!({ "model": model })).raise().await;
        serves_on_the_prior(&mut stage, reason).await;
        assert_eq!(stage.weir.metrics().await.sum("weir_onnxruntime_found", &[]), 0.0);
    }
}

#[tokio::test]
async fn a_bundle_is_evaluated_by_what_the_configuration_wants() {
    for (wanted, evaluates, reason) in
        [("auto", "forest", ""), ("forest", "forest", ""), ("ort", "onnx", "configured")]
    {
        let plan = Plan::default();
        samples::bundle_into(&plan.path("bundles"));
        let mut stage = plan.config(json!({"model": {"evaluator": wanted}})).raise().await;
        serves_version(&stage, 1.0).await;
        let metrics = stage.weir.metrics().await;
        let labels = [("evaluator", evaluates), ("reason", reason), ("version", "1")];
        assert_eq!(metrics.sum("weir_bundle_evaluator", &labels), 1.0, "{wanted}: {}", metrics.0);
        stage.assert_settled().await;
    }
}

#[tokio::test]
async fn a_spool_that_cannot_be_written_costs_samples_and_nothing_else() {
    let plan = Plan::default();
    // A file where the folder should be stops every user, root too.
    fs::write(plan.path("file"), "").unwrap();
    let spool = plan.path("file").join("spool");
    let mut stage = plan.config(json!({"spool": {"dir": spool}})).raise().await;
    for _ in 0..5 {
        stage.assert_serves().await;
    }
    within(Duration::from_secs(20), "lost samples are counted", async || {
        let metrics = stage.weir.metrics().await;
        let lost = metrics.sum("weir_samples_dropped_total", &[("reason", "disk")]);
        let errors = metrics.sum("weir_spool_errors_total", &[]);
        if lost > 0.0 && errors > 0.0 { Ok(()) } else { Err((lost, errors)) }
    })
    .await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_model_that_answers_nan_is_not_used_and_the_metrics_say_so() {
    let plan = Plan::default();
    graph::write_nan_bundle(&plan.path("bundles"));
    let mut stage = plan.raise().await;
    within(Duration::from_secs(20), "the failure is counted", async || {
        stage.assert_serves().await;
        let metrics = stage.weir.metrics().await;
        let failures = metrics.sum("weir_predictor_failures_total", &[]);
        let loaded = metrics.sum("weir_bundles_total", &[("result", "loaded")]);
        if failures > 0.0 && loaded == 1.0 { Ok(()) } else { Err(metrics) }
    })
    .await;
    let mut load = Load::start(stage.weir.api, 4, |_, _| Call::chat(5));
    load.answers(30).await;
    assert!(load.stop().await.iter().all(Reply::is_whole));
    let metrics = stage.weir.metrics().await;
    let prior = metrics.sum("weir_predictor_source", &[("source", "prior")]);
    assert_eq!(prior, 2.0, "both targets are the prior's: {}", metrics.0);
    let fallback = metrics.0.lines().find(|line| line.starts_with("weir_predictor_fallback{"));
    assert!(fallback.is_some_and(|line| line.contains("failed")), "{fallback:?}");
    stage.assert_settled().await;
}

#[test]
fn a_round_over_a_spool_of_garbage_ends_in_order_and_says_what_it_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().join("spool");
    samples::write(&spool, 1, &samples::made_up(5));
    fs::write(spool.join(segment_name(2)), b"\xff\xff\nnull\n{\"torn").unwrap();
    fs::create_dir(spool.join(segment_name(3))).unwrap();
    fs::write(spool.join(segment_name(4)), "not json\n").unwrap();
    let ended = samples::train_once(dir.path());
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}");
    for part in ["skipped", "not_json", "not_utf8", "not enough samples", &segment_name(3)] {
        assert!(said.contains(part), "{part} is not told:\n{said}");
    }
    assert!(!dir.path().join("bundles").join(CURRENT_FILE).exists(), "nothing was published");
}

#[tokio::test]
async fn a_trainer_without_its_library_ends_with_the_reason_and_serving_goes_on() {
    let stage = Plan::default().config(json!({"trainer": {"xgboost": "/nowhere/libxgboost.so"}}));
    let stage = stage.raise().await;
    let mut train = Command::new(built::binary("weir"));
    let ended = train.args(["train", "--once", "--config"]).arg(stage.config()).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("/nowhere/libxgboost.so"), "{said}");
    stage.assert_serves().await;
}
