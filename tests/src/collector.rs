//! An OpenTelemetry collector that keeps what it is told.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1,
};
use parking_lot::Mutex;
use prost::Message as _;

use crate::{server::Server, wait::eventually};

/// A running collector, at `/v1/traces`.
#[derive(Debug)]
pub struct Collector {
    server: Server,
    told: Arc<Mutex<Told>>,
}

/// What it was told so far.
#[derive(Debug, Default)]
struct Told {
    spans: Vec<Span>,
    refuses: bool,
    headers: HeaderMap,
    resource: BTreeMap<String, String>,
}

/// A span as it came: ids in hexadecimal digits, values as text.
#[derive(Clone, Debug)]
pub struct Span {
    /// Of which trace.
    pub trace: String,
    /// Which.
    pub id: String,
    /// Below which; empty: none.
    pub parent: String,
    /// What it is called.
    pub name: String,
    /// 1: internal, 2: server, 3: client.
    pub kind: i32,
    /// Start and end, in nanoseconds since 1970.
    pub times: (u64, u64),
    /// What is said of it.
    pub of: BTreeMap<String, String>,
    /// What happened in it, and why.
    pub events: Vec<(String, String)>,
    /// Whether it is an error, and which.
    pub error: Option<String>,
}

impl Collector {
    /// Starts one.
    pub async fn start() -> Self {
        let told = Arc::<Mutex<Told>>::default();
        let heard = told.clone();
        let server = Server::start(move |request| {
            let told = heard.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                let refuses = told.lock().refuses;
                let is_right = head.uri.path() == "/v1/traces" && !refuses;
                let mut response = Response::new(Full::new(Bytes::new()));
                if is_right {
                    told.lock().take(head.headers, body);
                } else {
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                }
                response
            }
        })
        .await;
        Self { server, told }
    }

    /// Its URL, without the path.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Whether it takes nothing from now on.
    pub fn refuses(&self, refuses: bool) {
        self.told.lock().refuses = refuses;
    }

    /// The headers that its last call had.
    pub fn headers(&self) -> HeaderMap {
        self.told.lock().headers.clone()
    }

    /// Who tells it.
    pub fn resource(&self) -> BTreeMap<String, String> {
        self.told.lock().resource.clone()
    }

    /// All that it was told so far.
    pub fn spans(&self) -> Vec<Span> {
        self.told.lock().spans.clone()
    }

    /// The spans of a request, once it was told so many: the whole, its wait, its way to the pod.
    pub async fn of_request(&self, request_id: &str, spans: usize) -> Vec<Span> {
        eventually("the collector was told of the request", async || {
            let all = self.spans();
            let is_it =
                |span: &&Span| span.of.get("weir.request_id").is_some_and(|id| id == request_id);
            let whole = all.iter().find(is_it).cloned().ok_or("nothing of it")?;
            let below = all.into_iter().filter(|span| span.parent == whole.id);
            let mut found: Vec<Span> = std::iter::once(whole.clone()).chain(below).collect();
            found.sort_by_key(|span| [2, 1, 3].iter().position(|kind| *kind == span.kind));
            if found.len() == spans { Ok(found) } else { Err("another number of spans") }
        })
        .await
    }
}

impl Told {
    fn take(&mut self, headers: HeaderMap, body: Bytes) {
        self.headers = headers;
        let request = ExportTraceServiceRequest::decode(body).expect("it is what OTLP says");
        for of in request.resource_spans {
            self.resource =
                of.resource.map(|resource| texts(resource.attributes)).unwrap_or_default();
            let spans = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.spans.extend(spans.map(Span::from));
        }
    }
}

impl From<v1::Span> for Span {
    fn from(span: v1::Span) -> Self {
        let why = |event: v1::span::Event| {
            (event.name, texts(event.attributes).remove("weir.reason").unwrap_or_default())
        };
        let is_error = |status: &v1::Status| status.code == v1::status::StatusCode::Error as i32;
        Self {
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            name: span.name,
            kind: span.kind,
            times: (span.start_time_unix_nano, span.end_time_unix_nano),
            of: texts(span.attributes),
            events: span.events.into_iter().map(why).collect(),
            error: span.status.filter(is_error).map(|status| status.message),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn texts(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    attributes.into_iter().map(|one| (one.key, one.value.map(text).unwrap_or_default())).collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}
