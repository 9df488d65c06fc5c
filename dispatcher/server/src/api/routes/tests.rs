//! What each path answers, and what is refused.

mod through;

use std::{net::Ipv4Addr, time::Duration};

use http::{Request, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use weir_core::{Band, PodId, Policy, PromptSize, Scheduler, SchedulerConfig, Slo};
use weir_schema::{FirstToken, PredictError, Prediction, Row, Sample, Status, StepTime, Stride};

use super::*;
use crate::{
    api::{
        config::{Limits, RawApi, RawKey, RawLimits},
        plane::{Listeners, room},
    },
    fleet::Pod,
    upstream::RawUpstream,
};

const CHAT: &str = "/v1/chat/completions";

/// Predicts that everything is fast.
struct Fast;

impl weir_schema::Predict for Fast {
    fn predict(&mut self, _: &[Row], _: &mut [Prediction]) -> Result<(), PredictError> {
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, _: u16) -> StepTime {
        StepTime::default()
    }

    fn observe_stride(&mut self, _: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

fn api_of(raw: &RawApi) -> Arc<Api> {
    let clock = Clock::new();
    let model: Arc<str> = Arc::from("qwen3-32b");
    let config = SchedulerConfig {
        model: model.clone(),
        policy: Policy::LeastRequest,
        ..SchedulerConfig::default()
    };
    let (sink, _) = async_channel::bounded(1);
    let hub = Hub::new(Scheduler::new(config, Box::new(Fast)), model, clock, sink);
    let (aliases, adapters) = (vec![Arc::from("qwen")], vec![Arc::from("sql")]);
    let (house, pods_key, max_model_len) = (House::default(), None, None);
    let (prefill, prefills) = (None, false);
    let migration_limit = 0;
    let pool = Pool {
        hub,
        aliases,
        adapters,
        max_model_len,
        house,
        pods_key,
        prefill,
        migration_limit,
        prefills,
    };
    let pools = vec![pool];
    let metrics = Arc::new(Metrics::new().unwrap());
    Arc::new(Api::new(raw.check().unwrap(), pools, clock, metrics).unwrap())
}

fn upstream() -> UpstreamConfig {
    UpstreamConfig::try_from(RawUpstream::default()).unwrap()
}

fn door_of(raw: &RawApi) -> Rc<Door> {
    let api = api_of(raw);
    let upstream = Upstream::new(upstream(), api.metrics.clone());
    let cors = Cors::of(&api.settings.load().config.cors_origins);
    Rc::new(Door { api, upstream: upstream.into(), cors })
}

fn with_key(key: &str) -> RawApi {
    let sha256 = Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
    let key = RawKey { sha256, tenant: "acme".into(), ..RawKey::default() };
    RawApi { keys: vec![key], ..RawApi::default() }
}

fn request(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    Request::builder().method(method).uri(path).header("host", "weir").body(body).unwrap()
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    json: serde_json::Value,
}

async fn ask(door: &Rc<Door>, request: Request<Full<Bytes>>) -> Answer {
    let response = door.answer(request).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let json = serde_json::from_slice(&body).unwrap_or_default();
    Answer { status: head.status.as_u16(), headers: head.headers, json }
}

/// How often calls ended like this, by the metrics.
fn counted(door: &Door, labels: [&str; 4]) -> f64 {
    let families = door.api.metrics.gather();
    let metrics = families.iter().filter(|family| family.name() == "weir_requests_total");
    let matching = metrics
        .flat_map(|family| family.get_metric())
        .filter(|metric| metric.get_label().iter().all(|label| labels.contains(&label.value())));
    matching.map(|metric| metric.get_counter().get_value()).sum()
}

/// How many asked for an objective that is not configured.
fn unknown_objectives(api: &Api) -> f64 {
    let families = api.metrics.gather();
    let counted = families.iter().filter(|one| one.name() == "weir_unknown_objectives_total");
    let metrics = counted.flat_map(|family| family.get_metric());
    metrics.map(|metric| metric.get_counter().get_value()).sum()
}

#[tokio::test]
async fn what_is_not_served_is_answered_in_the_shape_of_openai() {
    let door = door_of(&RawApi::default());
    let cases = [
        ("POST", "/v1/chat/completion", 404, "unknown_url", None),
        ("GET", "/metrics", 404, "unknown_url", None),
        ("POST", "/sleep", 404, "unknown_url", None),
        ("POST", "/v1/chat/completions/../../sleep", 404, "unknown_url", None),
        ("GET", "/", 404, "unknown_url", None),
        ("GET", CHAT, 405, "method_not_allowed", Some("POST")),
        ("DELETE", "/v1/models", 405, "method_not_allowed", Some("GET, HEAD")),
        ("POST", "/health", 405, "method_not_allowed", Some("GET, HEAD")),
    ];
    for (method, path, status, code, allow) in cases {
        let answer = ask(&door, request(method, path, "")).await;
        assert_eq!(answer.status, status, "{method} {path}");
        assert_eq!(answer.json["error"]["code"], code);
        assert_eq!(answer.json["error"]["type"], "invalid_request_error");
        assert_eq!(answer.headers.get("allow").map(|allow| allow.to_str().unwrap()), allow);
        assert!(answer.headers.contains_key(REQUEST_ID));
    }
    assert_eq!(counted(&door, ["none", "none", "bad_request", "404"]), 5.0);
}

#[tokio::test]
async fn each_path_of_the_engines_is_served_and_refused_in_the_shape_of_its_api() {
    let door = door_of(&RawApi::default());
    let paths = [
        CHAT,
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/pooling",
        "/classify",
        "/v1/rerank",
        "/v2/rerank",
        "/rerank",
        "/v1/score",
        "/score",
        "/tokenize",
        "/detokenize",
        "/v1/messages/count_tokens",
        "/v1/chat/completions/batch",
        "/v1/chat/completions/render",
        "/v1/completions/render",
        "/inference/v1/generate",
        "/v2/embed",
        "/generative_scoring",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
    ];
    for path in paths {
        let unread = ask(&door, request("GET", path, "")).await;
        assert_eq!((unread.status, &unread.headers["allow"]), (405, &"POST".parse().unwrap()));
        const FORM: &str =
            "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nqwen\r\n--b--\r\n";
        let (wrong, body) = match path.starts_with("/v1/audio") {
            true => (FORM.replace("--b--\r\n", FORM), FORM),
            false => (r#"{"model":7}"#.to_owned(), r#"{"input":"a"}"#),
        };
        let wrong = ask(&door, request("POST", path, &wrong)).await;
        assert_eq!(wrong.status, 400, "{path}: {}", wrong.json);
        // No pod is there yet.
        let mut asked = request("POST", path, body);
        asked.headers_mut().insert("x-weir-queue", HeaderValue::from_static("none"));
        let unserved = ask(&door, asked).await;
        assert_eq!(unserved.status, 503, "{path}: {}", unserved.json);
        for (answer, kind) in [(wrong, "invalid_request_error"), (unserved, "overloaded_error")] {
            let of_messages = path.starts_with("/v1/messages");
            assert_eq!(answer.json["type"] == "error", of_messages, "{path}");
            assert_eq!(answer.json["error"]["type"] == kind, of_messages || answer.status == 400);
        }
    }
}

#[tokio::test]
async fn health_and_models_are_answered_here() {
    let door = door_of(&RawApi::default());
    assert_eq!(ask(&door, request("GET", "/health?deep=1", "")).await.status, 200);
    assert_eq!(ask(&door, request("HEAD", "/health", "")).await.status, 200);
    let models = ask(&door, request("GET", "/v1/models", "")).await;
    assert_eq!(models.status, 200);
    assert_eq!(models.headers["content-type"], "application/json");
    assert_eq!(models.json["data"][1]["id"], "qwen");
    for (name, id) in [("qwen", "qwen"), ("qwen3%2D32b", "qwen3-32b"), ("sql", "sql")] {
        let model = ask(&door, request("GET", &format!("/v1/models/{name}"), "")).await;
        assert_eq!((model.status, &model.json["id"]), (200, &id.into()));
    }
    for name in ["gpt-9", "", "a/b", "%ff"] {
        let unknown = ask(&door, request("GET", &format!("/v1/models/{name}"), "")).await;
        let code = &unknown.json["error"]["code"];
        assert_eq!((unknown.status, code), (404, &"model_not_found".into()), "{name}");
    }
    assert_eq!(ask(&door, request("DELETE", "/v1/models/qwen", "")).await.status, 405);
}

/// A large body of which what was taken is counted.
fn counted_body(taken: &Arc<std::sync::atomic::AtomicUsize>) -> impl Body<Data = Bytes> + use<> {
    let taken = taken.clone();
    let frames = (0..8).map(move |_| {
        taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(&[b'x'; 1000])))
    });
    http_body_util::StreamBody::new(futures_util::stream::iter(frames))
}

#[tokio::test]
async fn the_body_of_a_call_that_is_not_let_in_is_taken_before_the_answer() {
    let door = door_of(&with_key("right"));
    let cases = [("POST", CHAT, 401), ("POST", "/v1/nothing", 404), ("PUT", CHAT, 405)];
    for (method, path, status) in cases {
        let taken = Arc::default();
        let request = Request::builder().method(method).uri(path).header("host", "weir");
        let request = request.body(counted_body(&taken));
        let response = door.answer(request.unwrap()).await;
        assert_eq!(response.status(), status);
        assert_eq!(taken.load(std::sync::atomic::Ordering::Relaxed), 8, "{method} {path}");
    }
}

#[tokio::test]
async fn a_call_without_a_host_or_with_two_is_no_request() {
    let door = door_of(&RawApi::default());
    for hosts in [0, 2] {
        let mut call = request("POST", CHAT, "{}");
        call.headers_mut().remove("host");
        for _ in 0..hosts {
            call.headers_mut().append("host", HeaderValue::from_static("weir"));
        }
        let answer = ask(&door, call).await;
        assert_eq!((answer.status, &answer.json["error"]["code"]), (400, &"invalid_http".into()));
        let said = &answer.json["error"]["message"];
        assert_eq!(said, "a request needs exactly one Host header");
    }
    assert_eq!(counted(&door, ["none", "none", "bad_request", "400"]), 2.0);
}

#[tokio::test]
async fn pages_of_the_origins_that_are_configured_may_call_and_no_others() {
    let from = |method: &str, path: &str, origin: &str| {
        let mut request = request(method, path, "{}");
        request.headers_mut().insert("origin", origin.parse().unwrap());
        request
    };
    let preflight = |origin: &str| {
        let mut request = from("OPTIONS", CHAT, origin);
        let headers = request.headers_mut();
        headers.insert("access-control-request-method", "POST".parse().unwrap());
        headers.insert("access-control-request-headers", "authorization".parse().unwrap());
        request
    };
    let (app, other) = ("https://app.example", "https://other.example");
    for (origins, shown) in
        [(&[][..], [false; 2]), (&[app][..], [true, false]), (&["*"][..], [true; 2])]
    {
        let cors_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        let door = door_of(&RawApi { cors_origins, ..with_key("sk-good") });
        for (origin, shown) in [app, other].into_iter().zip(shown) {
            // A browser asks without a key.
            let asked = door.answer(preflight(origin)).await;
            let says = |name: &str| asked.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!(asked.status().as_u16(), if shown { 204 } else { 405 }, "{origin}");
            assert_eq!(says("access-control-allow-origin"), shown.then_some(origin));
            assert_eq!(says("access-control-allow-headers"), shown.then_some("authorization"));
            // What the page may read is no more than what anybody gets.
            let refused = door.answer(from("POST", CHAT, origin)).await;
            let origin = shown.then_some(origin);
            let allowed = refused.headers().get("access-control-allow-origin");
            assert_eq!(
                (refused.status().as_u16(), allowed.map(|value| value.to_str().unwrap())),
                (401, origin)
            );
        }
        let no_page = door.answer(request("OPTIONS", CHAT, "")).await;
        assert_eq!(no_page.status().as_u16(), 405);
        assert!(!no_page.headers().contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_served_are_refused() {
    let small = RawLimits { max_body_bytes: 100, ..RawLimits::default() };
    let door = door_of(&RawApi { limits: small, ..RawApi::default() });
    let long = format!(r#"{{"model":"qwen","prompt":"{}"}}"#, "x".repeat(100));
    let cases = [
        ("{", 400, "invalid_json", serde_json::Value::Null),
        (r#"{"model":"qwen","model":"x"}"#, 400, "invalid_json", serde_json::Value::Null),
        (r#"{"model":7}"#, 400, "missing_required_parameter", "model".into()),
        (r#"{"model":"gpt-9"}"#, 404, "model_not_found", "model".into()),
        (&long, 413, "request_too_large", serde_json::Value::Null),
    ];
    for (body, status, code, param) in cases {
        let answer = ask(&door, request("POST", CHAT, body)).await;
        assert_eq!((answer.status, answer.json["error"]["code"].as_str()), (status, Some(code)));
        assert_eq!(answer.json["error"]["param"], param, "{body}");
    }
    let mut gzip = request("POST", CHAT, "{}");
    gzip.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    assert_eq!(ask(&door, gzip).await.status, 415);
}

#[tokio::test]
async fn an_unknown_model_is_named_but_becomes_no_label() {
    let door = door_of(&RawApi::default());
    let name = "m\u{1F600}".repeat(500);
    let answer = ask(&door, request("POST", CHAT, &format!(r#"{{"model":"{name}"}}"#))).await;
    let message = answer.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("m\u{1F600}") && message.chars().count() < 200, "{message}");
    assert_eq!(counted(&door, ["none", "none", "bad_request", "404"]), 1.0);
    let seen = format!("{:?}", door.api.metrics.gather());
    assert!(seen.contains("none") && !seen.contains('\u{1F600}'), "{seen}");
}

#[tokio::test]
async fn a_bad_slo_header_is_named() {
    let door = door_of(&RawApi::default());
    let mut asked = request("POST", CHAT, r#"{"model":"qwen"}"#);
    asked.headers_mut().insert("x-slo-ttft-ms", HeaderValue::from_static("NaN"));
    let answer = ask(&door, asked).await;
    assert_eq!((answer.status, &answer.json["error"]["param"]), (400, &"x-slo-ttft-ms".into()));
}

#[tokio::test]
async fn nothing_is_served_or_listed_without_an_accepted_key() {
    let door = door_of(&with_key("sk-good"));
    for (method, path) in [("POST", CHAT), ("GET", "/v1/models")] {
        let answer = ask(&door, request(method, path, "not even json")).await;
        assert_eq!(
            (answer.status, &answer.json["error"]["code"]),
            (401, &"invalid_api_key".into())
        );
    }
    assert_eq!(ask(&door, request("GET", "/health", "")).await.status, 200);
    let mut keyed = request("GET", "/v1/models", "");
    keyed.headers_mut().insert("authorization", HeaderValue::from_static("Bearer sk-good"));
    assert_eq!(ask(&door, keyed).await.status, 200);
    let mut keyed = request("POST", "/v1/messages", r#"{"model":7}"#);
    keyed.headers_mut().insert("x-api-key", HeaderValue::from_static("sk-good"));
    assert_eq!(ask(&door, keyed).await.status, 400, "it has no model that is a name");
}

#[tokio::test]
async fn a_used_up_rate_is_refused_and_every_answer_says_where_it_stands() {
    let limits = RawLimits { requests_per_minute: Some(1), ..RawLimits::default() };
    let door = door_of(&RawApi { limits, ..RawApi::default() });
    let first = ask(&door, request("POST", CHAT, "{")).await;
    assert_eq!(
        (first.status, &first.headers["x-ratelimit-remaining-requests"]),
        (400, &"0".parse().unwrap())
    );
    let second = ask(&door, request("POST", CHAT, "{")).await;
    assert_eq!(
        (second.status, &second.json["error"]["code"]),
        (429, &"rate_limit_exceeded".into())
    );
    assert_eq!(second.headers["retry-after"], "60");
    assert_eq!(counted(&door, ["none", "none", "refused", "429"]), 1.0);
}

#[tokio::test]
async fn a_request_is_known_by_the_clients_id_or_one_of_ours() {
    let door = door_of(&RawApi::default());
    let named = |id: &'static str| {
        let mut named = request("GET", "/health", "");
        named.headers_mut().insert(REQUEST_ID, HeaderValue::from_static(id));
        named
    };
    assert_eq!(ask(&door, named("abc-1")).await.headers[REQUEST_ID], "abc-1");
    let ours = ask(&door, named("a b")).await.headers[REQUEST_ID].clone();
    assert!(ours.to_str().unwrap().starts_with("weir-"));
}

#[test]
fn the_scheduler_is_told_what_the_call_says() {
    let api = api_of(&RawApi::default());
    let headers = HeaderMap::from_iter([
        ("x-llm-d-inference-objective".parse().unwrap(), HeaderValue::from_static("batch")),
        ("x-llm-d-slo-ttft-ms".parse().unwrap(), HeaderValue::from_static("750")),
        ("x-llm-d-inference-fairness-id".parse().unwrap(), HeaderValue::from_static("team")),
    ]);
    let settings = api.settings.load_full();
    let guest = settings.admit(&headers).unwrap();
    let text = "x".repeat(256);
    let body = Bytes::from(format!(
        r#"{{"model":"qwen","prompt":["{text}","b"],"n":2,"max_tokens":9,"stream":true}}"#
    ));
    let taken = api
        .consider(
            Endpoint::Completions,
            &headers,
            &guest,
            body.clone(),
            (7, &HeaderValue::from_static("r-7")),
        )
        .unwrap();
    assert_eq!(&**taken.hub.model(), "qwen3-32b");
    assert_eq!(unknown_objectives(&api), 0.0);
    let unknown = HeaderMap::from_iter([(
        "x-llm-d-inference-objective".parse().unwrap(),
        HeaderValue::from_static("gold"),
    )]);
    let name = HeaderValue::from_static("r-8");
    api.consider(Endpoint::Completions, &unknown, &guest, body.clone(), (8, &name)).unwrap();
    assert_eq!(unknown_objectives(&api), 1.0);
    assert_eq!(&*taken.objective, "batch");
    let request = taken.request;
    assert_eq!((request.id, request.band, request.sequences), (RequestId(7), Band(-1), 4));
    assert_eq!(&*request.name, "r-7");
    assert_eq!((request.max_output_tokens, request.streamed), (Some(9), true));
    assert_eq!(request.prompt, PromptSize::Bytes(264));
    let ms = |ms| Some(Duration::from_millis(ms));
    assert_eq!(request.slo, Slo { ttft: ms(750), tpot: ms(100) });
    assert_eq!(request.tenant.as_deref(), Some("team"));
    assert_eq!((request.body_bytes as usize, request.blocks.len()), (body.len(), 2));
}

#[test]
fn an_alias_shares_the_cached_blocks_of_its_model_and_an_adapter_has_its_own() {
    let api = api_of(&RawApi::default());
    let headers = HeaderMap::new();
    let settings = api.settings.load_full();
    let guest = settings.admit(&headers).unwrap();
    let blocks = |model: &str| {
        let body =
            Bytes::from(format!(r#"{{"model":"{model}","messages":"{}"}}"#, "x".repeat(200)));
        let name = HeaderValue::from_static("r-1");
        api.consider(Endpoint::Chat, &headers, &guest, body, (1, &name)).unwrap().request.blocks
    };
    assert_eq!(blocks("qwen"), blocks("qwen3-32b"));
    assert_ne!(blocks("sql"), blocks("qwen3-32b"));
}

#[tokio::test]
async fn a_refusal_of_the_scheduler_is_answered_and_counted() {
    let door = door_of(&RawApi::default());
    door.api.settings.load().pools[0].hub.post(weir_core::Event::Close);
    let answer =
        ask(&door, request("POST", CHAT, r#"{"model":"qwen","service_tier":"flex"}"#)).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.headers["x-llm-d-request-dropped-reason"], "rejected-shutting-down");
    assert_eq!(answer.headers["x-should-retry"], "false");
    assert_eq!(counted(&door, ["qwen3-32b", "batch", "refused", "503"]), 1.0);
}

#[tokio::test]
async fn what_is_no_request_is_answered_in_the_shape_of_the_others_and_counted() {
    let door = door_of(&RawApi::default());
    for (status, code) in [(400, "invalid_http"), (414, "uri_too_long"), (431, "headers_too_large")]
    {
        let response = door.api.misread(StatusCode::from_u16(status).unwrap());
        assert_eq!(response.status(), status);
        assert!(response.headers()[REQUEST_ID].to_str().unwrap().starts_with("weir-"));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["error"]["code"], code);
        let labels = ["none", "none", "bad_request", &status.to_string()];
        assert_eq!(counted(&door, labels), 1.0);
    }
}
