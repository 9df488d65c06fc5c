//! The names, kinds and labels that dashboards of the other systems ask for.

use std::{collections::BTreeMap, time::Duration};

use prometheus::TextEncoder;
use weir_core::{Band, Dispatch, PodId, RefusalReason, RequestId, Slo, Time};
use weir_predict::{Chain, Offer, Slot};
use weir_schema::{Predict, Prediction, Quantiles};

use super::{series::ALL, timed::Timed, visit::Visit, *};
use crate::{
    hub::fixture::{Fixture, Flat, pod, request},
    telemetry::{Metrics, exposition::Page, series},
};

/// As the router's docs/metrics.md has them, with the kind as Prometheus writes it.
const CURRENT: &[(&str, &str, &str)] = &[
    ("request_total", "counter", REQUEST),
    (
        "request_error_total",
        "counter",
        "model_name target_model_name fairness_id priority error_code",
    ),
    ("request_duration_seconds", "histogram", REQUEST),
    ("request_size_bytes", "histogram", REQUEST),
    ("response_size_bytes", "histogram", REQUEST),
    ("request_input_tokens", "histogram", REQUEST),
    ("request_output_tokens", "histogram", REQUEST),
    ("request_running", "gauge", REQUEST),
    ("request_ntpot_seconds", "histogram", REQUEST),
    (
        "request_ttft_seconds",
        "histogram",
        "model_name target_model_name fairness_id priority streaming",
    ),
    ("request_streaming_tpot_seconds", "histogram", REQUEST),
    ("average_kv_cache_utilization", "gauge", "name"),
    ("average_queue_size", "gauge", "name"),
    ("average_running_requests", "gauge", "name"),
    ("std_dev_kv_cache_utilization", "gauge", "name"),
    ("std_dev_queue_size", "gauge", "name"),
    ("std_dev_running_requests", "gauge", "name"),
    ("ready_endpoints", "gauge", "name"),
    ("per_endpoint_queue_size", "gauge", "name model_server_endpoint"),
    (
        "inference_request_metric",
        "gauge",
        "plugin_name plugin_type model_name target_model_name type",
    ),
    ("request_predicted_ttft_seconds", "histogram", PREDICTED),
    ("request_ttft_prediction_duration_seconds", "histogram", PREDICTED),
    ("request_predicted_tpot_seconds", "histogram", PREDICTED),
    ("request_tpot_prediction_duration_seconds", "histogram", PREDICTED),
    (
        "request_slo_violation_total",
        "counter",
        "plugin_name plugin_type model_name target_model_name type",
    ),
    (
        "flow_control_request_queue_duration_seconds",
        "histogram",
        "fairness_id priority outcome inference_pool model_name target_model_name",
    ),
    ("flow_control_requests_total", "counter", "outcome priority inference_pool"),
    ("flow_control_queue_size", "gauge", QUEUE),
    ("flow_control_queue_bytes", "gauge", QUEUE),
];
const REQUEST: &str = "model_name target_model_name fairness_id priority";
const PREDICTED: &str = "plugin_name plugin_type model_name target_model_name";
const QUEUE: &str = "fairness_id priority inference_pool model_name target_model_name";

/// As the latency predictor's page, its code and the inference extension have them.
const FORMER: &[(&str, &str, &str)] = &[
    ("inference_objective_request_total", "counter", "model_name target_model_name priority"),
    (
        "inference_objective_request_error_total",
        "counter",
        "model_name target_model_name error_code",
    ),
    ("inference_objective_request_duration_seconds", "histogram", MODEL),
    ("inference_objective_request_sizes", "histogram", MODEL),
    ("inference_objective_response_sizes", "histogram", MODEL),
    ("inference_objective_input_tokens", "histogram", MODEL),
    ("inference_objective_output_tokens", "histogram", MODEL),
    ("inference_objective_running_requests", "gauge", "model_name"),
    ("inference_objective_normalized_time_per_output_token_seconds", "histogram", MODEL),
    ("inference_objective_request_ttft_seconds", "histogram", MODEL),
    ("inference_objective_request_predicted_ttft_seconds", "histogram", MODEL),
    ("inference_objective_request_ttft_prediction_duration_seconds", "histogram", MODEL),
    ("inference_objective_request_tpot_seconds", "histogram", MODEL),
    ("inference_objective_request_predicted_tpot_seconds", "histogram", MODEL),
    ("inference_objective_request_tpot_prediction_duration_seconds", "histogram", MODEL),
    ("inference_objective_request_ttft_slo_violation_total", "counter", MODEL),
    ("inference_objective_request_tpot_slo_violation_total", "counter", MODEL),
    (
        "inference_objective_request_slo_violation_total",
        "counter",
        "model_name target_model_name type",
    ),
    ("inference_pool_average_kv_cache_utilization", "gauge", "name"),
    ("inference_pool_average_queue_size", "gauge", "name"),
    ("inference_pool_average_running_requests", "gauge", "name"),
    ("inference_pool_ready_pods", "gauge", "name"),
    ("inference_pool_per_pod_queue_size", "gauge", "name model_server_pod"),
];
const MODEL: &str = "model_name target_model_name";

fn sorted(labels: &[&str]) -> String {
    let mut labels = labels.to_vec();
    labels.sort_unstable();
    labels.join(" ")
}

/// Name, kind and labels of every series that is exposed.
fn exposed(families: &[MetricFamily]) -> BTreeMap<String, (String, String)> {
    let one = |family: &MetricFamily| {
        let labels = family.get_metric().first().map(|metric| metric.get_label()).unwrap_or(&[]);
        let labels: Vec<&str> = labels.iter().map(|label| label.name()).collect();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        (family.name().to_owned(), (kind, sorted(&labels)))
    };
    families.iter().map(one).collect()
}

fn open(compat: &Arc<Compat>, tenant: Option<&str>) -> Visit {
    let (hub, _samples) = Fixture::default().hub();
    let mut request = request(&hub, 1);
    (request.tenant, request.band) = (tenant.map(Arc::from), Band(1));
    compat.open(&Arc::from("m"), &request, 15)
}

fn dispatch() -> Dispatch {
    let prediction = Prediction {
        ttft_ms: Quantiles { p50: 500.0, p90: 700.0 },
        tpot_ms: Quantiles { p50: 25.0, p90: 30.0 },
        ..Prediction::default()
    };
    Dispatch {
        id: RequestId(1),
        pod: PodId(1),
        attempt: 1,
        arrived: Time::ZERO,
        waited: Duration::ZERO,
        slo: Slo::default(),
        sequences: 1,
        uncached_tokens: 0.0,
        prediction,
        tokens_per_event: 1.0,
    }
}

/// Metrics after one request that missed both objectives and one that was refused.
fn used() -> (Metrics, Vec<MetricFamily>) {
    let metrics = Metrics::with_compat(TENANTS).unwrap();
    let compat = metrics.compat().unwrap();
    let mut visit = open(compat, Some("acme"));
    visit.dispatched(&dispatch());
    visit.ttft(600.0, Some(false));
    visit.tpot(30.0, Some(false));
    visit.passed(40);
    visit.finished(Some(1000), Some(20));
    drop(visit);
    open(compat, None).refused(RefusalReason::QueueFull);
    let mut timed = Timed::new(Flat, compat.clone(), Arc::from("m"));
    timed.predict(&[], &mut []).unwrap();

    let mut page = Page::default();
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    page.compat_pool("m", &hub.snapshot());
    let mut families = compat.gather();
    families.extend(page.collect());
    (metrics, families)
}

#[test]
fn every_series_has_the_name_kind_and_labels_of_its_source() {
    let current = CURRENT
        .iter()
        .map(|(name, kind, labels)| (format!("llm_d_epp_{name}"), (*kind).to_owned(), *labels));
    let former =
        FORMER.iter().map(|(name, kind, labels)| ((*name).to_owned(), (*kind).to_owned(), *labels));
    let want: BTreeMap<_, _> = current
        .chain(former)
        .map(|(name, kind, labels)| (name, (kind, sorted(&labels.split(' ').collect::<Vec<_>>()))))
        .collect();
    assert_eq!(exposed(&used().1), want);
    let table: BTreeMap<_, _> = ALL
        .iter()
        .map(|one| (one.name.to_owned(), (one.kind.name().to_owned(), sorted(one.labels))))
        .collect();
    assert_eq!(table, want, "docs/metrics.md says the same");
}

#[test]
fn a_request_is_counted_under_both_names_at_the_same_moment() {
    let text = TextEncoder::new().encode_to_string(&used().1).unwrap();
    let acme = "fairness_id=\"acme\",model_name=\"m\",priority=\"1\"";
    let names = "model_name=\"m\",target_model_name=\"m\"";
    let plugin = "model_name=\"m\",plugin_name=\"predicted-latency-producer\",plugin_type=\"predicted-latency-producer\",target_model_name=\"m\"";
    for line in [
        format!("llm_d_epp_request_total{{{acme},target_model_name=\"m\"}} 1"),
        "inference_objective_request_total{model_name=\"m\",priority=\"1\",target_model_name=\"m\"} 2".to_owned(),
        format!("llm_d_epp_request_ttft_seconds_sum{{{acme},streaming=\"true\",target_model_name=\"m\"}} 0.6"),
        format!("inference_objective_request_ttft_seconds_bucket{{{names},le=\"0.6\"}} 1"),
        format!("inference_objective_request_tpot_seconds_sum{{{names}}} 0.03"),
        format!("llm_d_epp_request_predicted_ttft_seconds_sum{{{plugin}}} 0.5"),
        format!("inference_objective_request_predicted_tpot_seconds_sum{{{names}}} 0.025"),
        format!("inference_objective_request_ttft_prediction_duration_seconds_count{{{names}}} 1"),
        format!("inference_objective_request_ttft_slo_violation_total{{{names}}} 1"),
        format!("inference_objective_request_tpot_slo_violation_total{{{names}}} 1"),
        format!("llm_d_epp_request_slo_violation_total{{{plugin},type=\"tpot\"}} 1"),
        format!("llm_d_epp_inference_request_metric{{{plugin},type=\"ttft_slo_violation\"}} 1"),
        format!("inference_objective_request_error_total{{error_code=\"ResourceExhausted\",{names}}} 1"),
        "llm_d_epp_flow_control_requests_total{inference_pool=\"m\",outcome=\"RejectedCapacity\",priority=\"1\"} 1".to_owned(),
        "llm_d_epp_flow_control_requests_total{inference_pool=\"m\",outcome=\"Dispatched\",priority=\"1\"} 1".to_owned(),
        format!("inference_objective_response_sizes_sum{{{names}}} 40"),
        format!("inference_objective_request_sizes_sum{{{names}}} 30"),
        format!("inference_objective_input_tokens_sum{{{names}}} 1000"),
        "inference_objective_running_requests{model_name=\"m\"} 0".to_owned(),
        "llm_d_epp_flow_control_queue_bytes{fairness_id=\"default-flow\",inference_pool=\"m\",model_name=\"m\",priority=\"1\",target_model_name=\"m\"} 0".to_owned(),
        "inference_pool_ready_pods{name=\"m\"} 1".to_owned(),
        "llm_d_epp_per_endpoint_queue_size{model_server_endpoint=\"pod-1\",name=\"m\"} 0".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[test]
fn a_pool_without_pods_has_levels_of_zero() {
    let mut page = Page::default();
    let (hub, _samples) = Fixture::default().hub();
    page.compat_pool("m", &hub.snapshot());
    let text = TextEncoder::new().encode_to_string(&page.collect()).unwrap();
    assert!(text.contains("inference_pool_average_queue_size{name=\"m\"} 0\n"), "{text}");
    assert!(!text.contains("} -0"), "{text}");
}

#[test]
fn a_client_that_leaves_the_queue_is_evicted_and_off_every_gauge() {
    let compat = Arc::new(Compat::new(TENANTS).unwrap());
    let visit = open(&compat, None);
    let text = || TextEncoder::new().encode_to_string(&compat.gather()).unwrap();
    let running =
        |count| format!("inference_objective_running_requests{{model_name=\"m\"}} {count}");
    assert!(text().contains(&running(1)));
    drop(visit);
    assert!(text().contains(&running(0)));
    let gone = "outcome=\"EvictedContextCancelled\",priority=\"1\"} 1";
    assert!(text().contains(gone), "{}", text());
}

#[test]
fn tenants_beyond_the_hundredth_share_one_label() {
    let compat = Arc::new(Compat::new(TENANTS).unwrap());
    let label = |number: usize| compat.fairness_id(Some(&Arc::from(format!("tenant-{number}"))));
    (0..TENANTS).for_each(|number| assert_eq!(*label(number), *format!("tenant-{number}")));
    assert_eq!((&*label(TENANTS), &*label(3)), ("other", "tenant-3"));
}

#[test]
fn without_the_switch_there_is_none_of_it() {
    let metrics = Metrics::new().unwrap();
    assert!(metrics.compat().is_none());
    let own = |name: &str| name.starts_with("weir_");
    assert!(metrics.gather().iter().all(|family| own(family.name())));
    assert!(series::ALL.iter().all(|series| own(series.name)));
    assert!(ALL.iter().all(|series| !own(series.name)));
}

#[test]
fn a_pool_that_nobody_asks_takes_up_what_it_is_given_behind_these_metrics_too() {
    let slot = Slot::new();
    let metrics = Metrics::with_compat(TENANTS).unwrap();
    let compat = metrics.compat().unwrap().clone();
    let timed = Timed::new(Chain::with_slot(slot.clone()), compat, "m".into());
    let (hub, _) = Fixture { predictor: Box::new(timed), ..Fixture::default() }.hub();
    slot.publish(Offer::Withdraw { reason: "an offer".to_owned() });
    assert_eq!(hub.take_up_bundle(), 0);
    assert_eq!(hub.predictor().fallback_reason.as_deref(), Some("an offer"));
}
