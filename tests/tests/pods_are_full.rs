//! A pod that answers 503 for it takes no more has computed nothing: what it was given goes to another one, or waits for it to have fewer.

use futures_util::future::join_all;
use serde_json::json;
use weir_tests::{Call, Load, Plan, Reply, served_by};

/// Requests that have a pod of which Weir thinks that it takes more.
const CROWD: usize = 24;

#[tokio::test]
async fn everybody_is_served_by_engines_whose_queues_are_bounded() {
    let plan = Plan::default().pods(2).speed(2.0).pod_argument("--max-num-queued-reqs", "4");
    let mut stage = plan.raise().await;
    let replies = stage.at_once(CROWD, &Call::chat(20)).await;
    assert_eq!(served_by(&replies), ["pod-0", "pod-1"].into());
    let metrics = stage.weir.metrics().await;
    let turned_away = metrics.sum("weir_events_total", &[("event", "turned_away")]);
    assert!(turned_away > 0.0, "they were full");
    assert!(
        turned_away < 2.0 * CROWD as f64,
        "{turned_away}: nobody is sent again and again where it is full"
    );
    let refused = metrics.sum("weir_pod_answers_total", &[("class", "5xx")]);
    assert_eq!(refused, turned_away);
    assert_eq!(stage.weir.snapshot().await["pods"][0]["phase"], "ready");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_bound_on_tokens_of_prompts_loses_nothing_under_load() {
    let plan = Plan::default().pods(2).speed(4.0).pod_argument("--max-num-queued-tokens", "3000");
    let mut stage = plan.raise().await;
    let mut load = Load::start(stage.weir.api, 16, |client, turn| {
        Call::long_chat(1500, 5, &format!("{client} {turn} "))
    });
    load.answers(80).await;
    load.stop().await.iter().for_each(Reply::assert_whole);
    let metrics = stage.weir.metrics().await;
    assert!(metrics.sum("weir_events_total", &[("event", "turned_away")]) > 0.0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn who_waits_for_a_full_pod_is_told_so_and_a_client_who_does_not_wait_is_refused() {
    let plan = Plan::default().speed(1.0).pod_argument("--max-num-queued-reqs", "1");
    let mut stage = plan.raise().await;
    let mut live = Call::chat(150).open(stage.weir.api).await;
    live.first_token().await;
    let waits = tokio::spawn({
        let api = stage.weir.api;
        async move { join_all([Call::chat(5).to(api), Call::plain(5).to(api)]).await }
    });
    stage.weir.waiting(2).await;
    let waiting = Call::get("/api/v1/requests").to(stage.weir.admin).await.json();
    let reasons = json!([waiting["requests"][0]["reason"], waiting["requests"][1]["reason"]]);
    assert!(reasons.to_string().contains("pods_full"), "{waiting}");
    assert!(live.rest().await.is_whole());
    waits.await.expect("both are answered").iter().for_each(Reply::assert_whole);
    stage.assert_settled().await;
}
