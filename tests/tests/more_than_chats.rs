//! What engines serve beside OpenAI's calls goes through the same queue: scores, classes, tokens, and Anthropic's messages.
#![expect(clippy::indexing_slicing, reason = "a scenario says what broke by panicking")]

use serde_json::{Value, json};
use weir_tests::{Call, MODEL, Reply, Stage, eventually};

fn with_model(mut body: Value) -> String {
    body["model"] = MODEL.into();
    body.to_string()
}

async fn ask(stage: &Stage, path: &str, body: Value) -> Reply {
    stage.call(&Call::post(path, with_model(body))).await
}

fn message(stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "What do pods pull?"}]);
    json!({"max_tokens": 5, "system": "Be brief.", "messages": messages, "stream": stream})
}

#[tokio::test]
async fn documents_are_ranked_and_inputs_classified() {
    let mut stage = Stage::simple().await;
    let (query, documents) = ("what waits", json!(["pods", "requests", "both"]));
    for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
        let reply = ask(&stage, path, json!({"query": query, "documents": documents})).await;
        assert_eq!((reply.status, reply.header("x-weir-pod")), (200, "pod-0"), "{reply:?}");
        assert_eq!(reply.json()["results"].as_array().unwrap().len(), 3);
    }
    for path in ["/v1/score", "/score"] {
        let reply = ask(&stage, path, json!({"text_1": query, "text_2": documents})).await;
        assert_eq!(reply.json()["data"].as_array().unwrap().len(), 3);
    }
    for path in ["/classify", "/pooling", "/v1/embeddings"] {
        let reply = ask(&stage, path, json!({"input": documents})).await;
        assert_eq!(reply.json()["data"].as_array().unwrap().len(), 3);
    }
    // What the engine refuses comes back as it said it.
    let refused = ask(&stage, "/v1/rerank", json!({"query": query})).await;
    assert_eq!((refused.status, refused.error_code().as_deref()), (400, None), "{refused:?}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn tokens_are_counted_by_a_pod() {
    let mut stage = Stage::simple().await;
    let reply = ask(&stage, "/tokenize", json!({"prompt": "abcdefgh"})).await;
    assert_eq!(reply.json()["count"], 2);
    let reply = ask(&stage, "/detokenize", json!({"tokens": [1, 2]})).await;
    assert!(reply.json()["prompt"].is_string());
    let reply = ask(&stage, "/v1/messages/count_tokens", message(false)).await;
    assert!(reply.json()["input_tokens"].as_u64().unwrap() > 0);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_message_is_streamed_event_by_event_and_counted() {
    let mut stage = Stage::simple().await;
    let reply = ask(&stage, "/v1/messages", message(true)).await;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names.first(), Some(&"message_start"), "{text}");
    assert_eq!(names.last(), Some(&"message_stop"), "{text}");
    assert_eq!(reply.header("cache-control"), "no-cache");
    let whole = ask(&stage, "/v1/messages", message(false)).await.json();
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    // A stream of messages has a first token like any other.
    eventually("both are counted, and the first token of one", async || {
        let metrics = stage.weir.metrics().await;
        let of = |name| metrics.sum(name, &[]);
        let seen = (of("weir_ttft_seconds_count"), of("weir_requests_total"));
        if seen == (1.0, 2.0) { Ok(()) } else { Err(seen) }
    })
    .await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_message_that_cannot_be_finished_or_served_says_so_in_the_shape_of_its_api() {
    let mut stage = Stage::simple().await;
    stage.pods[0].fault(json!({"kind": "die_mid_stream", "after_tokens": 2, "count": 1})).await;
    let mut long = message(true);
    long["max_tokens"] = 50.into();
    let call = Call::post("/v1/messages", with_model(long));
    let broken = call.header("x-sim-output-tokens", "50").open(stage.weir.api).await.rest().await;
    let text = String::from_utf8_lossy(&broken.body).into_owned();
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    let data = last.strip_prefix("event: error\ndata: ").unwrap_or_else(|| panic!("{text}"));
    let error: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&error["type"], &error["error"]["code"]),
        (&"error".into(), &"upstream_lost".into())
    );

    let unknown = Call::post("/v1/messages", json!({"model": "x", "messages": []}).to_string());
    let unknown = stage.call(&unknown).await;
    let said = unknown.json();
    assert_eq!(unknown.status, 404);
    assert_eq!(
        (&said["type"], &said["error"]["type"]),
        (&"error".into(), &"not_found_error".into())
    );
    stage.assert_settled().await;
}
