//! What is dropped from and added to the headers of a pod's response.

use http::{HeaderMap, HeaderName, HeaderValue, header, response};
use smallvec::SmallVec;

use crate::{api::headers::REQUEST_ID, hub::Lease};

/// How long a request waited here, in milliseconds.
const QUEUE_MS: HeaderName = HeaderName::from_static("x-weir-queue-ms");
/// The pod that answered.
const POD: HeaderName = HeaderName::from_static("x-weir-pod");

/// Headers that belong to one connection (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes what belongs to one connection: the known names and those that `Connection` lists; and the length, which follows
/// from the body.
fn strip(headers: &mut HeaderMap) {
    let listed: SmallVec<[HeaderName; 4]> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let goes = |name: &&HeaderName| {
        **name == header::CONTENT_LENGTH || HOP_BY_HOP.contains(name) || listed.contains(name)
    };
    // Looked for among those that are there, which are few.
    let gone: SmallVec<[HeaderName; 8]> = headers.keys().filter(goes).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
}

/// Makes the head of a pod's response one of ours.
pub(super) fn own(head: &mut response::Parts, lease: &Lease, request_id: &str) {
    let headers = &mut head.headers;
    strip(headers);
    let waited_ms = u64::try_from(lease.dispatch().waited.as_millis()).unwrap_or(u64::MAX);
    headers.insert(QUEUE_MS, waited_ms.into());
    if let Ok(pod) = HeaderValue::from_str(&lease.pod().name) {
        headers.insert(POD, pod);
    }
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if is_event_stream(headers) {
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
    fn what_belongs_to_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Secret"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("transfer-encoding", "chunked"),
            ("x-kept", "1"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        strip(&mut headers);
        let left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-kept"]);
    }

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
