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

/// The metrics' side of a request, from admission to its end. Dropped before that, the client has
/// left.
pub(super) struct Account {
    metrics: Arc<Metrics>,
    /// Its names in log lines.
    pub(super) known: Known,
    model: Arc<str>,
    objective: Arc<str>,
    arrived: Time,
    slo: Slo,
    sequences: u32,
    waited_ms: Option<f64>,
    status: u16,
    first_token_at: Option<Time>,
    last_token_at: Option<Time>,
    open: bool,
    /// Present when the other systems' series are on.
    visit: Option<Box<Visit>>,
}

impl Account {
    pub(super) fn open(metrics: &Arc<Metrics>, hub: &Hub, call: &Call) -> Self {
        Self {
            metrics: metrics.clone(),
            known: call.known.clone(),
            model: hub.model().clone(),
            objective: call.objective.clone(),
            arrived: call.request.arrived,
            slo: call.request.slo,
            sequences: call.request.sequences.max(1),
            waited_ms: None,
            status: CLIENT_CLOSED_REQUEST,
            first_token_at: None,
            last_token_at: None,
            open: true,
            visit: metrics.compat().map(|compat| {
                Box::new(compat.open(hub.model(), &call.request, call.onward.body.len()))
            }),
        }
    }

    /// It was given a pod; an attempt after the first replaces the one before.
    pub(super) fn dispatched(&mut self, dispatch: &Dispatch) {
        self.waited_ms = Some(dispatch.waited.as_secs_f64() * 1000.0);
        if let Some(visit) = &mut self.visit {
            visit.dispatched(dispatch);
        }
    }

    /// The pod answered.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Bytes of its body were passed on.
    pub(super) fn passed(&mut self, bytes: usize) {
        if let Some(visit) = &mut self.visit {
            visit.passed(bytes);
        }
    }

    /// A token was relayed, or what stops the answer. Returns whether it was the first.
    pub(super) fn token(&mut self, now: Time) -> bool {
        self.last_token_at = Some(now);
        let first = self.first_token_at.is_none();
        if first {
            self.first_token_at = Some(now);
            let ttft_ms = now.ms_since(self.arrived);
            let met = self.slo.ttft.map(|ttft| now.since(self.arrived) <= ttft);
            self.metrics.ttft(&self.model, &self.objective, ttft_ms, met);
            self.visit.iter().for_each(|visit| visit.ttft(ttft_ms, met));
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
        if let Some(visit) = &self.visit {
            if kind != EndKind::Complete {
                visit.failed(POD_FAILED);
            }
            visit.finished(prompt_tokens, output_tokens);
        }
        self.done(outcome);
    }

    /// The response was broken off, with an error of this code inside it.
    pub(super) fn broken_off(&mut self, code: &'static str) {
        self.metrics.stream_error(code);
        self.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
        self.done("failed");
    }

    /// The scheduler refused it. The caller answers and counts it as done.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.metrics.refused(&self.model, refusal.reason.name());
        if let Some(visit) = &mut self.visit {
            visit.refused(refusal.reason);
        }
        self.handed_over();
    }

    /// The pod was lost before its answer. The caller answers and counts it as done.
    pub(super) fn pod_failed(&mut self) {
        self.visit.iter().for_each(|visit| visit.failed(POD_FAILED));
        self.handed_over();
    }

    /// There is no response: the caller answers and counts it as done.
    fn handed_over(&mut self) {
        self.open = false;
        if let Some(waited_ms) = self.waited_ms.take() {
            self.metrics.queue_wait(&self.model, &self.objective, waited_ms);
        }
    }

    fn done(&mut self, outcome: &'static str) {
        if self.open {
            self.handed_over();
            self.metrics.request_done(&self.model, &self.objective, outcome, self.status);
            self.say(outcome);
        }
    }

    /// A line for each response, for those who ask for it: log.level `info,weir::request=debug`.
    fn say(&self, outcome: &'static str) {
        let ttft_ms = self.first_token_at.map(|at| at.ms_since(self.arrived));
        tracing::debug!(
            target: "weir::request",
            request_id = &*self.known.request_id,
            trace_id = self.known.trace(),
            model = &*self.model,
            objective = &*self.objective,
            outcome,
            status = self.status,
            ttft_ms,
            "request is over"
        );
    }

    fn tpot(&self, output_tokens: Option<u32>) {
        let (Some(first), Some(last)) = (self.first_token_at, self.last_token_at) else { return };
        // Sequences of one request decode side by side.
        let gaps = f64::from(output_tokens.unwrap_or(0)) / f64::from(self.sequences) - 1.0;
        if gaps > 0.0 {
            let tpot_ms = last.ms_since(first) / gaps;
            let met = self.slo.tpot.map(|tpot| tpot_ms <= tpot.as_secs_f64() * 1000.0);
            self.metrics.tpot(&self.model, &self.objective, tpot_ms, met);
            self.visit.iter().for_each(|visit| visit.tpot(tpot_ms, met));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.done("client_gone");
    }
}
