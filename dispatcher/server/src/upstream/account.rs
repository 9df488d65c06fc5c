//! One request's outcome, counted once.

use std::sync::Arc;

use http::StatusCode;
use weir_core::{Dispatch, EndKind, Refusal, Slo, Time};

use super::Call;
use crate::{
    hub::Hub,
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

/// The metrics' side of a request that waits for its verdict: of its [`Account`] what is known by then. Dropped before
/// anything else became of it, the client has left.
pub(super) struct Entry {
    metrics: Arc<Metrics>,
    /// Whose model is a label.
    hub: Arc<Hub>,
    /// Its names in log lines.
    known: Known,
    objective: Arc<str>,
    arrived: Time,
    slo: Slo,
    sequences: u32,
    /// Whether it is still to be counted as done.
    open: bool,
    /// Present when the other systems' series are on.
    visit: Option<Box<Visit>>,
}

impl Entry {
    pub(super) fn new(metrics: &Arc<Metrics>, hub: &Arc<Hub>, call: &Call) -> Self {
        Self {
            metrics: metrics.clone(),
            hub: hub.clone(),
            known: call.known.clone(),
            objective: call.objective.clone(),
            arrived: call.request.arrived,
            slo: call.request.slo,
            sequences: call.request.sequences.max(1),
            open: true,
            visit: metrics.compat().map(|compat| {
                Box::new(compat.open(hub.model(), &call.request, call.onward.body.len()))
            }),
        }
    }

    fn model(&self) -> &str {
        self.hub.model()
    }

    fn done(&mut self, outcome: &'static str, status: u16, ttft_ms: Option<f64>) {
        self.open = false;
        self.metrics.request_done(self.model(), &self.objective, outcome, status);
        // A line for each response, for those who ask for it: log.level `info,weir::request=debug`.
        tracing::debug!(
            target: "weir::request",
            request_id = &*self.known.request_id,
            trace_id = self.known.trace(),
            model = self.model(),
            objective = &*self.objective,
            outcome,
            status,
            ttft_ms,
            "request is over"
        );
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.open {
            self.done(CLIENT_GONE, CLIENT_CLOSED_REQUEST, None);
        }
    }
}

/// The metrics' side of a request, from its verdict to its end. Dropped before that, the client has left.
pub(super) struct Account {
    entry: Entry,
    waited_ms: Option<f64>,
    status: u16,
    first_token_at: Option<Time>,
    last_token_at: Option<Time>,
}

impl Account {
    pub(super) const fn open(entry: Entry) -> Self {
        Self {
            entry,
            waited_ms: None,
            status: CLIENT_CLOSED_REQUEST,
            first_token_at: None,
            last_token_at: None,
        }
    }

    /// Its names in log lines.
    pub(super) const fn known(&self) -> &Known {
        &self.entry.known
    }

    /// It was given a pod; an attempt after the first replaces the one before.
    pub(super) fn dispatched(&mut self, dispatch: &Dispatch) {
        self.waited_ms = Some(dispatch.waited.as_secs_f64() * 1000.0);
        if let Some(visit) = &mut self.entry.visit {
            visit.dispatched(dispatch);
        }
    }

    /// The pod answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Bytes of its body were passed on.
    pub(super) fn passed(&mut self, bytes: usize) {
        if let Some(visit) = &mut self.entry.visit {
            visit.passed(bytes);
        }
    }

    /// A token was relayed, or what stops the answer. Returns whether it was the first.
    pub(super) fn token(&mut self, now: Time) -> bool {
        self.last_token_at = Some(now);
        let first = self.first_token_at.is_none();
        if first {
            self.first_token_at = Some(now);
            let ttft_ms = now.ms_since(self.entry.arrived);
            let met = self.entry.slo.ttft.map(|ttft| now.since(self.entry.arrived) <= ttft);
            self.entry.metrics.ttft(self.entry.model(), &self.entry.objective, ttft_ms, met);
            self.entry.visit.iter().for_each(|visit| visit.ttft(ttft_ms, met));
        }
        first
    }

    /// The pod's response was passed on to its end.
    pub(super) fn finished(
        &mut self,
        kind: EndKind,
        prompt_tokens: Option<u32>,
        output_tokens: Option<u32>,
    ) {
        let outcome = match (kind, self.status) {
            (EndKind::Complete, _) => "ok",
            (_, 400..500) => "bad_request",
            _ => "failed",
        };
        self.tpot(output_tokens);
        if let Some(visit) = &self.entry.visit {
            if kind != EndKind::Complete {
                visit.failed(POD_FAILED);
            }
            visit.finished(prompt_tokens, output_tokens);
        }
        self.done(outcome);
    }

    /// The response was broken off, with an error of this code inside it.
    pub(super) fn broken_off(&mut self, code: &'static str) {
        self.entry.metrics.stream_error(code);
        self.entry.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
        self.done("failed");
    }

    /// The scheduler refused it. The caller answers and counts it as done.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.entry.metrics.refused(self.entry.model(), refusal.reason.name());
        if let Some(visit) = &mut self.entry.visit {
            visit.refused(refusal.reason);
        }
        self.handed_over();
    }

    /// The pod was lost before its answer. The caller answers and counts it as done.
    pub(super) fn pod_failed(&mut self) {
        self.entry.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
        self.handed_over();
    }

    /// There is no response: the caller answers and counts it as done.
    fn handed_over(&mut self) {
        self.entry.open = false;
        if let Some(waited_ms) = self.waited_ms.take() {
            self.entry.metrics.queue_wait(self.entry.model(), &self.entry.objective, waited_ms);
        }
    }

    fn done(&mut self, outcome: &'static str) {
        if self.entry.open {
            self.handed_over();
            let ttft_ms = self.first_token_at.map(|at| at.ms_since(self.entry.arrived));
            self.entry.done(outcome, self.status, ttft_ms);
        }
    }

    fn tpot(&self, output_tokens: Option<u32>) {
        let (Some(first), Some(last)) = (self.first_token_at, self.last_token_at) else { return };
        // Sequences of one request decode side by side.
        let gaps = f64::from(output_tokens.unwrap_or(0)) / f64::from(self.entry.sequences) - 1.0;
        if gaps > 0.0 {
            let tpot_ms = last.ms_since(first) / gaps;
            let met = self.entry.slo.tpot.map(|tpot| tpot_ms <= tpot.as_secs_f64() * 1000.0);
            self.entry.metrics.tpot(self.entry.model(), &self.entry.objective, tpot_ms, met);
            self.entry.visit.iter().for_each(|visit| visit.tpot(tpot_ms, met));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.done(CLIENT_GONE);
    }
}
