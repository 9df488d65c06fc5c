//! LoRA adapters, of which an engine runs only so many at once.

use serde_json::{Value, json};
use weir_tests::{Call, Load, Plan, Reply, Stage, eventually};

/// The adapters of every pod.
const ADAPTERS: [&str; 3] = ["sql", "tax", "law"];

/// Pods that run so many adapters at once, which their engines tell of.
async fn stage(pods: usize, max_loras: &str) -> Stage {
    let plan = Plan::default().pods(pods).speed(2.0).pod_argument("--max-loras", max_loras);
    plan.pod_list("--lora-modules", &ADAPTERS).pool(json!({"adapters": ADAPTERS})).raise().await
}

fn ask(model: &str, tokens: u32) -> Call {
    Call::chat_with(tokens, &json!({"model": model}))
}

/// What Weir shows of a pod.
async fn shown(stage: &Stage, pod: &str) -> Value {
    Call::get(&format!("/api/v1/pods/{pod}")).to(stage.weir.admin).await.json()
}

/// Waits until a pod has said how many it runs.
async fn known(stage: &Stage, pods: usize, max_loras: u64) {
    for pod in 0..pods {
        eventually("how many adapters a pod runs is known", async || {
            let seen = shown(stage, &format!("pod-{pod}")).await;
            if seen.get("max_loras") == Some(&max_loras.into()) { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_goes_where_its_adapter_runs_and_one_for_another_waits_in_weir() {
    let mut stage = stage(1, "1").await;
    // An engine tells of its slots from the first request for an adapter on.
    assert_eq!(stage.call(&ask("sql", 2)).await.status, 200);
    known(&stage, 1, 1).await;

    let mut sql = ask("sql", 400).open(stage.weir.api).await;
    sql.first_token().await;
    let mut plain = Call::chat(400).open(stage.weir.api).await;
    plain.first_token().await;
    let waits = tokio::spawn({
        let address = stage.weir.api;
        async move { ask("tax", 5).to(address).await }
    });
    stage.weir.waiting(1).await;
    let waiting = Call::get("/api/v1/requests").to(stage.weir.admin).await.json();
    let waiting = &waiting["requests"][0];
    assert_eq!(
        (&waiting["adapter"], &waiting["reason"]["reason"]),
        (&"tax".into(), &"adapters_full".into()),
        "{waiting}"
    );
    let pod = shown(&stage, "pod-0").await;
    assert_eq!(
        pod["adapters"],
        json!([{"name": "sql", "requests": 1, "gives_way": false}]),
        "it has only just come: {pod}"
    );
    assert_eq!(pod["queued"], 0, "nothing waits in the engine");

    assert!(sql.rest().await.is_whole() && plain.rest().await.is_whole());
    assert!(waits.await.unwrap().is_whole());
    let metrics = stage.weir.metrics().await;
    assert_eq!(metrics.sum("weir_pod_max_loras", &[("pod", "pod-0")]), 1.0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn more_adapters_than_slots_take_turns_and_each_serves_many_at_a_time() {
    let mut stage = stage(1, "1").await;
    assert_eq!(stage.call(&ask("sql", 2)).await.status, 200);
    known(&stage, 1, 1).await;
    let mut load = Load::start(stage.weir.api, 9, |client, _| ask(ADAPTERS[client % 3], 30));
    load.answers(90).await;
    let replies = load.stop().await;
    assert!(replies.iter().all(Reply::is_whole), "{replies:?}");
    let of = |name: &str| {
        let named = format!("\"model\":\"{name}\"");
        let is_its = |reply: &&Reply| String::from_utf8_lossy(&reply.body).contains(&named);
        replies.iter().filter(is_its).count()
    };
    let each = ADAPTERS.map(of);
    assert!(each.iter().all(|answers| *answers >= 12), "{each:?}");
    let metrics = stage.weir.metrics().await;
    let turns = metrics.sum("weir_events_total", &[("event", "adapter_turns")]);
    assert!((2.0..45.0).contains(&turns), "{turns} turns for {} answers", replies.len());
    stage.assert_settled().await;
}

#[tokio::test]
async fn adapters_are_spread_over_the_pods_so_that_none_waits() {
    let mut stage = stage(2, "2").await;
    for (model, at_once) in [("sql", 2), ("tax", 2)] {
        stage.at_once(at_once, &ask(model, 2)).await;
    }
    let calls = |round: u32| ADAPTERS.iter().map(move |model| ask(model, 30 + round));
    for round in 0..8 {
        let calls: Vec<Call> = calls(round).collect();
        let replies =
            futures_util::future::join_all(calls.iter().map(|call| stage.call(call))).await;
        assert!(replies.iter().all(Reply::is_whole), "{replies:?}");
    }
    stage.assert_settled().await;
}
