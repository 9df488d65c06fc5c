//! What is added to the headers of a pod's response. What belongs to the pod's connection is not among them, and the name of
//! the request is put in where it was made.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Version, header, response};

use crate::hub::Lease;

/// How long a request waited here, in milliseconds.
const QUEUE_MS: HeaderName = HeaderName::from_static("x-weir-queue-ms");
/// The pod that answered.
pub(super) const POD: HeaderName = HeaderName::from_static("x-weir-pod");

/// Makes the head of a pod's response one of ours.
pub(super) fn own(head: &mut response::Parts, lease: &Lease, waited: Duration, streams: bool) {
    // What is said on this connection is ours, whatever the pod speaks.
    head.version = Version::HTTP_11;
    let headers = &mut head.headers;
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let none = HeaderValue::from_static("0");
    headers.insert(QUEUE_MS, if waited_ms == 0 { none } else { waited_ms.into() });
    if let Some(pod) = &lease.pod().label {
        headers.insert(POD, pod.clone());
    }
    if streams {
        // Caches and buffering proxies in between would hold the tokens back.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        let buffering = HeaderName::from_static("x-accel-buffering");
        headers.entry(buffering).or_insert(HeaderValue::from_static("no"));
    }
}

/// Whether a response is a stream of events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.as_bytes().get(..EVENT_STREAM.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(EVENT_STREAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_is_known_by_its_type_whatever_its_case_and_parameters() {
        let of = |value| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(value));
            is_event_stream(&headers)
        };
        assert!(of("text/event-stream; charset=utf-8"));
        assert!(of("Text/Event-Stream"));
        assert!(!of("application/json"));
        assert!(!of("text"));
    }
}
