//! One request's outcome, counted once.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::StatusCode;
use weir_core::{Dispatch, EndKind, Refusal, Request, RequestId, Slo, Time};

use super::{Fault, Unserved, Upstream, migration::LOST, prefill::Kept, usage::Usage};
use crate::{
    fleet::Pod,
    hub::{Hub, Lease, Ticket},
    telemetry::{
        Metrics,
        compat::visit::{POD_FAILED, Visit},
        trace::Known,
    },
};

/// What the metrics show for a client that left before there was a status: nginx's own.
const CLIENT_CLOSED_REQUEST: u16 = 499;
/// The outcome of a request whose client left.
const CLIENT_GONE: &str = "client_gone";

/// What is known of a request from its arrival on.
#[derive(Default)]
pub(super) struct Facts {
    /// Its names in log lines.
    known: Known,
    objective: Arc<str>,
    /// Present when the other systems' series are on.
    visit: Option<Box<Visit>>,
    /// The pod that computed its prompt, while that keeps it.
    pub kept: Option<Box<Kept>>,
}

impl Facts {
    /// Of one that comes to a pool.
    pub(super) fn of(
        (upstream, hub): (&Upstream, &Hub),
        (request, body_bytes): (&Request, usize),
        (known, objective): (Known, Arc<str>),
    ) -> Self {
        let compat = upstream.metrics().compat();
        let visit = compat.map(|it| Box::new(it.open(hub.model(), request, body_bytes)));
        Self { known, objective, visit, kept: None }
    }

    fn done(
        &mut self,
        (metrics, model): (&Metrics, &str),
        outcome: &'static str,
        status: u16,
        ttft_ms: Option<f64>,
    ) {
        metrics.request_done(model, &self.objective, outcome, status);
        // A line for each response, for those who ask for it: log.level `info,weir::request=debug`.
        tracing::debug!(
            target: "weir::request",
            request_id = &*self.known.request_id,
            trace_id = self.known.trace(),
            model,
            objective = &*self.objective,
            outcome,
            status,
            ttft_ms,
            "request is over"
        );
        if let Some(span) = self.known.take_span() {
            span.end(outcome, status);
        }
    }

    /// Its client left before there was a status.
    fn left(&mut self, upstream: &Upstream, hub: &Hub) {
        let labels = (&**upstream.metrics(), &**hub.model());
        self.done(labels, CLIENT_GONE, CLIENT_CLOSED_REQUEST, None);
    }

    /// The scheduler refused it. The caller answers and counts it as done.
    fn refused(&mut self, (metrics, model): (&Metrics, &str), refusal: &Refusal) {
        metrics.refused(model, refusal);
        if let Some(visit) = &mut self.visit {
            visit.refused(refusal.reason);
        }
    }

    fn unserved(self, fault: Fault, hub: Arc<Hub>, id: RequestId) -> Box<Unserved> {
        let Self { known, objective, .. } = self;
        Box::new(Unserved { fault, id, known, objective, hub })
    }
}

/// A request that waits for its verdict. Dropped before that, the client has left.
///
/// It is little, for a hundred thousand may wait: what an [`Account`] needs beside it is taken from the verdict.
pub(super) struct Wait<'a> {
    /// By which it will go.
    pub upstream: &'a Upstream,
    /// `None` once there was a verdict.
    open: Option<(Ticket, Facts)>,
}

impl<'a> Wait<'a> {
    /// Lets a request in.
    pub(super) fn enter(
        upstream: &'a Upstream,
        hub: &Arc<Hub>,
        request: Request,
        facts: Facts,
    ) -> Self {
        Self { upstream, open: Some((hub.admit(request), facts)) }
    }

    /// Takes it out of the queue again, for it is served elsewhere. What is known of it goes there.
    pub(super) fn withdraw(&mut self) -> Option<Facts> {
        self.open.take().map(|(_, facts)| facts)
    }

    /// Waits for the verdict: a pod, with the account and the ticket for the way there, or a refusal.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Given, Box<Refused>>> {
        let Some((ticket, _)) = &mut self.open else { return Poll::Pending };
        let verdict = ready!(ticket.poll_verdict(cx));
        let Some((ticket, facts)) = self.open.take() else { return Poll::Pending };
        let metrics = self.upstream.metrics();
        Poll::Ready(match verdict {
            Ok(lease) => {
                let account = Box::new(Account::open(metrics, facts, &ticket, lease.dispatch()));
                Ok(Given { lease, account, ticket })
            }
            Err(refusal) => {
                let (metrics, hub) = (metrics.clone(), ticket.hub().clone());
                Err(Box::new(Refused { metrics, hub, facts, refusal }))
            }
        })
    }
}

/// A request that the scheduler of a pool refused.
pub(super) struct Refused {
    metrics: Arc<Metrics>,
    hub: Arc<Hub>,
    facts: Facts,
    refusal: Refusal,
}

impl Refused {
    /// That is the end of it, and counts as refused.
    pub(super) fn told(self) -> (Facts, Fault, RequestId) {
        let Self { metrics, hub, mut facts, refusal } = self;
        facts.refused((&metrics, hub.model()), &refusal);
        (facts, Fault::Refused(refusal), refusal.id)
    }

    /// The same for a caller who answers.
    pub(super) fn unserved(self) -> Box<Unserved> {
        let hub = self.hub.clone();
        let (facts, fault, id) = self.told();
        facts.unserved(fault, hub, id)
    }

    /// It may be served elsewhere, with what is known of it.
    pub(super) fn facts(self) -> Facts {
        self.facts
    }
}

/// A request that does not wait itself, but something of it does. Dropped before it is over, its client has left.
pub(super) struct Held<'a> {
    upstream: &'a Upstream,
    hub: Arc<Hub>,
    facts: Option<Facts>,
}

impl<'a> Held<'a> {
    pub(super) fn new(upstream: &'a Upstream, hub: Arc<Hub>, facts: Facts) -> Self {
        Self { upstream, hub, facts: Some(facts) }
    }

    /// What is known of it, which somebody else holds from now on.
    pub(super) fn take(&mut self) -> Facts {
        self.facts.take().unwrap_or_default()
    }

    /// Nobody else does any more.
    pub(super) fn give_back(&mut self, facts: Option<Facts>) {
        self.facts = facts.or(self.facts.take());
    }

    /// There is no response: the caller answers and counts it as done.
    pub(super) fn unserved(mut self, fault: Fault, id: RequestId) -> Box<Unserved> {
        self.take().unserved(fault, self.hub.clone(), id)
    }

    /// What was answered to something of it is the answer.
    pub(super) fn answered(mut self, status: StatusCode) {
        let outcome = if status.is_client_error() { "bad_request" } else { "failed" };
        let labels = (&**self.upstream.metrics(), &**self.hub.model());
        if let Some(mut facts) = self.facts.take() {
            facts.done(labels, outcome, status.as_u16(), None);
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(facts) = &mut self.facts {
            facts.left(self.upstream, &self.hub);
        }
    }
}

/// What a request has once it may go to a pod.
pub(super) struct Given {
    pub lease: Box<Lease>,
    pub account: Box<Account>,
    pub ticket: Ticket,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some((ticket, facts)) = &mut self.open {
            facts.left(self.upstream, ticket.hub());
        }
    }
}

/// The metrics' side of a request, from its verdict to its end. Dropped before that, the client has left.
pub(super) struct Account {
    metrics: Arc<Metrics>,
    /// Whose model is a label.
    hub: Arc<Hub>,
    facts: Facts,
    /// Whether it is still to be counted as done.
    open: bool,
    arrived: Time,
    slo: Slo,
    sequences: u32,
    /// How long it waited, of which it is said once.
    waited: Duration,
    waited_ms: Option<f64>,
    status: u16,
    first_token_at: Option<Time>,
    last_token_at: Option<Time>,
    /// When the last event was relayed, which may be that of the token that stops an answer.
    last_event_at: Option<Time>,
}

impl Account {
    fn open(metrics: &Arc<Metrics>, facts: Facts, ticket: &Ticket, dispatch: &Dispatch) -> Self {
        Self {
            metrics: metrics.clone(),
            hub: ticket.hub().clone(),
            facts,
            open: true,
            arrived: dispatch.arrived,
            slo: dispatch.slo,
            sequences: dispatch.sequences,
            waited: Duration::ZERO,
            waited_ms: None,
            status: CLIENT_CLOSED_REQUEST,
            first_token_at: None,
            last_token_at: None,
            last_event_at: None,
        }
    }

    fn model(&self) -> &str {
        self.hub.model()
    }

    /// There is no response: the caller answers and counts it as done.
    pub(super) fn unserved(mut self, fault: Fault, id: RequestId) -> Box<Unserved> {
        self.handed_over();
        std::mem::take(&mut self.facts).unserved(fault, self.hub.clone(), id)
    }

    /// Its names in log lines.
    pub(super) const fn known(&self) -> &Known {
        &self.facts.known
    }

    /// It was given a pod; an attempt after the first replaces the one before.
    pub(super) fn dispatched(&mut self, dispatch: &Dispatch, pod: &Arc<Pod>) {
        if let Some(span) = self.facts.known.span() {
            span.dispatched(dispatch, pod);
        }
        // While a pod computed its prompt it did not wait.
        let took = self.facts.kept.as_ref().map_or(Duration::ZERO, |kept| kept.took());
        self.waited = dispatch.waited.saturating_sub(took);
        self.waited_ms = Some(self.waited.as_secs_f64() * 1000.0);
        if let Some(visit) = &mut self.facts.visit {
            visit.dispatched(dispatch);
        }
    }

    /// How long it waited for a pod.
    pub(super) const fn waited(&self) -> Duration {
        self.waited
    }

    /// The pod that computed its prompt need not keep it, as far as will be seen.
    pub(super) fn lets_the_prompt_go(&mut self) {
        self.facts.kept.iter_mut().for_each(|kept| kept.let_go());
    }

    /// The pod that it was given is to be another's.
    pub(super) fn missed(&mut self, why: impl FnOnce() -> String) {
        if let Some(span) = self.facts.known.span() {
            span.missed(why());
        }
    }

    /// Another pod goes on with what was relayed.
    pub(super) fn moved(&mut self, lease: &Lease) {
        if let Some(span) = self.facts.known.span() {
            span.missed("lost".to_owned());
            span.dispatched(lease.dispatch(), lease.pod());
        }
    }

    /// None does that might have.
    pub(super) fn stays(&self) {
        self.metrics.migrated(self.model(), LOST);
    }

    /// Whether a token was relayed.
    pub(super) const fn has_begun(&self) -> bool {
        self.first_token_at.is_some()
    }

    /// The status that the client was given.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    /// The pod answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Bytes of its body were passed on.
    pub(super) fn passed(&mut self, bytes: usize) {
        if let Some(visit) = &mut self.facts.visit {
            visit.passed(bytes);
        }
    }

    /// An event without any of the answer was relayed after its first token.
    pub(super) const fn stopped(&mut self, now: Time) {
        self.last_event_at = Some(now);
    }

    /// A token was relayed.
    pub(super) fn token(&mut self, now: Time) {
        (self.last_token_at, self.last_event_at) = (Some(now), Some(now));
        if self.first_token_at.is_none() {
            self.first_token_at = Some(now);
            self.facts.kept.take().into_iter().for_each(|kept| kept.loaded(now));
            if let Some(span) = self.facts.known.span() {
                span.first_token(now);
            }
            let ttft_ms = now.ms_since(self.arrived);
            let met = self.slo.ttft.map(|ttft| now.since(self.arrived) <= ttft);
            self.metrics.ttft(self.model(), &self.facts.objective, ttft_ms, met);
            self.facts.visit.iter().for_each(|visit| visit.ttft(ttft_ms, met));
        }
    }

    /// The pod's response was passed on to its end; with the status of the error that a stream turned out to be, whose head said
    /// another. `counted`: tokens that came, for a stream that does not say.
    pub(super) fn finished(
        &mut self,
        (kind, error): (EndKind, Option<u16>),
        usage: Usage,
        counted: Option<u32>,
    ) {
        let outcome = match (kind, error.unwrap_or(self.status)) {
            (EndKind::Complete, _) => "ok",
            (_, 400..500) => "bad_request",
            _ => "failed",
        };
        match usage.completion_tokens {
            // An engine counts the token that stops an answer, too.
            Some(told) => self.tpot(told, self.last_event_at),
            None => self.tpot(counted.unwrap_or(0), self.last_token_at),
        }
        if let Some(span) = self.facts.known.span() {
            span.counted(usage.prompt_tokens, usage.completion_tokens.or(counted));
        }
        if let Some(visit) = &self.facts.visit {
            if kind != EndKind::Complete {
                visit.failed(POD_FAILED);
            }
            visit.finished(usage.prompt_tokens, usage.completion_tokens.or(counted));
        }
        self.done(outcome);
    }

    /// The response was broken off; a stream, with an error of this code inside it.
    pub(super) fn broken_off(&mut self, code: Option<&'static str>) {
        if let Some(code) = code {
            self.metrics.stream_error(code);
            self.facts.known.span().into_iter().for_each(|span| span.failed(code));
        }
        self.facts.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
        self.done("failed");
    }

    /// The scheduler refused it after all.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.facts.refused((&self.metrics, self.hub.model()), refusal);
    }

    /// The pod was lost before its answer.
    pub(super) fn pod_failed(&mut self) {
        self.facts.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
    }

    /// It is counted by the caller, or was just now.
    fn handed_over(&mut self) {
        self.open = false;
        if let Some(waited_ms) = self.waited_ms.take() {
            self.metrics.queue_wait(self.model(), &self.facts.objective, waited_ms);
        }
    }

    fn done(&mut self, outcome: &'static str) {
        if self.open {
            self.handed_over();
            let ttft_ms = self.first_token_at.map(|at| at.ms_since(self.arrived));
            let labels = (&*self.metrics, &**self.hub.model());
            self.facts.done(labels, outcome, self.status, ttft_ms);
        }
    }

    fn tpot(&self, output_tokens: u32, last: Option<Time>) {
        let (Some(first), Some(last)) = (self.first_token_at, last) else { return };
        // Sequences of one request decode side by side.
        let gaps = f64::from(output_tokens) / f64::from(self.sequences) - 1.0;
        if gaps > 0.0 {
            let tpot_ms = last.ms_since(first) / gaps;
            let met = self.slo.tpot.map(|tpot| tpot_ms <= tpot.as_secs_f64() * 1000.0);
            self.metrics.tpot(self.model(), &self.facts.objective, tpot_ms, met);
            self.facts.visit.iter().for_each(|visit| visit.tpot(tpot_ms, met));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.done(CLIENT_GONE);
    }
}
