//! What one rank counts and observes: each line has the rank's number as `engine`. A pod without data parallelism is rank 0.

use prometheus::{Gauge, Histogram, IntCounter, IntGauge};
use weir_engine::{EngineConfig, EngineMetrics};

use super::{Maker, raise};
use crate::pod::answer::Finish;

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
pub(in crate::pod) struct Times {
    pub(in crate::pod) e2e_s: f64,
    pub(in crate::pod) queue_s: f64,
    pub(in crate::pod) prefill_s: f64,
    pub(in crate::pod) decode_s: f64,
    pub(in crate::pod) prompt_tokens: u32,
    pub(in crate::pod) output_tokens: u32,
}

/// One rank's metrics.
pub(in crate::pod) struct RankMeters {
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

impl RankMeters {
    pub(super) fn new(
        make: &Maker<'_>,
        engine: &EngineConfig,
        ranks_per_port: usize,
    ) -> Result<Self, prometheus::Error> {
        make.info("cache_config_info", &cache_config(engine, ranks_per_port))?;
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
        })
    }

    pub(in crate::pod) fn first_token(&self, after_s: f64) {
        self.ttft.observe(after_s);
    }

    pub(in crate::pod) fn next_token(&self, after_s: f64) {
        self.inter_token.observe(after_s);
    }

    pub(in crate::pod) fn finished(&self, finish: Finish, times: &Times) {
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

    pub(in crate::pod) fn aborted(&self) {
        self.aborts.inc();
    }

    /// Takes over the engine's gauges and counters of this moment.
    pub(super) fn set(&self, engine: &EngineMetrics) {
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
        ] {
            raise(counter, value);
        }
    }
}

/// The labels of a rank's `cache_config_info`: as in vLLM the blocks are those of all ranks behind its port, the tokens its own.
fn cache_config(engine: &EngineConfig, ranks_per_port: usize) -> [(&'static str, String); 4] {
    let blocks = u64::from(engine.num_blocks);
    [
        ("block_size", engine.block_size.to_string()),
        ("num_gpu_blocks", (blocks * ranks_per_port as u64).to_string()),
        ("kv_cache_size_tokens", (blocks * u64::from(engine.block_size)).to_string()),
        ("enable_prefix_caching", if engine.prefix_caching { "True" } else { "False" }.into()),
    ]
}
