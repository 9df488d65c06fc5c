//! A client may leave at any moment: what it held is free again, here and on the pod.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::json;
use weir_tests::{Call, Plan, Stage, eventually};

/// A pod that takes seconds for every call, so that nothing here ends by itself.
async fn slow_stage() -> Stage {
    Plan::default().speed(0.2).raise().await
}

/// The call of a client that is about to leave.
fn leaving(stage: &Stage, call: &Call) -> tokio::task::JoinHandle<()> {
    let (call, address) = (call.clone(), stage.weir.api);
    tokio::spawn(async move {
        call.to(address).await;
        panic!("the call ended before its client left");
    })
}

async fn pod_is_busy(stage: &Stage) {
    eventually("the pod works", async || {
        let busy = stage.pods[0].busy().await;
        if busy > 0.0 { Ok(()) } else { Err(busy) }
    })
    .await;
}

async fn counted(stage: &Stage, counter: &str) -> serde_json::Value {
    stage.weir.snapshot().await["counters"][counter].clone()
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_leaves_nothing_in_it() {
    let mut stage = Plan::default().seats(4).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(1, &Call::chat(3)).await;
    let leaving = stage.queue_up(6, &Call::chat(3)).await;
    assert_eq!(leaving.len(), 5, "the pod takes no more");
    drop(leaving);
    stage.weir.waiting(1).await;
    assert_eq!(counted(&stage, "cancelled").await, 5);
    drop(held);
    stage.assert_settled().await;
    stage.pods[0].fault(json!({"kind": "none"})).await;
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_token_frees_the_pod() {
    let mut stage = slow_stage().await;
    let call = leaving(&stage, &Call::long_chat(60_000, 50, "prefill "));
    pod_is_busy(&stage).await;
    call.abort();
    stage.assert_settled().await;
    assert_eq!(counted(&stage, "client_gone").await, 1);
}

#[tokio::test]
async fn a_client_that_leaves_mid_stream_frees_the_pod() {
    let mut stage = Plan::default().speed(1.0).raise().await;
    let mut live = Call::chat(5000).open(stage.weir.api).await;
    live.first_token().await;
    pod_is_busy(&stage).await;
    drop(live);
    stage.assert_settled().await;
    assert_eq!(counted(&stage, "client_gone").await, 1);
}

#[tokio::test]
async fn a_client_that_leaves_a_call_that_is_not_streamed_frees_the_pod() {
    let mut stage = slow_stage().await;
    let call = leaving(&stage, &Call::plain(5000));
    pod_is_busy(&stage).await;
    call.abort();
    stage.assert_settled().await;
    assert_eq!(counted(&stage, "client_gone").await, 1);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_given_up_and_frees_the_pod() {
    let config = json!({"limits": {"write_timeout_ms": 500}});
    let mut stage = Plan::default().config(config).raise().await;
    // More than the sockets between here and the pod can hold.
    let call = Call::chat_with(1500, &json!({"n": 100}));
    let unread = call.open(stage.weir.api).await;
    stage.assert_settled().await;
    assert_eq!(counted(&stage, "client_gone").await, 1);
    assert!(unread.rest().await.broken, "what was cut does not look complete");
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_client_that_takes_its_answer_late_keeps_no_pod_that_is_done() {
    let mut stage = Plan::default().speed(20.0).raise().await;
    // More than the sockets between here and the pod can hold.
    let call = Call::chat_with(1500, &json!({"n": 100}));
    let unread = call.open(stage.weir.api).await;
    stage.assert_settled().await;
    assert_eq!(counted(&stage, "completed").await, 1);
    assert!(!unread.rest().await.broken, "it gets all of it, when it takes it");
}

#[tokio::test]
async fn clients_that_leave_at_any_moment_of_a_busy_service_leave_nothing_behind() {
    let mut stage = Plan::default().pods(2).speed(2.0).raise().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..120_u64 {
        let (address, call) = (stage.weir.api, Call::chat(60));
        calls.spawn(async move {
            // The moments are spread from before the connection is open to after the last token.
            let stay = std::time::Duration::from_millis(number * 13 % 900);
            tokio::time::timeout(stay, call.to(address)).await.is_ok()
        });
    }
    let stayed = calls.join_all().await.into_iter().filter(|stayed| *stayed).count();
    assert!(stayed < 120, "nobody left");
    stage.assert_settled().await;
    stage.assert_serves().await;
    stage.assert_settled().await;
}
