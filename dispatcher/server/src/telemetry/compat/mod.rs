//! The series of the llm-d router and of the Gateway API inference extension under their own names, so
//! that dashboards and alerts made for them go on working. Off unless the configuration says
//! `telemetry.compat_metrics: true`.
//!
//! Sources: the router's docs/metrics.md for the current names (`llm_d_epp_`), and what its latency
//! predictor and the extension exposed before (`inference_objective_`, `inference_pool_`). What means
//! the same is counted here at the same moment under both names. Where Weir knows better it says what
//! it knows: TTFT counts from arrival and not from the end of the queue.
//!
//! `fairness_id` is the tenant, the one label whose values may come from clients: after
//! `telemetry.max_tenants` of them it is `other`.
//!
//! # Layout
//! - [`series`]: every series, in one table
//! - [`visit`]: one request, from admission to its end
//! - `pools`: what is read off the pools' snapshots
//! - [`timed`]: how long predictions take

mod pools;
pub mod series;
#[cfg(test)]
mod tests;
pub mod timed;
pub mod visit;

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use prometheus::{
    GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, proto::MetricFamily,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    metrics::{counter, histogram},
    series::Series,
    spans::RawSpans,
    trace::TraceContext,
};
use crate::config::Problems;

/// Tenants told apart by default. The router stops at 1000; each is several hundred lines of text per model.
pub const TENANTS: usize = 100;

/// The tenant of requests without one, as the router calls it.
const NO_TENANT: &str = "default-flow";
/// The tenant of everybody beyond the bound.
const OTHER: &str = "other";
/// The plugin that measures predictions in the router; name and type are the same by default.
const PLUGIN: &str = "predicted-latency-producer";

/// What is told to those who watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTelemetry {
    /// Whether `/metrics` has the series of the llm-d router and the inference extension too, under their names.
    pub compat_metrics: bool,
    /// Tenants that have series of their own there; those beyond share one. No other series names a tenant.
    #[schemars(range(min = 1, max = 10000))]
    pub max_tenants: usize,
    /// Most models that may be configured: each has its own series.
    #[schemars(range(min = 1))]
    pub max_models: usize,
    /// What is done with W3C trace context: pass or make. It always passes to the pod; with make, a request
    /// without one gets one.
    pub trace_context: TraceContext,
    /// Spans of requests for an OpenTelemetry collector.
    pub spans: RawSpans,
}

impl Default for RawTelemetry {
    fn default() -> Self {
        Self {
            compat_metrics: false,
            max_tenants: TENANTS,
            max_models: 100,
            trace_context: TraceContext::default(),
            spans: RawSpans::default(),
        }
    }
}

impl RawTelemetry {
    /// Notes what cannot be used; `models` is how many are configured.
    pub fn check(&self, models: usize, problems: &mut Problems) {
        let sane = (1..=10_000).contains(&self.max_tenants);
        problems.require(sane, "telemetry.max_tenants", "must be from 1 to 10000");
        self.spans.check(problems);
        if models > self.max_models {
            let most = self.max_models;
            let why = format!(
                "{models} models are configured; raise it from {most} if your metrics system bears their series"
            );
            problems.add("telemetry.max_models", why);
        }
    }
}

/// A measure under its current and its former name.
struct Pair<T> {
    current: T,
    former: T,
}

/// The counters and histograms that requests write.
pub struct Compat {
    registry: Registry,
    requests: Pair<IntCounterVec>,
    errors: Pair<IntCounterVec>,
    running: Pair<IntGaugeVec>,
    duration: Pair<HistogramVec>,
    request_bytes: Pair<HistogramVec>,
    response_bytes: Pair<HistogramVec>,
    input_tokens: Pair<HistogramVec>,
    output_tokens: Pair<HistogramVec>,
    ntpot: Pair<HistogramVec>,
    ttft: Pair<HistogramVec>,
    tpot: Pair<HistogramVec>,
    predicted_ttft: Pair<HistogramVec>,
    predicted_tpot: Pair<HistogramVec>,
    ttft_prediction: Pair<HistogramVec>,
    tpot_prediction: Pair<HistogramVec>,
    violations: Pair<IntCounterVec>,
    /// The names that the predictor's page gives: one counter per target.
    ttft_violations: IntCounterVec,
    tpot_violations: IntCounterVec,
    last: GaugeVec,
    queue_duration: HistogramVec,
    queue_outcomes: IntCounterVec,
    queue_size: IntGaugeVec,
    queue_bytes: IntGaugeVec,
    tenants: Mutex<HashSet<Arc<str>>>,
    most_tenants: usize,
}

impl Compat {
    /// Empty metrics, with labels for so many tenants.
    ///
    /// # Errors
    /// When two series have one name, which is a mistake in [`series`].
    pub fn new(most_tenants: usize) -> Result<Self, prometheus::Error> {
        use series as of;
        let registry = Registry::new();
        let r = &registry;
        Ok(Self {
            requests: counters(r, &of::REQUESTS, &of::OLD_REQUESTS)?,
            errors: counters(r, &of::ERRORS, &of::OLD_ERRORS)?,
            running: Pair { current: gauge(r, &of::RUNNING)?, former: gauge(r, &of::OLD_RUNNING)? },
            duration: pair(r, &of::DURATION, &of::OLD_DURATION, &of::LATENCY_EDGES)?,
            request_bytes: pair(r, &of::REQUEST_BYTES, &of::OLD_REQUEST_BYTES, &of::BYTE_EDGES)?,
            response_bytes: pair(r, &of::RESPONSE_BYTES, &of::OLD_RESPONSE_BYTES, &of::BYTE_EDGES)?,
            input_tokens: pair(r, &of::INPUT_TOKENS, &of::OLD_INPUT_TOKENS, &of::TOKEN_EDGES)?,
            output_tokens: pair(r, &of::OUTPUT_TOKENS, &of::OLD_OUTPUT_TOKENS, &of::TOKEN_EDGES)?,
            ntpot: pair(r, &of::NTPOT, &of::OLD_NTPOT, &of::NTPOT_EDGES)?,
            ttft: pair(r, &of::TTFT, &of::OLD_TTFT, &of::LATENCY_EDGES)?,
            tpot: pair(r, &of::TPOT, &of::OLD_TPOT, &of::TPOT_EDGES)?,
            predicted_ttft: pair(
                r,
                &of::PREDICTED_TTFT,
                &of::OLD_PREDICTED_TTFT,
                &of::LATENCY_EDGES,
            )?,
            predicted_tpot: pair(r, &of::PREDICTED_TPOT, &of::OLD_PREDICTED_TPOT, &of::TPOT_EDGES)?,
            ttft_prediction: pair(
                r,
                &of::TTFT_PREDICTION,
                &of::OLD_TTFT_PREDICTION,
                &of::PREDICTION_EDGES,
            )?,
            tpot_prediction: pair(
                r,
                &of::TPOT_PREDICTION,
                &of::OLD_TPOT_PREDICTION,
                &of::PREDICTION_EDGES,
            )?,
            violations: counters(r, &of::VIOLATIONS, &of::OLD_VIOLATIONS)?,
            ttft_violations: counter(r, &of::TTFT_VIOLATIONS)?,
            tpot_violations: counter(r, &of::TPOT_VIOLATIONS)?,
            last: last(r)?,
            queue_duration: histogram(r, &of::QUEUE_DURATION, &of::QUEUE_EDGES)?,
            queue_outcomes: counter(r, &of::QUEUE_OUTCOMES)?,
            queue_size: gauge(r, &of::QUEUE_SIZE)?,
            queue_bytes: gauge(r, &of::QUEUE_BYTES)?,
            tenants: Mutex::default(),
            most_tenants,
            registry,
        })
    }

    /// What was counted so far.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    /// The label of a tenant.
    fn fairness_id(&self, tenant: Option<&Arc<str>>) -> Arc<str> {
        let Some(tenant) = tenant else { return Arc::from(NO_TENANT) };
        let mut known = self.tenants.lock();
        if let Some(tenant) = known.get(tenant) {
            return tenant.clone();
        }
        if known.len() >= self.most_tenants {
            return Arc::from(OTHER);
        }
        known.insert(tenant.clone());
        tenant.clone()
    }

    /// Notes the last value of a measure, all of which are one series.
    fn last(&self, model: &str, kind: &str, value: f64) {
        let labels = [PLUGIN, PLUGIN, model, model, kind];
        if let Ok(gauge) = self.last.get_metric_with_label_values(&labels) {
            gauge.set(value);
        }
    }
}

impl Pair<HistogramVec> {
    fn observe(&self, current: &[&str], former: &[&str], value: f64) {
        observe(&self.current, current, value);
        observe(&self.former, former, value);
    }
}

impl Pair<IntCounterVec> {
    fn inc(&self, current: &[&str], former: &[&str]) {
        inc(&self.current, current);
        inc(&self.former, former);
    }
}

fn observe(histogram: &HistogramVec, labels: &[&str], value: f64) {
    if let Ok(histogram) = histogram.get_metric_with_label_values(labels) {
        histogram.observe(value);
    }
}

fn inc(counter: &IntCounterVec, labels: &[&str]) {
    if let Ok(counter) = counter.get_metric_with_label_values(labels) {
        counter.inc();
    }
}

fn add(gauge: &IntGaugeVec, labels: &[&str], value: i64) {
    if let Ok(gauge) = gauge.get_metric_with_label_values(labels) {
        gauge.add(value);
    }
}

fn gauge(registry: &Registry, of: &Series) -> Result<IntGaugeVec, prometheus::Error> {
    let gauge = IntGaugeVec::new(Opts::new(of.name, of.help), of.labels)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn last(registry: &Registry) -> Result<GaugeVec, prometheus::Error> {
    let of = &series::LAST;
    let gauge = GaugeVec::new(Opts::new(of.name, of.help), of.labels)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn counters(
    registry: &Registry,
    current: &Series,
    former: &Series,
) -> Result<Pair<IntCounterVec>, prometheus::Error> {
    Ok(Pair { current: counter(registry, current)?, former: counter(registry, former)? })
}

fn pair(
    registry: &Registry,
    current: &Series,
    former: &Series,
    edges: &[f64],
) -> Result<Pair<HistogramVec>, prometheus::Error> {
    let (current, former) =
        (histogram(registry, current, edges)?, histogram(registry, former, edges)?);
    Ok(Pair { current, former })
}
