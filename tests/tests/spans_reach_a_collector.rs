//! What became of a request is told to an OpenTelemetry collector, and costs it nothing where that is gone.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::{Value, json};
use weir_tests::{Call, Collector, Plan, Server, Stage, eventually};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const GATEWAY: &str = "b7ad6b7169203331";

fn traced(call: Call, id: &str, flags: &str) -> Call {
    let traceparent = format!("00-{TRACE}-{GATEWAY}-{flags}");
    call.header("x-request-id", id).header("traceparent", &traceparent).header("tracestate", "a=b")
}

fn spans(collector: &Collector, sample: f64) -> Value {
    json!({"telemetry": {"spans": {"endpoint": collector.url(), "sample": sample}}})
}

async fn spans_that(stage: &Stage, result: &str) -> f64 {
    stage.weir.metrics().await.sum("weir_spans_total", &[("result", result)])
}

#[tokio::test]
async fn a_request_has_three_spans_below_its_gateways() {
    let collector = Collector::start().await;
    let mut stage = Plan::default().config(spans(&collector, 0.0)).raise().await;
    let usage = json!({"stream_options": {"include_usage": true}});
    let call = traced(Call::chat_with(5, &usage), "r-1", "01").objective("interactive");
    stage.call(&call).await.assert_whole();
    let [whole, wait, way] = &collector.of_request("r-1", 3).await[..] else { unreachable!() };
    println!("{whole:?}\n{wait:?}\n{way:?}");
    for span in [whole, wait, way] {
        assert_eq!(span.trace, TRACE);
        assert_eq!(span.error, None);
        assert!(span.times.0 <= span.times.1);
    }
    assert_eq!((&*whole.parent, &*whole.name), (GATEWAY, "POST /v1/chat/completions"));
    assert_eq!((&*wait.parent, &*wait.name), (&*whole.id, "queue"));
    assert_eq!((&*way.parent, &*way.of["weir.pod"]), (&*whole.id, "pod-0"));
    // They follow each other.
    assert_eq!((wait.times.0, wait.times.1), (whole.times.0, way.times.0));
    assert_eq!(way.times.1, whole.times.1);
    assert_eq!(way.events, [("first token".to_owned(), String::new())]);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("url.path", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
        ("weir.objective", "interactive"),
        ("weir.outcome", "ok"),
        ("gen_ai.usage.output_tokens", "5"),
    ] {
        assert_eq!(whole.of[key], value, "{key}");
    }
    assert!(whole.of["weir.ttft_ms"].parse::<f64>().unwrap() > 0.0);
    assert!(way.of["weir.predicted_ttft_ms"].parse::<f64>().unwrap() > 0.0);
    assert_eq!(collector.resource()["service.name"], "weir");
    assert_eq!(collector.headers()["content-type"], "application/x-protobuf");
    eventually("it is counted", async || {
        let sent = spans_that(&stage, "sent").await;
        if sent == 3.0 { Ok(()) } else { Err(sent) }
    })
    .await;
    stage.assert_settled().await;
}

/// A pod that keeps the trace context of each call, and a stage with it alone.
async fn heard_by_a_pod(config: Value) -> (Stage, Server, Arc<Mutex<Vec<[String; 2]>>>) {
    let heard = Arc::<Mutex<Vec<[String; 2]>>>::default();
    let keep = heard.clone();
    let pod = Server::start(move |request| {
        let header = |name| {
            let value =
                request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap());
            value.unwrap_or_default().to_owned()
        };
        keep.lock().push(["traceparent", "tracestate"].map(header));
        let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        async { response }
    })
    .await;
    let plan = Plan::default().upstream(pod.address).config(json!({"scrape": {"every_ms": 0}}));
    (plan.config(config).raise().await, pod, heard)
}

#[tokio::test]
async fn the_pods_spans_hang_below_weirs() {
    let collector = Collector::start().await;
    let (stage, _pod, heard) = heard_by_a_pod(spans(&collector, 1.0)).await;
    stage.call(&traced(Call::plain(1), "r-sampled", "01")).await;
    let way = &collector.of_request("r-sampled", 3).await[2];
    assert_eq!(heard.lock()[0], [format!("00-{TRACE}-{}-01", way.id), "a=b".to_owned()]);
    // Who began the trace decides, and of a trace that nobody reports the parent stays.
    stage.call(&traced(Call::plain(1), "r-not", "00")).await;
    assert_eq!(heard.lock()[1], [format!("00-{TRACE}-{GATEWAY}-00"), "a=b".to_owned()]);
    // One without a trace begins one.
    stage.call(&Call::plain(1).header("x-request-id", "r-own")).await;
    let own = collector.of_request("r-own", 3).await;
    assert_eq!(own[0].parent, "");
    assert_eq!(heard.lock()[2], [format!("00-{}-{}-01", own[0].trace, own[2].id), String::new()]);
    assert_eq!(collector.spans().len(), 6);
}

#[tokio::test]
async fn of_traces_that_begin_here_a_share_is_told() {
    let collector = Collector::start().await;
    let (stage, _pod, heard) = heard_by_a_pod(spans(&collector, 0.3)).await;
    for _ in 0..100 {
        stage.call(&Call::plain(1)).await;
    }
    let sampled = heard.lock().iter().filter(|[parent, _]| !parent.is_empty()).count();
    // One in a billion times it is outside.
    assert!((5..65).contains(&sampled), "{sampled}");
    eventually("they are told", async || {
        let told = collector.spans().len();
        if told == 3 * sampled { Ok(()) } else { Err(told) }
    })
    .await;
}

#[tokio::test]
async fn what_goes_wrong_is_said() {
    let collector = Collector::start().await;
    let config = json!({"queue": {"max_wait_no_pods_s": 1}, "upstream": {"stall_timeout_s": 1}});
    let plan = Plan::default().config(spans(&collector, 1.0)).config(config);
    let mut stage = plan.raise().await;
    stage.pods[0].fault(json!({"kind": "die_mid_stream", "after_tokens": 2, "count": 1})).await;
    drop(stage.call(&traced(Call::chat(20), "r-broken", "01")).await);
    let broken = collector.of_request("r-broken", 3).await;
    println!("{broken:?}");
    assert_eq!(
        (&*broken[0].of["weir.outcome"], &*broken[0].of["error.type"]),
        ("failed", "upstream_lost")
    );
    assert_eq!(broken[2].error.as_deref(), Some("upstream_lost"));
    // Its client left in the middle of it, which is nobody's error.
    let mut live = traced(Call::chat(10_000), "r-left", "01").open(stage.weir.api).await;
    live.first_token().await;
    drop(live);
    let left = collector.of_request("r-left", 3).await;
    assert_eq!((&*left[0].of["weir.outcome"], &left[2].error), ("client_gone", &None));
    // Refused: it never had a pod.
    let refused = traced(Call::chat(20), "r-refused", "01").header("x-weir-queue", "none");
    stage.pods[0].kill();
    stage.weir.without_pods().await;
    stage.call(&refused).await;
    let refused = collector.of_request("r-refused", 2).await;
    assert_eq!(refused[0].of["weir.outcome"], "refused");
    assert_eq!(refused[0].of["http.response.status_code"], "503");
}

#[tokio::test]
async fn a_collector_that_does_not_take_them_costs_spans_and_no_request() {
    let collector = Collector::start().await;
    collector.refuses(true);
    let mut stage = Plan::default().config(spans(&collector, 1.0)).raise().await;
    stage.call(&Call::chat(2)).await.assert_whole();
    eventually("it is counted", async || {
        let failed = spans_that(&stage, "failed").await;
        if failed == 3.0 { Ok(()) } else { Err(failed) }
    })
    .await;
    stage.weir.program.logs("spans are not taken").await;
    collector.refuses(false);
    stage.call(&Call::chat(2).header("x-request-id", "r-late")).await.assert_whole();
    // What is under way at the end of the process is told.
    stage.weir.program.terminate();
    stage.weir.program.exit().await;
    assert_eq!(collector.of_request("r-late", 3).await.len(), 3);
    assert!(stage.weir.program.log().contains("spans are taken again"));
}
