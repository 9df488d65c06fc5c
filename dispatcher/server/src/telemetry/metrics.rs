//! Counters and histograms that the data plane writes while it works.
//!
//! One [`Metrics`] per process, shared by every thread. Its methods are called once per request, not
//! per chunk. A label that cannot be resolved is dropped, never an error for the caller. What is
//! state rather than an event (queues, pods, predictor) is not kept here but read from the hubs'
//! snapshots when `/metrics` is asked; see [`super::exposition`].

use std::sync::Arc;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, proto::MetricFamily};
use weir_core::{Refusal, RefusalReason};

use super::{
    compat::Compat,
    series::{self, Series},
};

/// Upper edges of the TTFT buckets in seconds: the usual objectives (0.5 to 30 s) are edges.
const TTFT_EDGES: [f64; 14] =
    [0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Upper edges of the TPOT buckets in seconds: dense around objectives of 20 to 100 ms.
const TPOT_EDGES: [f64; 13] =
    [0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5];
/// Upper edges of the wait buckets in seconds: from "not at all" to the longest wait by default.
const WAIT_EDGES: [f64; 12] =
    [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 10.0, 30.0, 120.0];

/// The data plane's counters and histograms.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    ttft: HistogramVec,
    tpot: HistogramVec,
    slo: IntCounterVec,
    queue_wait: HistogramVec,
    refused: IntCounterVec,
    stream_errors: IntCounterVec,
    prefills: IntCounterVec,
    migrations: IntCounterVec,
    unknown_objectives: IntCounterVec,
    admin_changes: IntCounterVec,
    /// The same under other systems' names, when the configuration asks for it.
    compat: Option<Arc<Compat>>,
}

impl Metrics {
    /// Empty metrics.
    ///
    /// # Errors
    /// When two series have one name, which is a mistake in [`series`].
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        Ok(Self {
            requests: counter(&registry, &series::REQUESTS)?,
            ttft: histogram(&registry, &series::TTFT, &TTFT_EDGES)?,
            tpot: histogram(&registry, &series::TPOT, &TPOT_EDGES)?,
            slo: counter(&registry, &series::SLO)?,
            queue_wait: histogram(&registry, &series::QUEUE_WAIT, &WAIT_EDGES)?,
            refused: counter(&registry, &series::REFUSED)?,
            stream_errors: counter(&registry, &series::STREAM_ERRORS)?,
            prefills: counter(&registry, &series::PREFILLS)?,
            migrations: counter(&registry, &series::MIGRATIONS)?,
            unknown_objectives: counter(&registry, &series::UNKNOWN_OBJECTIVES)?,
            admin_changes: counter(&registry, &series::ADMIN_CHANGES)?,
            registry,
            compat: None,
        })
    }

    /// Empty metrics, which are there under other systems' names too, with labels for
    /// so many tenants.
    ///
    /// # Errors
    /// As for [`Metrics::new`].
    pub fn with_compat(most_tenants: usize) -> Result<Self, prometheus::Error> {
        Ok(Self { compat: Some(Arc::new(Compat::new(most_tenants)?)), ..Self::new()? })
    }

    /// The same under other systems' names, if it is on.
    pub fn compat(&self) -> Option<&Arc<Compat>> {
        self.compat.as_ref()
    }

    /// Lets every refusal reason of a pool be seen before it counts.
    pub fn expect_model(&self, model: &str) {
        for reason in RefusalReason::ALL {
            for sheddable in ["true", "false"] {
                let labels = [model, reason.name(), sheddable];
                let _ = self.refused.get_metric_with_label_values(&labels);
            }
        }
    }

    /// A request is over. `outcome` is one of ok, refused, failed, client_gone and bad_request;
    /// `status` is the HTTP status that was answered.
    pub fn request_done(&self, model: &str, objective: &str, outcome: &'static str, status: u16) {
        let mut code = itoa::Buffer::new();
        let labels = [model, objective, outcome, code.format(status)];
        if let Ok(counter) = self.requests.get_metric_with_label_values(&labels) {
            counter.inc();
        }
    }

    /// The time from arrival to the first token of a stream, in milliseconds, and whether it kept
    /// its objective if it had one.
    pub fn ttft(&self, model: &str, objective: &str, ms: f64, slo_met: Option<bool>) {
        observe_ms(&self.ttft, model, objective, ms);
        self.objective(model, objective, "ttft", slo_met);
    }

    /// The mean time per output token of a stream, in milliseconds, and whether it kept its
    /// objective if it had one.
    pub fn tpot(&self, model: &str, objective: &str, ms: f64, slo_met: Option<bool>) {
        observe_ms(&self.tpot, model, objective, ms);
        self.objective(model, objective, "tpot", slo_met);
    }

    /// The time from arrival to dispatch, in milliseconds.
    pub fn queue_wait(&self, model: &str, objective: &str, ms: f64) {
        observe_ms(&self.queue_wait, model, objective, ms);
    }

    /// A request was refused.
    pub fn refused(&self, model: &str, refusal: &Refusal) {
        let sheddable = if refusal.band.sheddable() { "true" } else { "false" };
        let labels = [model, refusal.reason.name(), sheddable];
        if let Ok(counter) = self.refused.get_metric_with_label_values(&labels) {
            counter.inc();
        }
    }

    /// A stream ended in an in-band error with this code.
    pub fn stream_error(&self, code: &'static str) {
        if let Ok(counter) = self.stream_errors.get_metric_with_label_values(&[code]) {
            counter.inc();
        }
    }

    /// Where the prompt of a request was computed that two pools may serve.
    pub fn prefilled(&self, model: &str, by: &'static str) {
        if let Ok(counter) = self.prefills.get_metric_with_label_values(&[model, by]) {
            counter.inc();
        }
    }

    /// What came of a request whose pod was lost, where another one may go on with it.
    pub fn migrated(&self, model: &str, outcome: &'static str) {
        if let Ok(counter) = self.migrations.get_metric_with_label_values(&[model, outcome]) {
            counter.inc();
        }
    }

    /// A header names an objective that is not configured.
    pub fn unknown_objective(&self, model: &str) {
        if let Ok(counter) = self.unknown_objectives.get_metric_with_label_values(&[model]) {
            counter.inc();
        }
    }

    /// Somebody asked the admin side for a change; `result` is ok or refused.
    pub fn admin_change(&self, action: &'static str, result: &'static str) {
        if let Ok(counter) = self.admin_changes.get_metric_with_label_values(&[action, result]) {
            counter.inc();
        }
    }

    /// What was counted so far.
    pub fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        families.extend(self.compat.iter().flat_map(|compat| compat.gather()));
        families
    }

    fn objective(&self, model: &str, objective: &str, target: &str, met: Option<bool>) {
        let Some(met) = met else { return };
        let labels = [model, objective, target, if met { "true" } else { "false" }];
        if let Ok(counter) = self.slo.get_metric_with_label_values(&labels) {
            counter.inc();
        }
    }
}

fn observe_ms(histogram: &HistogramVec, model: &str, objective: &str, ms: f64) {
    if let Ok(histogram) = histogram.get_metric_with_label_values(&[model, objective]) {
        histogram.observe(ms / 1000.0);
    }
}

pub(super) fn counter(
    registry: &Registry,
    of: &Series,
) -> Result<IntCounterVec, prometheus::Error> {
    let counter = IntCounterVec::new(Opts::new(of.name, of.help), of.labels)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

pub(super) fn histogram(
    registry: &Registry,
    of: &Series,
    edges: &[f64],
) -> Result<HistogramVec, prometheus::Error> {
    let options = HistogramOpts::new(of.name, of.help).buckets(edges.to_vec());
    let histogram = HistogramVec::new(options, of.labels)?;
    registry.register(Box::new(histogram.clone()))?;
    Ok(histogram)
}
