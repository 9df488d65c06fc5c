//! Every log line of a request names the request and its trace, and the trace reaches the pod.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use weir_tests::{Call, Plan, Stage, eventually};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn traced(call: Call, id: &str) -> Call {
    call.header("x-request-id", id)
        .header("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01"))
}

/// The lines of the log that are about a request by its id.
async fn lines_of(stage: &Stage, id: &str) -> Vec<Value> {
    eventually("the log has a line of the request", async || {
        let log = stage.weir.program.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines: Vec<Value> = lines.filter(|line| line["request_id"] == id).collect();
        if lines.is_empty() { Err(log) } else { Ok(lines) }
    })
    .await
}

#[tokio::test]
async fn what_goes_wrong_is_logged_under_the_id_of_request_and_trace() {
    let config = json!({"upstream": {"first_token_timeout_s": 1, "stall_timeout_s": 1}});
    let stage = Plan::default().config(config).raise().await;
    for (fault, id) in [("die_mid_stream", "r-died"), ("hang", "r-hung"), ("stall", "r-stalled")] {
        stage.pods[0].fault(json!({"kind": fault, "after_tokens": 2, "count": 1})).await;
        drop(stage.call(&traced(Call::chat(20), id)).await);
        for line in lines_of(&stage, id).await {
            println!("{line}");
            assert_eq!(line["trace_id"], TRACE, "{line}");
        }
    }
}

#[tokio::test]
async fn each_response_has_a_line_for_those_who_ask_for_it() {
    let config = json!({"log": {"level": "info,weir::request=debug"}});
    let stage = Plan::default().config(config).raise().await;
    stage.call(&traced(Call::chat(3), "r-1").objective("interactive")).await.assert_whole();
    let lines = lines_of(&stage, "r-1").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0];
    println!("{line}");
    assert_eq!((&line["message"], &line["outcome"]), (&json!("request is over"), &json!("ok")));
    assert_eq!((&line["status"], &line["objective"]), (&json!(200), &json!("interactive")));
    assert!(line["ttft_ms"].as_f64().unwrap() > 0.0);
    // Without a trace there is none in the line.
    stage.call(&Call::chat(3).header("x-request-id", "r-2")).await.assert_whole();
    assert!(lines_of(&stage, "r-2").await[0].get("trace_id").is_none());
}

/// A pod that takes one call and shows its head.
async fn head_seen_by_a_pod(trace_context: &str, call: Call) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plan = Plan::default().upstream(listener.local_addr().unwrap());
    let config = json!({"telemetry": {"trace_context": trace_context}, "scrape": {"every_ms": 0}});
    let stage = plan.config(config).raise().await;
    let calling = async { drop(call.to(stage.weir.api).await) };
    let answering = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await.unwrap();
        head.truncate(read);
        String::from_utf8_lossy(&head).to_lowercase()
    };
    tokio::join!(calling, answering).1
}

#[tokio::test]
async fn a_trace_passes_as_it_is_and_is_begun_only_if_configured() {
    let given = format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01");
    for context in ["pass", "make"] {
        let head = head_seen_by_a_pod(context, traced(Call::plain(1), "r")).await;
        assert!(head.contains(&given), "{head}");
    }
    let bare = head_seen_by_a_pod("pass", Call::plain(1)).await;
    assert!(!bare.contains("traceparent"), "{bare}");
    let made = head_seen_by_a_pod("make", Call::plain(1)).await;
    assert!(made.contains("traceparent: 00-") && !made.contains(TRACE), "{made}");
}
