//! Which requests have spans.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use async_channel::{Receiver, bounded};
use http::HeaderMap;
use opentelemetry::{SpanId, TraceId};

use super::{
    Span, SpanTally,
    span::{Call, Outlet, Over},
};
use crate::{
    clock::Clock,
    telemetry::trace::{self, Place, Trace, TraceContext},
};

/// Requests whose spans wait for the collector at most.
const ROOM: usize = 4096;

/// Finds the trace of each request, and begins its span where it has one.
#[derive(Clone, Debug, Default)]
pub struct Tracer {
    context: TraceContext,
    /// Where spans go, and of which share of the traces that begin here.
    spans: Option<(Outlet, f64)>,
}

impl Tracer {
    /// One that reports nothing.
    pub const fn new(context: TraceContext) -> Self {
        Self { context, spans: None }
    }

    /// The same, with spans for this share of the traces that begin here; what comes out is to be sent to the collector.
    pub fn with_spans(
        self,
        sample: f64,
        clock: Clock,
        tally: Arc<SpanTally>,
    ) -> (Self, Receiver<Box<Over>>) {
        let (over, ended) = bounded(ROOM);
        (Self { spans: Some((Outlet { over, tally, clock }, sample)), ..self }, ended)
    }

    /// The trace that a request belongs to, if it does. `random` and `number` make what is made for it its own; `headers` are
    /// changed into what its pod is to be told.
    pub fn of(
        &self,
        headers: &mut HeaderMap,
        (random, number): (&RandomState, u64),
        call: impl FnOnce() -> Call,
    ) -> Option<Box<Trace>> {
        let hash = |what: &str| random.hash_one((what, number)).max(1);
        let came = Place::of(headers);
        let place = match came {
            Some(place) => place,
            None => self.begin(&hash)?,
        };
        let outlet = self.spans.as_ref().filter(|_| place.sampled);
        let id = place.trace.to_string().into();
        let span = outlet.map(|(outlet, _)| {
            let ids = ["request", "queue", "pod"].map(|what| SpanId::from(hash(what)));
            let state = came.map(|_| trace::state(headers)).unwrap_or_default();
            Span::begin((place, state), ids, outlet.clone(), call())
        });
        match &span {
            Some(span) => place.tell(span.pod(), headers),
            None if came.is_none() => place.tell(place.parent, headers),
            None => {}
        }
        Some(Box::new(Trace { id, span }))
    }

    /// A trace of its own for a request without one, if it is to have one.
    fn begin(&self, hash: &impl Fn(&str) -> u64) -> Option<Place> {
        let share = hash("sample") as f64 / u64::MAX as f64;
        let sampled = self.spans.as_ref().map(|(_, sample)| share < *sample);
        if self.context == TraceContext::Pass && sampled != Some(true) {
            return None;
        }
        let trace = u128::from(hash("trace")) << 64 | u128::from(hash("rest"));
        Some(Place {
            trace: TraceId::from(trace),
            parent: SpanId::from(hash("span")),
            is_remote: false,
            // Somebody asked for it, and there is nobody above who could have decided.
            sampled: sampled.unwrap_or(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use http::Method;

    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(traceparent: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", traceparent.parse().unwrap());
        headers.insert("tracestate", "congo=t61rcWkgMzE".parse().unwrap());
        headers
    }

    fn call() -> Call {
        Call {
            method: Method::POST,
            path: "/v1/completions".into(),
            model: "m".into(),
            objective: "standard".into(),
            request_id: "r".into(),
            arrived: weir_core::Time::ZERO,
        }
    }

    fn of(tracer: &Tracer, sent: &mut HeaderMap, number: u64) -> Option<Box<Trace>> {
        tracer.of(sent, (&RandomState::new(), number), call)
    }

    fn with_spans(sample: f64) -> (Tracer, Receiver<Box<Over>>, Arc<SpanTally>) {
        let tally = Arc::<SpanTally>::default();
        let tracer = Tracer::new(TraceContext::Make);
        let (tracer, over) = tracer.with_spans(sample, Clock::new(), tally.clone());
        (tracer, over, tally)
    }

    #[test]
    fn a_trace_that_is_there_passes_and_is_known() {
        for context in [TraceContext::Pass, TraceContext::Make] {
            let mut sent = headers(GOOD);
            let trace = of(&Tracer::new(context), &mut sent, 1).unwrap();
            assert_eq!(&*trace.id, "0af7651916cd43dd8448eb211c80319c");
            assert!(trace.span.is_none());
            assert_eq!(sent, headers(GOOD));
        }
    }

    #[test]
    fn what_is_no_trace_passes_too_unless_one_is_to_be_made() {
        let bad = headers(&GOOD.to_uppercase());
        let mut sent = bad.clone();
        assert!(of(&Tracer::new(TraceContext::Pass), &mut sent, 1).is_none());
        assert_eq!(sent, bad);
        let made = of(&Tracer::new(TraceContext::Make), &mut sent, 1).unwrap();
        let told = Place::of(&sent).unwrap();
        assert_eq!((told.trace.to_string().as_str(), told.sampled), (&*made.id, true));
        assert!(!sent.contains_key("tracestate"), "it belongs to another parent");
    }

    #[test]
    fn every_request_gets_a_trace_of_its_own() {
        let tracer = Tracer::new(TraceContext::Make);
        let random = RandomState::new();
        let make = |number| tracer.of(&mut HeaderMap::new(), (&random, number), call).unwrap().id;
        assert_ne!(make(1), make(2));
        assert_eq!(make(1).len(), 32);
    }

    #[test]
    fn a_trace_that_is_made_says_whether_it_is_sampled() {
        for (sample, sampled) in [(0.0, false), (1.0, true)] {
            let (tracer, _over, _) = with_spans(sample);
            let mut sent = HeaderMap::new();
            let trace = of(&tracer, &mut sent, 1).unwrap();
            let told = Place::of(&sent).unwrap();
            assert_eq!((told.sampled, trace.span.is_some()), (sampled, sampled));
        }
    }

    #[test]
    fn spans_that_find_no_room_are_dropped_and_counted() {
        let (tracer, over, tally) = with_spans(1.0);
        for number in 0..ROOM as u64 + 3 {
            let trace = of(&tracer, &mut HeaderMap::new(), number).unwrap();
            trace.span.unwrap().end("ok", 200);
        }
        assert_eq!((over.len(), tally.dropped.load(Relaxed)), (ROOM, 6));
    }
}
