//! Spans: what became of a request, told to an OpenTelemetry collector.
//!
//! Of a request that is sampled there are three: the request at Weir, and below it its wait in the queue and its way to the
//! pod and back. The pod is told of the last as its parent, so that its own spans hang there. All three are made when the
//! request is over, on a thread of their own, and sent in batches (OTLP over HTTP, protobuf). A collector that does not take
//! them costs spans, never a request: what finds no room is dropped and counted.
//!
//! Whether a request is sampled says who began its trace; of those that begin here, [`RawSpans::sample`].
//!
//! # Layout
//! - [`span`]: one request's, while it goes and when it is over
//! - [`tracer`]: which requests have one
//! - [`export`]: their way to the collector

pub mod export;
pub mod span;
pub mod tracer;

use std::sync::atomic::AtomicU64;

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use span::Span;
pub use tracer::Tracer;

use crate::config::Problems;

/// Where a collector takes traces, when the endpoint names no path.
const TRACES: &str = "/v1/traces";

/// Spans for an OpenTelemetry collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawSpans {
    /// Where an OpenTelemetry collector takes OTLP over HTTP, as `http://127.0.0.1:4318`; without a path it is `/v1/traces`.
    /// Empty: no spans. Headers for it are in the environment (`OTEL_EXPORTER_OTLP_HEADERS`).
    pub endpoint: String,
    /// Share of the traces that begin at Weir which have spans. Of others their beginner decides, by the flag in `traceparent`.
    #[schemars(range(min = 0, max = 1))]
    pub sample: f64,
}

impl Default for RawSpans {
    fn default() -> Self {
        Self { endpoint: String::new(), sample: 1.0 }
    }
}

impl RawSpans {
    /// Notes what cannot be used.
    pub fn check(&self, problems: &mut Problems) {
        if let Err(why) = self.collector() {
            problems.add("telemetry.spans.endpoint", why);
        }
        let sane = (0.0..=1.0).contains(&self.sample);
        problems.require(sane, "telemetry.spans.sample", "must be from 0 to 1");
    }

    /// Where they go; `None` when nowhere.
    ///
    /// # Errors
    /// What is wrong with the endpoint.
    pub fn collector(&self) -> Result<Option<Uri>, String> {
        if self.endpoint.is_empty() {
            return Ok(None);
        }
        let uri: Option<Uri> = self.endpoint.parse().ok();
        let uri = uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let uri = uri.ok_or_else(|| {
            format!("{:?} is no URL; write for example http://127.0.0.1:4318", self.endpoint)
        })?;
        if uri.scheme_str() != Some("http") {
            return Err(
                "must begin with http://; a collector beside Weir can go on with TLS".into()
            );
        }
        let bare = matches!(uri.path(), "" | "/");
        let whole = || format!("{}{TRACES}", self.endpoint.trim_end_matches('/')).parse();
        if bare { whole().map(Some).map_err(|_| "has no path".into()) } else { Ok(Some(uri)) }
    }
}

/// What became of spans.
#[derive(Debug, Default)]
pub struct SpanTally {
    /// The collector took them.
    pub sent: AtomicU64,
    /// They found no room.
    pub dropped: AtomicU64,
    /// The collector did not take them.
    pub failed: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(endpoint: &str) -> Result<Option<String>, String> {
        let raw = RawSpans { endpoint: endpoint.to_owned(), ..RawSpans::default() };
        raw.collector().map(|uri| uri.map(|uri| uri.to_string()))
    }

    #[test]
    fn a_collector_is_named_with_or_without_its_path() {
        assert_eq!(collector(""), Ok(None));
        for (endpoint, uri) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://otel:4318/", "http://otel:4318/v1/traces"),
            ("http://[::1]:4318/a/b?c=d", "http://[::1]:4318/a/b?c=d"),
        ] {
            assert_eq!(collector(endpoint), Ok(Some(uri.to_owned())));
        }
    }

    #[test]
    fn what_is_no_collector_is_refused_with_a_reason() {
        for (endpoint, why) in [
            ("127.0.0.1:4318", "must begin"),
            ("otel:4318/v1", "is no URL"),
            ("http://", "is no URL"),
            ("https://otel:4318", "must begin with http://"),
        ] {
            let said = collector(endpoint).unwrap_err();
            assert!(said.contains(why), "{endpoint}: {said}");
        }
        let mut problems = Problems::default();
        RawSpans { sample: 1.5, ..RawSpans::default() }.check(&mut problems);
        assert_eq!(problems.lines(), ["telemetry.spans.sample: must be from 0 to 1"]);
    }
}
