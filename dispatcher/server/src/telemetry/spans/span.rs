//! One request's spans: noted while it goes, made of what was noted when it is over.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::SystemTime,
};

use async_channel::Sender;
use http::Method;
use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId,
    trace::{Event, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use weir_core::{Dispatch, Time};

use super::SpanTally;
use crate::{clock::Clock, fleet::Pod, telemetry::trace::Place};

/// What is known of a request when it arrives.
#[derive(Debug)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path, one of the few that are served.
    pub path: Box<str>,
    /// The model of its pool.
    pub model: Arc<str>,
    /// Its objective.
    pub objective: Arc<str>,
    /// `x-request-id`.
    pub request_id: Arc<str>,
    /// When it arrived.
    pub arrived: Time,
}

/// Where what is over goes.
#[derive(Clone, Debug)]
pub(super) struct Outlet {
    pub over: Sender<Box<Over>>,
    pub tally: Arc<SpanTally>,
    pub clock: Clock,
}

/// A request under way.
#[derive(Debug)]
pub struct Span {
    /// Boxed when it begins, for it goes from hand to hand.
    over: Box<Over>,
    outlet: Outlet,
}

/// A request that is over, of which spans can be made.
#[derive(Debug)]
pub struct Over {
    place: Place,
    state: TraceState,
    ids: [SpanId; 3],
    call: Call,
    /// The wall's time of its arrival.
    began: SystemTime,
    /// Pods that it was given before, and why it was none of them.
    missed: Vec<Missed>,
    sent: Option<Sent>,
    first_token: Option<Time>,
    tokens: [Option<u32>; 2],
    error: Option<&'static str>,
    end: End,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Time,
    outcome: &'static str,
    status: u16,
}

#[derive(Debug)]
struct Missed {
    at: Time,
    pod: Arc<str>,
    why: String,
}

/// Its way to a pod.
#[derive(Debug)]
struct Sent {
    at: Time,
    pod: Arc<Pod>,
    attempt: u32,
    /// What was predicted of TTFT and TPOT, in milliseconds.
    predicted_ms: [f32; 2],
    uncached_tokens: f64,
}

impl Span {
    pub(super) fn begin(
        (place, state): (Place, TraceState),
        ids: [SpanId; 3],
        outlet: Outlet,
        call: Call,
    ) -> Self {
        // What came before is the time it took to read the request.
        let ago = outlet.clock.now().since(call.arrived);
        let began = SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
        let end = End { at: call.arrived, outcome: "", status: 0 };
        let over = Over {
            place,
            state,
            ids,
            call,
            began,
            missed: Vec::new(),
            sent: None,
            first_token: None,
            tokens: [None; 2],
            error: None,
            end,
        };
        Self { over: Box::new(over), outlet }
    }

    /// The span of its way to the pod.
    pub(super) fn pod(&self) -> SpanId {
        self.over.ids[2]
    }

    /// It was given a pod.
    pub fn dispatched(&mut self, dispatch: &Dispatch, pod: &Arc<Pod>) {
        let of = &dispatch.prediction;
        self.over.sent = Some(Sent {
            at: dispatch.arrived.plus(dispatch.waited),
            pod: pod.clone(),
            attempt: dispatch.attempt,
            predicted_ms: [of.ttft_ms.p50, of.tpot_ms.p50],
            uncached_tokens: dispatch.uncached_tokens,
        });
    }

    /// That pod did not take it.
    pub fn missed(&mut self, why: String) {
        let at = self.outlet.clock.now();
        if let Some(Sent { pod, .. }) = self.over.sent.take() {
            self.over.missed.push(Missed { at, pod: pod.name.clone(), why });
        }
    }

    /// Its first token was relayed.
    pub const fn first_token(&mut self, at: Time) {
        self.over.first_token = Some(at);
    }

    /// Tokens of its prompt and its answer, as far as they are known.
    pub const fn counted(&mut self, prompt: Option<u32>, completion: Option<u32>) {
        self.over.tokens = [prompt, completion];
    }

    /// What went wrong.
    pub fn failed(&mut self, code: &'static str) {
        self.over.error = Some(code);
    }

    /// It is over.
    pub fn end(mut self, outcome: &'static str, status: u16) {
        self.over.end = End { at: self.outlet.clock.now(), outcome, status };
        let spans = self.over.spans();
        if self.outlet.over.try_send(self.over).is_err() {
            self.outlet.tally.dropped.fetch_add(spans, Relaxed);
        }
    }
}

impl Over {
    /// How many spans it is.
    pub(super) fn spans(&self) -> u64 {
        2 + u64::from(self.sent.is_some())
    }

    /// Its spans, in no order.
    pub(super) fn into_spans(self, scope: &InstrumentationScope) -> impl Iterator<Item = SpanData> {
        let [request, queue, pod] = self.ids;
        let given = self.sent.as_ref().map(|sent| sent.at);
        let way = self.sent.as_ref().map(|sent| {
            let name = self.name();
            let mut span = self.span((pod, request), name, SpanKind::Client, scope);
            span.start_time = self.wall(sent.at);
            span.attributes.extend(self.of_the_pod(sent));
            span.status = self.status();
            let first = self.first_token.map(|at| self.event("first token", at, vec![]));
            span.events.events.extend(first);
            span
        });
        let mut wait = self.span((queue, request), "queue".into(), SpanKind::Internal, scope);
        wait.end_time = self.wall(given.unwrap_or(self.end.at));
        let parent = if self.place.is_remote { self.place.parent } else { SpanId::INVALID };
        let mut whole = self.span((request, parent), self.name(), SpanKind::Server, scope);
        whole.parent_span_is_remote = self.place.is_remote;
        whole.status = self.status();
        whole.events.events.extend(self.missed.iter().map(|missed| {
            let pod = KeyValue::new("weir.pod", missed.pod.clone());
            let why = KeyValue::new("weir.reason", missed.why.clone());
            self.event("not served by this pod", missed.at, vec![pod, why])
        }));
        whole.attributes.extend(self.of_the_request());
        [whole, wait].into_iter().chain(way)
    }

    fn span(
        &self,
        (id, parent): (SpanId, SpanId),
        name: Cow<'static, str>,
        span_kind: SpanKind,
        scope: &InstrumentationScope,
    ) -> SpanData {
        let (trace, state) = (self.place.trace, self.state.clone());
        SpanData {
            span_context: SpanContext::new(trace, id, self.place.flags(), false, state),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind,
            name,
            start_time: self.began,
            end_time: self.wall(self.end.at),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: scope.clone(),
        }
    }

    fn name(&self) -> Cow<'static, str> {
        format!("{} {}", self.call.method, self.call.path).into()
    }

    /// Of a client's own mistake, or of what it was refused, nobody else has to be told (semantic conventions, HTTP spans).
    fn status(&self) -> Status {
        let is_error = self.end.outcome == "failed" || self.end.status >= 500;
        let why = self.error.unwrap_or(self.end.outcome);
        if is_error { Status::error(why) } else { Status::Unset }
    }

    fn of_the_request(&self) -> impl Iterator<Item = KeyValue> {
        let Call { method, path, model, objective, request_id, arrived } = &self.call;
        let ttft_ms = self.first_token.map(|at| at.ms_since(*arrived));
        let known = [
            KeyValue::new("http.request.method", method.to_string()),
            KeyValue::new("url.path", path.to_string()),
            KeyValue::new("http.response.status_code", i64::from(self.end.status)),
            KeyValue::new("gen_ai.request.model", model.clone()),
            KeyValue::new("weir.objective", objective.clone()),
            KeyValue::new("weir.request_id", request_id.clone()),
            KeyValue::new("weir.outcome", self.end.outcome),
        ];
        let [prompt, completion] = self.tokens.map(|tokens| tokens.map(i64::from));
        let maybe = [
            prompt.map(|tokens| KeyValue::new("gen_ai.usage.input_tokens", tokens)),
            completion.map(|tokens| KeyValue::new("gen_ai.usage.output_tokens", tokens)),
            ttft_ms.map(|ttft_ms| KeyValue::new("weir.ttft_ms", ttft_ms)),
            self.error_type(),
        ];
        known.into_iter().chain(maybe.into_iter().flatten())
    }

    fn of_the_pod(&self, sent: &Sent) -> impl Iterator<Item = KeyValue> + use<> {
        let Sent { pod, attempt, predicted_ms: [ttft_ms, tpot_ms], uncached_tokens, .. } = sent;
        let (host, port) = pod.authority.rsplit_once(':').unwrap_or((&pod.authority, ""));
        let known = [
            KeyValue::new("weir.pod", pod.name.clone()),
            KeyValue::new("server.address", host.to_owned()),
            KeyValue::new("weir.attempt", i64::from(*attempt)),
            KeyValue::new("weir.predicted_ttft_ms", f64::from(*ttft_ms)),
            KeyValue::new("weir.predicted_tpot_ms", f64::from(*tpot_ms)),
            KeyValue::new("weir.uncached_tokens", *uncached_tokens),
        ];
        let port = port.parse::<i64>().ok().map(|port| KeyValue::new("server.port", port));
        known.into_iter().chain(port).chain(self.error_type())
    }

    fn error_type(&self) -> Option<KeyValue> {
        self.error.map(|code| KeyValue::new("error.type", code))
    }

    fn event(&self, name: &'static str, at: Time, attributes: Vec<KeyValue>) -> Event {
        Event::new(name, self.wall(at), attributes, 0)
    }

    /// The wall's time of a moment of its own.
    fn wall(&self, at: Time) -> SystemTime {
        let after = at.since(self.call.arrived);
        self.began.checked_add(after).unwrap_or(self.began)
    }
}
