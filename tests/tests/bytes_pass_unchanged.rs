//! What a client sends reaches the pod byte for byte, and what the pod answers comes back the same way.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a scenario says what broke by panicking"
)]

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use weir_tests::{Call, MODEL, Plan, Stage};

/// A body that any reader and writer of JSON would change: spaces, escapes, a lone surrogate, a key
/// twice, a number in an odd form.
const BODY: &str = "{ \"model\"\t: \"qwen3\\u002d32b\",\r\n \"messages\":[{\"role\":\"user\",\
    \"content\":\"h\\u00e9 \\ud800 \u{2713} \u{1F980}\"}],\n  \"max_tokens\":1e1, \"odd\":1.0,\"odd\":2 ,\
    \"stream\":true}  \n";

/// Reads one request and answers with these bytes; the request comes back from the task.
async fn pod_that_answers(answer: Vec<u8>) -> (Stage, JoinHandle<Vec<u8>>) {
    pod_of(answer, |_| json!({})).await
}

/// The same under a configuration of its own, which is told its URL.
async fn pod_of(answer: Vec<u8>, config: impl Fn(String) -> Value) -> (Stage, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pod = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        stream.write_all(&answer).await.unwrap();
        // Kept open: a pod does not close after an answer, and the answer must end without that.
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "nothing more is sent");
        request
    });
    let plan = Plan::default().upstream(address).config(json!({"scrape": {"every_ms": 0}}));
    (plan.config(config(format!("http://{address}"))).raise().await, pod)
}

async fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    loop {
        stream.read_buf(&mut request).await.unwrap();
        if let Some((head, body)) = split(&request) {
            let length = header(&head, "content-length").expect("a length is given");
            if body.len() == length.parse::<usize>().unwrap() {
                return request;
            }
        }
    }
}

fn split(request: &[u8]) -> Option<(String, &[u8])> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8(request[..end].to_vec()).unwrap();
    Some((head, &request[end + 4..]))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.find_map(|(this, value)| this.eq_ignore_ascii_case(name).then_some(value))
}

/// The stage ends first, which closes the connection that the pod waits on.
async fn request_seen(mut stage: Stage, pod: JoinHandle<Vec<u8>>) -> (String, Vec<u8>) {
    stage.assert_settled().await;
    drop(stage);
    let request = pod.await.unwrap();
    let (head, body) = split(&request).unwrap();
    (head, body.to_vec())
}

/// Pieces of a stream: cut inside a line, a token and a character, with both kinds of line end.
const PIECES: [&[u8]; 6] = [
    b": a com",
    b"ment\r\n\r\ndata: {\"choices\":[{\"in",
    b"dex\":0, \"delta\" : {\"content\":\"\\u00e9 \xf0\x9f",
    b"\xa6\x80\"}}]}\r\n\r\ndat",
    b"a: {\"x\":1,  \"x\":2}\n\nd",
    b"ata: [DONE]\n\n",
];

/// An answer that streams the pieces, each as one chunk.
fn stream() -> Vec<u8> {
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
        X-Pod-Own: kept\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nKeep-Alive: timeout=5\r\n\
        Connection: X-Of-The-Hop\r\nX-Of-The-Hop: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    for piece in PIECES.iter().copied().chain([b"".as_slice()]) {
        answer.extend(format!("{:x}\r\n", piece.len()).bytes());
        answer.extend(piece);
        answer.extend(b"\r\n");
    }
    answer
}

/// An answer of this status with a length.
fn whole(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_body_reaches_the_pod_byte_for_byte_and_a_stream_comes_back_so() {
    let (stage, pod) = pod_that_answers(stream()).await;
    let reply = stage.call(&Call::post("/v1/chat/completions?beta=1", BODY)).await;
    assert_eq!((reply.status, reply.broken), (200, false), "{reply:?}");
    assert_eq!(reply.body, PIECES.concat());

    let (head, body) = request_seen(stage, pod).await;
    assert_eq!(head.lines().next(), Some("POST /v1/chat/completions?beta=1 HTTP/1.1"));
    assert_eq!(body, BODY.as_bytes());
}

#[tokio::test]
async fn a_recording_reaches_the_pod_of_its_model_as_it_is() {
    let (stage, pod) =
        pod_that_answers(whole("200 OK", "application/json", b"{\"text\":\"hi\"}")).await;
    let mut form =
        b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
            .to_vec();
    form.extend((0..=255).cycle().take(100_000));
    form.extend(
        b"\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nqwen3-32b\r\n--b--\r\n",
    );
    let cut = form[..form.len() - 9].to_vec();
    let refused = stage.call(&Call::post("/v1/audio/translations", cut)).await;
    refused.assert_error(400, "invalid_form");
    let reply = stage.call(&Call::post("/v1/audio/transcriptions", form.clone())).await;
    assert_eq!((reply.status, reply.json()["text"].as_str()), (200, Some("hi")));
    let (head, body) = request_seen(stage, pod).await;
    assert_eq!(head.lines().next(), Some("POST /v1/audio/transcriptions HTTP/1.1"));
    assert!(body == form);
}

#[tokio::test]
async fn pods_that_ask_for_a_key_are_told_theirs_and_never_that_of_the_client() {
    // A variable that every program is started with.
    let key = std::env::var("PATH").unwrap();
    let of_pods = |url: String| {
        let pods = json!([{"name": "pod-0", "url": url}]);
        json!({"pools": [{"model": MODEL, "pods_key_env": "PATH", "pods": pods}]})
    };
    let keyed = |url: String| {
        let mut config = of_pods(url);
        // printf %s sk-client | sha256sum
        let sha256 = "9317152c7ce9662afd2deb4078472692a4d84040d09f9c3d2b2d3688f057c7de";
        config["keys"] = json!([{"sha256": sha256, "tenant": "acme"}]);
        config
    };
    for keys in [false, true] {
        let answer = whole("200 OK", "application/json", b"{}");
        let config = |url| if keys { keyed(url) } else { of_pods(url) };
        let (stage, pod) = pod_of(answer, config).await;
        let call = Call::post("/v1/chat/completions", BODY).header("x-api-key", "sk-client");
        let reply = stage.call(&call.header("authorization", "Bearer sk-client")).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let (head, _) = request_seen(stage, pod).await;
        assert_eq!(header(&head, "authorization"), Some(&*format!("Bearer {key}")));
        assert!(!head.contains("sk-client"), "{head}");
    }
}

#[tokio::test]
async fn headers_of_one_connection_and_those_that_steer_weir_do_not_reach_the_pod_and_others_do() {
    let (stage, pod) = pod_that_answers(stream()).await;
    let dropped = [
        ("connection", "x-hop-of-the-client"),
        ("x-hop-of-the-client", "1"),
        ("keep-alive", "timeout=9"),
        ("te", "trailers"),
        ("accept-encoding", "gzip"),
        ("x-llm-d-inference-objective", "interactive"),
        ("x-llm-d-slo-ttft-ms", "900"),
        ("x-gateway-inference-fairness-id", "acme"),
        ("x-slo-tpot-ms", "90"),
        ("x-weir-pod", "pod-7"),
    ];
    let kept = [
        ("x-request-id", "the-clients-own"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("authorization", "Bearer for-the-pod"),
        ("x-something-new", "\u{2713} kept"),
        ("user-agent", "scenario/1"),
    ];
    let call = Call::post("/v1/chat/completions", BODY);
    let call =
        dropped.iter().chain(&kept).fold(call, |call, (name, value)| call.header(name, value));
    let reply = stage.call(&call).await;

    assert_eq!(reply.header("x-pod-own"), "kept");
    assert_eq!(reply.headers.get_all("set-cookie").iter().count(), 2);
    for name in ["x-of-the-hop", "keep-alive"] {
        assert_eq!(reply.header(name), "", "{name} came back");
    }
    let (head, _) = request_seen(stage, pod).await;
    for (name, _) in &dropped {
        assert_eq!(header(&head, name), None, "{name} reached the pod");
    }
    for (name, value) in &kept {
        assert_eq!(header(&head, name), Some(*value), "{name} did not reach the pod");
    }
    assert_eq!(header(&head, "content-type"), Some("application/json"));
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_comes_back_byte_for_byte() {
    let body =
        "{ \"choices\" : [],\t\"n\":1.50, \"s\":\"\\u0041 \u{1F980} \u{2713}\" }\n".as_bytes();
    let (stage, pod) = pod_that_answers(whole("200 OK", "application/json", body)).await;
    let reply = stage.call(&Call::post("/v1/chat/completions", BODY)).await;
    assert_eq!((reply.status, reply.broken), (200, false), "{reply:?}");
    assert_eq!(reply.body, body);
    request_seen(stage, pod).await;
}

#[tokio::test]
async fn an_error_of_the_pods_own_comes_back_byte_for_byte() {
    let answer = whole("418 I'm a teapot", "text/plain", b"no tea\n");
    let (stage, pod) = pod_that_answers(answer).await;
    let reply = stage.call(&Call::post("/v1/chat/completions", BODY)).await;
    assert_eq!((reply.status, &reply.body[..]), (418, &b"no tea\n"[..]));
    assert_eq!(reply.header("content-type"), "text/plain");
    request_seen(stage, pod).await;
}
