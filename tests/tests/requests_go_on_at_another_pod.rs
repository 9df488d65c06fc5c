//! With a migration limit a request goes on when its pod is lost: its client sees one answer, the one it would have had.

use std::{
    collections::BTreeSet,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use http::Response;
use http_body_util::Full;
use serde_json::{Value, json};
use weir_tests::{Call, Load, MODEL, Plan, Reply, Server, Stage, eventually};

/// Tokens of an answer, some of which come after its pod was lost.
const LONG: u32 = 60;

/// So many pods, and requests that may go on so often.
fn plan(pods: usize, limit: u32) -> Plan {
    let config = json!({"upstream": {"stall_timeout_s": 2}});
    Plan::default().pods(pods).config(config).migration_limit(limit)
}

async fn migrated(stage: &Stage, outcome: &str) -> f64 {
    stage.weir.metrics().await.sum("weir_migrations_total", &[("outcome", outcome)])
}

/// A streamed chat that says what it took.
fn counted(tokens: u32) -> Call {
    Call::chat_with(tokens, &json!({"stream_options": {"include_usage": true}}))
}

/// Names of the answer that its events have, and the usage that the last one tells.
fn told(reply: &Reply) -> (BTreeSet<String>, Value) {
    let text = String::from_utf8_lossy(&reply.body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events = data.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")));
    let events: Vec<Value> = events.map(Result::unwrap_or_default).collect();
    let names = events.iter().map(|event| event["id"].to_string()).collect();
    (names, events.last().map(|event| event["usage"].clone()).unwrap_or_default())
}

#[tokio::test]
async fn a_stream_whose_pod_dies_is_the_stream_it_would_have_been() {
    let mut stage = plan(2, 1).raise().await;
    let unbroken = stage.call(&counted(LONG)).await;
    unbroken.assert_whole();
    for pod in &stage.pods {
        pod.fault(json!({"kind": "die_mid_stream", "after_tokens": 20, "count": 1})).await;
    }
    let reply = stage.call(&counted(LONG)).await;
    // The pod that goes on has the fault for its own twentieth token.
    assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"), "{reply:?}");
    assert_eq!((reply.words(), migrated(&stage, "lost").await), (40, 1.0));
    let [continued, words] = [migrated(&stage, "continued").await, reply.words() as f64];
    assert_eq!((continued, words), (1.0, 40.0));

    stage.pods[0].fault(json!({"kind": "die_mid_stream", "after_tokens": 20, "count": 1})).await;
    let mut went_on = 0.0;
    while went_on == 0.0 {
        let reply = stage.call(&counted(LONG)).await;
        reply.assert_whole();
        assert_eq!(reply.text(), unbroken.text());
        let ((names, usage), (_, whole)) = (told(&reply), told(&unbroken));
        assert_eq!((names.len(), usage), (1, whole), "{reply:?}");
        went_on = migrated(&stage, "continued").await - continued;
    }
    stage.assert_settled().await;
    let metrics = stage.weir.metrics().await;
    assert_eq!(metrics.sum("weir_stream_errors_total", &[]), 1.0);
}

#[tokio::test]
async fn pods_that_are_killed_under_load_cost_no_request() {
    let mut stage = plan(3, 3).speed(2.0).raise().await;
    let unbroken = stage.call(&Call::chat(LONG)).await.text();
    // Some are not streamed, which are sent again from the start.
    let mut load = Load::start(stage.weir.api, 24, |client, _| match client % 4 {
        0 => Call::plain(LONG),
        _ => Call::chat(LONG),
    });
    load.answers(24).await;
    for victim in 0..3 {
        stage.pods[victim].kill();
        load.answers(24).await;
        stage.pods[victim].restart().await;
        eventually("it is taken back", async || {
            let phase = stage.weir.snapshot().await["pods"][victim]["phase"].clone();
            if phase == "ready" { Ok(()) } else { Err(phase) }
        })
        .await;
    }
    let replies = load.stop().await;
    for reply in &replies {
        reply.assert_whole();
        if reply.is_done() {
            assert_eq!(reply.text(), unbroken);
        }
    }
    let [again, continued] = [migrated(&stage, "again").await, migrated(&stage, "continued").await];
    assert!(again > 0.0 && continued > 0.0, "{again} {continued}");
    assert_eq!(migrated(&stage, "lost").await, 0.0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_hangs_in_the_middle_of_its_answers_is_left_for_another() {
    let mut stage = plan(2, 1).speed(2.0).raise().await;
    let unbroken = stage.call(&Call::chat(LONG)).await.text();
    let mut live = Call::chat(LONG).open(stage.weir.api).await;
    live.first_token().await;
    let had = usize::from(live.headers["x-weir-pod"] == "pod-1");
    stage.pods[had].hang();
    let reply = live.rest().await;
    reply.assert_whole();
    assert_eq!((reply.text(), migrated(&stage, "continued").await), (unbroken, 1.0));
    stage.pods[had].go_on();
    stage.assert_settled().await;
}

#[tokio::test]
async fn where_no_other_pod_is_there_the_client_is_told() {
    let mut stage = plan(1, 3).speed(1.0).raise().await;
    let mut live = Call::chat(2000).open(stage.weir.api).await;
    live.first_token().await;
    stage.pods[0].kill();
    let reply = live.rest().await;
    assert_eq!(reply.error_code().as_deref(), Some("upstream_lost"), "{reply:?}");
    assert!(reply.broken && !reply.is_done(), "{reply:?}");
    assert_eq!(migrated(&stage, "lost").await, 1.0);
    stage.pods[0].restart().await;
    eventually("it serves again", async || {
        let reply = stage.call(&Call::chat(3)).await;
        if reply.is_whole() { Ok(()) } else { Err(reply) }
    })
    .await;
}

#[tokio::test]
async fn what_a_pod_is_asked_by_a_name_that_it_knows_is_not_asked_of_another() {
    let asked = Arc::new(AtomicUsize::new(0));
    let failing = || {
        let asked = asked.clone();
        Server::start(move |request| {
            let status = if request.uri().path() == "/metrics" {
                200
            } else {
                asked.fetch_add(1, SeqCst);
                500
            };
            ready(Response::builder().status(status).body(Full::default()).unwrap())
        })
    };
    let servers = [failing().await, failing().await];
    let plan = plan(1, 1).upstream(servers[0].address).upstream(servers[1].address);
    let stage = plan.raise().await;
    for (path, body, times) in [
        ("/v1/responses", json!({"model": MODEL, "input": "a"}), 1),
        ("/v1/embeddings", json!({"model": MODEL, "input": "a"}), 2),
    ] {
        asked.store(0, SeqCst);
        let reply = stage.call(&Call::post(path, body.to_string())).await;
        assert_eq!((reply.status, asked.load(SeqCst)), (500, times), "{path}: {reply:?}");
    }
}
