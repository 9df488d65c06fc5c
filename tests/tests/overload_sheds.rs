//! Offered more than its pods can do, Weir refuses what may be refused, and keeps its word to the rest.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use std::time::Duration;

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use weir_tests::{Call, Plan, Stage, load::Outcome};

/// Calls per second: more than twice what the pod below can do.
const RATE: u32 = 40;
/// Calls.
const CALLS: usize = 200;
/// Every so many-th call is interactive, well below what the pod can do.
const INTERACTIVE: usize = 8;
/// The interactive objective of Weir's default configuration.
const TTFT: Duration = Duration::from_millis(2000);

/// A pod that runs eight requests at once: about fifteen of the calls below per second.
async fn small_stage() -> Stage {
    let plan = Plan::default().speed(2.0).pod_argument("--max-sequences", "8");
    plan.config(json!({
        "classes": [{"name": "h100-qwen3-32b-tp2", "max_sequences": 8}],
        "queue": {"max_predicted_wait_s": 1},
    }))
    .raise()
    .await
}

/// The outcomes of the interactive calls and of the others, all sent at their time whatever became of
/// those before.
async fn overload(stage: &Stage) -> (Vec<Outcome>, Vec<Outcome>) {
    let mut pace = interval(Duration::from_secs(1) / RATE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        pace.tick().await;
        let interactive = number % INTERACTIVE == 0;
        let objective = if interactive { "interactive" } else { "batch" };
        let (call, address) = (Call::chat(80).objective(objective), stage.weir.api);
        calls.spawn(async move { (interactive, Outcome::of(&call, address).await) });
    }
    let (interactive, batch): (Vec<_>, Vec<_>) =
        calls.join_all().await.into_iter().partition(|(interactive, _)| *interactive);
    let outcomes = |of: Vec<(bool, Outcome)>| of.into_iter().map(|(_, outcome)| outcome).collect();
    (outcomes(interactive), outcomes(batch))
}

fn assert_shed(outcome: &Outcome) {
    let reply = &outcome.reply;
    reply.assert_error(429, "slow_down");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    let after_s: u64 = reply.header("retry-after").parse().unwrap();
    let after_ms: u64 = reply.header("retry-after-ms").parse().unwrap();
    assert!((1..=60).contains(&after_s), "{reply:?}");
    assert!((1..=60_000).contains(&after_ms) && after_ms <= after_s * 1000, "{reply:?}");
    assert_eq!(reply.header("x-llm-d-request-dropped-reason"), "rejected-saturated");
    assert_eq!(reply.header("x-should-retry"), "false");
    // A refusal is worth something only while it is quick.
    assert!(outcome.took < Duration::from_secs(5), "{outcome:?}");
}

#[tokio::test]
async fn interactive_calls_keep_their_objective_while_batch_calls_are_shed() {
    let mut stage = small_stage().await;
    let (interactive, batch) = overload(&stage).await;

    let kept = |outcome: &&Outcome| {
        outcome.reply.is_whole() && outcome.ttft.is_some_and(|ttft| ttft <= TTFT)
    };
    let in_time = interactive.iter().filter(kept).count();
    assert!(in_time * 10 >= interactive.len() * 8, "{in_time} of {}", interactive.len());
    assert!(interactive.iter().all(|outcome| outcome.reply.is_whole()), "one was lost");

    let (served, shed): (Vec<_>, Vec<_>) = batch.iter().partition(|one| one.reply.is_whole());
    assert!(shed.len() * 5 >= batch.len(), "only {} of {} were shed", shed.len(), batch.len());
    assert!(
        served.len() * 10 >= batch.len(),
        "only {} of {} were served",
        served.len(),
        batch.len()
    );
    shed.iter().for_each(|outcome| assert_shed(outcome));

    stage.assert_settled().await;
    let metrics = stage.weir.metrics().await;
    let refused = |sheddable| metrics.sum("weir_refused_total", &[("sheddable", sheddable)]);
    assert_eq!([refused("true"), refused("false")], [shed.len() as f64, 0.0]);
    // Once the load is gone, so is the shedding.
    stage.call(&Call::chat(5).objective("batch")).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_full_queue_refuses_the_newcomer_unless_somebody_less_important_waits() {
    let config = json!({"queue": {"max_requests": 4}});
    let mut stage = Plan::default().seats(4).config(config).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let mut batch = stage.queue_up(4, &Call::chat(5).objective("batch")).await;
    let (call, address) = (Call::chat(5).objective("interactive"), stage.weir.api);
    let interactive = tokio::spawn(async move { call.to(address).await });
    let shed = batch.join_next().await.unwrap().unwrap();
    shed.assert_error(429, "slow_down");
    stage.weir.waiting(4).await;
    assert!(!interactive.is_finished(), "the interactive call waits");
    let late = stage.call(&Call::chat(5).objective("batch")).await;
    late.assert_error(429, "slow_down");
    interactive.abort();
    drop(batch);
    stage.assert_settled().await;
}
