//! The way of spans to the collector: in batches, over HTTP, by a thread of its own.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use async_channel::Receiver;
use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry::InstrumentationScope;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, trace::SpanExporter as _};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{SpanTally, span::Over};
use crate::worker::Stop;

/// Most requests whose spans go together.
const BATCH: usize = 512;
/// How long the first of a batch waits for others.
const PAUSE: Duration = Duration::from_secs(1);
/// The time that a collector has, with what is tried again.
const LIMIT: Duration = Duration::from_secs(10);
/// The time that it has at the end of the process.
const LAST: Duration = Duration::from_secs(2);
/// Most bytes of an answer.
const ANSWER_BYTES: usize = 64 << 10;

/// Sends what is over until it is told to stop, and then what is left, as far as the collector takes it.
pub async fn run(collector: Uri, over: Receiver<Box<Over>>, tally: Arc<SpanTally>, mut stop: Stop) {
    let exporter = match exporter(&collector) {
        Ok(exporter) => exporter,
        Err(error) => {
            tracing::error!(%error, %collector, "no spans are sent");
            return;
        }
    };
    let mut failing = false;
    loop {
        let batch = gather(&over, &mut stop).await;
        let ends = stop.is_requested();
        if batch.is_empty() {
            return;
        }
        let spans = batch.iter().map(Over::spans).sum();
        let sent = send(&exporter, batch, &mut stop).await;
        let count = if sent.is_ok() { &tally.sent } else { &tally.failed };
        count.fetch_add(spans, Relaxed);
        match &sent {
            Ok(()) if failing => tracing::info!(%collector, "spans are taken again"),
            Err(error) if !failing => tracing::warn!(error, %collector, "spans are not taken"),
            _ => {}
        }
        failing = sent.is_err();
        if ends && failing {
            return;
        }
    }
}

fn exporter(collector: &Uri) -> Result<SpanExporter, opentelemetry_otlp::ExporterBuildError> {
    let exporter = SpanExporter::builder().with_http().with_http_client(Post);
    let mut exporter = exporter.with_endpoint(collector.to_string()).with_timeout(LIMIT).build()?;
    // Its attributes are of the environment, as everywhere: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES.
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
    let of = Resource::builder();
    let of = if named { of } else { of.with_service_name("weir") };
    exporter.set_resource(&of.build());
    Ok(exporter)
}

/// What is over, once it is enough, or has waited long enough, or the end has come; none at the end alone.
async fn gather(over: &Receiver<Box<Over>>, stop: &mut Stop) -> Vec<Over> {
    let mut batch = Vec::new();
    tokio::select! {
        first = over.recv() => batch.extend(first.ok().map(|one| *one)),
        () = stop.requested() => {}
    }
    let until = Instant::now() + PAUSE;
    while batch.len() < BATCH {
        let next = tokio::select! {
            biased;
            next = timeout_at(until, over.recv()) => next.ok().and_then(Result::ok),
            () = stop.requested() => over.try_recv().ok(),
        };
        let Some(next) = next else { break };
        batch.push(*next);
    }
    batch
}

async fn send(exporter: &SpanExporter, batch: Vec<Over>, stop: &mut Stop) -> Result<(), String> {
    let scope = InstrumentationScope::builder("weir").with_version(env!("CARGO_PKG_VERSION"));
    let scope = scope.build();
    let spans = batch.into_iter().flat_map(|one| one.into_spans(&scope)).collect();
    let farewell = async {
        stop.requested().await;
        sleep(LAST).await;
    };
    tokio::select! {
        sent = exporter.export(spans) => sent.map_err(|error| error.to_string()),
        () = farewell => Err("no answer before the end".to_owned()),
    }
}

/// Sends a batch on a connection of its own: there is one a second at most, unless there is much to say.
#[derive(Debug)]
struct Post;

#[async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        timeout(LIMIT, post(request)).await?
    }
}

async fn post(mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let to = request.uri().authority().ok_or("no host")?;
    let (host, port) = (to.host(), to.port_u16().unwrap_or(80));
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await?;
    let host = HeaderValue::try_from(format!("{host}:{port}"))?;
    request.headers_mut().insert(HOST, host);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this call.
    let mut driven = JoinSet::new();
    driven.spawn(connection);
    let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
