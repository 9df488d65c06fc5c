//! W3C trace context: by which trace a request is known to those around Weir.
//!
//! `traceparent` and `tracestate` pass to the pod. Where Weir reports no span of a request they pass as they came, so that
//! the pod's span hangs on the gateway's: a parent that nobody reported would tear the trace. Where it does
//! ([`super::spans`]) the pod is told of Weir's. Where no gateway begins a trace, Weir may
//! ([`TraceContext::Make`]). The id of the trace is in every log line of its request.

use std::{str::FromStr as _, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    SpanId, TraceId,
    trace::{TraceFlags, TraceState},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spans::Span;

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
#[derive(Debug, Default)]
pub struct Known {
    /// `x-request-id`.
    pub request_id: Arc<str>,
    /// The trace it belongs to, if any.
    pub trace: Option<Box<Trace>>,
}

impl Known {
    /// The trace as a field of a log line; absent when there is none.
    pub fn trace(&self) -> Option<&str> {
        self.trace.as_deref().map(|trace| &*trace.id)
    }

    /// What is reported of it, if anything is.
    pub fn span(&mut self) -> Option<&mut Span> {
        self.trace.as_deref_mut()?.span.as_mut()
    }

    /// The same, to be ended.
    pub fn take_span(&mut self) -> Option<Span> {
        self.trace.as_deref_mut()?.span.take()
    }
}

/// The trace that a request belongs to.
#[derive(Debug)]
pub struct Trace {
    /// 32 hexadecimal digits.
    pub id: Box<str>,
    /// What Weir reports of the request; `None`: nothing, or no longer.
    pub span: Option<Span>,
}

/// Where a request is in its trace: what it came with, or what was made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which trace.
    pub trace: TraceId,
    /// Below which span.
    pub parent: SpanId,
    /// Whether that is somebody else's. Of a trace that is made here nobody reports it.
    pub is_remote: bool,
    /// Whether its spans are to be reported.
    pub sampled: bool,
}

/// What others wrote beside a trace. Where it has several values they are one list (RFC 9110), and what cannot be read is as if it
/// was not there.
pub fn state(headers: &HeaderMap) -> TraceState {
    let state = headers.get_all(TRACESTATE).iter().map(|value| value.to_str().ok());
    let state = state.collect::<Option<Vec<_>>>().unwrap_or_default().join(",");
    TraceState::from_str(&state).unwrap_or_default()
}

impl Place {
    /// The place that these headers say, if they do.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let (trace, parent, flags) = parts(headers.get(TRACEPARENT)?.to_str().ok()?)?;
        Some(Self {
            trace: TraceId::from_hex(trace).ok()?,
            parent: SpanId::from_hex(parent).ok()?,
            is_remote: true,
            sampled: u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1),
        })
    }

    /// What is said of this trace in a span's context.
    pub const fn flags(&self) -> TraceFlags {
        if self.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED }
    }

    /// Has the pod told that it is below `parent`. `tracestate` stays where it belongs to the trace.
    pub fn tell(&self, parent: SpanId, headers: &mut HeaderMap) {
        let (trace, flags) = (self.trace, self.flags().to_u8());
        if let Ok(value) = HeaderValue::try_from(format!("00-{trace}-{parent}-{flags:02x}")) {
            headers.insert(TRACEPARENT, value);
        }
        if !self.is_remote {
            // It belongs to a parent that could not be read (Trace Context, section 3.3).
            headers.remove(TRACESTATE);
        }
    }
}

/// Trace, parent and flags of a `traceparent` (W3C Trace Context, section 3.2): version, trace, parent and flags.
/// Versions above 00 may have more after that.
fn parts(traceparent: &str) -> Option<(&str, &str, &str)> {
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
    (all && version != "ff" && ends && !zero(trace) && !zero(parent))
        .then_some((trace, parent, flags))
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
    fn the_place_is_what_the_headers_say() {
        let place = Place::of(&headers(GOOD)).unwrap();
        assert_eq!(place.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(place.parent.to_string(), "b7ad6b7169203331");
        assert!(place.is_remote && place.sampled);
        assert_eq!(state(&headers(GOOD)).header(), "congo=t61rcWkgMzE");
        assert!(!Place::of(&headers(&GOOD.replace("-01", "-fe"))).unwrap().sampled);
        let later = GOOD.replace("00-", "01-") + "-more";
        assert!(Place::of(&headers(&later)).is_some());
    }

    #[test]
    fn what_is_no_trace_is_no_place() {
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
            assert_eq!(Place::of(&headers(bad)), None, "{bad}");
        }
        assert_eq!(Place::of(&HeaderMap::new()), None);
    }

    #[test]
    fn a_state_that_cannot_be_read_costs_no_trace() {
        let mut odd = headers(GOOD);
        odd.insert(TRACESTATE, "no pairs here".parse().unwrap());
        assert!(Place::of(&odd).is_some());
        assert_eq!(state(&odd), TraceState::default());
    }

    #[test]
    fn the_pod_is_told_of_the_parent_and_keeps_what_belongs_to_the_trace() {
        let parent = SpanId::from_hex("00f067aa0ba902b7").unwrap();
        let mut told = headers(GOOD);
        let place = Place::of(&told).unwrap();
        place.tell(parent, &mut told);
        assert_eq!(told[TRACEPARENT], GOOD.replace("b7ad6b7169203331", "00f067aa0ba902b7"));
        assert!(told.contains_key(TRACESTATE));
        let made = Place { is_remote: false, sampled: false, ..place };
        made.tell(parent, &mut told);
        assert!(told[TRACEPARENT].to_str().unwrap().ends_with("-00f067aa0ba902b7-00"));
        assert!(!told.contains_key(TRACESTATE), "it belongs to another parent");
    }
}
