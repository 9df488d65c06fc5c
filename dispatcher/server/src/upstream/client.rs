//! Connections to pods: one [`Upstream`] per data-plane thread.
//!
//! Each pod has its own stack of unused connections, so that one that hangs or resets harms nobody
//! else. Whether a request may be sent again is decided here: only when hyper hands it back, which
//! means that not a byte of it was written (hyperium/hyper issue 2136 has the race that this is
//! for).

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use weir_core::PodId;

use super::UpstreamConfig;
use crate::{fleet::Pod, telemetry::Metrics};

/// A request as it goes to a pod.
pub(super) type PodRequest = Request<Full<Bytes>>;

/// A thread's way to the pods.
pub struct Upstream {
    config: UpstreamConfig,
    metrics: Arc<Metrics>,
    idle: Arc<Idle>,
}

/// A connection. Dropped together with its response it is cut, whatever is under way on it.
pub(super) type Conn = SendRequest<Full<Bytes>>;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing of the request was sent: here it is back.
    Unsent { request: Box<PodRequest>, reason: UnsentReason },
    /// The connection was lost after the request was sent, or the answer is not HTTP.
    Lost(hyper::Error),
    /// No response in time.
    Silent,
}

/// Why a request could not be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnsentReason {
    /// The pod's address does not answer.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The connection was refused, or the name does not resolve.
    #[error("cannot connect: {0}")]
    Connect(#[from] io::Error),
    /// The connection ended before the request was written.
    #[error("connection closed before the request was written: {0}")]
    Closed(#[from] hyper::Error),
}

impl Upstream {
    /// Without any connection.
    pub fn new(config: UpstreamConfig, metrics: Arc<Metrics>) -> Self {
        Self { config, metrics, idle: Arc::default() }
    }

    /// Its timeouts and limits.
    pub fn config(&self) -> &UpstreamConfig {
        &self.config
    }

    /// The metrics that its responses are counted in.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Sends a request, over an unused connection if there is one. One that turns out to be dead is
    /// replaced by a new one, once.
    pub(super) async fn send(
        &self,
        pod: &Pod,
        mut request: PodRequest,
        deadline: Instant,
    ) -> Result<(Response<Incoming>, Conn), Failure> {
        if let Ok(host) = HeaderValue::from_str(&pod.authority) {
            request.headers_mut().insert(header::HOST, host);
        }
        // Lets the runtime look at its sockets first. Otherwise the request is written into a
        // connection that the pod has closed meanwhile, and nobody can say what became of it.
        tokio::task::yield_now().await;
        if let Some(conn) = self.idle.take(pod.id, self.config.idle_timeout) {
            match exchange(conn, request, deadline).await {
                Err(Failure::Unsent { request: back, .. }) => request = *back,
                answer => return answer,
            }
        }
        match self.connect(&pod.authority).await {
            Ok(conn) => exchange(conn, request, deadline).await,
            Err(reason) => Err(Failure::Unsent { request: Box::new(request), reason }),
        }
    }

    /// What a response body needs to give its connection back.
    pub(super) fn way_back(&self, pod: PodId) -> WayBack {
        WayBack { idle: self.idle.clone(), pod, most: self.config.max_idle_per_pod }
    }

    async fn connect(&self, authority: &str) -> Result<Conn, UnsentReason> {
        let limit = self.config.connect_timeout;
        let stream = timeout(limit, TcpStream::connect(authority))
            .await
            .map_err(|_| UnsentReason::ConnectTimeout(limit))??;
        // Small writes must not wait for the pod's delayed acknowledgements.
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // Whoever uses the connection gets the error as well.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to a pod failed");
            }
        });
        Ok(sender)
    }
}

async fn exchange(
    mut conn: Conn,
    request: PodRequest,
    deadline: Instant,
) -> Result<(Response<Incoming>, Conn), Failure> {
    match timeout_at(deadline, conn.try_send_request(request)).await {
        Ok(Ok(response)) => Ok((response, conn)),
        Ok(Err(mut error)) => Err(match error.take_message() {
            Some(request) => {
                Failure::Unsent { request: Box::new(request), reason: error.into_error().into() }
            }
            None => Failure::Lost(error.into_error()),
        }),
        Err(_) => Err(Failure::Silent),
    }
}

/// Where a connection goes after its response was read to the end.
pub(super) struct WayBack {
    idle: Arc<Idle>,
    pod: PodId,
    most: usize,
}

impl WayBack {
    /// Keeps a connection for the pod's next request.
    pub(super) fn give(&self, conn: Conn) {
        if !conn.is_closed() {
            self.idle.put(self.pod, conn, self.most);
        }
    }
}

/// Unused connections by pod, oldest first.
#[derive(Default)]
struct Idle {
    // A lock and not a cell, so that futures stay Send; only one thread uses it.
    by_pod: Mutex<HashMap<PodId, VecDeque<(Instant, Conn)>>>,
}

impl Idle {
    /// The one used last, which is the least likely to be closed by now. Those unused for
    /// `timeout`, of any pod, are cut: a pod that left the pool is never asked for again.
    fn take(&self, pod: PodId, timeout: Duration) -> Option<Conn> {
        let now = Instant::now();
        let mut by_pod = self.by_pod.lock();
        by_pod.retain(|_, conns| {
            while conns.front().is_some_and(|(since, _)| now.duration_since(*since) >= timeout) {
                conns.pop_front();
            }
            !conns.is_empty()
        });
        let conns = by_pod.get_mut(&pod)?;
        conns.retain(|(_, conn)| !conn.is_closed());
        // One whose response has just ended may not be ready for the next request yet.
        let last = conns.iter().rposition(|(_, conn)| conn.is_ready())?;
        conns.remove(last).map(|(_, conn)| conn)
    }

    fn put(&self, pod: PodId, conn: Conn, most: usize) {
        let mut by_pod = self.by_pod.lock();
        let conns = by_pod.entry(pod).or_default();
        conns.push_back((Instant::now(), conn));
        if conns.len() > most {
            conns.pop_front();
        }
    }
}
