//! Faults, and how they end.

use super::*;

#[tokio::test]
async fn a_status_fault_strikes_as_often_as_it_was_counted() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    for (kind, status) in [("status_500", 500), ("status_503", 503)] {
        client.fault(&json!({"kind": kind, "count": 1})).await;
        let response = client.post(CHAT, &streamed()).await;
        assert_eq!(response.status(), status);
        assert_eq!(parsed(response).await["error"]["code"], status);
        events(&text(client.post(CHAT, &streamed()).await).await);
    }
    let shown: Value = serde_json::from_str(&client.get("/fault").await).unwrap();
    assert_eq!(shown, json!({"kind": "status_503", "count": 0}));
}

#[tokio::test]
async fn a_hanging_pod_takes_the_request_and_says_nothing() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    client.fault(&json!({"kind": "hang", "count": 1})).await;
    let body = streamed();
    let hung = tokio::time::timeout(Duration::from_millis(200), client.post(CHAT, &body)).await;
    assert!(hung.is_err());
    let mut other = Client::to(&pods).await;
    assert_eq!(other.get("/health").await, "", "only generations hang");
    assert_eq!(other.post(CHAT, &body).await.status(), 200, "and only one of them");
}

#[tokio::test]
async fn a_stream_dies_after_the_tokens_it_was_told() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    client.fault(&json!({"kind": "die_mid_stream", "after_tokens": 2, "count": 2})).await;
    let mut body = client.post(CHAT, &streamed()).await.into_body();
    let (mut seen, mut died) = (String::new(), false);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => seen += std::str::from_utf8(frame.data_ref().unwrap()).unwrap(),
            Err(_) => died = true,
        }
    }
    assert!(died, "a cut stream must not end as a whole one does");
    assert_eq!(seen.matches("data: ").count(), 1 + 2, "{seen}");
    let mut client = Client::to(&pods).await;
    let unstreamed = client.send(Method::POST, CHAT, "", ask(json!({})).to_string()).await;
    assert!(unstreamed.is_err(), "an unstreamed answer dies before its head");
    assert_eq!(Client::to(&pods).await.metric("vllm:num_requests_running").await, 0.0);
}

#[tokio::test]
async fn a_stalled_stream_goes_on_when_the_fault_is_cleared() {
    let pods = pods(1);
    let (mut client, mut control) = (Client::to(&pods).await, Client::to(&pods).await);
    control.fault(&json!({"kind": "stall", "after_tokens": 2})).await;
    let mut body = client.post(CHAT, &streamed()).await.into_body();
    let mut seen = String::new();
    while seen.matches("data: ").count() < 3 {
        let frame = body.frame().await.unwrap().unwrap();
        seen += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    while control.metric("vllm:generation_tokens_total").await < 5.0 {}
    let silent = tokio::time::timeout(Duration::from_millis(50), body.frame()).await;
    assert!(silent.is_err(), "the engine is done and the stream says nothing");
    control.fault(&json!({"kind": "none"})).await;
    let rest = body.collect().await.unwrap().to_bytes();
    seen += std::str::from_utf8(&rest).unwrap();
    assert_eq!(events(&seen).len(), 6);
}

#[tokio::test]
async fn a_slow_pod_takes_its_factor_longer_until_it_is_cleared() {
    let pods = pods(1);
    let (mut client, mut control) = (Client::to(&pods).await, Client::to(&pods).await);
    control.fault(&json!({"kind": "slow", "factor": 1e6})).await;
    let body = streamed();
    let response = client.post(CHAT, &body).await;
    let mut body = response.into_body();
    let slow = tokio::time::timeout(Duration::from_millis(100), body.frame()).await;
    assert!(slow.is_err(), "a step takes hours");
    control.fault(&json!({"kind": "none"})).await;
    let seen = body.collect().await.unwrap().to_bytes();
    assert_eq!(events(std::str::from_utf8(&seen).unwrap()).len(), 6);
}

#[tokio::test]
async fn stale_metrics_stand_still_until_they_are_cleared() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    client.fault(&json!({"kind": "stale_metrics"})).await;
    let before = client.get("/metrics").await;
    text(client.post(CHAT, &streamed()).await).await;
    assert_eq!(client.get("/metrics").await, before);
    client.fault(&json!({"kind": "none"})).await;
    assert_ne!(client.get("/metrics").await, before);
}

#[tokio::test]
async fn a_refusing_pod_has_no_listener_until_it_is_cleared() {
    let pods = pods(1);
    let address = pods.addresses()[0];
    let (mut control, mut idle) = (Client::to(&pods).await, Client::to(&pods).await);
    idle.get("/health").await;
    control.fault(&json!({"kind": "refuse"})).await;
    while TcpStream::connect(address).await.is_ok() {}
    assert!(
        idle.send(Method::GET, "/health", "", String::new()).await.is_err(),
        "idle connections are closed"
    );
    control.fault(&json!({"kind": "none"})).await;
    while TcpStream::connect(address).await.is_err() {}
    assert_eq!(Client::to(&pods).await.get("/health").await, "");
}

#[tokio::test]
async fn a_fault_ends_by_itself_when_it_was_told_how_long_to_last() {
    let pods = pods(1);
    let mut client = Client::to(&pods).await;
    client.fault(&json!({"kind": "refuse", "for_ms": 50})).await;
    while !client.get("/fault").await.contains("none") {}
    while TcpStream::connect(pods.addresses()[0]).await.is_err() {}
}
