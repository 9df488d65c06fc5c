//! A model server of the scenario's own, for what a simulated pod does not show: it knows every model,
//! answers each call with the very body that it was sent, and its gauges say what it is told to say.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// A running server. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Echo {
    /// Where it listens.
    pub address: SocketAddr,
    running: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Echo {
    /// Starts a server that is idle.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let running = Arc::<AtomicU32>::default();
        let task = tokio::spawn(accept(listener, running.clone()));
        Self { address, running, task }
    }

    /// Lets its gauges say that so many requests run.
    pub fn says_it_runs(&self, requests: u32) {
        self.running.store(requests, Relaxed);
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn accept(listener: TcpListener, running: Arc<AtomicU32>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, running.clone()));
    }
}

async fn serve(stream: TcpStream, running: Arc<AtomicU32>) {
    let service = service_fn(|request| answer(request, running.load(Relaxed)));
    // A connection that breaks shows at its other end.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    running: u32,
) -> Result<Response<Full<Bytes>>, Infallible> {
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
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}
