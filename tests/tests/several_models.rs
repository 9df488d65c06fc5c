//! One dispatcher serves several models, each from its own pool, under every name that it has.
#![expect(clippy::indexing_slicing, reason = "a scenario says what broke by panicking")]

use serde_json::{Value, json};
use weir_tests::{Call, Echo, MODEL, Plan, Stage, eventually};

const ALIAS: &str = "gpt-4o";
const ADAPTER: &str = "sql-lora";
const OTHER: &str = "bge-m3";

async fn stage(first: &Echo, second: &Echo) -> Stage {
    let pods = |of: &Echo| json!([{"name": "the-pod", "url": of.url()}]);
    let pools = json!([
        {"model": MODEL, "aliases": [ALIAS], "adapters": [ADAPTER], "pods": pods(first)},
        {"model": OTHER, "pods": pods(second)},
    ]);
    Plan::default().upstream(first.address).config(json!({"pools": pools})).raise().await
}

/// The same pod of both pools, as each sees it.
async fn pods(stage: &Stage) -> [Value; 2] {
    let overview = stage.weir.overview().await;
    [0, 1].map(|pool| overview["pools"][pool]["snapshot"]["pods"][0].clone())
}

fn chat(model: &str) -> (Call, String) {
    let body = format!(r#"{{ "model":"{model}", "messages" : [] }}"#);
    (Call::post("/v1/chat/completions", body.clone()), body)
}

#[tokio::test]
async fn each_name_goes_to_its_pool_unchanged_and_counts_with_its_model() {
    let (first, second) = (Echo::start().await, Echo::start().await);
    let mut stage = stage(&first, &second).await;
    for model in [MODEL, ALIAS, ADAPTER, OTHER] {
        let (call, body) = chat(model);
        let reply = stage.call(&call).await;
        assert_eq!((reply.status, &reply.body[..]), (200, body.as_bytes()), "{model}");
    }
    stage.assert_settled().await;
    let metrics = stage.weir.metrics().await;
    let served = |model| metrics.sum("weir_requests_total", &[("model", model), ("outcome", "ok")]);
    assert_eq!([MODEL, OTHER].map(served), [3.0, 1.0]);
    assert!(!metrics.0.contains(ADAPTER) && !metrics.0.contains(ALIAS), "they are no labels");

    let list = stage.call(&Call::get("/v1/models")).await.json();
    let listed = list["data"].as_array().unwrap().iter();
    let listed: Vec<Value> = listed.map(|model| json!([model["id"], model["parent"]])).collect();
    let want = json!([[MODEL, null], [ALIAS, null], [ADAPTER, MODEL], [OTHER, null]]);
    assert_eq!(json!(listed), want);
}

#[tokio::test]
async fn a_request_that_names_no_model_goes_to_the_only_pool_and_to_none_of_several() {
    let (first, second) = (Echo::start().await, Echo::start().await);
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF\r\n--b--\r\n";
    let calls = [
        ("/v1/chat/completions", r#"{"messages": []}"#),
        ("/v1/completions", r#"{"model":null, "prompt":[1, 2]}"#),
        ("/v1/embeddings", r#"{"input":"a","model" : ""}"#),
        ("/tokenize", r#"{"prompt":"a"}"#),
        ("/v1/audio/transcriptions", form),
    ];
    let pods = json!([{"name": "the-pod", "url": first.url()}]);
    let pools = json!([{"model": MODEL, "aliases": [ALIAS], "adapters": [ADAPTER], "pods": pods}]);
    let alone = Plan::default().upstream(first.address).config(json!({"pools": pools}));
    let mut alone = alone.raise().await;
    let mut several = stage(&first, &second).await;
    for (path, body) in calls {
        let reply = alone.call(&Call::post(path, body)).await;
        assert_eq!((reply.status, &reply.body[..]), (200, body.as_bytes()), "{path}");
        let reply = several.call(&Call::post(path, body)).await;
        reply.assert_error(400, "missing_required_parameter");
    }
    alone.assert_settled().await;
    several.assert_settled().await;
    let served = [("model", MODEL), ("outcome", "ok")];
    assert_eq!(alone.weir.metrics().await.sum("weir_requests_total", &served), 5.0);
}

#[tokio::test]
async fn a_model_that_no_pool_has_is_not_found_and_becomes_no_label() {
    let (first, second) = (Echo::start().await, Echo::start().await);
    let mut stage = stage(&first, &second).await;
    let (call, _) = chat("made-up-by-a-client");
    let reply = stage.call(&call).await;
    reply.assert_error(404, "model_not_found");
    stage.assert_settled().await;
    let metrics = stage.weir.metrics().await;
    assert!(!metrics.0.contains("made-up"), "a client made a label");
    assert_eq!(metrics.sum("weir_requests_total", &[("model", "none"), ("status", "404")]), 1.0);
}

#[tokio::test]
async fn pools_that_share_a_pod_both_see_what_runs_there() {
    let only = Echo::start().await;
    only.says_it_runs(3);
    let mut stage = stage(&only, &only).await;
    eventually("both pools know of the others' requests", async || {
        let pods = pods(&stage).await;
        if pods.iter().all(|pod| pod["elsewhere"] == 3) { Ok(()) } else { Err(pods) }
    })
    .await;
    for model in [MODEL, OTHER] {
        let (call, body) = chat(model);
        assert_eq!(stage.call(&call).await.body, body, "it is served all the same");
    }
    only.says_it_runs(0);
    eventually("both pools know that the pod is idle", async || {
        let pods = pods(&stage).await;
        if pods.iter().all(|pod| pod["elsewhere"] == 0) { Ok(()) } else { Err(pods) }
    })
    .await;
    stage.assert_settled().await;
}
