//! What an operator is shown: explanations, boards, the description, the past.

use super::*;

#[tokio::test]
async fn every_answer_says_which_pools_are_decided_elsewhere() {
    let side = side_of(&RawAdmin::default(), LOOPBACK, vec![pool("a b"), pool("c")]).await;
    let said = async |path: &str| {
        let (_, headers, _) = side.ask(Method::GET, path, &[], "").await;
        headers.get("x-weir-decided-by").map(|led| led.to_str().unwrap().to_owned())
    };
    assert_eq!(said("/api/v1/queues").await, None, "both are decided here");
    let (errands, _asked) = async_channel::bounded(8);
    side.hubs[0].follow(Some(Lead::new("10.0.0.7:8082".to_owned(), errands)));
    let led = Some("a%20b=10.0.0.7:8082".to_owned());
    for path in
        ["/queues", "/requests/req-9", "/requests?limit=0", "/pods", "/decisions?pool=a%20b"]
    {
        assert_eq!(said(&format!("/api/v1{path}")).await, led, "{path}");
    }
    assert_eq!(said("/api/v1/queues?pool=c").await, None, "that one is decided here");
    assert_eq!(said("/livez").await, None);
    let (errands, _asked) = async_channel::bounded(8);
    side.hubs[1].follow(Some(Lead::new("10.0.0.8:8082".to_owned(), errands)));
    let both = Some("a%20b=10.0.0.7:8082, c=10.0.0.8:8082".to_owned());
    assert_eq!(said("/api/v1/overview").await, both);
}

#[tokio::test]
async fn a_hypothetical_request_is_explained_and_not_sent() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let ask = json!({"input_tokens": 1000, "output_tokens": 100, "ttft_ms": 2000});
    let alone = side.post("/api/v1/explain", ask.clone()).await;
    assert_eq!((&alone["would"], &alone["reason"]), (&"wait".into(), &"no_pod_ready".into()));
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let goes = side.post("/api/v1/explain", ask).await;
    assert_eq!((&goes["would"], &goes["pod"]), (&"dispatch".into(), &"pod-1".into()), "{goes}");
    assert_eq!(goes["pods"][0]["fits"], true);
    let summary = side.hub().summary();
    assert_eq!((summary.waiting, summary.in_flight), (0, 0));
}

#[tokio::test]
async fn boards_come_as_events_to_as_many_as_may_watch() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let _tickets = waiting(side.hub(), 4);
    tokio::spawn(events::broadcast(side.seat.clone()));
    let stream = side.open(Method::GET, "/api/v1/events", &[], "").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let (mut body, mut text) = (stream.into_body(), String::new());
    // The first comes at once, the second when the next second is over.
    while text.matches("event: board\n").count() < 2 || !text.ends_with("\n\n") {
        let frame = tokio::time::timeout(Duration::from_secs(60), body.frame()).await;
        let frame = frame.unwrap().unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let board: Value = serde_json::from_str(data).unwrap();
    assert_eq!(board["overview"]["pools"][0]["waiting"], 4, "{board}");
    assert_eq!(board["queues"].as_array().unwrap().len(), 2);
    assert!(board["pods"].is_array() && board["decisions"].is_array());

    let mut others = Vec::new();
    for _ in 1..events::STREAMS {
        let other = side.open(Method::GET, "/api/v1/events", &[], "").await;
        assert_eq!(other.status(), 200);
        others.push(other);
    }
    let refused = side.refused(Method::GET, "/api/v1/events", "").await;
    assert_eq!(refused, (503, "too_many_streams".to_owned()));
    drop((others.pop(), body));
    // Their places come back when the server sees that they left.
    let back = async || side.open(Method::GET, "/api/v1/events", &[], "").await.status() == 200;
    let again = async {
        while !back().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
}

#[tokio::test]
async fn every_operation_is_described_once_and_the_page_is_there() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    let description = side.get("/api/v1/openapi.json").await;
    let paths = description["paths"].as_object().unwrap();
    let operations: Vec<&Value> =
        paths.values().flat_map(|path| path.as_object().unwrap().values()).collect();
    let mut ids: Vec<_> = operations.iter().map(|of| of["operationId"].to_string()).collect();
    assert!(ids.len() >= 28 && paths.keys().all(|path| path.starts_with("/api/v1/")), "{ids:?}");
    ids.sort();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all, "no two operations share an id");
    let schemas = &description["components"]["schemas"];
    assert_eq!(schemas["GateAsk"]["not"], json!({"required": ["lane", "band"]}));
    assert_eq!(schemas["CancelAsk"]["anyOf"].as_array().unwrap().len(), steer::FILTERS.len());
    assert_eq!(schemas["MoveAsk"]["properties"]["pool"]["type"], "string", "never null");
    for of in operations {
        assert!(of["summary"].is_string() || of["description"].is_string(), "{of}");
    }
    let (status, headers, page) = side.ask(Method::GET, "/", &[], "").await;
    assert!(status == 200 && page.as_str().unwrap().contains("<title>Weir"), "{page}");
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
}

#[tokio::test(start_paused = true)]
async fn the_sampler_keeps_what_became_of_requests() {
    let side = side(&RawAdmin::default(), LOOPBACK).await;
    side.hub().add_pod(pod(1, "127.0.0.1:1"));
    let sampler = tokio::spawn(history::sample(side.seat.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lease = side.hub().admit(request(side.hub(), 1)).verdict().await.unwrap();
    lease.end(weir_core::EndKind::Complete, None, Some(10));
    let mut kept = waiting(side.hub(), 2);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seconds = side.seat.history().seconds(0);
    assert_eq!(seconds.len(), 2, "{seconds:?}");
    let (first, last) = (&seconds[0], &seconds[1]);
    assert_eq!((first.ends.sent, last.ends.sent), (1, 0), "{seconds:?}");
    assert_eq!(last.in_flight, 2);
    let (window_s, bands) = side.seat.history().attained(0);
    assert_eq!((window_s, bands[&0].sent), (2.0, 1));
    sampler.abort();
    for ticket in &mut kept {
        drop(ticket.verdict().await.unwrap());
    }
}
