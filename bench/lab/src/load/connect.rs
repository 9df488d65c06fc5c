//! The load's own connections: taken from the idle ones, else opened; given back when their answer was read to its end.

use std::cell::RefCell;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Duration, Instant},
};

use super::Target;

/// Idle connections older than this are closed rather than used: a server may be about to close them.
const IDLE: Duration = Duration::from_secs(3);

/// A connection that can send.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// Connections to one server.
pub(super) struct Connections {
    target: Target,
    idle: RefCell<Vec<(Sender, Instant)>>,
}

impl Connections {
    pub(super) fn new(target: Target) -> Self {
        Self { target, idle: RefCell::new(Vec::new()) }
    }

    /// Sends a request. One that a stale connection did not take goes out on another.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), String> {
        while let Some(mut sender) = self.take() {
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().to_string()),
                },
            }
        }
        let mut sender = self.open().await?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        Ok((response, sender))
    }

    /// Keeps a connection for the next request.
    pub(super) async fn give_back(&self, mut sender: Sender) {
        if sender.ready().await.is_ok() {
            self.idle.borrow_mut().push((sender, Instant::now()));
        }
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(sender, since)| sender.is_ready() && since.elapsed() < IDLE);
        idle.pop().map(|(sender, _)| sender)
    }

    async fn open(&self) -> Result<Sender, String> {
        let said = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect(self.target.address).await.map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        match self.target.seal() {
            Some(seal) => speak(seal.greet(stream).await.map_err(said)?).await,
            None => speak(stream).await,
        }
    }
}

/// Speaks HTTP over a connection, for as long as its sender is there.
async fn speak<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tokio::task::spawn_local(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
    Ok(sender)
}
