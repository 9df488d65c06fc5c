//! One HTTP call on a connection of its own, whole or as it streams.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};

use crate::MODEL;

/// No call of a scenario takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// A call that can be made any number of times.
#[derive(Clone, Debug)]
pub struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Call {
    /// A call without a body.
    pub fn get(path: &str) -> Self {
        Self { method: "GET", path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A call with any body.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self { method: "POST", body: body.into(), ..Self::get(path) }
            .header("content-type", "application/json")
    }

    /// A streamed chat of so many output tokens.
    pub fn chat(output_tokens: u32) -> Self {
        Self::chat_with(output_tokens, &json!({}))
    }

    /// A chat of so many output tokens that is not streamed.
    pub fn plain(output_tokens: u32) -> Self {
        Self::chat_with(output_tokens, &json!({"stream": false}))
    }

    /// A streamed chat with further fields, or other values for those it has.
    ///
    /// # Panics
    /// When `fields` is no object.
    pub fn chat_with(output_tokens: u32, fields: &Value) -> Self {
        let mut body = json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": "What do pods pull, and when?"}],
            "max_tokens": output_tokens,
            "stream": true,
        });
        let fields = fields.as_object().expect("fields are an object");
        for (name, value) in fields {
            body[name] = value.clone();
        }
        // The simulated pod would else draw a length of its own.
        Self::post("/v1/chat/completions", body.to_string())
            .header("x-sim-output-tokens", &output_tokens.to_string())
    }

    /// A streamed chat with a prompt of so many tokens that no other call shares.
    pub fn long_chat(input_tokens: usize, output_tokens: u32, unique: &str) -> Self {
        let text: String =
            unique.chars().chain(" pull".chars()).cycle().take(4 * input_tokens).collect();
        let messages = json!([{"role": "user", "content": text}]);
        Self::chat_with(output_tokens, &json!({"messages": messages}))
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Under an objective.
    #[must_use]
    pub fn objective(self, name: &str) -> Self {
        self.header("x-llm-d-inference-objective", name)
    }

    /// With another method.
    #[must_use]
    pub fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    /// Makes the call and reads the answer to its end.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn to(&self, address: SocketAddr) -> Reply {
        timeout(LIMIT, async { self.open(address).await.rest().await })
            .await
            .expect("a call ends in time")
    }

    /// Makes the call and returns with the head of its answer.
    ///
    /// # Panics
    /// When there is no answer.
    pub async fn open(&self, address: SocketAddr) -> Live {
        let live = timeout(LIMIT, self.try_open(address)).await.expect("an answer comes in time");
        live.unwrap_or_else(|error| panic!("{} {} of {address}: {error}", self.method, self.path))
    }

    /// The same, for an address that may not answer.
    ///
    /// # Errors
    /// What the connection said.
    ///
    /// # Panics
    /// When the call itself is malformed.
    pub async fn try_open(&self, address: SocketAddr) -> Result<Live, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
        let mut request = http::Request::builder().method(self.method).uri(&self.path);
        request = request.header("host", address.to_string());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).expect("the call is well-formed");
        let connection = Connection(tokio::spawn(async move {
            // How it ended shows in the body.
            let _ = connection.await;
        }));
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        Ok(Live { status, headers, body, so_far: BytesMut::new(), _connection: connection })
    }
}

/// Closed when it is dropped.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer that is still coming. Dropping it is the client's leaving.
#[derive(Debug)]
pub struct Live {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    so_far: BytesMut,
    _connection: Connection,
}

impl Live {
    /// Reads until the first token has come.
    ///
    /// # Panics
    /// When the answer ends before it.
    pub async fn first_token(&mut self) {
        while events(&self.so_far).iter().all(|event| word(event).is_empty()) {
            let more = timeout(LIMIT, self.more()).await.expect("a token comes in time");
            assert!(more == Ok(true), "no token: {more:?} after {:?}", self.so_far);
        }
    }

    /// The rest of the answer and what was read before.
    pub async fn rest(mut self) -> Reply {
        let broken = loop {
            match self.more().await {
                Ok(true) => {}
                Ok(false) => break false,
                Err(_) => break true,
            }
        };
        let body = self.so_far.split().freeze();
        Reply { status: self.status, headers: self.headers, body, broken }
    }

    /// Reads a piece; says whether there was one.
    async fn more(&mut self) -> Result<bool, String> {
        match self.body.frame().await {
            None => Ok(false),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.so_far.extend_from_slice(&data);
                }
                Ok(true)
            }
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whether the connection broke before the body's end.
    pub broken: bool,
}

impl Reply {
    /// A header's value; empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The code of the error in it, in the body or in the stream.
    pub fn error_code(&self) -> Option<String> {
        let in_stream = events(&self.body).into_iter();
        let mut bodies = std::iter::once(self.json()).chain(in_stream);
        bodies.find_map(|body| body["error"]["code"].as_str().map(str::to_owned))
    }

    /// Words streamed.
    pub fn words(&self) -> usize {
        events(&self.body).iter().filter(|event| !word(event).is_empty()).count()
    }

    /// The text of its tokens.
    pub fn text(&self) -> String {
        events(&self.body).iter().map(word).collect()
    }

    /// Whether the stream says that it is complete.
    pub fn is_done(&self) -> bool {
        self.body.ends_with(b"data: [DONE]\n\n")
    }

    /// Whether it is a complete answer, streamed or not.
    pub fn is_whole(&self) -> bool {
        let ended = self.header("content-type").starts_with("application/json") || self.is_done();
        self.status == 200 && !self.broken && ended && self.error_code().is_none()
    }

    /// Asserts that it is a complete answer.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_whole(&self) {
        assert!(self.is_whole(), "not a complete answer: {self:#?}");
    }

    /// Asserts that it is an error of OpenAI's shape with this status and code, and names its request.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_error(&self, status: u16, code: &str) {
        self.assert_admin_error(status, code);
        assert!(!self.header("x-request-id").is_empty(), "{self:#?}");
    }

    /// Asserts that it is an error of OpenAI's shape with this status and code.
    ///
    /// # Panics
    /// When it is not.
    pub fn assert_admin_error(&self, status: u16, code: &str) {
        let body = self.json();
        let error = body["error"].as_object();
        let error = error.unwrap_or_else(|| panic!("no error of OpenAI's shape: {self:#?}"));
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{self:#?}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{self:#?}");
        assert!(error["type"].is_string() && error.contains_key("param"), "{self:#?}");
    }
}

/// The data events of a stream that are JSON.
fn events(body: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(body);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// What an event adds to the answer.
fn word(event: &Value) -> &str {
    let choice = &event["choices"][0];
    choice["delta"]["content"].as_str().or(choice["text"].as_str()).unwrap_or_default()
}

/// The pods that served.
pub fn served_by(replies: &[Reply]) -> BTreeSet<&str> {
    replies.iter().map(|reply| reply.header("x-weir-pod")).collect()
}
