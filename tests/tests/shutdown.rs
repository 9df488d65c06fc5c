//! SIGTERM ends the program in order: what runs is finished, what waits is answered, nobody is cut.

use serde_json::json;
use weir_tests::{Call, Plan, Reply, Stage, eventually};

async fn draining(stage: &Stage) {
    eventually("weir says that it drains", async || {
        let reply = stage.weir.readyz().await;
        if (reply.status, &reply.body[..]) == (503, b"draining\n") { Ok(()) } else { Err(reply) }
    })
    .await;
}

fn start(stage: &Stage, call: &Call, count: usize) -> Vec<tokio::task::JoinHandle<Reply>> {
    let one = || {
        let (call, address) = (call.clone(), stage.weir.api);
        tokio::spawn(async move { call.to(address).await })
    };
    (0..count).map(|_| one()).collect()
}

#[tokio::test]
async fn an_idle_dispatcher_ends_at_once_with_exit_code_0() {
    let mut stage = Stage::simple().await;
    stage.assert_serves().await;
    stage.weir.program.terminate();
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
}

#[tokio::test]
async fn what_runs_and_what_waits_is_finished_before_the_end() {
    let mut stage = Plan::default().speed(4.0).raise().await;
    let mut live = Call::chat(150).open(stage.weir.api).await;
    live.first_token().await;
    let waiting = start(&stage, &Call::chat(20), 12);
    eventually("all have arrived", async || {
        let arrived = stage.weir.snapshot().await["counters"]["arrived"].clone();
        if arrived == 13 { Ok(()) } else { Err(arrived) }
    })
    .await;
    stage.weir.program.terminate();
    live.rest().await.assert_whole();
    for call in waiting {
        call.await.unwrap().assert_whole();
    }
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
}

#[tokio::test]
async fn while_it_drains_it_says_so_and_still_accepts() {
    let config = json!({"shutdown": {"drain_delay_s": 1}});
    let mut stage = Plan::default().config(config).raise().await;
    stage.weir.program.terminate();
    draining(&stage).await;
    assert_eq!(Call::get("/livez").to(stage.weir.admin).await.status, 200);
    let reply = stage.call(&Call::chat(3)).await;
    reply.assert_whole();
    assert_eq!(reply.header("connection"), "close");
    stage.assert_serves().await;
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
}

#[tokio::test]
async fn what_still_waits_or_runs_when_the_grace_is_over_is_told_to_come_back() {
    let config = json!({"shutdown": {"grace_s": 1}});
    let mut stage = Plan::default().seats(4).config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let mut held = stage.queue_up(3, &Call::chat(5)).await;
    assert!(held.len() > 3, "something runs as well");
    stage.weir.program.terminate();
    draining(&stage).await;
    while let Some(reply) = held.join_next().await {
        let reply = reply.expect("what waits and what runs is answered");
        reply.assert_error(503, "server_is_overloaded");
        assert_eq!(reply.header("x-llm-d-request-dropped-reason"), "rejected-shutting-down");
    }
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let mut stage = Plan::default().speed(1.0).raise().await;
    let mut live = Call::chat(5000).open(stage.weir.api).await;
    live.first_token().await;
    stage.weir.program.terminate();
    draining(&stage).await;
    stage.weir.program.terminate();
    let reply = live.rest().await;
    assert!(reply.broken && !reply.is_done(), "a stream that is cut does not look complete");
    assert_eq!(reply.error_code().as_deref(), Some("server_is_overloaded"));
    assert_eq!(stage.weir.program.exit().await.code(), Some(0));
}
