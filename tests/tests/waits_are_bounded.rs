//! A client says how long its request may wait, or that it may not.

use std::time::{Duration, Instant};

use serde_json::json;
use weir_tests::{Call, Plan, Stage};

const TTL: &str = "x-llm-d-inference-ttl";
const QUEUE: &str = "x-weir-queue";

async fn refused(stage: &Stage, reason: &str) -> f64 {
    stage.weir.metrics().await.sum("weir_refused_total", &[("reason", reason)])
}

#[tokio::test]
async fn a_request_is_refused_when_its_time_to_live_is_over() {
    let mut stage = Plan::default().seats(4).raise().await;
    stage.call(&Call::chat(3).header(TTL, "1.5s")).await.assert_whole();
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(2, &Call::chat(3)).await;
    let begun = Instant::now();
    let reply = stage.call(&Call::chat(3).header(TTL, "300ms")).await;
    reply.assert_error(429, "slow_down");
    assert_eq!(reply.header("x-llm-d-request-dropped-reason"), "rejected-ttl-expired");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    assert_eq!(refused(&stage, "ttl").await, 1.0);
    assert_eq!(stage.weir.open_requests().await.waiting, 2, "the others wait on");
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_request_that_is_not_to_wait_is_served_at_once_or_refused_at_once() {
    let mut stage = Plan::default().seats(4).raise().await;
    let at_once = Call::chat(3).header(QUEUE, "none");
    stage.call(&at_once).await.assert_whole();
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(2, &Call::chat(3)).await;
    let reply = stage.call(&at_once).await;
    reply.assert_error(429, "slow_down");
    assert_eq!(refused(&stage, "immediate").await, 1.0);
    assert_eq!(stage.weir.open_requests().await.waiting, 2, "nobody made room for it");
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_wait_that_is_not_understood_is_refused_by_the_headers_name() {
    let mut stage = Stage::simple().await;
    for (name, value) in [(TTL, "5"), (TTL, "-1s"), (TTL, "soon"), (QUEUE, "yes")] {
        let reply = stage.call(&Call::chat(3).header(name, value)).await;
        reply.assert_error(400, "invalid_header");
        assert_eq!(reply.json()["error"]["param"], name);
    }
    stage.assert_settled().await;
}
