//! What an operator changes is done, is told to the clients it concerns, and leaves a line in the log.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a scenario says what broke")]

use serde_json::{Value, json};
use weir_tests::{Call, Plan, Stage, eventually};

/// A change that must be done.
async fn change(stage: &Stage, path: &str, body: Value) -> Value {
    let reply = Call::post(&format!("/api/v1{path}"), body.to_string()).to(stage.weir.admin).await;
    assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
    reply.json()
}

async fn look(stage: &Stage, path: &str) -> Value {
    let reply = Call::get(&format!("/api/v1{path}")).to(stage.weir.admin).await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply.json()
}

/// The audit lines so far: who, action, what, count, result. The last to come is waited for by the text it has.
async fn audit(stage: &Stage, last: &str) -> Vec<Value> {
    stage.weir.program.logs(last).await;
    let log = stage.weir.program.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["target"] == "weir::audit");
    lines
        .map(|line| {
            assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
            let what = line["what"].as_str().unwrap().trim_matches('"').to_owned();
            json!([line["who"], line["action"], what, line["count"], line["result"]])
        })
        .collect()
}

#[tokio::test]
async fn a_paused_pool_holds_a_cancelled_request_is_told_and_the_others_go_on() {
    let mut stage = Stage::simple().await;
    change(&stage, "/queues/pause", json!({})).await;
    let call = |name: &str| Call::chat(5).header("x-request-id", name);
    let send = |name: &str| {
        let (call, address) = (call(name), stage.weir.api);
        tokio::spawn(async move { call.to(address).await })
    };
    let (lost, kept) = (send("lost"), send("kept"));
    stage.weir.waiting(2).await;
    let one = look(&stage, "/requests/lost").await;
    assert_eq!((&one["state"], &one["reason"]["reason"]), (&"waiting".into(), &"paused".into()));
    assert!(one["explanation"].as_str().unwrap().contains("paused"), "{one}");

    assert_eq!(change(&stage, "/requests/lost/cancel", json!({})).await["cancelled"], 1);
    let told = lost.await.unwrap();
    told.assert_error(503, "cancelled_by_operator");
    assert_eq!(told.header("x-should-retry"), "false");
    let late = Call::post("/api/v1/requests/lost/cancel", "{}").to(stage.weir.admin).await;
    assert_eq!((late.status, late.error_code().unwrap().as_str()), (409, "conflict"));

    change(&stage, "/queues/resume", json!({})).await;
    kept.await.unwrap().assert_whole();
    let foreign = Call::post("/api/v1/queues/pause", "{}").header("origin", "http://evil.example");
    assert_eq!(foreign.to(stage.weir.admin).await.error_code().unwrap(), "other_origin");
    assert_eq!(
        audit(&stage, "other_origin").await,
        [
            json!(["anybody", "pause", "pool", 1, "ok"]),
            json!(["anybody", "cancel", "lost", 1, "ok"]),
            json!(["anybody", "cancel", "lost", 0, "conflict"]),
            json!(["anybody", "resume", "pool", 1, "ok"]),
            json!(["unknown", "denied", "/api/v1/queues/pause", 0, "other_origin"]),
        ]
    );
    let metrics = stage.weir.metrics().await;
    let count = |action: &str, result: &str| {
        metrics.sum("weir_admin_changes_total", &[("action", action), ("result", result)])
    };
    assert_eq!(
        [count("cancel", "ok"), count("cancel", "refused"), count("denied", "refused")],
        [1.0; 3]
    );
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_drained_pod_finishes_its_streams_and_gets_nothing_more() {
    let mut stage = Plan::default().pods(2).speed(4.0).raise().await;
    let mut live = Call::chat(120).open(stage.weir.api).await;
    live.first_token().await;
    let pod = live.headers["x-weir-pod"].to_str().unwrap().to_owned();
    let draining = change(&stage, &format!("/pods/{pod}/drain"), json!({})).await;
    assert_eq!((&draining["phase"], &draining["drain"]["left"]), (&"draining".into(), &1.into()));
    for _ in 0..4 {
        let reply = stage.call(&Call::chat(3)).await;
        reply.assert_whole();
        assert_ne!(reply.header("x-weir-pod"), pod, "it gets nothing more");
    }
    live.rest().await.assert_whole();
    eventually("the pod is drained", async || {
        let seen = look(&stage, &format!("/pods/{pod}")).await;
        if seen["phase"] == "drained" { Ok(()) } else { Err(seen) }
    })
    .await;
    let back = change(&stage, &format!("/pods/{pod}/uncordon"), json!({})).await;
    assert_eq!((&back["phase"], &back["drain"]), (&"ready".into(), &Value::Null));
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_changed_file_is_taken_over_and_a_wrong_one_is_told_problem_by_problem() {
    let stage = Stage::simple().await;
    let write = |change: &dyn Fn(&mut Value)| {
        let text = std::fs::read_to_string(stage.config()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        change(&mut config);
        std::fs::write(stage.config(), config.to_string()).unwrap();
    };
    write(&|config| {
        config["default_objective"] = "batch".into();
        config["threads"] = 2.into();
    });
    // The file is watched too: whoever is first, it is taken over once.
    let reloaded = change(&stage, "/config/reload", json!({})).await;
    assert_eq!(reloaded["needs_restart"], json!(["threads"]), "{reloaded}");
    let changes = look(&stage, "/config/diff").await["changes"].take();
    assert_eq!(changes, json!([{"key": "threads", "running": 1, "file": 2, "applies": "restart"}]));
    let effective = look(&stage, "/config").await;
    let text = effective["effective"].as_str().unwrap();
    assert!(text.contains("default_objective: batch") && text.contains("threads: 1"), "{text}");
    assert_eq!(effective["file"].as_str().unwrap(), stage.config().to_str().unwrap());

    write(&|config| {
        config["default_objective"] = "gold".into();
        config["queue"] = json!({"max_requests": 0});
    });
    let told = Call::post("/api/v1/config/reload", "{}").to(stage.weir.admin).await;
    told.assert_admin_error(400, "invalid_configuration");
    let problems = told.json()["error"]["problems"].to_string();
    assert!(
        problems.contains("default_objective") && problems.contains("max_requests"),
        "{problems}"
    );
    let told = Call::get("/api/v1/config/diff").to(stage.weir.admin).await;
    assert_eq!(
        told.json()["error"]["message"],
        "the file cannot be used",
        "nobody asked to take it"
    );
    told.assert_admin_error(400, "invalid_configuration");
    let effective = look(&stage, "/config").await;
    assert!(effective["effective"].as_str().unwrap().contains("default_objective: batch"));
}
