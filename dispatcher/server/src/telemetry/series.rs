//! Every series that Weir exposes: name, kind, labels and help, in one table.
//!
//! [`super::Metrics`] and [`super::exposition`] build their series from these constants and from
//! nothing else, and docs/metrics.md is this table in words, which a test keeps equal.
//!
//! Label values come from the configuration (models, objectives, pods), from DNS (pods) and from fixed lists
//! (reasons, outcomes), never from a client, so that no client can grow the number of series. The exceptions are bounded: the
//! tenants of [`super::compat`], and what an error says of why no model serves, of which there is one at a time.

use std::fmt::Write as _;

/// What a series is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Kind {
    /// The name used in docs/metrics.md.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One series.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one sentence.
    pub help: &'static str,
}

macro_rules! series {
    ($($constant:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $constant: Series = Series {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )+
        /// Every series, in the order of docs/metrics.md.
        pub const ALL: &[Series] = &[$($constant),+];
    };
}

pub(super) use series;

series! {
    REQUESTS: Counter "weir_requests_total" ["model", "objective", "outcome", "status"]
        "Requests answered, by outcome (ok, refused, failed, client_gone, bad_request) and HTTP status.";
    TTFT: Histogram "weir_ttft_seconds" ["model", "objective"]
        "Time from arrival at Weir to the first token of a streamed response.";
    TPOT: Histogram "weir_tpot_seconds" ["model", "objective"]
        "Mean time per output token after the first of a streamed response.";
    SLO: Counter "weir_slo_total" ["model", "objective", "target", "met"]
        "Measured responses with an objective, by target (ttft, tpot) and whether it was met.";
    QUEUE_WAIT: Histogram "weir_queue_wait_seconds" ["model", "objective"]
        "Time from arrival to dispatch.";
    REFUSED: Counter "weir_refused_total" ["model", "reason", "sheddable"]
        "Requests refused, by reason, and whether their band is below 0 (true, false).";
    STREAM_ERRORS: Counter "weir_stream_errors_total" ["code"]
        "Streams that ended in an in-band error, by its code.";
    PREFILLS: Counter "weir_prefills_total" ["model", "outcome"]
        "Requests of a pool whose prompts another one computes, by where theirs was: there (prefill), by the pod that answered (local), or by both (lost: the first did not say where it keeps it).";
    MIGRATIONS: Counter "weir_migrations_total" ["model", "outcome"]
        "Requests of a pool with a migration_limit whose pod was lost, by what came of it: sent to another pod from the start, for nothing of an answer had been passed on (again), gone on with by another pod (continued), or ended, for that did not come about (lost).";
    UNKNOWN_OBJECTIVES: Counter "weir_unknown_objectives_total" ["model"]
        "Requests whose header names an objective that is not configured, so that they got another.";
    QUEUE_DEPTH: Gauge "weir_queue_depth" ["model", "band"]
        "Requests waiting, by band; those that are late are in weir_queue_late only.";
    QUEUE_LATE: Gauge "weir_queue_late" ["model"]
        "Requests waiting that were put behind the others, for they can no longer meet their TTFT objective; of what an operator holds none.";
    QUEUE_BYTES: Gauge "weir_queue_bytes" ["model"]
        "Body bytes waiting.";
    QUEUE_OLDEST: Gauge "weir_queue_oldest_seconds" ["model"]
        "Age of the oldest waiting request.";
    QUEUE_DRAIN: Gauge "weir_queue_drain_seconds" ["model"]
        "Predicted time until what waits now and is not paused is dispatched; absent while all of it is paused or no pod is ready, for nobody knows. The age of a band's oldest until it has had something waiting for ten seconds of late.";
    QUEUE_SPENT: Gauge "weir_queue_spent_ratio" ["model"]
        "Share of its TTFT objective that a request had waited when it left the queue, the mean of some 64; below .12 long prompts get a head start and are urgent sooner, above pull.hold_share heads that found no pod are passed by what fits.";
    KEPT_FOR: Gauge "weir_kept_for_seconds" ["model"]
        "Stall for which pods are kept while long prompts come: half of what the longest of the last minute or two takes on an idle pod; 0 when none came.";
    WAITING_REASON: Gauge "weir_waiting_reason" ["model", "reason"]
        "Lanes with something in them, by the reason why their head waits.";
    LOAD: Gauge "weir_load" ["model", "requests"]
        "Work of the requests that came in the last minute over what the open pods hold by formula, by requests: kept (those that may not be shed) and all; 1 is every pod at the pace that they ask for, evenly.";
    LOAD_HELD: Gauge "weir_load_held" ["model"]
        "The load at which autoscale.attained of the requests that may not be shed are in time, as far as was seen.";
    PODS_NEEDED: Gauge "weir_pods_needed" ["model", "requests"]
        "Pods, such as those that are open, which bring the load to that, by requests: kept and all; 0 where nothing came for some minutes.";
    IN_FLIGHT: Gauge "weir_in_flight" ["model"]
        "Requests dispatched and not over.";
    EVENTS: Counter "weir_events_total" ["model", "event"]
        "What happened in the scheduler: arrived, adopted, handed_over, dispatched, requeued, completed, failed, client_gone, cancelled, demoted, spread, adapter_turns (a LoRA adapter gave way to another one on a pod), turned_away (put back because the pod answered that it takes no more for now), ignored.";
    SCHEDULER_BUSY: Counter "weir_scheduler_busy_seconds_total" ["model"]
        "Time that threads spent in the pool's scheduler, where one is at a time: near one second a second, more data-plane threads bring nothing.";
    TOKENS_PER_BYTE: Gauge "weir_tokens_per_byte" ["model"]
        "Tokens per byte of prompt, as learned from usage.";
    POD_PHASE: Gauge "weir_pod_phase" ["model", "pod", "phase"]
        "1 for the phase that a pod is in: ready, cordoned, draining or broken.";
    POD_RESIDENTS: Gauge "weir_pod_residents" ["model", "pod"]
        "Requests decoding on a pod, by the ledger.";
    POD_PENDING: Gauge "weir_pod_pending" ["model", "pod"]
        "Prompts on a pod without a first token, by the ledger.";
    POD_PENDING_TOKENS: Gauge "weir_pod_pending_tokens" ["model", "pod"]
        "Uncached tokens of those prompts.";
    POD_KV_USAGE: Gauge "weir_pod_kv_usage" ["model", "pod"]
        "Share of KV blocks in use at the last scrape.";
    POD_KV_CAPACITY: Gauge "weir_pod_kv_capacity_tokens" ["model", "pod"]
        "Tokens that a pod's KV cache holds, as it says, or else as its class has it.";
    POD_PREFIX_CAPACITY: Gauge "weir_pod_prefix_capacity_tokens" ["model", "pod"]
        "Tokens of prompts that a pod has cached when it is full, likewise; 0 where it finds none again (prefix caching is off).";
    POD_STEP: Gauge "weir_pod_step_ms" ["model", "pod"]
        "Step time now, in milliseconds.";
    TOKENS_PER_EVENT: Gauge "weir_tokens_per_event" ["model", "pod_class"]
        "Tokens that come with an event of a stream after its first, as learned from usage, or where there is none from the pods' counts of tokens; streams without usage are counted by it.";
    TOKENS_PER_STEP: Gauge "weir_tokens_per_step" ["model", "pod_class"]
        "Tokens that a resident gets by a step; a pace is the step time divided by it.";
    POD_STALL_BUDGET: Gauge "weir_pod_stall_budget_ms" ["model", "pod"]
        "Longest stall that a request which has just come may cause on a pod, in milliseconds; absent when nothing bounds it.";
    POD_SCRAPE_AGE: Gauge "weir_pod_scrape_age_seconds" ["model", "pod"]
        "Age of the last good scrape; absent before the first.";
    POD_SCRAPES: Counter "weir_pod_scrapes_total" ["model", "pod", "result"]
        "Scrapes by result: good, failed (no answer), garbled (not understood).";
    POD_SCRAPE_BYTES: Counter "weir_pod_scrape_bytes_total" ["model", "pod"]
        "Bytes of the answers to scrapes: about 800 each, or about 100,000 where a pod writes all of its metrics whatever is asked for.";
    POD_ANSWERS: Counter "weir_pod_answers_total" ["model", "pod", "class"]
        "What requests given to a pod came to, by class: 2xx, 4xx, 5xx (its answer's status, with a redirect as 5xx, or that of an error inside its stream), cut (lost or silent in the middle), none (lost or silent before it).";
    POD_DISPATCHED: Counter "weir_pod_dispatched_total" ["model", "pod"]
        "Requests given to a pod.";
    POD_PROMPT_TOKENS: Counter "weir_pod_prompt_tokens_total" ["model", "pod"]
        "Tokens of their prompts.";
    POD_PROMPT_TOKENS_CACHED: Counter "weir_pod_prompt_tokens_cached_total" ["model", "pod"]
        "Those that the pod was believed to have cached; what it found is vllm:prefix_cache_hits_total, of vllm:prefix_cache_queries_total.";
    POD_CACHE_FOUND: Gauge "weir_pod_cache_found_ratio" ["model", "pod"]
        "Share of what a pod is believed to have cached that its engine finds, and that counts; 1 while nothing speaks against it.";
    POD_ADAPTERS: Gauge "weir_pod_adapters" ["model", "pod"]
        "LoRA adapters that run on a pod.";
    POD_MAX_LORAS: Gauge "weir_pod_max_loras" ["model", "pod"]
        "Most of them that it runs at once; absent while nothing is known to bound them.";
    PREDICTOR_SOURCE: Gauge "weir_predictor_source" ["model", "target", "source"]
        "1 for the evaluator that serves a target: onnx, forest, profile or prior.";
    PREDICTOR_FALLBACK: Gauge "weir_predictor_fallback" ["model", "reason"]
        "1 while a more trusted evaluator does not serve, with the reason; absent otherwise.";
    PREDICTOR_FAILURES: Counter "weir_predictor_failures_total" ["model"]
        "Predictor calls that failed and were answered by the next evaluator.";
    MODEL_VERSION: Gauge "weir_model_version" ["model"]
        "Version of the bundle in service; 0 is none.";
    BUNDLE_EVALUATOR: Gauge "weir_bundle_evaluator" ["model", "version", "evaluator", "reason"]
        "1 for what evaluates the bundle in service: forest, or onnx with the reason why not the forest; absent without one.";
    LIVE_MAPE: Gauge "weir_live_mape" ["model", "target"]
        "Recent mean absolute relative error of what decided, as a fraction.";
    PROFILE_SERVES: Gauge "weir_profile_serves" ["model", "class", "target"]
        "1 while the profile of a pod class is preferred to the prior for a target, else 0; a bundle comes before both.";
    PROFILE_MAPE: Gauge "weir_profile_mape" ["model", "class", "target"]
        "Recent mean absolute relative error of the profile of a pod class, chosen or not, as a fraction.";
    PROFILE_OUTSIDE: Counter "weir_profile_outside_total" ["model", "class", "target"]
        "Times that the profile of a pod class was read at an edge of its grid, for want of a point beyond.";
    COVERAGE: Gauge "weir_coverage" ["model", "target"]
        "Share of recent outcomes at or below the 90th percentile that was stated; 0.9 is right.";
    P90_FACTOR: Gauge "weir_p90_factor" ["model", "target"]
        "Factor from the median to the 90th percentile, learned from recent outcomes.";
    DRIFT_EVIDENCE: Gauge "weir_drift_evidence" ["model", "target"]
        "Evidence that outcomes have changed against what is stated, as a share of what raises an alarm; absent until there are 500 outcomes of the version that states it.";
    DRIFT_ALARMS: Counter "weir_drift_alarms_total" ["model", "target", "change"]
        "Alarms of the drift test, by what responses became: slower or faster.";
    ROLLBACKS: Counter "weir_rollbacks_total" ["model"]
        "Bundles taken out of service because the one before did better on the same outcomes.";
    VERSION_STATED_MAPE: Gauge "weir_version_stated_mape" ["model", "version", "target"]
        "Recent mean absolute relative error of what decided while a version served; 0 is no bundle; the newest eight.";
    VERSION_COVERAGE: Gauge "weir_version_coverage" ["model", "version", "target"]
        "Share of outcomes at or below the stated 90th percentile while a version served; the newest eight.";
    CLASS_MAPE: Gauge "weir_class_mape" ["model", "pod_class", "target"]
        "Recent mean absolute relative error of what decided, by pod class.";
    CLASS_COVERAGE: Gauge "weir_class_coverage" ["model", "pod_class", "target"]
        "Share of recent outcomes at or below the stated 90th percentile, by pod class.";
    PATTERN_MAPE: Gauge "weir_pattern_mape" ["model", "pod_class", "input_tokens", "output_tokens", "target"]
        "Recent mean absolute relative error of what decided, by pod class and upper edges of the buckets of input and expected output tokens; at most 64, the rest under other.";
    PATTERN_COVERAGE: Gauge "weir_pattern_coverage" ["model", "pod_class", "input_tokens", "output_tokens", "target"]
        "Share of recent outcomes at or below the stated 90th percentile, by pattern; as above.";
    PATTERN_OUTCOMES: Gauge "weir_pattern_outcomes" ["model", "pod_class", "input_tokens", "output_tokens", "target"]
        "Outcomes behind those numbers, forgotten ones included.";
    VERSION_MAPE: Gauge "weir_version_mape" ["model", "version", "target"]
        "Recent mean absolute relative error of a bundle version, chosen or not; the newest eight versions.";
    VERSION_SERVED: Gauge "weir_version_served" ["model", "version"]
        "Samples that were decided by a bundle version; the newest eight versions.";
    BUNDLES: Counter "weir_bundles_total" ["result"]
        "Bundles found, by result: loaded, refused.";
    BUNDLE_MISSING: Gauge "weir_bundle_missing" []
        "1 while the bundle in service is gone from the disk.";
    PIN_FAILING: Gauge "weir_pin_failing" []
        "1 while what an operator has pinned cannot be read or cannot serve, so that nothing that is published is taken.";
    ONNXRUNTIME: Gauge "weir_onnxruntime_found" []
        "1 when ONNX Runtime was found.";
    SAMPLES_WRITTEN: Counter "weir_samples_written_total" []
        "Samples written to the spool.";
    SAMPLES_DROPPED: Counter "weir_samples_dropped_total" ["reason"]
        "Samples lost, by reason: busy (the writer fell behind), disk (it refused).";
    SPOOL_ERRORS: Counter "weir_spool_errors_total" []
        "Times that the disk refused a sample.";
    SPOOL_BYTES: Gauge "weir_spool_bytes" []
        "Bytes of the spool.";
    SPOOL_SEGMENTS: Gauge "weir_spool_segments" []
        "Segments of the spool.";
    STATE_AGE: Gauge "weir_state_age_seconds" []
        "Time since the state of all pools was last written; absent before, and where none is kept.";
    STATE_BYTES: Gauge "weir_state_bytes" []
        "Bytes of the state's files as last written.";
    STATE_ERRORS: Counter "weir_state_errors_total" ["operation"]
        "Times that a file of the state could not be used, by operation: read, write.";
    STATE_PODS: Counter "weir_state_pods_recalled_total" ["model"]
        "Pods that were believed to have cached what they had when an earlier process ended.";
    TRAINER_UP: Gauge "weir_trainer_up" []
        "1 while the supervised trainer runs.";
    TRAINER_RESTARTS: Counter "weir_trainer_restarts_total" []
        "Times the supervised trainer was started again.";
    TRAINER_ROUND_AGE: Gauge "weir_trainer_round_age_seconds" []
        "Time since the trainer's last round ended, whoever started the trainer, or since the first one began; absent before.";
    TRAINER_ROUND_FAILED: Gauge "weir_trainer_round_failed" []
        "1 when that round failed, else 0; absent before the first.";
    TRAINER_PUBLISHED_AGE: Gauge "weir_trainer_published_age_seconds" []
        "Time since a round last published a bundle; absent before the first that did.";
    DECIDES: Gauge "weir_decides" ["model"]
        "1 while this one of several dispatchers decides for the pool, or for others that do not reach the one that does; 0 while another decides for all; absent without replicas.";
    REPLICAS: Gauge "weir_replicas" ["model"]
        "Other dispatchers of the pool that can be asked.";
    REPLICA_VERDICTS: Counter "weir_replica_verdicts_total" ["model", "way"]
        "Verdicts that came from another dispatcher (heard), and that others were told (told).";
    LEAD_CHANGES: Counter "weir_lead_changes_total" ["model"]
        "Times that another dispatcher than before began to decide for the pool, as seen here.";
    CONFIG_RELOADS: Counter "weir_config_reloads_total" ["result"]
        "Reloads of the configuration, by result: applied, unchanged, refused (the one before goes on).";
    CONFIG_HASH: Gauge "weir_config_hash" []
        "A number that is equal in dispatchers that run the same configuration.";
    CONFIG_AGE: Gauge "weir_config_age_seconds" []
        "Time since the configuration in force was taken over.";
    CONFIG_FAILING: Gauge "weir_config_failing" []
        "1 while the file cannot be used as it is, so that an older configuration is in force.";
    CONFIG_NEEDS_RESTART: Gauge "weir_config_needs_restart" []
        "Keys of the file that differ from what runs and count after a restart only.";
    ADMIN_CHANGES: Counter "weir_admin_changes_total" ["action", "result"]
        "Changes that somebody asked the admin side for, by action (denied: without the right to; unread: of which it could not be read what it is) and result: ok, refused.";
    ACCEPT_FAILURES: Counter "weir_accept_failures_total" ["listener"]
        "Times that no connection could be accepted, mostly for want of file descriptors, by listener: api, admin, replicas.";
    CONNECTIONS_DISPLACED: Counter "weir_connections_displaced_total" ["listener"]
        "Connections that were closed for newer ones, since no more are kept, by listener: of api those without a request, of replicas strangers.";
    TLS_EXPIRY: Gauge "weir_tls_certificate_expiry_timestamp_seconds" ["listener"]
        "When the certificate of a listener that speaks TLS (api, admin) ends, in seconds of Unix time.";
    TLS_RENEWALS: Counter "weir_tls_renewals_total" ["listener", "outcome"]
        "Times that the files of a listener's certificate had changed, by outcome: renewed, or refused, where those before stay in force.";
    TLS_FAILING: Gauge "weir_tls_failing" ["listener"]
        "1 while the files of a listener's certificate cannot be used as they are, so that those before are in force.";
    TLS_HANDSHAKES_FAILED: Counter "weir_tls_handshakes_failed_total" ["listener"]
        "Connections to a listener that speaks TLS on which nothing could be agreed, or without a certificate where one is asked for; who closes before it says anything is not counted.";
    CONNECTIONS: Gauge "weir_connections" ["state"]
        "Clients' connections to the API, by state: asking (with a request), idle (asked before), silent (never asked anything). The last two give way when there are no more places.";
    CONNECTIONS_MOST: Gauge "weir_connections_most" []
        "Connections to the API for which there are places: limits.max_connections, or fewer where open files allow no more.";
    LOG_LINES_DROPPED: Counter "weir_log_lines_dropped_total" []
        "Log lines that were not written: the reader of standard error is too slow, or gone.";
    SPANS: Counter "weir_spans_total" ["result"]
        "Spans of requests, by what became of them: sent to the collector, dropped for want of room, or failed, not taken by it.";
    DRAINING: Gauge "weir_draining" []
        "1 once the dispatcher was asked to stop.";
    UPTIME: Gauge "weir_uptime_seconds" []
        "Time since the start.";
}

/// docs/metrics.md as it must be.
pub fn markdown() -> String {
    let mut text = String::from(HEAD);
    table(&mut text, ALL);
    text.push_str(super::compat::series::HEAD);
    table(&mut text, super::compat::series::ALL);
    text
}

fn table(text: &mut String, all: &[Series]) {
    for series in all {
        let labels = series.labels.join(", ");
        let kind = series.kind.name();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {kind} | {labels} | {} |", series.name, series.help);
    }
}

const HEAD: &str = "\
# Metrics

Served at `/metrics` of the admin listener. Label values come from the configuration, from DNS (pods) and from fixed lists, never from
a client. One exception is the `reason` of `weir_predictor_fallback`, which may be what an error says, up to 100 characters of it and one at a time; the other is `fairness_id` under `telemetry.compat_metrics`, a tenant as its client's header may name it, of which there
are `telemetry.max_tenants` at most. Times are in seconds unless the name says otherwise. This page is generated from
`dispatcher/server/src/telemetry/series.rs`, and a test keeps the two equal.

| series | kind | labels | meaning |
|---|---|---|---|
";
