//! A model server of the scenario's own, for what a simulated pod does not show: it knows every model,
//! answers each call with the very body that it was sent, and its gauges say what it is told to say.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::server::Server;

/// A running server. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Echo {
    /// Where it listens.
    pub address: SocketAddr,
    running: Arc<AtomicU32>,
    server: Server,
}

impl Echo {
    /// Starts a server that is idle.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start() -> Self {
        let running = Arc::<AtomicU32>::default();
        let told = running.clone();
        let server = Server::start(move |request| answer(request, told.load(Relaxed))).await;
        Self { address: server.address, running, server }
    }

    /// Lets its gauges say that so many requests run.
    pub fn says_it_runs(&self, requests: u32) {
        self.running.store(requests, Relaxed);
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url()
    }
}

async fn answer(request: Request<Incoming>, running: u32) -> Response<Full<Bytes>> {
    let gauges = request.uri().path() == "/metrics";
    let (kind, body) = if gauges {
        let text = format!(
            "vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n\
             vllm:kv_cache_usage_perc 0.0\n"
        );
        ("text/plain", Bytes::from(text))
    } else {
        let body = request.into_body().collect().await;
        ("application/json", body.map(|body| body.to_bytes()).unwrap_or_default())
    };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
