//! What headers and fields ask for is what a request gets, as far as its key allows.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use weir_tests::{Call, Plan, Stage};

fn key(secret: &str, more: Value) -> Value {
    let mut key = json!({"sha256": format!("{:x}", Sha256::digest(secret)), "tenant": "acme"});
    for (name, value) in more.as_object().unwrap() {
        key[name] = value.clone();
    }
    key
}

fn with_key(call: Call, secret: &str) -> Call {
    call.header("authorization", &format!("Bearer {secret}"))
}

/// Requests served so far under an objective.
async fn served(stage: &Stage, objective: &str) -> f64 {
    let metrics = stage.weir.metrics().await;
    metrics.sum("weir_requests_total", &[("objective", objective), ("outcome", "ok")])
}

/// The bands of what waits.
async fn waiting_bands(stage: &Stage) -> Vec<Value> {
    let lanes = stage.weir.snapshot().await["lanes"].clone();
    lanes.as_array().unwrap().iter().map(|lane| lane["band"].clone()).collect()
}

#[tokio::test]
async fn an_objective_is_chosen_by_header_alias_or_service_tier() {
    let mut stage = Stage::simple().await;
    for (call, objective) in [
        (Call::chat(3), "standard"),
        (Call::chat(3).header("x-llm-d-inference-objective", "interactive"), "interactive"),
        (Call::chat(3).header("x-gateway-inference-objective", "batch"), "batch"),
        (Call::chat_with(3, &json!({"service_tier": "flex"})), "batch"),
        (Call::chat_with(3, &json!({"service_tier": "priority"})), "interactive"),
        (
            Call::chat_with(3, &json!({"service_tier": "flex"})).objective("interactive"),
            "interactive",
        ),
        (Call::chat(3).objective("no-such-objective"), "standard"),
    ] {
        let before = served(&stage, objective).await;
        stage.call(&call).await.assert_whole();
        stage.assert_settled().await;
        assert_eq!(served(&stage, objective).await, before + 1.0, "{call:?}");
    }
}

#[tokio::test]
async fn the_flex_tier_is_sheddable() {
    let mut stage =
        Plan::default().seats(4).config(json!({"queue": {"max_requests": 2}})).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(2, &Call::chat(3)).await;
    let flex = Call::chat_with(3, &json!({"service_tier": "flex"}));
    let reply = stage.call(&flex).await;
    reply.assert_error(429, "slow_down");
    assert_eq!(reply.header("x-should-retry"), "false");
    assert_eq!(reply.header("x-llm-d-request-dropped-reason"), "rejected-saturated");
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_response_names_its_request_its_pod_and_its_wait() {
    let mut stage = Stage::simple().await;
    for (call, id) in [(Call::chat(3), "my.own_id-1"), (Call::plain(3), "my.own_id-2")] {
        let reply = stage.call(&call.clone().header("x-request-id", id)).await;
        assert_eq!(reply.header("x-request-id"), id);
        assert_eq!(reply.header("x-weir-pod"), "pod-0");
        reply.header("x-weir-queue-ms").parse::<u64>().unwrap();
        // One that could break a log line is replaced.
        let reply = stage.call(&call.header("x-request-id", "a b\"c")).await;
        assert!(reply.header("x-request-id").starts_with("weir-"), "{reply:?}");
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_call_without_an_accepted_key_is_unauthorized() {
    let keys = json!({"keys": [key("sk-good", json!({}))]});
    let mut stage = Plan::default().config(keys).raise().await;
    for call in [Call::chat(3), with_key(Call::chat(3), "sk-bad"), Call::get("/v1/models")] {
        let reply = stage.call(&call).await;
        reply.assert_error(401, "invalid_api_key");
        assert_eq!(reply.header("www-authenticate"), "Bearer");
    }
    stage.call(&with_key(Call::chat(3), "sk-good")).await.assert_whole();
    assert_eq!(stage.call(&with_key(Call::get("/v1/models"), "sk-good")).await.status, 200);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_keys_ceiling_holds_whatever_the_request_asks_for() {
    let keys = [
        key("sk-low", json!({"max_band": 0, "trust_headers": true})),
        key("sk-high", json!({"tenant": "other", "trust_headers": true})),
        key("sk-mute", json!({"tenant": "third"})),
    ];
    let mut stage = Plan::default().seats(4).config(json!({"keys": keys})).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let asking = |secret: &str| with_key(Call::chat(3).objective("interactive"), secret);
    for (secret, band) in [("sk-low", 0), ("sk-high", 1), ("sk-mute", 0)] {
        let held = stage.queue_up(2, &asking(secret)).await;
        let bands = waiting_bands(&stage).await;
        assert!(
            !bands.is_empty() && bands.iter().all(|found| *found == band),
            "{secret}: {bands:?}"
        );
        drop(held);
        stage.assert_settled().await;
    }
}

#[tokio::test]
async fn a_tenant_over_its_rate_is_told_so_and_when_to_come_back() {
    let limits = json!({"limits": {"requests_per_minute": 6, "burst": 2}});
    let mut stage = Plan::default().config(limits).raise().await;
    let of = |tenant| Call::chat(3).header("x-llm-d-inference-fairness-id", tenant);
    for remaining in ["1", "0"] {
        let reply = stage.call(&of("a")).await;
        reply.assert_whole();
        assert_eq!(reply.header("x-ratelimit-limit-requests"), "6");
        assert_eq!(reply.header("x-ratelimit-remaining-requests"), remaining);
        assert!(reply.header("x-ratelimit-reset-requests").ends_with("ms"), "{reply:?}");
    }
    let reply = stage.call(&of("a")).await;
    reply.assert_error(429, "rate_limit_exceeded");
    assert_eq!(reply.header("x-ratelimit-remaining-requests"), "0");
    assert!((1..=60).contains(&reply.header("retry-after").parse::<u32>().unwrap()), "{reply:?}");
    assert!(reply.header("retry-after-ms").parse::<u32>().unwrap() <= 60_000, "{reply:?}");
    stage.call(&of("b")).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_go_on_is_told_so() {
    let mut stage = Stage::simple().await;
    let body = json!({"model": weir_tests::MODEL, "messages": [], "max_tokens": 1}).to_string();
    let mut stream = TcpStream::connect(stage.weir.api).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\
         expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(told, *b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    stage.assert_settled().await;
}
