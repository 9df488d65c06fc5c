//! A pod whose prefix cache is emptied while it runs finds less than it is believed to have, and is believed to have no more than that.

use serde_json::Value;
use weir_tests::{Call, Plan, Stage, eventually};

/// Serves the same long prompt once more, after the pod was told to forget it if `forgets`. Returns the share that it is thought to find.
async fn served(stage: &Stage, forgets: bool) -> f64 {
    for pod in stage.pods.iter().filter(|_| forgets) {
        let reset = Call::post("/reset_prefix_cache", "").to(pod.address).await;
        assert_eq!(reset.status, 200, "{reset:?}");
    }
    stage.call(&Call::long_chat(4000, 3, "the same")).await.assert_whole();
    let metrics = stage.weir.metrics().await;
    metrics.sum("weir_pod_cache_found_ratio", &[("pod", "pod-0")])
}

#[tokio::test]
async fn what_a_pod_does_not_find_does_not_count_until_it_finds_it_again() {
    let mut stage = Plan::default().speed(50.0).raise().await;
    assert_eq!(served(&stage, false).await, 1.0);
    eventually("it finds nothing", async || {
        let share = served(&stage, true).await;
        if share < 0.1 { Ok(()) } else { Err(share) }
    })
    .await;
    let seen = Call::get("/api/v1/pods/pod-0").to(stage.weir.admin).await.json();
    let told = seen.get("cache_found").and_then(Value::as_f64);
    assert!(told.is_some_and(|share| share < 0.1), "{seen}");
    eventually("it finds all of it", async || {
        let share = served(&stage, false).await;
        if share == 1.0 { Ok(()) } else { Err(share) }
    })
    .await;
    stage.assert_settled().await;
}
