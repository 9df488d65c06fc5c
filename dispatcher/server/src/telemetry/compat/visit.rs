//! One request as the other systems count it: queued, dispatched, running, over.
//!
//! A guard: whatever becomes of the request, to drop its visit takes it off every gauge.

use std::sync::Arc;

use tokio::time::Instant;
use weir_core::{Dispatch, RefusalReason, Request};

use super::{Compat, PLUGIN, add, inc, observe};

/// The code of an error that a pod answered with or was.
pub const POD_FAILED: &str = "ModelServerError";

/// One request's counting.
pub struct Visit {
    compat: Arc<Compat>,
    model: Arc<str>,
    fairness_id: Arc<str>,
    priority: String,
    body_bytes: i64,
    opened: Instant,
    queued: bool,
    response_bytes: u64,
}

impl Compat {
    /// A request was admitted.
    pub fn open(self: &Arc<Self>, model: &Arc<str>, request: &Request, body_bytes: usize) -> Visit {
        let visit = Visit {
            fairness_id: self.fairness_id(request.tenant.as_ref()),
            compat: self.clone(),
            model: model.clone(),
            priority: request.band.0.to_string(),
            body_bytes: i64::try_from(body_bytes).unwrap_or(i64::MAX),
            opened: Instant::now(),
            queued: true,
            response_bytes: 0,
        };
        let [model, priority] = [&*visit.model, &*visit.priority];
        self.requests.inc(&visit.labels(), &[model, model, priority]);
        self.request_bytes.observe(&visit.labels(), &visit.names(), body_bytes as f64);
        visit.running(1);
        visit.queue(1);
        visit
    }
}

impl Visit {
    /// It was given a pod.
    pub fn dispatched(&mut self, dispatch: &Dispatch) {
        self.leave_queue("Dispatched");
        let compat = &self.compat;
        let seconds = |ms: f32| f64::from(ms) / 1000.0;
        let ttft_s = seconds(dispatch.prediction.ttft_ms.p50);
        let tpot_s = seconds(dispatch.prediction.tpot_ms.p50);
        compat.predicted_ttft.observe(&self.plugin(), &self.names(), ttft_s);
        compat.predicted_tpot.observe(&self.plugin(), &self.names(), tpot_s);
        compat.last(&self.model, "predicted_ttft", ttft_s);
        compat.last(&self.model, "predicted_tpot", tpot_s);
    }

    /// The scheduler refused it.
    pub fn refused(&mut self, reason: RefusalReason) {
        let (outcome, code) = match reason {
            RefusalReason::QueueFull
            | RefusalReason::QueueBytes
            | RefusalReason::PredictedWait
            | RefusalReason::Immediate => ("RejectedCapacity", "ResourceExhausted"),
            RefusalReason::Hopeless => ("RejectedOther", "ResourceExhausted"),
            RefusalReason::MaxWait | RefusalReason::Ttl => ("EvictedTTL", "ResourceExhausted"),
            RefusalReason::NoPods => ("EvictedNoEndpoints", "ServiceUnavailable"),
            RefusalReason::Undeliverable => ("EvictedOther", "ServiceUnavailable"),
            RefusalReason::Closing => ("RejectedOther", "ServiceUnavailable"),
            RefusalReason::Cancelled => ("EvictedOther", "ServiceUnavailable"),
        };
        self.leave_queue(outcome);
        self.failed(code);
    }

    /// It ended in an error.
    pub fn failed(&self, code: &str) {
        let [model, target, fairness_id, priority] = self.labels();
        let labels = [model, target, fairness_id, priority, code];
        self.compat.errors.inc(&labels, &[model, target, code]);
    }

    /// Bytes of its response were passed on.
    pub fn passed(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// The first token of its stream was relayed.
    pub fn ttft(&self, ms: f64, slo_met: Option<bool>) {
        let [model, target, fairness_id, priority] = self.labels();
        let labels = [model, target, fairness_id, priority, "true"];
        self.compat.ttft.observe(&labels, &self.names(), ms / 1000.0);
        self.compat.last(&self.model, "ttft", ms / 1000.0);
        self.objective("ttft", slo_met);
    }

    /// Its stream is over, and had this pace.
    pub fn tpot(&self, ms: f64, slo_met: Option<bool>) {
        self.compat.tpot.observe(&self.labels(), &self.names(), ms / 1000.0);
        self.compat.last(&self.model, "tpot", ms / 1000.0);
        self.objective("tpot", slo_met);
    }

    /// Its response was passed on to its end.
    pub fn finished(&self, prompt_tokens: Option<u32>, output_tokens: Option<u32>) {
        let compat = &self.compat;
        let (labels, names) = (self.labels(), self.names());
        let duration_s = self.opened.elapsed().as_secs_f64();
        compat.duration.observe(&labels, &names, duration_s);
        compat.response_bytes.observe(&labels, &names, self.response_bytes as f64);
        if let Some(tokens) = prompt_tokens {
            compat.input_tokens.observe(&labels, &names, f64::from(tokens));
        }
        if let Some(tokens) = output_tokens {
            compat.output_tokens.observe(&labels, &names, f64::from(tokens));
        }
        if let Some(tokens) = output_tokens.filter(|tokens| *tokens > 0) {
            compat.ntpot.observe(&labels, &names, duration_s / f64::from(tokens));
        }
    }

    fn objective(&self, target: &str, met: Option<bool>) {
        let Some(met) = met else { return };
        let kind = format!("{target}_slo_violation");
        self.compat.last(&self.model, &kind, f64::from(u8::from(!met)));
        if met {
            return;
        }
        let names = self.names();
        let [model, target_model] = names;
        let labels = [PLUGIN, PLUGIN, model, target_model, target];
        self.compat.violations.inc(&labels, &[model, target_model, target]);
        let own = if target == "ttft" {
            &self.compat.ttft_violations
        } else {
            &self.compat.tpot_violations
        };
        inc(own, &names);
    }

    fn leave_queue(&mut self, outcome: &str) {
        if !std::mem::take(&mut self.queued) {
            return;
        }
        self.queue(-1);
        let [model, target, fairness_id, priority] = self.labels();
        inc(&self.compat.queue_outcomes, &[outcome, priority, model]);
        let labels = [fairness_id, priority, outcome, model, model, target];
        observe(&self.compat.queue_duration, &labels, self.opened.elapsed().as_secs_f64());
    }

    fn running(&self, change: i64) {
        add(&self.compat.running.current, &self.labels(), change);
        add(&self.compat.running.former, &[&self.model], change);
    }

    fn queue(&self, change: i64) {
        let [model, target, fairness_id, priority] = self.labels();
        let labels = [fairness_id, priority, model, model, target];
        add(&self.compat.queue_size, &labels, change);
        add(&self.compat.queue_bytes, &labels, change * self.body_bytes);
    }

    /// Model, model served, tenant, priority.
    fn labels(&self) -> [&str; 4] {
        [&self.model, &self.model, &self.fairness_id, &self.priority]
    }

    /// Model, model served.
    fn names(&self) -> [&str; 2] {
        [&self.model, &self.model]
    }

    /// Plugin's name and type, model, model served.
    fn plugin(&self) -> [&str; 4] {
        [PLUGIN, PLUGIN, &self.model, &self.model]
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.leave_queue("EvictedContextCancelled");
        self.running(-1);
    }
}
