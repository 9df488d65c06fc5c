//! A pool says how many pods what comes to it needs, for whoever starts and stops them.

use serde_json::json;
use weir_tests::{Call, Load, Pair, Plan, Weir, eventually};

/// Pods needed for what may not be shed, and for all.
async fn needed(weir: &Weir) -> [f64; 2] {
    let metrics = weir.metrics().await;
    ["kept", "all"].map(|requests| metrics.sum("weir_pods_needed", &[("requests", requests)]))
}

fn plan(load: f64) -> Plan {
    let autoscale = json!({"autoscale": {"load": load, "learn": false}});
    Plan::default().pods(1).speed(2.0).pool(autoscale)
}

#[tokio::test]
async fn more_pods_are_needed_the_more_comes_and_none_where_nothing_does() {
    let mut stage = plan(0.02).raise().await;
    assert_eq!(needed(&stage.weir).await, [0.0, 0.0]);
    let load = Load::start(stage.weir.api, 24, |_, _| Call::chat(20));
    eventually("more than the one pod are needed", async || match needed(&stage.weir).await {
        [kept, all] if kept > 1.0 && kept == all => Ok(()),
        other => Err(other),
    })
    .await;
    load.stop().await.iter().for_each(weir_tests::Reply::assert_whole);
    let metrics = stage.weir.metrics().await;
    let overview = Call::get("/api/v1/overview").to(stage.weir.admin).await.json();
    assert_eq!(metrics.sum("weir_load_held", &[]), 0.02);
    let need = &overview["pools"][0]["need"];
    let [pods, load] = ["pods", "load"].map(|key| need[key].as_f64().unwrap_or_default());
    // It fades from one look to the next.
    let seen = metrics.sum("weir_load", &[("requests", "kept")]);
    assert!(load > 0.0 && load <= seen && (seen - load) / seen < 0.2, "{load} {seen}");
    assert_eq!(pods, (load / 0.02).ceil(), "{need}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn what_may_be_shed_needs_pods_of_its_own() {
    let mut stage = plan(0.02).raise().await;
    let sheddable = |_, _| Call::chat(20).header("x-llm-d-inference-objective", "batch");
    let load = Load::start(stage.weir.api, 24, sheddable);
    eventually("pods are needed for all", async || match needed(&stage.weir).await {
        [0.0, all] if all > 1.0 => Ok(()),
        other => Err(other),
    })
    .await;
    load.stop().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn of_several_dispatchers_the_one_that_decides_says_it_for_all() {
    let Pair { stage, second } = plan(0.02).raise_two().await;
    let load = Load::start(second.api, 24, |_, _| Call::chat(20));
    eventually("more than the one pod are needed", async || match needed(&stage.weir).await {
        [kept, _] if kept > 1.0 => Ok(()),
        other => Err(other),
    })
    .await;
    load.stop().await.iter().for_each(weir_tests::Reply::assert_whole);
    assert_eq!(needed(&second).await, [0.0, 0.0]);
    let overview = Call::get("/api/v1/overview").to(second.admin).await.json();
    assert!(overview["pools"][0]["need"].is_null(), "{overview}");
}
