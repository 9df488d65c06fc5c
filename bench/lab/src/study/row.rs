//! A line of results.

use serde::{Deserialize, Deserializer, Serialize};

use super::Fingerprints;

/// What one policy did with one workload, for all classes or one of them. Counts are sums over the seeds, latencies are of all
/// seeds' requests together, and everything else is the mean over the seeds. `None` is what nothing was measured for.
///
/// The first 5 % of the requests are the warm-up and in none of the figures, but for `throughput_rps` and `idle_share`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the traffic.
    pub workload: String,
    /// Name of the objectives.
    pub mix: String,
    /// Name of the pods' hardware.
    pub gpu: String,
    /// How many pods.
    pub pods: usize,
    /// Tokens of a step, of the first class of pods.
    pub chunk_tokens: u32,
    /// Name of the policy.
    pub policy: String,
    /// What its dispatcher knew of the engines, as `--prediction` says it; empty in files that are older than this field.
    #[serde(default)]
    pub prediction: String,
    /// How many dispatchers stood in front of the pods; one in files that are older than this field.
    #[serde(default = "one_dispatcher")]
    pub dispatchers: usize,
    /// What tells traffic, objectives and pods from others that are called the same; empty in files that are older than this field.
    #[serde(default)]
    pub fingerprints: Fingerprints,
    /// The load; `None` where it was sought, and for traffic with rates of its own.
    pub load: Option<f64>,
    /// The highest load that keeps `at`, 0 where none does; `None` where the load was given.
    pub max_load: Option<f64>,
    /// Whether a higher load was tried that does not keep it: false where the search ended before one did not.
    #[serde(default = "yes")]
    pub bounded: bool,
    /// Whether requests came for too short a time for the load to show: see `weir-bench sim`'s warning.
    #[serde(default)]
    pub too_short: bool,
    /// Attainment that was asked of the class of the highest band; `None` where the load was given.
    pub at: Option<f64>,
    /// How many seeds.
    pub seeds: usize,
    /// `all`, or the name of a class.
    pub class: String,
    /// Requests that came.
    pub requests: usize,
    /// Share of them that met both objectives: TTFT from arrival, and the mean time per token after the first, of which an
    /// answer of one token has none. One that was refused or rejected has missed them.
    pub attainment: f64,
    /// Half width of its 95 % interval over the seeds, by Student's t; `None` with a single seed.
    pub attainment_ci: Option<f64>,
    /// The same share with TPOT counted only for answers of 16 tokens and more: in a shorter one a single step decides it.
    pub attainment_from_16: f64,
    /// Requests that came after the warm-up and met both objectives, whenever they ended, per second of the time in which such
    /// requests came. No number, in a file `null`, where all came at one moment, as in the next two.
    #[serde(deserialize_with = "rate")]
    pub goodput_rps: f64,
    /// Output tokens of these per second.
    #[serde(deserialize_with = "rate")]
    pub goodput_tokens_per_s: f64,
    /// Requests that ended in that time, those of the warm-up too, per second.
    #[serde(deserialize_with = "rate")]
    pub throughput_rps: f64,
    /// TTFT from arrival: mean.
    pub ttft_ms_mean: Option<f64>,
    /// Its median.
    pub ttft_ms_p50: Option<f64>,
    /// Its 95th percentile.
    pub ttft_ms_p95: Option<f64>,
    /// Its 99th percentile.
    pub ttft_ms_p99: Option<f64>,
    /// Mean time per token after the first: mean.
    pub tpot_ms_mean: Option<f64>,
    /// Its median.
    pub tpot_ms_p50: Option<f64>,
    /// Its 95th percentile.
    pub tpot_ms_p95: Option<f64>,
    /// Its 99th percentile.
    pub tpot_ms_p99: Option<f64>,
    /// Time from arrival to the last token per output token: mean.
    pub ntpot_ms_mean: Option<f64>,
    /// Its median.
    pub ntpot_ms_p50: Option<f64>,
    /// Its 95th percentile.
    pub ntpot_ms_p95: Option<f64>,
    /// Its 99th percentile.
    pub ntpot_ms_p99: Option<f64>,
    /// Time from arrival to the last token: mean.
    pub e2e_ms_mean: Option<f64>,
    /// Its median.
    pub e2e_ms_p50: Option<f64>,
    /// Its 95th percentile.
    pub e2e_ms_p95: Option<f64>,
    /// Its 99th percentile.
    pub e2e_ms_p99: Option<f64>,
    /// Time from arrival to dispatch: median.
    pub wait_ms_p50: Option<f64>,
    /// Its 95th percentile.
    pub wait_ms_p95: Option<f64>,
    /// Its 99th percentile.
    pub wait_ms_p99: Option<f64>,
    /// The longest.
    pub wait_ms_max: Option<f64>,
    /// Requests that the dispatcher refused.
    pub refused: usize,
    /// Requests that an engine did not take.
    pub rejected: usize,
    /// How often engines preempted them.
    pub preemptions: u64,
    /// Prompt tokens found in a cache, of those of served requests.
    pub prefix_hit: f64,
    /// Fairness over the classes' attainment (Jain's index): 1 when all attain alike.
    pub jain: Option<f64>,
    /// Share of the time in which an engine ran no step, over the pods.
    pub idle_share: f64,
    /// Mean error of the predicted TTFT, from dispatch, as a fraction of the measured one.
    pub mape_ttft: Option<f64>,
    /// Mean error of the predicted time per token, for answers of 8 tokens and more.
    pub mape_tpot: Option<f64>,
    /// Share of the TTFTs at or below the stated 90th percentile.
    pub coverage_ttft: Option<f64>,
    /// Share of the times per token at or below it.
    pub coverage_tpot: Option<f64>,
    /// Attainment of the largest 5 % of the prompts.
    pub attainment_large5: Option<f64>,
    /// Longest TTFT from arrival of these.
    pub worst_wait_ms: Option<f64>,
}

/// What files say of which nothing was written.
fn yes() -> bool {
    true
}

/// As many as stood in front of the pods where a file does not say.
pub(crate) fn one_dispatcher() -> usize {
    1
}

/// JSON has no word for what is no number.
fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}
