//! Pods over real sockets.

mod faults;
mod handover;
mod loras;
mod ports;
mod ranks;

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use weir_engine::{EngineConfig, hardware};

use super::*;

const CHAT: &str = "/v1/chat/completions";

/// Engine time runs this much faster, so that a test takes milliseconds.
const SPEED: f64 = 20.0;

fn pods(count: u16) -> PodThread {
    with_engine(count, SPEED, |_| ())
}

fn with_engine(count: u16, speed: f64, change: impl FnOnce(&mut EngineConfig)) -> PodThread {
    let mut engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    change(&mut engine);
    let model = "m".to_owned();
    PodThread::start(PodPlan {
        adapters: Vec::new(),
        count,
        port: 0,
        ranks_per_port: None,
        model,
        engine,
        speed,
        max_model_len: 4096,
    })
    .unwrap()
}

/// One connection to a pod, and how long an answer is asked for.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    output_tokens: u32,
}

impl Client {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, output_tokens: 5 }
    }

    async fn to(pods: &PodThread) -> Self {
        Self::open(pods.addresses()[0]).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        id: &str,
        body: String,
    ) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "pod")
            .header("x-request-id", id)
            .header("x-sim-output-tokens", self.output_tokens)
            .body(Full::new(body.into()))
            .unwrap();
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    async fn post(&mut self, path: &str, body: &Value) -> Response<Incoming> {
        self.send(Method::POST, path, "", body.to_string()).await.unwrap()
    }

    async fn get(&mut self, path: &str) -> String {
        let response = self.send(Method::GET, path, "", String::new()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        text(response).await
    }

    async fn fault(&mut self, fault: &Value) {
        assert_eq!(self.post("/fault", fault).await.status(), StatusCode::OK);
    }

    /// The value of an own series of the pod.
    async fn metric(&mut self, start: &str) -> f64 {
        let metrics = self.get("/metrics").await;
        let line = metrics.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start} is not in:\n{metrics}"))
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

async fn parsed(response: Response<Incoming>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

/// The events of a stream, without `[DONE]`, which must be the last one.
fn events(stream: &str) -> Vec<Value> {
    let mut data: Vec<&str> =
        stream.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{stream}");
    data.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn ask(more: Value) -> Value {
    let mut body =
        json!({"model": "m", "messages": [{"role": "user", "content": "word".repeat(100)}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn streamed() -> Value {
    ask(json!({"stream": true}))
}

#[tokio::test]
async fn a_chat_stream_has_the_role_then_a_chunk_per_token_then_usage() {
    let pods = pods(1);
    let body = ask(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let response = Client::to(&pods).await.post(CHAT, &body).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream; charset=utf-8");
    let events = events(&text(response).await);
    assert_eq!(events.len(), 1 + 5 + 1, "{events:?}");
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    for token in &events[1..6] {
        assert_eq!(token["object"], "chat.completion.chunk");
        assert!(token["choices"][0]["delta"]["content"].is_string(), "{token}");
    }
    let reasons: Vec<&Value> =
        events[..6].iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons[5], "stop");
    assert!(reasons[..5].iter().all(|reason| reason.is_null()));
    assert_eq!(events[6]["choices"], json!([]));
    assert_eq!(events[6]["usage"]["prompt_tokens"], 108);
    assert_eq!(events[6]["usage"]["completion_tokens"], 5);
    assert!(events[0]["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(events.iter().all(|event| event["id"] == events[0]["id"]));
}

#[tokio::test]
async fn an_unstreamed_answer_is_the_stream_joined() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let whole = parsed(client.post(CHAT, &ask(json!({}))).await).await;
    let stream = events(&text(client.post(CHAT, &streamed()).await).await);
    let joined: String = stream
        .iter()
        .map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(whole["choices"][0]["message"]["content"], joined);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        whole["usage"],
        json!({
            "prompt_tokens": 108, "completion_tokens": 5, "total_tokens": 113, "prompt_tokens_details": null,
        })
    );
}

#[tokio::test]
async fn max_tokens_cuts_the_answer_and_says_so() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    for field in ["max_tokens", "max_completion_tokens"] {
        let whole = parsed(client.post(CHAT, &ask(json!({field: 3}))).await).await;
        assert_eq!(whole["choices"][0]["finish_reason"], "length");
        assert_eq!(whole["usage"]["completion_tokens"], 3);
    }
    let whole =
        parsed(client.post(CHAT, &ask(json!({"max_tokens": 5, "stop": ["x"]}))).await).await;
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn n_choices_share_one_stream_and_count_together() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let whole = parsed(client.post(CHAT, &ask(json!({"n": 3}))).await).await;
    assert_eq!(whole["choices"].as_array().unwrap().len(), 3);
    assert_eq!(whole["usage"]["completion_tokens"], 15);
    let body = ask(json!({"n": 2, "stream": true}));
    let events = events(&text(client.post(CHAT, &body).await).await);
    for index in 0..2 {
        let of: Vec<&Value> =
            events.iter().filter(|event| event["choices"][0]["index"] == index).collect();
        assert_eq!(of.len(), 6);
        assert_eq!(of[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(of[5]["choices"][0]["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn completions_and_embeddings_answer_each_input() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let body = json!({"model": "m", "prompt": ["abcd", "efgh"], "max_tokens": 2});
    let whole = parsed(client.post("/v1/completions", &body).await).await;
    assert_eq!(
        (&whole["object"], &whole["choices"][1]["text"]),
        (&json!("text_completion"), &json!(" the pod"))
    );
    assert_eq!(whole["usage"]["prompt_tokens"], 2);
    let body = json!({"model": "m", "prompt": "abcd", "stream": true});
    let events = events(&text(client.post("/v1/completions", &body).await).await);
    assert_eq!((events.len(), &events[0]["choices"][0]["text"]), (5, &json!(" the")));
    let body = json!({"model": "m", "input": ["abcd", "efgh", "ijkl"]});
    let whole = parsed(client.post("/v1/embeddings", &body).await).await;
    assert_eq!(whole["data"].as_array().unwrap().len(), 3);
    assert!(whole["data"][2]["embedding"][0].is_number());
    assert_eq!(whole["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
}

#[tokio::test]
async fn each_document_is_compared_with_the_query_and_each_input_has_its_class() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let body = json!({"model": "m", "query": "abcd", "documents": ["efgh", "ijkl"], "top_n": 1});
    for path in ["/v1/rerank", "/v2/rerank", "/rerank"] {
        let whole = parsed(client.post(path, &body).await).await;
        assert_eq!(whole["results"].as_array().unwrap().len(), 2, "{path}");
        assert_eq!(whole["usage"], json!({"prompt_tokens": 4, "total_tokens": 4}));
    }
    let body = json!({"model": "m", "text_1": ["a", "b"], "text_2": ["c", "d"]});
    let whole = parsed(client.post("/v1/score", &body).await).await;
    assert!(whole["data"][1]["score"].is_number(), "{whole}");
    let body = json!({"model": "m", "input": ["abcd", "efgh"]});
    let whole = parsed(client.post("/classify", &body).await).await;
    assert_eq!(whole["data"][1]["label"], "LABEL_0");
    let whole = parsed(client.post("/pooling", &body).await).await;
    assert!(whole["data"][1]["data"][0].is_number());
    let refused = client.post("/rerank", &body).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn messages_come_in_named_events_or_whole() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let body = ask(json!({"system": "brief", "max_tokens": 2, "stream": true}));
    let stream = text(client.post("/v1/messages", &body).await).await;
    let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let delta = "content_block_delta";
    let end = ["content_block_stop", "message_delta", "message_stop"];
    assert_eq!(names[..4], ["message_start", "content_block_start", delta, delta]);
    assert_eq!(names[4..], end);
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    let data: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(data.iter().map(|data| data["type"].as_str().unwrap()).collect::<Vec<_>>(), names);
    let counts = json!({"input_tokens": 102 + 8, "output_tokens": 2});
    assert_eq!((&data[2]["delta"]["text"], &data[5]["usage"]), (&json!(" the"), &counts));
    let body = ask(json!({"system": "brief", "max_tokens": 2}));
    let whole = parsed(client.post("/v1/messages", &body).await).await;
    assert_eq!((&whole["content"][0]["text"], &whole["usage"]), (&json!(" the pod"), &counts));
    assert_eq!(whole["stop_reason"], "max_tokens");
    let count = parsed(client.post("/v1/messages/count_tokens", &body).await).await;
    assert_eq!(count, json!({"input_tokens": 100 + 8 + 2}));
    let refused = parsed(client.post("/v1/messages", &json!({"model": "x", "messages": []})).await);
    let refused = refused.await;
    assert_eq!((&refused["type"], refused["error"]["code"].is_null()), (&json!("error"), true));
}

#[tokio::test]
async fn text_becomes_tokens_and_tokens_text() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let tokens = parsed(client.post("/tokenize", &json!({"prompt": "abcdefgh"})).await).await;
    assert_eq!((&tokens["count"], &tokens["tokens"]), (&json!(2), &json!([0, 1])));
    let tokens = parsed(client.post("/tokenize", &ask(json!({}))).await).await;
    assert_eq!(tokens["count"], 108);
    let text = parsed(client.post("/detokenize", &json!({"tokens": [1, 2]})).await).await;
    assert_eq!(text, json!({"prompt": "the the "}));
    let refused = client.post("/detokenize", &json!({"prompt": "a"})).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn metrics_are_named_as_vllm_names_them() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    text(client.post(CHAT, &streamed()).await).await;
    let labels = "{engine=\"0\",model_name=\"m\"}";
    assert_eq!(client.metric(&format!("vllm:num_requests_running{labels} ")).await, 0.0);
    assert_eq!(client.metric(&format!("vllm:num_requests_waiting{labels} ")).await, 0.0);
    assert_eq!(client.metric(&format!("vllm:kv_cache_usage_perc{labels} ")).await, 0.0);
    assert_eq!(client.metric(&format!("vllm:prompt_tokens_total{labels} ")).await, 108.0);
    assert_eq!(client.metric(&format!("vllm:generation_tokens_total{labels} ")).await, 5.0);
    assert_eq!(
        client.metric(&format!("vllm:time_to_first_token_seconds_count{labels} ")).await,
        1.0
    );
    assert_eq!(
        client.metric(&format!("vllm:inter_token_latency_seconds_count{labels} ")).await,
        4.0
    );
    assert_eq!(
        client.metric(&format!("vllm:e2e_request_latency_seconds_count{labels} ")).await,
        1.0
    );
    assert_eq!(
        client.metric(&format!("vllm:request_queue_time_seconds_count{labels} ")).await,
        1.0
    );
    let info = "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"0\",kv_cache_size_tokens=\"435200\",model_name=\"m\",num_gpu_blocks=\"27200\"} ";
    assert_eq!(client.metric(info).await, 1.0);
    let stopped =
        "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"m\"} ";
    assert_eq!(client.metric(stopped).await, 1.0);
}

#[tokio::test]
async fn models_and_health_answer() {
    let pods = pods(2);
    let mut client = Client::open(pods.addresses()[1]).await;
    assert_eq!(client.get("/health").await, "");
    let models: Value = serde_json::from_str(&client.get("/v1/models").await).unwrap();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["max_model_len"]),
        (&json!("m"), &json!(4096))
    );
}

#[tokio::test]
async fn errors_have_vllms_shape() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    for (path, body, status) in [
        (CHAT, json!({"model": "other", "messages": []}), 404),
        (CHAT, json!({"model": "m"}), 400),
        (CHAT, ask(json!({"max_tokens": 4000})), 400),
        ("/v1/nothing", json!({}), 404),
        ("/metrics", json!({}), 405),
        ("/fault", json!({"kind": "unheard of"}), 400),
    ] {
        let response = client.post(path, &body).await;
        assert_eq!(response.status(), status, "{path}");
        let error = parsed(response).await;
        assert_eq!(error["error"]["code"], status, "{error}");
        assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string());
    }
}

#[tokio::test]
async fn a_client_that_leaves_aborts_its_sequences() {
    let pods = pods(1);
    let mut leaving = Client::to(&pods).await;
    // None of them is over before the client is seen to be gone.
    leaving.output_tokens = 3000;
    let response = leaving.post(CHAT, &ask(json!({"stream": true, "n": 64}))).await;
    drop((response, leaving));
    let mut client = Client::to(&pods).await;
    let aborted = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"";
    while client.metric(aborted).await < 64.0 {}
    assert_eq!(client.metric("vllm:num_requests_running").await, 0.0);
}

#[tokio::test]
async fn a_second_start_of_the_same_request_is_counted() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    for id in ["a", "b", "a"] {
        text(client.send(Method::POST, CHAT, id, ask(json!({})).to_string()).await.unwrap()).await;
    }
    assert_eq!(client.metric("sim:starts_total").await, 3.0);
    assert_eq!(client.metric("sim:duplicate_starts_total").await, 1.0);
    let starts: Value = serde_json::from_str(&client.get("/sim/starts").await).unwrap();
    assert_eq!((&starts["duplicates"], starts["ids"].as_array().unwrap().len()), (&json!(1), 2));
}

#[tokio::test]
async fn a_query_names_the_metrics_that_are_written() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    let whole = client.get("/metrics/").await;
    let named = client
        .get("/metrics/?name%5B%5D=vllm:num_requests_running&name[]=vllm:num_requests_waiting")
        .await;
    let samples: Vec<_> = named.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(samples.len(), 2, "{named}");
    assert!(samples.iter().all(|sample| whole.contains(sample)));
    assert_eq!(client.get("/metrics?name[]=none").await, "");
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error_that_names_it() {
    let taken = pods(1);
    let port = taken.addresses()[0].port();
    let engine = EngineConfig::for_hardware(hardware("h100-llama-3.1-8b-tp1").unwrap());
    let plan = PodPlan {
        adapters: Vec::new(),
        count: 1,
        port,
        ranks_per_port: None,
        model: "m".to_owned(),
        engine,
        speed: 1.0,
        max_model_len: 4096,
    };
    let error = PodThread::start(plan).unwrap_err();
    assert!(format!("{error:#}").contains(&port.to_string()), "{error:#}");
}
