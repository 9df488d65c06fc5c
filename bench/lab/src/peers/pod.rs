//! The pods: as little as passes for a vLLM server, so that the core they share with the load does little else.
//!
//! Answers are made once. A request for a stream gets a token at once and then one every [`EVERY`]; one for
//! [`IDLE_TOKENS`] gets the first and nothing more until its client leaves.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, interval_at},
};

use super::wire::{self, IDLE_TOKENS, MODEL};

/// Time between two tokens of a stream.
pub(super) const EVERY: Duration = Duration::from_millis(20);

/// A body in which `"stream"` is looked for; longer ones never ask for it.
const MOST_SEARCHED: usize = 4096;

/// Running pods; dropped they end.
pub(super) struct Pods {
    pub(super) addresses: Vec<SocketAddr>,
    _tasks: JoinSet<()>,
}

impl Pods {
    /// Starts this many on free ports, on the runtime of the caller.
    ///
    /// # Errors
    /// When they cannot listen.
    pub(super) async fn start(count: usize) -> Result<Self> {
        let (mut addresses, mut tasks) = (Vec::new(), JoinSet::new());
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("a pod cannot listen")?;
            addresses.push(listener.local_addr()?);
            tasks.spawn(accept(listener));
        }
        Ok(Self { addresses, _tasks: tasks })
    }
}

async fn accept(listener: TcpListener) {
    let answers = Answers::new();
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let answers = answers.clone();
                // A peer may close its connection whenever it likes.
                conversations.spawn(async move { drop(converse(stream, answers).await) });
            }
            Some(_) = conversations.join_next() => {}
        }
    }
}

async fn converse(mut stream: TcpStream, answers: Answers) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::with_capacity(4096);
    loop {
        let Some(request) = request(&mut stream, &mut received).await? else { return Ok(()) };
        match request.asked {
            Asked::Whole => stream.write_all(&answers.whole).await?,
            Asked::Get(path) => stream.write_all(&get(&path)).await?,
            Asked::Stream(tokens) => speak(&mut stream, tokens, &answers).await?,
        }
        received.drain(..request.bytes);
    }
}

async fn speak(stream: &mut TcpStream, tokens: u32, answers: &Answers) -> Result<()> {
    stream.write_all(&answers.first).await?;
    if tokens >= IDLE_TOKENS {
        stream.read_u8().await?;
        bail!("a client speaks while it is answered");
    }
    let mut due = interval_at(Instant::now() + EVERY, EVERY);
    for _ in 1..tokens {
        due.tick().await;
        stream.write_all(&answers.token).await?;
    }
    Ok(stream.write_all(&answers.last).await?)
}

struct Request {
    bytes: usize,
    asked: Asked,
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Get(String),
    Whole,
    Stream(u32),
}

/// Reads until a request is complete; `None` when the connection is over.
async fn request(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<Option<Request>> {
    let mut wanted = None;
    loop {
        if wanted.is_none() {
            wanted = wire::head(received).map(|head| (head, head.bytes + head.length.unwrap_or(0)));
        }
        if let Some((head, bytes)) = wanted.filter(|(_, bytes)| received.len() >= *bytes) {
            let (start, body) = received.split_at(head.bytes);
            let body = body.get(..bytes - head.bytes).unwrap_or_default();
            return Ok(Some(Request { bytes, asked: asked(start, body) }));
        }
        if stream.read_buf(received).await? == 0 {
            return Ok(None);
        }
    }
}

fn asked(head: &[u8], body: &[u8]) -> Asked {
    if let Some(rest) = head.strip_prefix(b"GET ") {
        let path = rest.split(|byte| matches!(byte, b' ' | b'?')).next().unwrap_or_default();
        return Asked::Get(String::from_utf8_lossy(path).into_owned());
    }
    let streams = body.len() <= MOST_SEARCHED && memmem::find(body, b"\"stream\":true").is_some();
    if streams { Asked::Stream(max_tokens(body).unwrap_or(1)) } else { Asked::Whole }
}

/// The bound on the answer, under whichever of its names a router passes it on.
fn max_tokens(body: &[u8]) -> Option<u32> {
    const KEYS: [&[u8]; 2] = [b"\"max_tokens\":", b"\"max_completion_tokens\":"];
    KEYS.iter().find_map(|key| number(body.get(memmem::find(body, key)? + key.len()..)?))
}

fn number(value: &[u8]) -> Option<u32> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(value.get(..digits)?).ok()?.parse().ok()
}

/// What routers ask a server for before they use it, and what Weir scrapes.
fn get(path: &str) -> Vec<u8> {
    match path {
        "/metrics" => message("text/plain", &metrics()),
        "/v1/models" => message(
            "application/json",
            &format!(
                r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","created":1,"owned_by":"bench"}}]}}"#
            ),
        ),
        _ => message(
            "application/json",
            &format!(
                r#"{{"model_path":"{MODEL}","served_model_name":"{MODEL}","is_generation":true,"status":"ok"}}"#
            ),
        ),
    }
}

/// The gauges of an engine in which nothing waits.
fn metrics() -> String {
    let gauges =
        [("num_requests_running", 1), ("num_requests_waiting", 0), ("kv_cache_usage_perc", 0)];
    let mut text = String::new();
    for (name, value) in gauges {
        text += &format!(
            "# TYPE vllm:{name} gauge\nvllm:{name}{{engine=\"0\",model_name=\"{MODEL}\"}} {value}.0\n"
        );
    }
    text
}

fn message(kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The bytes of all answers.
#[derive(Clone)]
struct Answers {
    whole: Vec<u8>,
    /// Head and first token of a stream.
    first: Vec<u8>,
    token: Vec<u8>,
    last: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        let whole = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"It waits where it can still be moved."}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":32,"total_tokens":48,"completion_tokens":16}}}}"#
        );
        let token = chunk(&event(r#"{"content":" token"}"#, "null"));
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
        let end = event("{}", "\"stop\"") + "data: [DONE]\n\n";
        Self {
            whole: message("application/json", &whole),
            first: [head.as_slice(), &token].concat(),
            token,
            last: [chunk(&end), b"0\r\n\r\n".to_vec()].concat(),
        }
    }
}

/// One event of a chat, as vLLM writes it.
fn event(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn chunk(data: &str) -> Vec<u8> {
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_found_wherever_a_router_has_put_it() {
        let head = b"POST /v1/chat/completions HTTP/1.1\r\n\r\n";
        let stream = br#"{"messages":[],"max_tokens":7,"x":null,"stream":true}"#;
        assert_eq!(asked(head, stream), Asked::Stream(7));
        assert_eq!(asked(head, br#"{"stream":false,"max_tokens":7}"#), Asked::Whole);
        let renamed = br#"{"stream":true,"max_tokens":null,"max_completion_tokens":8}"#;
        assert_eq!(asked(head, renamed), Asked::Stream(8));
        assert_eq!(asked(b"GET /health?x=1 HTTP/1.1\r\n\r\n", b""), Asked::Get("/health".into()));
    }

    #[test]
    fn a_stream_is_in_events_of_a_chat_and_ends() {
        let answers = Answers::new();
        let text =
            String::from_utf8([answers.first, answers.token, answers.last].concat()).unwrap();
        assert_eq!(text.matches("\"content\":\" token\"").count(), 2);
        assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
        let events = text.lines().filter_map(|line| line.strip_prefix("data: {"));
        for event in events {
            let event: serde_json::Value = serde_json::from_str(&format!("{{{event}")).unwrap();
            assert_eq!(event["object"], "chat.completion.chunk");
        }
    }
}
