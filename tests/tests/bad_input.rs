//! Whatever a client sends, it gets an answer of OpenAI's shape, and the next client is served.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use weir_tests::{Call, MODEL, Plan, Reply, Stage};

const CHAT: &str = "/v1/chat/completions";

/// Makes a call that is refused by Weir itself, and proves that the next one is served.
async fn refused(stage: &Stage, call: &Call, status: u16, code: &str) -> Reply {
    let reply = stage.call(call).await;
    reply.assert_error(status, code);
    assert_eq!(reply.header("x-weir-pod"), "", "no pod was asked");
    stage.assert_serves().await;
    reply
}

/// Makes a call that is a pod's to judge, and proves that the next one is served.
async fn passed_on(stage: &Stage, call: &Call, status: u16) -> Reply {
    let reply = stage.call(call).await;
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("x-weir-pod"), "pod-0", "the pod was asked");
    stage.assert_serves().await;
    reply
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_bad_request() {
    let mut stage = Stage::simple().await;
    let deep = format!("{{\"model\":{}", "[".repeat(200_000));
    for body in
        ["", "{", "[]", "null", "\"text\"", "{\"model\":\"qwen3-32b\"} trailing", "\u{0}", &deep]
    {
        refused(&stage, &Call::post(CHAT, body.to_owned()), 400, "invalid_json").await;
    }
    let not_utf8 = b"{\"model\":\"\xff\xfe\"}".as_slice();
    let reply = stage.call(&Call::post(CHAT, not_utf8)).await;
    assert_eq!(reply.status, 400, "{reply:?}");
    for body in ["{\"model\":7}", "{\"model\":[\"qwen3-32b\"]}"] {
        let reply =
            refused(&stage, &Call::post(CHAT, body), 400, "missing_required_parameter").await;
        assert_eq!(reply.json()["error"]["param"], "model");
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_model_named_twice_is_refused_since_the_pod_might_read_the_other_one() {
    let mut stage = Stage::simple().await;
    let body = r#"{"model":"qwen3-32b","messages":[],"model":"other"}"#;
    let reply = refused(&stage, &Call::post(CHAT, body), 400, "invalid_json").await;
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("model"), "{reply:?}");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_not_found() {
    let mut stage = Stage::simple().await;
    let unknown = Call::chat_with(3, &json!({"model": "gpt-unknown"}));
    let reply = refused(&stage, &unknown, 404, "model_not_found").await;
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("gpt-unknown"));
    assert!(!stage.weir.metrics().await.0.contains("gpt-unknown"), "a client grew the metrics");
    stage.assert_settled().await;
}

#[tokio::test]
async fn odd_bounds_on_the_output_are_the_pods_to_judge() {
    let mut stage = Stage::simple().await;
    for bound in [Value::Null, json!(1)] {
        let call = Call::chat_with(3, &json!({"max_tokens": bound}));
        passed_on(&stage, &call, 200).await.assert_whole();
    }
    // The simulated pod refuses these, as vLLM does; what matters is that it was asked.
    for bound in [json!(16.5), json!(-1), json!(1e300), json!("many"), json!(true), json!([])] {
        passed_on(&stage, &Call::chat_with(3, &json!({"max_tokens": bound})), 400).await;
    }
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_body_larger_than_allowed_is_refused_before_it_is_held() {
    let mut stage = Stage::simple().await;
    let body = vec![b' '; 33 << 20];
    refused(&stage, &Call::post(CHAT, body), 413, "request_too_large").await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn many_prompts_and_many_choices_are_served() {
    let mut stage = Stage::simple().await;
    for (prompt, choices) in [
        (json!("one"), 1),
        (json!(["one", "two", "three"]), 3),
        (json!([1, 2, 3]), 1),
        (json!([[1, 2], [3, 4]]), 2),
    ] {
        let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 4});
        let reply = passed_on(&stage, &Call::post("/v1/completions", body.to_string()), 200).await;
        assert_eq!(reply.json()["choices"].as_array().unwrap().len(), choices, "{prompt}");
    }
    let reply =
        passed_on(&stage, &Call::chat_with(4, &json!({"n": 50, "stream": false})), 200).await;
    assert_eq!(reply.json()["choices"].as_array().unwrap().len(), 50);
    passed_on(&stage, &Call::chat_with(4, &json!({"n": 50})), 200).await.assert_whole();
    passed_on(&stage, &Call::chat_with(4, &json!({"n": 1_000_000_000})), 400).await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn an_slo_that_is_not_a_positive_number_is_refused_by_the_headers_name() {
    let mut stage = Stage::simple().await;
    for name in ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms", "x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"] {
        for value in ["soon", "NaN", "-5", "0", "inf", ""] {
            let call = Call::chat(3).header(name, value);
            let reply = refused(&stage, &call, 400, "invalid_header").await;
            assert_eq!(reply.json()["error"]["param"], name, "{value:?}");
        }
    }
    stage.call(&Call::chat(3).header("x-slo-ttft-ms", "1500.5")).await.assert_whole();
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_wrong_path_or_method_is_answered_in_the_openai_shape() {
    let mut stage = Stage::simple().await;
    for path in
        ["/", "/v1", "/v1/chat/completions/", "/metrics", "/v1/../metrics", "/sleep", "/fault"]
    {
        refused(&stage, &Call::post(path, "{}"), 404, "unknown_url").await;
    }
    let reply = refused(&stage, &Call::get(CHAT), 405, "method_not_allowed").await;
    assert_eq!(reply.header("allow"), "POST");
    let reply = refused(&stage, &Call::post("/v1/models", "{}"), 405, "method_not_allowed").await;
    assert_eq!(reply.header("allow"), "GET, HEAD");
    stage.assert_settled().await;
}

#[tokio::test]
async fn an_encoded_body_is_refused() {
    let mut stage = Stage::simple().await;
    for encoding in ["gzip", "br", "gzip, identity"] {
        let call = Call::chat(3).header("content-encoding", encoding);
        refused(&stage, &call, 415, "unsupported_encoding").await;
    }
    stage.call(&Call::chat(3).header("content-encoding", "identity")).await.assert_whole();
    stage.assert_settled().await;
}

/// Sends these bytes and returns everything that comes back until the connection is closed.
async fn raw(stage: &Stage, bytes: &str) -> String {
    let mut stream = TcpStream::connect(stage.weir.api).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is reset was closed too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_request_whose_length_is_ambiguous_is_refused_and_reaches_no_pod() {
    let mut stage = Stage::simple().await;
    let body = json!({"model": MODEL, "messages": [], "max_tokens": 1}).to_string();
    let length = body.len();
    for lengths in [
        format!("content-length: {length}\r\ncontent-length: {}", length + 1),
        "content-length: -5".to_owned(),
        "content-length: 5x".to_owned(),
        "transfer-encoding: gzip".to_owned(),
        "transfer-encoding: chunked, identity".to_owned(),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}"),
    ] {
        let head = format!("POST {CHAT} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n{lengths}");
        let answer = raw(&stage, &format!("{head}\r\n\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{lengths}: {answer}");
        stage.assert_serves().await;
    }
    let served = stage.pods[0].metrics().await.sum("sim:starts_total", &[]);
    assert_eq!(served, 6.0, "only the good requests reached the pod");
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_head_that_never_ends_is_given_up_and_so_is_a_body() {
    let limits = json!({"limits": {"header_timeout_ms": 300, "body_timeout_ms": 300}});
    let mut stage = Plan::default().config(limits).raise().await;
    raw(&stage, "POST /v1/chat").await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: weir\r\ncontent-length: 100\r\n\r\n{{");
    let answer = raw(&stage, &head).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    stage.assert_serves().await;
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let mut stage = Stage::simple().await;
    let reply = stage.call(&Call::chat(3).header("x-long", &"x".repeat(64 << 10))).await;
    assert_eq!(reply.status, 431, "{reply:?}");
    stage.assert_serves().await;
    stage.assert_settled().await;
}
