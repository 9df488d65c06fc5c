//! What a crowd of waiting requests took goes back to the system when they have gone.

use serde_json::json;
use tokio::task::JoinSet;
use weir_tests::{Call, Plan, Reply, Stage, eventually};

/// So many that a third of what they take is more than Weir lets lie unused.
const CROWD: usize = 800;
/// Of each prompt. Pieces of this size are not mapped one by one, which would make their return easy.
const PROMPT_TOKENS: usize = 30_000;

async fn crowd(stage: &Stage, count: usize) -> JoinSet<Reply> {
    let (call, address) = (Call::long_chat(PROMPT_TOKENS, 10, "burst "), stage.weir.api);
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let call = call.clone();
        calls.spawn(async move { call.to(address).await });
    }
    stage.weir.waiting(count as u64).await;
    calls
}

async fn leave(stage: &Stage, calls: JoinSet<Reply>) {
    drop(calls);
    stage.weir.waiting(0).await;
}

#[tokio::test]
async fn memory_comes_back_after_a_burst() {
    let patience = json!({"queue": {"max_wait_s": 600, "max_wait_no_pods_s": 600}});
    let mut stage = Plan::default().pods(1).config(patience).start().await;
    stage.pods[0].kill();
    stage.weir.without_pods().await;
    // What is made for the first few stays.
    let few = crowd(&stage, 20).await;
    leave(&stage, few).await;
    let before = stage.weir.resident_bytes();
    let many = crowd(&stage, CROWD).await;
    let most = stage.weir.resident_bytes();
    assert!(most - before > (CROWD * 4 * PROMPT_TOKENS) as f64, "{before} to {most} bytes");
    leave(&stage, many).await;
    eventually("two thirds of the memory have come back", async || {
        let left = stage.weir.resident_bytes();
        if left - before < (most - before) / 3.0 { Ok(()) } else { Err((before, most, left)) }
    })
    .await;
    stage.assert_settled().await;
}
