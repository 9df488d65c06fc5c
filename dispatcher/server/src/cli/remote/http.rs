//! One call of the admin API: a connection, a request, an answer read to its end, all within a bound.
//!
//! A command makes one call or a few: a connection for each costs nothing that is felt, and leaves no
//! state to lose when the dispatcher restarts. The board also keeps one stream of events open.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::response::Parts;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, runtime::Runtime, task::JoinHandle, time::timeout};

use super::{Failure, address::Address, lead::Notice, refusal};
use crate::tls::{Line, Secure, trust::greet};

/// The longest that a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest that an answer may take; a reload of the model is the slowest.
const ANSWER: Duration = Duration::from_secs(30);
/// The most that is read of an answer.
const MOST_BYTES: usize = 64 << 20;

/// Calls one admin side.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) address: Address,
    /// How it is spoken to by TLS; `None`: in the clear.
    secure: Option<Secure>,
    token: Option<String>,
    /// Says who decides, where that is another dispatcher.
    pub(super) notice: Notice,
    runtime: Runtime,
}

impl Caller {
    pub(super) fn new(
        (address, secure): (Address, Option<Secure>),
        token: Option<String>,
    ) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
        Ok(Self { address, secure, token, notice: Notice::default(), runtime })
    }

    /// Makes a call and returns the answer's JSON.
    pub(super) fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let (head, bytes) = self.runtime.block_on(self.exchange(method, path, body))?;
        let status = head.status.as_u16();
        // A refusal for that reason names the address itself.
        if status != 409 {
            self.notice.hear(&head.headers);
        }
        if !(200..300).contains(&status) {
            return Err(self.refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|_| self.refused(status, &bytes))
    }

    /// Opens a stream of events.
    pub(super) fn listen(&self, path: &str) -> Result<Events, Failure> {
        self.runtime.block_on(async {
            let stream = self.connect().await?;
            let request = self.request("GET", path, None)?;
            let broken = |error: hyper::Error| self.broken(&error);
            let opened = async {
                let (mut sender, connection) =
                    http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
                // It goes on whenever the runtime runs: while an event is waited for.
                let connection = AbortOnDrop(tokio::spawn(async move {
                    let _ = connection.await;
                }));
                let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
                if head.status.is_success() {
                    return Ok(Events { body, text: BytesMut::new(), _connection: connection });
                }
                let body = Limited::new(body, MOST_BYTES).collect().await;
                let body = body.map_err(|error| self.unreachable(error))?.to_bytes();
                Err(self.refused(head.status.as_u16(), &body))
            };
            timeout(ANSWER, opened).await.map_err(|_| self.unreachable("no answer in time"))?
        })
    }

    /// The next event of a stream; `None` when none comes within `wait`.
    pub(super) fn next(
        &self,
        events: &mut Events,
        wait: Duration,
    ) -> Result<Option<Value>, Failure> {
        let next = async {
            loop {
                if let Some(event) = take_event(&mut events.text) {
                    return Ok(event);
                }
                match events.body.frame().await {
                    None => return Err(self.unreachable("the stream of events ended")),
                    Some(Err(error)) => return Err(self.unreachable(error)),
                    Some(Ok(frame)) => {
                        events.text.extend_from_slice(&frame.into_data().unwrap_or_default());
                    }
                }
                if events.text.len() > MOST_BYTES {
                    return Err(self.unreachable("an event without an end"));
                }
            }
        };
        // Dropping the wait loses nothing: what came is in the text.
        self.runtime.block_on(async { timeout(wait, next).await.ok() }).transpose()
    }

    fn refused(&self, status: u16, body: &[u8]) -> Failure {
        refusal::failure(status, body, self.token.is_some(), &self.address)
    }

    async fn connect(&self) -> Result<Line, Failure> {
        let to = (self.address.host.as_str(), self.address.port);
        let connected = async { greet(TcpStream::connect(to).await?, self.secure.as_ref()).await };
        timeout(CONNECT, connected)
            .await
            .map_err(|_| self.unreachable("no connection in time"))?
            .map_err(|error| self.unreachable(error))
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(Parts, Bytes), Failure> {
        let stream = self.connect().await?;
        let request = self.request(method, path, body)?;
        timeout(ANSWER, self.answer(stream, request))
            .await
            .map_err(|_| self.unreachable("no answer in time"))?
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<http::Request<Full<Bytes>>, Failure> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}/api/v1{path}", self.address.prefix))
            .header("host", self.address.authority())
            .header("accept", "application/json")
            .header("user-agent", concat!("weir/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = body.map(|body| Bytes::from(body.to_string()));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|_| Failure::Usage("the token is no text that a header can hold".to_owned()))
    }

    async fn answer(
        &self,
        stream: Line,
        request: http::Request<Full<Bytes>>,
    ) -> Result<(Parts, Bytes), Failure> {
        let broken = |error: hyper::Error| self.broken(&error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let exchange = async move {
            let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
            let body = Limited::new(body, MOST_BYTES).collect().await;
            let body = body.map_err(|error| self.unreachable(error))?;
            Ok((head, body.to_bytes()))
        };
        tokio::pin!(exchange);
        tokio::select! {
            biased;
            answered = &mut exchange => answered,
            // It may end before the answer is read; what was received stays readable.
            _ = connection => exchange.await,
        }
    }

    fn broken(&self, error: &hyper::Error) -> Failure {
        if self.secure.is_none() && error.is_parse() {
            let tls = format!("{error}; if it speaks TLS, say https://");
            return self.unreachable(tls);
        }
        self.unreachable(error)
    }

    fn unreachable(&self, why: impl std::fmt::Display) -> Failure {
        Failure::Unreachable(format!(
            "the admin side at {} does not answer ({why}): is `weir serve` running? --admin or \
             WEIR_ADMIN says where it listens",
            self.address
        ))
    }
}

/// An open stream of events. Its connection is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    /// What came and is not taken yet.
    text: BytesMut,
    _connection: AbortOnDrop,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Takes the first whole event whose data is JSON. Comments, which keep the stream alive, have none.
pub(super) fn take_event(text: &mut BytesMut) -> Option<Value> {
    while let Some(end) = memchr::memmem::find(text, b"\n\n") {
        let event = text.split_to(end);
        text.advance(2);
        let event = String::from_utf8_lossy(&event);
        let data: Vec<&str> = event
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(str::trim_start)
            .collect();
        if let Ok(value) = serde_json::from_str(&data.join("\n")) {
            return Some(value);
        }
    }
    None
}
