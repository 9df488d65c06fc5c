//! KV from one pod to another: the two calls that a router makes, and who lets go of what.

use super::*;

const PROMPT_TOKENS: f64 = 3008.0;

/// What asks a pod to prefill for another one.
fn for_another() -> Value {
    json!({
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
        "remote_block_ids": null, "remote_host": null, "remote_port": null,
    })
}

fn long(more: Value) -> Value {
    let mut body =
        json!({"model": "m", "messages": [{"role": "user", "content": "word".repeat(3000)}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A prompt that the pod keeps: what to give to the one that will decode.
async fn prefilled(client: &mut Client) -> Value {
    let more = json!({"max_tokens": 1, "stream": false, "kv_transfer_params": for_another()});
    let mut whole = parsed(client.post(CHAT, &long(more)).await).await;
    assert_eq!(whole["usage"]["completion_tokens"], 1);
    whole["kv_transfer_params"].take()
}

async fn kv_usage(client: &mut Client) -> f64 {
    client.metric("vllm:kv_cache_usage_perc").await
}

/// Returns once the pod keeps nothing any more.
async fn let_go(client: &mut Client) {
    let waited = async { while kv_usage(client).await > 0.0 {} };
    tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
}

async fn two() -> (PodThread, Client, Client) {
    let pods = pods(2);
    let clients = (Client::to(&pods).await, Client::open(pods.addresses()[1]).await);
    (pods, clients.0, clients.1)
}

#[tokio::test]
async fn a_prompt_is_computed_on_one_pod_and_decoded_from_on_another() {
    let (pods, mut prefill, mut decode) = two().await;
    let params = prefilled(&mut prefill).await;
    let address = pods.addresses()[0];
    assert_eq!(params["do_remote_prefill"], true);
    assert_eq!(params["do_remote_decode"], false);
    assert_eq!(params["remote_host"], address.ip().to_string());
    assert_eq!(params["remote_port"], address.port());
    assert_eq!(params["remote_block_ids"].as_array().unwrap().len(), 188);
    assert!(params["remote_engine_id"].is_string() && params["remote_request_id"].is_string());
    assert_eq!(kv_usage(&mut prefill).await, 1.0 - 27_011.0 / 27_199.0, "188 blocks stay");
    assert_eq!(prefill.metric("vllm:num_requests_running").await, 0.0);

    let body = long(json!({"stream": true, "kv_transfer_params": params}));
    let stream = text(decode.post(CHAT, &body).await).await;
    assert_eq!(events(&stream).len(), 1 + 5);
    let_go(&mut prefill).await;
    assert_eq!(decode.metric("vllm:prompt_tokens_total").await, PROMPT_TOKENS);
    assert_eq!(decode.metric("vllm:prefix_cache_hits_total").await, 0.0);
}

#[tokio::test]
async fn what_was_brought_is_not_computed_again() {
    let (_pods, mut prefill, mut decode) = two().await;
    let prefill_s = "vllm:request_prefill_time_seconds_sum";
    let params = prefilled(&mut prefill).await;
    text(decode.post(CHAT, &long(json!({"kv_transfer_params": params}))).await).await;
    let (computed, brought) = (prefill.metric(prefill_s).await, decode.metric(prefill_s).await);
    // Both are the engine's own time: 3,008 tokens, and the step of one.
    assert!(brought > 0.0 && computed > 5.0 * brought, "{computed} {brought}");
    text(decode.post(CHAT, &long(json!({}))).await).await;
    assert_eq!(decode.metric("vllm:prefix_cache_hits_total").await, 187.0 * 16.0, "a later turn");
    text(prefill.post(CHAT, &long(json!({}))).await).await;
    assert_eq!(prefill.metric("vllm:prefix_cache_hits_total").await, 187.0 * 16.0);
}

#[tokio::test]
async fn a_completion_is_handed_over_as_a_chat_is_and_a_message_is_too() {
    let (_pods, mut prefill, mut decode) = two().await;
    for (path, field, input) in [
        ("/v1/completions", "prompt", json!("word".repeat(100))),
        ("/v1/messages", "messages", json!([{"role": "user", "content": "word"}])),
    ] {
        let body = json!({"max_tokens": 1, "kv_transfer_params": for_another(), field: input});
        let params = parsed(prefill.post(path, &body).await).await["kv_transfer_params"].take();
        assert!(kv_usage(&mut prefill).await > 0.0, "{path}");
        let body = json!({"max_tokens": 3, "kv_transfer_params": params, field: input});
        assert_eq!(decode.post(path, &body).await.status(), StatusCode::OK, "{path}");
        let_go(&mut prefill).await;
    }
}

#[tokio::test]
async fn a_prefill_for_another_pod_is_no_start() {
    let (_pods, mut prefill, mut decode) = two().await;
    let params = prefilled(&mut prefill).await;
    text(decode.post(CHAT, &long(json!({"kv_transfer_params": params}))).await).await;
    assert_eq!(prefill.metric("sim:starts_total").await, 0.0);
    assert_eq!(decode.metric("sim:starts_total").await, 1.0);
}

#[tokio::test]
async fn a_decode_that_is_aborted_or_refused_lets_go_of_the_blocks() {
    let (pods, mut prefill, mut control) = two().await;
    let address = pods.addresses()[1];
    control.fault(&json!({"kind": "slow", "factor": 1e6})).await;
    let params = prefilled(&mut prefill).await;
    let mut leaving = Client::open(address).await;
    let body = long(json!({"stream": true, "kv_transfer_params": params}));
    let response = leaving.post(CHAT, &body).await;
    assert!(kv_usage(&mut prefill).await > 0.0);
    drop((response, leaving));
    let_go(&mut prefill).await;

    let params = prefilled(&mut prefill).await;
    let body = long(json!({"max_tokens": 4000, "kv_transfer_params": params}));
    assert_eq!(control.post(CHAT, &body).await.status(), StatusCode::BAD_REQUEST);
    let_go(&mut prefill).await;
}

#[tokio::test]
async fn a_prefill_whose_client_leaves_keeps_nothing() {
    let pods = pods(1);
    let (mut prefill, mut leaving) = (Client::to(&pods).await, Client::to(&pods).await);
    prefill.fault(&json!({"kind": "slow", "factor": 1e6})).await;
    let body = long(json!({"max_tokens": 1, "kv_transfer_params": for_another()}));
    let asked = tokio::time::timeout(Duration::from_millis(50), leaving.post(CHAT, &body)).await;
    assert!(asked.is_err(), "a step takes hours");
    drop(leaving);
    let aborted = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"";
    while prefill.metric(aborted).await < 1.0 {}
    prefill.fault(&json!({"kind": "none"})).await;
    let_go(&mut prefill).await;
}

#[tokio::test]
async fn what_nobody_asks_for_is_let_go_in_time() {
    let engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    // 480 s are half a second.
    let plan = PodPlan {
        adapters: Vec::new(),
        count: 1,
        port: 0,
        ranks_per_port: None,
        model: "m".to_owned(),
        engine,
        speed: 1e3,
        max_model_len: 4096,
    };
    let pods = PodThread::start(plan).unwrap();
    let mut client = Client::to(&pods).await;
    prefilled(&mut client).await;
    let_go(&mut client).await;
}

#[tokio::test]
async fn a_pod_that_cannot_be_told_delays_nobody() {
    let pods = pods(1);
    let mut decode = Client::to(&pods).await;
    let params = json!({
        "do_remote_prefill": true, "remote_host": "127.0.0.1", "remote_port": 1,
        "remote_request_id": "gone",
    });
    let body = long(json!({"kv_transfer_params": params}));
    let whole = parsed(decode.post(CHAT, &body).await).await;
    assert_eq!(whole["usage"]["completion_tokens"], 5);
    assert!(whole.get("kv_transfer_params").is_none());
}

#[tokio::test]
async fn a_release_frees_once_and_only_what_is_kept() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let id = prefilled(&mut client).await["remote_request_id"].take();
    for (id, released) in [(json!("another"), false), (id.clone(), true), (id, false)] {
        let answer = client.post("/kv_release", &json!({"remote_request_id": id})).await;
        assert_eq!(parsed(answer).await, json!({"released": released}));
    }
    assert_eq!(kv_usage(&mut client).await, 0.0);
    let refused = client.post("/kv_release", &json!({"id": 1})).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let refused = client.send(Method::GET, "/kv_release", "", String::new()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn params_that_make_no_sense_are_refused() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let load = |host: Value, port: Value, id: Value| {
        json!({
            "do_remote_prefill": true, "remote_host": host, "remote_port": port,
            "remote_request_id": id,
        })
    };
    for params in [
        json!({"do_remote_prefill": true}),
        load(json!(null), json!(1), json!("a")),
        load(json!(7), json!(1), json!("a")),
        load(json!("h"), json!(null), json!("a")),
        load(json!("h"), json!("1"), json!("a")),
        load(json!("h"), json!(65536), json!("a")),
        load(json!("h"), json!(1), json!(null)),
        json!({"do_remote_prefill": true, "do_remote_decode": true}),
        json!({"do_remote_decode": "yes"}),
        json!("text"),
        json!([true, false]),
    ] {
        let response = client.post(CHAT, &long(json!({"kv_transfer_params": params}))).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{params}");
        let error = parsed(response).await;
        assert_eq!(
            (&error["error"]["code"], &error["error"]["type"]),
            (&json!(400), &json!("BadRequestError"))
        );
    }
    for params in [json!(null), json!({}), json!({"do_remote_prefill": null, "unheard_of": {}})] {
        let whole = client.post(CHAT, &long(json!({"kv_transfer_params": params}))).await;
        assert_eq!(whole.status(), StatusCode::OK, "{params}");
        assert!(parsed(whole).await.get("kv_transfer_params").is_none());
    }
    assert_eq!(kv_usage(&mut client).await, 0.0);
}

#[tokio::test]
async fn faults_strike_a_prefill_as_they_strike_a_generation() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let body = long(json!({"max_tokens": 1, "kv_transfer_params": for_another()}));
    client.fault(&json!({"kind": "status_503", "count": 1})).await;
    assert_eq!(client.post(CHAT, &body).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    client.fault(&json!({"kind": "die_mid_stream", "after_tokens": 0, "count": 1})).await;
    assert!(client.send(Method::POST, CHAT, "", body.to_string()).await.is_err());
    let mut client = Client::to(&pods).await;
    assert_eq!(kv_usage(&mut client).await, 0.0, "nobody was told, and nothing is kept");
}
