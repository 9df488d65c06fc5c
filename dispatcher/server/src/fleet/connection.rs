//! One kept-alive connection to a pod's `/metrics`.
//!
//! Owned by the pod's watcher. A scrape that fails closes it; the next one opens another.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use tokio::net::TcpStream;

use crate::h1::{self, BadReply, Failed, PodRequest};

/// Most bytes of an answer that are read. A busy vLLM writes 60 to 200 kB.
const MOST_BYTES: usize = 4 << 20;

/// Why a scrape brought no text.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nobody listens there.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke before anything was asked.
    #[error("connection failed: {0}")]
    Unsent(std::io::Error),
    /// The connection broke, or what came over it was no HTTP.
    #[error("connection failed: {0}")]
    Http(#[from] BadReply),
    /// The answer is larger than any sound one.
    #[error("answer has more than {MOST_BYTES} bytes")]
    TooLarge,
    /// The pod answered with another status than 200.
    #[error("answered with status {0}")]
    Status(StatusCode),
}

/// A connection, while there is one.
#[derive(Debug)]
pub struct Connection {
    request: PodRequest,
    open: Option<TcpStream>,
}

impl Default for Connection {
    fn default() -> Self {
        let accept = ("accept", b"text/plain".as_slice());
        let request = PodRequest::new(&Method::GET, "/metrics", [accept].into_iter(), Bytes::new());
        Self { request, open: None }
    }
}

impl Connection {
    /// Asks for `/metrics`. Dropping the future closes the connection.
    ///
    /// # Errors
    /// When there is no usable answer with status 200.
    pub async fn scrape(&mut self, authority: &str) -> Result<Bytes, ScrapeError> {
        // The pod may have closed a connection that was idle; that says nothing about it.
        if let Some(kept) = self.open.take().filter(h1::is_quiet) {
            match self.ask(kept, authority).await {
                Err(ScrapeError::Unsent(_) | ScrapeError::Http(_)) => {}
                answer => return answer,
            }
        }
        let fresh = TcpStream::connect(authority).await.map_err(ScrapeError::Connect)?;
        let _ = fresh.set_nodelay(true);
        self.ask(fresh, authority).await
    }

    async fn ask(&mut self, stream: TcpStream, authority: &str) -> Result<Bytes, ScrapeError> {
        let asked = h1::exchange(stream, (authority, ""), &self.request).await;
        let (head, mut reply) = asked.map_err(|failed| match failed {
            Failed::Unsent(error) => ScrapeError::Unsent(error),
            Failed::Lost(error) => ScrapeError::Http(error),
        })?;
        let mut text = BytesMut::new();
        while let Some(data) = reply.data().await.transpose()? {
            text.extend_from_slice(&data);
            if text.len() > MOST_BYTES {
                return Err(ScrapeError::TooLarge);
            }
        }
        self.open = reply.into_connection();
        if head.status == StatusCode::OK {
            Ok(text.freeze())
        } else {
            Err(ScrapeError::Status(head.status))
        }
    }
}
