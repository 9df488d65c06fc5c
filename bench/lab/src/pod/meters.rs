//! `/metrics` as vLLM writes it: names, labels and buckets of vLLM V1, and those alone that a query names, so that a scraper
//! cannot tell the difference.
//!
//! Gauges and counters come from the engine when they are read; the histograms are fed as tokens are delivered. Times are
//! in wall-clock seconds. Two series of the simulation's own are beside them: `sim:starts_total` and
//! `sim:duplicate_starts_total`.

use std::{
    collections::HashMap,
    time::{SystemTime, UNIX_EPOCH},
};

use percent_encoding::percent_decode_str;
use prometheus::{
    Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts, Registry, TextEncoder,
    core::Collector, proto::MetricFamily,
};
use weir_engine::{EngineConfig, EngineMetrics};

use super::answer::Finish;

const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_S: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0,
    20_000.0, 50_000.0, 100_000.0,
];

/// What one finished sequence took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) e2e_s: f64,
    pub(super) queue_s: f64,
    pub(super) prefill_s: f64,
    pub(super) decode_s: f64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
}

/// One pod's metrics.
pub(super) struct Meters {
    registry: Registry,
    running: IntGauge,
    waiting: IntGauge,
    kv_usage: Gauge,
    prompt_tokens: IntCounter,
    prompt_tokens_cached: IntCounter,
    generation_tokens: IntCounter,
    prefix_queries: IntCounter,
    prefix_hits: IntCounter,
    preemptions: IntCounter,
    rejections: IntCounter,
    starts: IntCounter,
    duplicate_starts: IntCounter,
    success: [IntCounter; Finish::ALL.len()],
    aborts: IntCounter,
    ttft: Histogram,
    inter_token: Histogram,
    per_token: Histogram,
    e2e: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
}

impl Meters {
    pub(super) fn new(model: &str, engine: &EngineConfig) -> Result<Self, prometheus::Error> {
        let make = Maker::new(model);
        let kv_tokens = u64::from(engine.num_blocks) * u64::from(engine.block_size);
        let config = [
            ("block_size", engine.block_size.to_string()),
            ("num_gpu_blocks", engine.num_blocks.to_string()),
            ("kv_cache_size_tokens", kv_tokens.to_string()),
            ("enable_prefix_caching", if engine.prefix_caching { "True" } else { "False" }.into()),
        ];
        let info = make.opts("cache_config_info", "Information of the LLMEngine CacheConfig");
        make.keep(Gauge::with_opts(info.const_labels(labels(model, &config)))?)?.set(1.0);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_s = ("process_start_time_seconds", "When the pod began, in Unix time");
        make.keep(Gauge::new(began_s.0, began_s.1)?)?.set(began.as_secs_f64());
        let success =
            |reason: &str| make.labelled("request_success_total", ("finished_reason", reason));
        Ok(Self {
            running: make.gauge("num_requests_running", "Requests in model execution batches")?,
            waiting: make.gauge("num_requests_waiting", "Requests waiting to be processed")?,
            kv_usage: make.keep(Gauge::with_opts(
                make.opts("kv_cache_usage_perc", "KV-cache usage, 1 is full"),
            )?)?,
            prompt_tokens: make.counter("prompt_tokens_total")?,
            prompt_tokens_cached: make.counter("prompt_tokens_cached_total")?,
            generation_tokens: make.counter("generation_tokens_total")?,
            prefix_queries: make.counter("prefix_cache_queries_total")?,
            prefix_hits: make.counter("prefix_cache_hits_total")?,
            preemptions: make.counter("num_preemptions_total")?,
            rejections: make.counter("admission_rejections_total")?,
            starts: make.keep(IntCounter::new("sim:starts_total", "Generations started")?)?,
            duplicate_starts: make.keep(IntCounter::new(
                "sim:duplicate_starts_total",
                "Generations started under an x-request-id that was started before",
            )?)?,
            success: [success(Finish::Stop.name())?, success(Finish::Length.name())?],
            aborts: success("abort")?,
            ttft: make.histogram("time_to_first_token_seconds", TTFT_S)?,
            inter_token: make.histogram("inter_token_latency_seconds", TOKEN_S)?,
            per_token: make.histogram("request_time_per_output_token_seconds", TOKEN_S)?,
            e2e: make.histogram("e2e_request_latency_seconds", REQUEST_S)?,
            queue: make.histogram("request_queue_time_seconds", REQUEST_S)?,
            prefill: make.histogram("request_prefill_time_seconds", REQUEST_S)?,
            decode: make.histogram("request_decode_time_seconds", REQUEST_S)?,
            inference: make.histogram("request_inference_time_seconds", REQUEST_S)?,
            request_prompt_tokens: make.histogram("request_prompt_tokens", TOKENS)?,
            request_generation_tokens: make.histogram("request_generation_tokens", TOKENS)?,
            registry: make.registry,
        })
    }

    pub(super) fn first_token(&self, after_s: f64) {
        self.ttft.observe(after_s);
    }

    pub(super) fn next_token(&self, after_s: f64) {
        self.inter_token.observe(after_s);
    }

    pub(super) fn finished(&self, finish: Finish, times: &Times) {
        for (counter, of) in self.success.iter().zip(Finish::ALL) {
            counter.inc_by(u64::from(of == finish));
        }
        self.e2e.observe(times.e2e_s);
        self.queue.observe(times.queue_s);
        self.prefill.observe(times.prefill_s);
        self.decode.observe(times.decode_s);
        self.inference.observe(times.prefill_s + times.decode_s);
        if times.output_tokens > 1 {
            self.per_token.observe(times.decode_s / f64::from(times.output_tokens - 1));
        }
        self.request_prompt_tokens.observe(f64::from(times.prompt_tokens));
        self.request_generation_tokens.observe(f64::from(times.output_tokens));
    }

    pub(super) fn aborted(&self) {
        self.aborts.inc();
    }

    /// Everything, with the engine's gauges and counters of this moment.
    pub(super) fn read(
        &self,
        engine: &EngineMetrics,
        (starts, duplicate_starts): (u64, u64),
    ) -> Vec<MetricFamily> {
        self.running.set(i64::from(engine.running));
        self.waiting.set(i64::from(engine.waiting));
        self.kv_usage.set(engine.kv_usage);
        for (counter, value) in [
            (&self.prompt_tokens, engine.prompt_tokens),
            (&self.prompt_tokens_cached, engine.prompt_tokens_cached),
            (&self.generation_tokens, engine.generation_tokens),
            (&self.prefix_queries, engine.prefix_queries),
            (&self.prefix_hits, engine.prefix_hits),
            (&self.preemptions, engine.preemptions),
            (&self.rejections, engine.rejections),
            (&self.starts, starts),
            (&self.duplicate_starts, duplicate_starts),
        ] {
            counter.inc_by(value.saturating_sub(counter.get()));
        }
        self.registry.gather()
    }
}

/// The exposition text of what a query asks for by name (`name[]=`), or else of everything.
pub(super) fn text(
    mut families: Vec<MetricFamily>,
    query: &str,
) -> Result<String, prometheus::Error> {
    let query = percent_decode_str(query).decode_utf8_lossy();
    let names: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("name[]=")).collect();
    if !names.is_empty() {
        families.retain(|family| names.contains(&family.name()));
    }
    TextEncoder::new().encode_to_string(&families)
}

/// Makes collectors with vLLM's prefix and labels, and registers them.
struct Maker {
    registry: Registry,
    model: String,
}

impl Maker {
    fn new(model: &str) -> Self {
        Self { registry: Registry::new(), model: model.to_owned() }
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("vllm:{name}"), help).const_labels(labels(&self.model, &[]))
    }

    fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::with_opts(self.opts(name, help))?)
    }

    fn counter(&self, name: &str) -> Result<IntCounter, prometheus::Error> {
        self.keep(IntCounter::with_opts(self.opts(name, "As vLLM counts it"))?)
    }

    fn labelled(
        &self,
        name: &str,
        (label, value): (&str, &str),
    ) -> Result<IntCounter, prometheus::Error> {
        let labels = labels(&self.model, &[(label, value.to_owned())]);
        let opts = Opts::new(format!("vllm:{name}"), "As vLLM counts it").const_labels(labels);
        self.keep(IntCounter::with_opts(opts)?)
    }

    fn histogram(&self, name: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        let opts = HistogramOpts::new(format!("vllm:{name}"), "As vLLM observes it")
            .const_labels(labels(&self.model, &[]))
            .buckets(buckets.to_vec());
        self.keep(Histogram::with_opts(opts)?)
    }
}

fn labels(model: &str, more: &[(&str, String)]) -> HashMap<String, String> {
    let always = [("model_name", model.to_owned()), ("engine", "0".to_owned())];
    let more = more.iter().map(|(name, value)| (*name, value.clone()));
    always.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value)).collect()
}
