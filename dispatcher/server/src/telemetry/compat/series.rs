//! The series under their other names: name, kind, labels and help, and the bucket edges their
//! dashboards expect.

use crate::telemetry::series::{Kind, Series, series};

/// Upper edges of latencies in seconds: 5 ms to an hour.
pub const LATENCY_EDGES: [f64; 35] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0,
    1200.0, 1800.0, 2700.0, 3600.0,
];
/// Upper edges of times per output token in seconds.
pub const TPOT_EDGES: [f64; 35] = [
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5,
    0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0, 90.0, 120.0,
    180.0, 270.0, 360.0,
];
/// Upper edges of prediction times in seconds.
pub const PREDICTION_EDGES: [f64; 14] =
    [0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
/// Upper edges of latencies per output token in seconds.
pub const NTPOT_EDGES: [f64; 13] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Upper edges of waits in seconds.
pub const QUEUE_EDGES: [f64; 16] = [
    0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// Upper edges of bodies in bytes: powers of two from 64 to 1 GiB.
pub const BYTE_EDGES: [f64; 25] = [
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131072.0,
    262144.0,
    524288.0,
    1048576.0,
    2097152.0,
    4194304.0,
    8388608.0,
    16777216.0,
    33554432.0,
    67108864.0,
    134217728.0,
    268435456.0,
    536870912.0,
    1073741824.0,
];
/// Upper edges of token counts: 1, and powers of two from 8 to 2^20.
pub const TOKEN_EDGES: [f64; 19] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
    32768.0, 65536.0, 131072.0, 262144.0, 524288.0, 1048576.0,
];

series! {
    REQUESTS: Counter "llm_d_epp_request_total" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Requests admitted.";
    OLD_REQUESTS: Counter "inference_objective_request_total" ["model_name", "target_model_name", "priority"]
        "Requests admitted.";
    ERRORS: Counter "llm_d_epp_request_error_total" ["model_name", "target_model_name", "fairness_id", "priority", "error_code"]
        "Requests that were refused (ResourceExhausted, ServiceUnavailable) or failed by a pod (ModelServerError).";
    OLD_ERRORS: Counter "inference_objective_request_error_total" ["model_name", "target_model_name", "error_code"]
        "Requests that were refused (ResourceExhausted, ServiceUnavailable) or failed by a pod (ModelServerError).";
    RUNNING: Gauge "llm_d_epp_request_running" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Requests admitted and not over.";
    OLD_RUNNING: Gauge "inference_objective_running_requests" ["model_name"]
        "Requests admitted and not over.";
    DURATION: Histogram "llm_d_epp_request_duration_seconds" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Time from admission to the end of the response.";
    OLD_DURATION: Histogram "inference_objective_request_duration_seconds" ["model_name", "target_model_name"]
        "Time from admission to the end of the response.";
    REQUEST_BYTES: Histogram "llm_d_epp_request_size_bytes" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Size of the request's body.";
    OLD_REQUEST_BYTES: Histogram "inference_objective_request_sizes" ["model_name", "target_model_name"]
        "Size of the request's body.";
    RESPONSE_BYTES: Histogram "llm_d_epp_response_size_bytes" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Size of the response's body.";
    OLD_RESPONSE_BYTES: Histogram "inference_objective_response_sizes" ["model_name", "target_model_name"]
        "Size of the response's body.";
    INPUT_TOKENS: Histogram "llm_d_epp_request_input_tokens" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Prompt tokens, where the pod reported usage.";
    OLD_INPUT_TOKENS: Histogram "inference_objective_input_tokens" ["model_name", "target_model_name"]
        "Prompt tokens, where the pod reported usage.";
    OUTPUT_TOKENS: Histogram "llm_d_epp_request_output_tokens" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Output tokens, as reported or else as counted in the stream.";
    OLD_OUTPUT_TOKENS: Histogram "inference_objective_output_tokens" ["model_name", "target_model_name"]
        "Output tokens, as reported or else as counted in the stream.";
    NTPOT: Histogram "llm_d_epp_request_ntpot_seconds" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Time from admission to the end per output token.";
    OLD_NTPOT: Histogram "inference_objective_normalized_time_per_output_token_seconds" ["model_name", "target_model_name"]
        "Time from admission to the end per output token.";
    TTFT: Histogram "llm_d_epp_request_ttft_seconds" ["model_name", "target_model_name", "fairness_id", "priority", "streaming"]
        "Time from arrival to the first token of a streamed response; the wait is in it.";
    OLD_TTFT: Histogram "inference_objective_request_ttft_seconds" ["model_name", "target_model_name"]
        "Time from arrival to the first token of a streamed response; the wait is in it.";
    TPOT: Histogram "llm_d_epp_request_streaming_tpot_seconds" ["model_name", "target_model_name", "fairness_id", "priority"]
        "Mean time per output token after the first of a streamed response; tokens, not chunks.";
    OLD_TPOT: Histogram "inference_objective_request_tpot_seconds" ["model_name", "target_model_name"]
        "Mean time per output token after the first of a streamed response; tokens, not chunks.";
    PREDICTED_TTFT: Histogram "llm_d_epp_request_predicted_ttft_seconds" ["plugin_name", "plugin_type", "model_name", "target_model_name"]
        "Predicted median time from dispatch to the first token, at each dispatch.";
    OLD_PREDICTED_TTFT: Histogram "inference_objective_request_predicted_ttft_seconds" ["model_name", "target_model_name"]
        "Predicted median time from dispatch to the first token, at each dispatch.";
    PREDICTED_TPOT: Histogram "llm_d_epp_request_predicted_tpot_seconds" ["plugin_name", "plugin_type", "model_name", "target_model_name"]
        "Predicted median time per output token, at each dispatch.";
    OLD_PREDICTED_TPOT: Histogram "inference_objective_request_predicted_tpot_seconds" ["model_name", "target_model_name"]
        "Predicted median time per output token, at each dispatch.";
    TTFT_PREDICTION: Histogram "llm_d_epp_request_ttft_prediction_duration_seconds" ["plugin_name", "plugin_type", "model_name", "target_model_name"]
        "Time of one call of the predictor: one request on every pod, both latencies.";
    OLD_TTFT_PREDICTION: Histogram "inference_objective_request_ttft_prediction_duration_seconds" ["model_name", "target_model_name"]
        "Time of one call of the predictor: one request on every pod, both latencies.";
    TPOT_PREDICTION: Histogram "llm_d_epp_request_tpot_prediction_duration_seconds" ["plugin_name", "plugin_type", "model_name", "target_model_name"]
        "Time of one call of the predictor: one request on every pod, both latencies.";
    OLD_TPOT_PREDICTION: Histogram "inference_objective_request_tpot_prediction_duration_seconds" ["model_name", "target_model_name"]
        "Time of one call of the predictor: one request on every pod, both latencies.";
    VIOLATIONS: Counter "llm_d_epp_request_slo_violation_total" ["plugin_name", "plugin_type", "model_name", "target_model_name", "type"]
        "Objectives missed, by type: ttft, tpot.";
    OLD_VIOLATIONS: Counter "inference_objective_request_slo_violation_total" ["model_name", "target_model_name", "type"]
        "Objectives missed, by type: ttft, tpot.";
    TTFT_VIOLATIONS: Counter "inference_objective_request_ttft_slo_violation_total" ["model_name", "target_model_name"]
        "TTFT objectives missed.";
    TPOT_VIOLATIONS: Counter "inference_objective_request_tpot_slo_violation_total" ["model_name", "target_model_name"]
        "TPOT objectives missed.";
    LAST: Gauge "llm_d_epp_inference_request_metric" ["plugin_name", "plugin_type", "model_name", "target_model_name", "type"]
        "The last value of each measure, by type: ttft, predicted_ttft, ttft_prediction_duration, ttft_slo_violation, and the same of tpot.";
    QUEUE_DURATION: Histogram "llm_d_epp_flow_control_request_queue_duration_seconds" ["fairness_id", "priority", "outcome", "inference_pool", "model_name", "target_model_name"]
        "Time from admission to dispatch, refusal or departure, by outcome.";
    QUEUE_OUTCOMES: Counter "llm_d_epp_flow_control_requests_total" ["outcome", "priority", "inference_pool"]
        "Requests by outcome: Dispatched, RejectedCapacity, RejectedOther, EvictedTTL, EvictedNoEndpoints, EvictedContextCancelled, EvictedOther.";
    QUEUE_SIZE: Gauge "llm_d_epp_flow_control_queue_size" ["fairness_id", "priority", "inference_pool", "model_name", "target_model_name"]
        "Requests waiting.";
    QUEUE_BYTES: Gauge "llm_d_epp_flow_control_queue_bytes" ["fairness_id", "priority", "inference_pool", "model_name", "target_model_name"]
        "Body bytes waiting.";
    POOL_KV: Gauge "llm_d_epp_average_kv_cache_utilization" ["name"]
        "Mean share of KV blocks in use over the pods.";
    OLD_POOL_KV: Gauge "inference_pool_average_kv_cache_utilization" ["name"]
        "Mean share of KV blocks in use over the pods.";
    POOL_KV_SPREAD: Gauge "llm_d_epp_std_dev_kv_cache_utilization" ["name"]
        "Standard deviation of that share.";
    POOL_QUEUE: Gauge "llm_d_epp_average_queue_size" ["name"]
        "Mean number of requests waiting inside an engine.";
    OLD_POOL_QUEUE: Gauge "inference_pool_average_queue_size" ["name"]
        "Mean number of requests waiting inside an engine.";
    POOL_QUEUE_SPREAD: Gauge "llm_d_epp_std_dev_queue_size" ["name"]
        "Standard deviation of that number.";
    POOL_RUNNING: Gauge "llm_d_epp_average_running_requests" ["name"]
        "Mean number of requests running in an engine.";
    OLD_POOL_RUNNING: Gauge "inference_pool_average_running_requests" ["name"]
        "Mean number of requests running in an engine.";
    POOL_RUNNING_SPREAD: Gauge "llm_d_epp_std_dev_running_requests" ["name"]
        "Standard deviation of that number.";
    POOL_READY: Gauge "llm_d_epp_ready_endpoints" ["name"]
        "Pods that take requests.";
    OLD_POOL_READY: Gauge "inference_pool_ready_pods" ["name"]
        "Pods that take requests.";
    POD_QUEUE: Gauge "llm_d_epp_per_endpoint_queue_size" ["name", "model_server_endpoint"]
        "Requests waiting inside a pod's engine.";
    OLD_POD_QUEUE: Gauge "inference_pool_per_pod_queue_size" ["name", "model_server_pod"]
        "Requests waiting inside a pod's engine.";
}

/// What stands above the table in docs/metrics.md.
pub(in crate::telemetry) const HEAD: &str = "
## Under the names of other systems

With `telemetry.compat_metrics: true` the series of the llm-d router (`llm_d_epp_`) and those that its latency predictor and the
inference extension had before (`inference_objective_`, `inference_pool_`) are there too, so that their dashboards go on working.
`model_name`, `target_model_name`, `name` and `inference_pool` are the pool's model, aliases included; `priority` is the band;
`fairness_id` is the tenant, which a client's header may name, after `telemetry.max_tenants` (100) of them `other` (theirs stop at 1000), without one `default-flow`. Their latencies count
from the end of their queue; these count from arrival. Not there, because Weir has no such part or does not look: inter-token
latency (nothing is done per chunk), cached tokens, plugin, scheduler and processing durations, the prefix index, capacity
shares, revocations, and in-flight load per tenant (`weir_pod_residents` and `weir_pod_pending` have it per pod).

| series | kind | labels | meaning |
|---|---|---|---|
";
