//! One kept-alive connection to a pod's `/metrics`.
//!
//! Owned by the pod's watcher. A scrape that fails closes it; the next one opens another.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle};

/// Most bytes of an answer that are read. A busy vLLM writes 60 to 200 kB.
const MOST_BYTES: usize = 4 << 20;

/// Why a scrape brought no text.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// Nobody listens there.
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    /// The connection broke, or what came over it was no HTTP.
    #[error("connection failed: {0}")]
    Http(#[from] hyper::Error),
    /// The answer is larger than any sound one, or broke off.
    #[error("answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The pod answered with another status than 200.
    #[error("answered with status {0}")]
    Status(StatusCode),
    /// The request cannot be written for this address.
    #[error("address cannot be asked: {0}")]
    Address(#[from] http::Error),
}

/// A connection, while there is one.
#[derive(Debug, Default)]
pub struct Connection {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Asks for `/metrics`. Dropping the future closes the connection.
    ///
    /// # Errors
    /// When there is no usable answer with status 200.
    pub async fn scrape(&mut self, authority: &str) -> Result<Bytes, ScrapeError> {
        if let Some(kept) = self.open.take().filter(|open| !open.sender.is_closed()) {
            match self.ask(kept, authority).await {
                // The pod may have closed a connection that was idle; that says nothing about it.
                Err(ScrapeError::Http(error)) if error.is_canceled() || error.is_closed() => {}
                answer => return answer,
            }
        }
        let fresh = Open::connect(authority).await?;
        self.ask(fresh, authority).await
    }

    async fn ask(&mut self, mut open: Open, authority: &str) -> Result<Bytes, ScrapeError> {
        open.sender.ready().await?;
        let request = Request::get("/metrics")
            .header(header::HOST, authority)
            .header(header::ACCEPT, "text/plain")
            .body(Empty::new())?;
        let response = open.sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(ScrapeError::Body)?.to_bytes();
        self.open = Some(open);
        if status == StatusCode::OK { Ok(body) } else { Err(ScrapeError::Status(status)) }
    }
}

impl Open {
    async fn connect(authority: &str) -> Result<Self, ScrapeError> {
        let stream = TcpStream::connect(authority).await.map_err(ScrapeError::Connect)?;
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // Its error comes back through the sender as well.
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
    }
}
