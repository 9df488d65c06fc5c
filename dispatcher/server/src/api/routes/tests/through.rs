//! Calls that reach a pod, through the plane.

use super::*;

fn plane_config(threads: usize, limits: Limits) -> PlaneConfig {
    let listeners = Listeners::bind((Ipv4Addr::LOCALHOST, 0).into(), threads).unwrap();
    PlaneConfig { listeners, identity: None, limits, room: room(&limits) }
}

/// A pod that answers with what it was sent.
fn mirror() -> Plane {
    let limits = RawApi::default().check().unwrap().limits;
    let config = plane_config(1, limits);
    let mirror = async |request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let headers: Vec<_> = head.headers.keys().map(|name| name.as_str().to_owned()).collect();
        let seen = serde_json::json!({
            "uri": head.uri.to_string(),
            "headers": headers,
            "request_id": head.headers[REQUEST_ID].to_str().unwrap(),
            "body": String::from_utf8(body.to_vec()).unwrap(),
        });
        let mut response = Response::new(Full::new(Bytes::from(seen.to_string())));
        *response.status_mut() = StatusCode::OK;
        Ok::<_, Infallible>(response)
    };
    Plane::start((config, Memory::of(0)), |_| Response::default(), move |_| service_fn(mirror))
        .unwrap()
}

/// What the pod saw of a chat under a key, and the head of its answer.
async fn through(raw: &RawApi, headers: &str, body: &str) -> (String, serde_json::Value) {
    let pod = mirror();
    let api = api_of(raw);
    let address = pod.address().to_string();
    api.settings.load().pools[0].hub.add_pod(Arc::new(Pod::new(
        PodId(0),
        Arc::from("pod-0"),
        address,
        0,
    )));
    let limits = api.settings.load().config.limits;
    let config = plane_config(2, limits);
    let plane = start(config, &api, upstream()).unwrap();

    let call = format!(
        "POST /v1/chat/completions?v=1 HTTP/1.1\r\nhost: weir\r\nauthorization: Bearer sk-good\r\n\
         connection: close, x-hop\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len(),
    );
    let mut client = TcpStream::connect(plane.address()).await.unwrap();
    client.write_all(call.as_bytes()).await.unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    plane.stop();
    plane.finished().await;
    assert!(api.settings.load().pools[0].hub.idle(), "nothing is left in the ledger");
    let (head, json) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), serde_json::from_str(json).unwrap())
}

#[tokio::test]
async fn a_call_reaches_the_pod_byte_for_byte_without_what_steers() {
    let body = r#"{ "model" : "qwen", "messages":[],"Priority": -5 ,"x":"\ud800" }"#;
    let headers = "x-gateway-inference-objective: interactive\r\nx-request-id: r-1\r\n\
        x-weir-queue: none\r\nx-llm-d-inference-ttl: 1s\r\naccept-encoding: gzip\r\n\
        x-hop: 1\r\nuser-agent: test\r\n";
    let (head, seen) = through(&with_key("sk-good"), headers, body).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("x-request-id: r-1"), "{head}");
    assert_eq!(
        (seen["body"].as_str(), seen["uri"].as_str()),
        (Some(body), Some("/v1/chat/completions?v=1"))
    );
    assert_eq!(seen["request_id"], "r-1");
    let mut names: Vec<_> =
        seen["headers"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "host", "user-agent", "x-request-id"]);
}

#[tokio::test]
async fn a_clients_priority_goes_on_only_under_a_key_that_allows_it() {
    let body = r#"{"model":"qwen", "messages":[],"priority": -5 ,"x":"\ud800" }"#;
    let cut = r#"{"model":"qwen", "messages":[],"x":"\ud800" }"#;
    let mut allowing = with_key("sk-good");
    allowing.keys[0].allow_priority = true;
    for (raw, onward) in [(allowing, body), (with_key("sk-good"), cut), (RawApi::default(), cut)] {
        let (head, seen) = through(&raw, "", body).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(seen["body"], onward);
    }
}

#[tokio::test]
async fn where_a_prompt_is_loaded_from_goes_on_only_under_a_key_that_is_trusted() {
    let body =
        r#"{"kv_transfer_params" : {"remote_port":1}, "priority":2,"model":"qwen", "messages":[]}"#;
    let mut trusted = with_key("sk-good");
    trusted.keys[0].trust_headers = true;
    let mut allowing = with_key("sk-good");
    allowing.keys[0].allow_priority = true;
    let without_priority =
        r#"{"kv_transfer_params" : {"remote_port":1}, "model":"qwen", "messages":[]}"#;
    for (raw, onward) in [
        (trusted, without_priority),
        (allowing, r#"{ "priority":2,"model":"qwen", "messages":[]}"#),
        (with_key("sk-good"), r#"{ "model":"qwen", "messages":[]}"#),
        // Without keys whoever calls is trusted.
        (RawApi::default(), without_priority),
    ] {
        let (head, seen) = through(&raw, "", body).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(seen["body"], onward);
    }
    // Side by side at the end, where each takes the comma before it.
    let body = r#"{"model":"qwen","priority":1,"kv_transfer_params":null}"#;
    let (_, seen) = through(&with_key("sk-good"), "", body).await;
    assert_eq!(seen["body"], r#"{"model":"qwen"}"#);
}

#[tokio::test]
async fn an_adapter_passes_by_its_own_name_and_counts_with_its_model() {
    let pod = mirror();
    let door = door_of(&RawApi::default());
    let address = pod.address().to_string();
    door.api.settings.load().pools[0].hub.add_pod(Arc::new(Pod::new(
        PodId(0),
        Arc::from("pod-0"),
        address,
        0,
    )));
    let body = r#"{"model": "sql", "messages": []}"#;
    let answer = ask(&door, request("POST", CHAT, body)).await;
    assert_eq!((answer.status, &answer.json["body"]), (200, &body.into()));
    assert_eq!(counted(&door, ["qwen3-32b", "standard", "ok", "200"]), 1.0);
}

#[tokio::test]
async fn a_call_that_is_not_to_wait_is_answered_at_once() {
    let door = door_of(&RawApi::default());
    let asking = |name: &'static str, value| {
        let mut asked = request("POST", CHAT, r#"{"model":"qwen"}"#);
        asked.headers_mut().insert(name, HeaderValue::from_static(value));
        asked
    };
    let answer = ask(&door, asking("x-weir-queue", "none")).await;
    assert_eq!(
        (answer.status, &answer.json["error"]["code"]),
        (503, &"server_is_overloaded".into())
    );
    for (name, value) in [("x-weir-queue", "some"), ("x-llm-d-inference-ttl", "5")] {
        let answer = ask(&door, asking(name, value)).await;
        assert_eq!((answer.status, &answer.json["error"]["param"]), (400, &name.into()));
        assert_eq!(answer.json["error"]["code"], "invalid_header");
    }
}

#[tokio::test]
async fn another_configuration_counts_from_the_next_call_on() {
    let door = door_of(&RawApi::default());
    let list = |door: &Door| match door.models(&HeaderMap::new(), None) {
        Ok(response) => response.status(),
        Err(error) => error.status(),
    };
    assert_eq!(list(&door), StatusCode::OK);
    let hub = door.api.settings.load().pools[0].hub.clone();
    let pool = |alias: &str| Pool {
        migration_limit: 0,
        hub: hub.clone(),
        aliases: vec![Arc::from(alias)],
        adapters: vec![],
        max_model_len: None,
        house: House::default(),
        pods_key: None,
        prefill: None,
        prefills: false,
    };
    let config = with_key("sk-1").check().unwrap();
    door.api.adopt(config.clone(), vec![pool("renamed")]).unwrap();
    assert_eq!(list(&door), StatusCode::UNAUTHORIZED);
    let settings = door.api.settings.load_full();
    assert!(settings.catalogue.find("renamed").is_some());
    assert!(settings.catalogue.find("qwen").is_none());
    // One that cannot be taken changes nothing.
    assert!(door.api.adopt(config, vec![pool("qwen3-32b")]).is_err());
    assert!(door.api.settings.load().catalogue.find("renamed").is_some());
}
