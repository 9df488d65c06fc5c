//! W3C trace context: by which trace a request is known to those around Weir.
//!
//! `traceparent` and `tracestate` pass to the pod as they came, so that the pod's span hangs on the
//! gateway's. Weir reports no spans of its own, and so puts none in between: a parent that nobody
//! reported would tear the trace. Where no gateway begins a trace, Weir may
//! ([`TraceContext::Make`]). The id of the trace is in every log line of its request.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What is done with a request's trace context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceContext {
    /// It passes as it is.
    #[default]
    Pass,
    /// The same, and a request without one, or with one that cannot be read, gets one.
    Make,
}

/// By what a request is known in log lines.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// `x-request-id`.
    pub request_id: Arc<str>,
    /// The trace it belongs to, if any: 32 hexadecimal digits.
    pub trace_id: Option<Arc<str>>,
}

impl Known {
    /// The trace as a field of a log line; absent when there is none.
    pub fn trace(&self) -> Option<&str> {
        self.trace_id.as_deref()
    }
}

impl TraceContext {
    /// The id of the trace that a request belongs to. With [`TraceContext::Make`] the headers of one
    /// that belongs to none are given a new one; `random` and `number` make it the request's own.
    pub fn of(
        self,
        headers: &mut HeaderMap,
        random: &RandomState,
        number: u64,
    ) -> Option<Arc<str>> {
        let known = headers.get(TRACEPARENT).and_then(|value| trace_id(value.to_str().ok()?));
        if known.is_some() || self == Self::Pass {
            return known.map(Arc::from);
        }
        let hash = |what: &str| random.hash_one((what, number)).max(1);
        let trace_id = format!("{:016x}{:016x}", hash("trace"), hash("rest"));
        // Flag 01: recorded. Somebody asked for it, and there is nobody above who could have decided.
        let parent = format!("00-{trace_id}-{:016x}-01", hash("span"));
        headers.insert(TRACEPARENT, HeaderValue::try_from(parent).ok()?);
        // It belongs to a parent that could not be read (Trace Context, section 3.3).
        headers.remove(TRACESTATE);
        Some(Arc::from(trace_id))
    }
}

/// The trace id of a `traceparent` (W3C Trace Context, section 3.2): version, trace, parent and flags.
/// Versions above 00 may have more after that.
fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.trim().split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (parent, flags) = (parts.next()?, parts.next()?);
    let sane = |text: &str, digits: usize| {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == digits && text.bytes().all(hex)
    };
    let all = sane(version, 2) && sane(trace, 32) && sane(parent, 16) && sane(flags, 2);
    let zero = |text: &str| text.bytes().all(|byte| byte == b'0');
    let ends = version != "00" || parts.next().is_none();
    (all && version != "ff" && ends && !zero(trace) && !zero(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, traceparent.parse().unwrap());
        headers.insert(TRACESTATE, "congo=t61rcWkgMzE".parse().unwrap());
        headers
    }

    #[test]
    fn a_trace_that_is_there_passes_and_is_known() {
        let random = RandomState::new();
        for context in [TraceContext::Pass, TraceContext::Make] {
            let mut sent = headers(GOOD);
            let id = context.of(&mut sent, &random, 1);
            assert_eq!(id.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
            assert_eq!(sent, headers(GOOD));
        }
        let later = GOOD.replace("00-", "01-") + "-more";
        assert!(trace_id(&later).is_some());
    }

    #[test]
    fn what_is_no_trace_passes_too_unless_one_is_to_be_made() {
        let random = RandomState::new();
        let zeros = "0".repeat(32);
        for bad in [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replace("00-", "ff-"),
            &format!("{GOOD}-more"),
            &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
            &GOOD.replace("b7ad6b7169203331", "0000000000000000"),
            &GOOD.replace("-01", "-1"),
        ] {
            let mut sent = headers(bad);
            assert_eq!(TraceContext::Pass.of(&mut sent, &random, 1), None, "{bad}");
            assert_eq!(sent, headers(bad));
            let made = TraceContext::Make.of(&mut sent, &random, 1);
            let parent = sent.get(TRACEPARENT).unwrap().to_str().unwrap();
            assert_eq!(trace_id(parent), made.as_deref(), "{bad} became {parent}");
            assert!(!sent.contains_key(TRACESTATE), "it belongs to another parent");
        }
    }

    #[test]
    fn every_request_gets_a_trace_of_its_own() {
        let random = RandomState::new();
        let make = |number| TraceContext::Make.of(&mut HeaderMap::new(), &random, number).unwrap();
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).len(), 32);
    }
}
