//! Which request headers go on to the pod, and by which name a request is known.
//!
//! Dropped are the headers that belong to one connection (RFC 9110, section 7.6.1, and those that
//! `Connection` names), those that hyper sets itself, `Accept-Encoding` (a compressed stream could
//! not be followed), `X-data-parallel-rank` (which engine serves is Weir's to say, or the pod's), `Authorization` and `x-api-key` when Weir is who checks keys or has one for the pods, and everything that steers
//! Weir: a client must not reach through to a scheduler behind it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{CONNECTION, HOST},
};

use super::auth::API_KEY;

/// The header by which a request is known to client, dispatcher and pod.
pub const REQUEST_ID: HeaderName = HeaderName::from_static(REQUEST_ID_NAME);
const REQUEST_ID_NAME: &str = "x-request-id";

/// Longest request id taken from a client.
const REQUEST_ID_BYTES: usize = 128;

/// Prefixes of headers that steer a scheduler.
const STEERING: [&str; 5] = ["x-llm-d-", "x-gateway-", "x-slo-", "x-weir-", "x-prediction-"];

/// The headers that go on; with them goes the name by which the request is known.
pub fn onward(headers: &HeaderMap, keys_stay: bool) -> impl Iterator<Item = (&str, &[u8])> {
    let listed = named_by_connection(headers);
    let stays = move |name: &HeaderName| {
        is_for_us(name.as_str(), keys_stay) || listed.contains(name) || name_steers(name)
    };
    let go = headers.iter().filter(move |(name, _)| !stays(name));
    go.map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// Whether a header is for this server alone, or written anew.
fn is_for_us(name: &str, keys_stay: bool) -> bool {
    match name {
        "accept-encoding"
        | "connection"
        | "content-length"
        | "expect"
        | "host"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "proxy-connection"
        | "te"
        | "trailer"
        | "transfer-encoding"
        | "upgrade"
        | "x-data-parallel-rank"
        | REQUEST_ID_NAME => true,
        "authorization" | API_KEY => keys_stay,
        _ => false,
    }
}

/// Whether a request says once for whom it is (RFC 9112, section 3.2), which HTTP/1.0 may leave out.
pub fn has_one_host(headers: &HeaderMap, version: Version) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    (first.is_some() || version < Version::HTTP_11) && hosts.next().is_none()
}

/// Whether any header steers Weir or a scheduler like it.
pub fn steers(headers: &HeaderMap) -> bool {
    headers.keys().any(name_steers)
}

fn name_steers(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-") && STEERING.iter().any(|start| name.starts_with(start))
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

/// Names requests: a random prefix per process, so that two dispatchers do not collide, and a
/// number.
#[derive(Debug)]
pub struct RequestIds {
    random: RandomState,
    /// What is before the number in names.
    prefix: Box<str>,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids with a prefix of their own.
    pub fn new() -> Self {
        let random = RandomState::new();
        // The upper half of a hash is as random as the state that it is hashed with.
        let prefix = (random.hash_one("prefix") >> 32) as u32;
        let prefix = format!("weir-{prefix:08x}-").into();
        Self { random, prefix, next: AtomicU64::new(1) }
    }

    /// A number from 0 to 1 that belongs to the request of this number; no client can foresee it.
    pub fn jitter(&self, number: u64) -> f64 {
        self.random.hash_one(number) as f64 / u64::MAX as f64
    }

    /// What makes ids that no client can foresee.
    pub fn random(&self) -> &RandomState {
        &self.random
    }

    /// The next number; never given twice.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// The first of so many numbers that follow each other.
    pub fn numbers(&self, count: u32) -> u64 {
        self.next.fetch_add(count.into(), Relaxed)
    }

    /// The client's own id if it is safe to repeat in logs and headers, else one made from `number`.
    pub fn name(&self, headers: &HeaderMap, number: u64) -> HeaderValue {
        let clients = headers.get(&REQUEST_ID).filter(|id| is_sane(id.as_bytes()));
        // Not a piece of the connection's buffer, which would be held for as long as the request lasts.
        let clients = clients.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok());
        let ours = || {
            let name = [&*self.prefix, itoa::Buffer::new().format(number)].concat();
            HeaderValue::from_maybe_shared(Bytes::from(name)).ok()
        };
        clients.or_else(ours).unwrap_or_else(|| HeaderValue::from(number))
    }
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

fn is_sane(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=REQUEST_ID_BYTES).contains(&id.len()) && id.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn went(headers: &HeaderMap, keys_stay: bool) -> Vec<&str> {
        let mut names: Vec<_> = onward(headers, keys_stay).map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_belongs_to_one_connection_or_steers_a_scheduler_stays_here() {
        let sent = headers(&[
            ("connection", "keep-alive, X-Hop"),
            ("connection", "x-second-hop"),
            ("x-hop", "1"),
            ("x-second-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("proxy-authorization", "secret"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("host", "weir.example"),
            ("accept-encoding", "gzip"),
            ("x-llm-d-inference-objective", "interactive"),
            ("x-gateway-inference-fairness-id", "a"),
            ("x-gateway-destination-endpoint", "10.0.0.1:80"),
            ("x-slo-ttft-ms", "5"),
            ("x-weir-pod", "pod-0"),
            ("x-prediction-based-scheduling", "true"),
            ("x-request-id", "theirs"),
            ("content-type", "application/json"),
            ("authorization", "Bearer sk"),
            ("x-api-key", "sk"),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ]);
        let all = ["authorization", "content-type", "traceparent", "x-api-key"];
        assert_eq!(went(&sent, false), all);
        // A key of ours is not for the pods.
        assert_eq!(went(&sent, true), all[1..3]);
    }

    #[test]
    fn a_request_has_one_host() {
        let (none, one) = (headers(&[("x-a", "1")]), headers(&[("host", "a")]));
        let two = headers(&[("host", "a"), ("host", "a")]);
        let of = |headers| [Version::HTTP_10, Version::HTTP_11].map(|v| has_one_host(headers, v));
        assert_eq!([of(&none), of(&one), of(&two)], [[true, false], [true; 2], [false; 2]]);
    }

    #[test]
    fn a_sane_request_id_is_kept_and_any_other_replaced() {
        let ids = RequestIds::new();
        let name = |value: &str| ids.name(&headers(&[("x-request-id", value)]), 7);
        for sane in ["a", "req_1.2-3", &"x".repeat(128)] {
            assert_eq!(name(sane), sane);
        }
        let ours = format!("{}7", ids.prefix);
        for other in ["", "a b", "a\tb", "{}", "a,b", "<script>", "é", &"x".repeat(129)] {
            assert_eq!(name(other), *ours, "{other:?}");
        }
        assert_eq!(ids.name(&HeaderMap::new(), 7), *ours);
    }

    #[test]
    fn a_number_is_never_given_twice() {
        let ids = RequestIds::new();
        assert_ne!(ids.number(), ids.number());
    }
}
