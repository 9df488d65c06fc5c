//! How much a command may be asked for: what no machine holds is refused before anything is simulated.

use clap::builder::{RangedI64ValueParser, RangedU64ValueParser};

/// Pods of a pool. The largest pools that are measured have a thousand.
pub(crate) const MOST_PODS: usize = 10_000;
/// Dispatchers in front of a pool: replicas beyond some few are rare, and each holds state of its own.
const MOST_DISPATCHERS: u64 = 16;
/// Seeds: an interval hardly narrows beyond some hundred.
const MOST_SEEDS: u64 = 10_000;
/// Requests of a seed: some gigabytes of them.
pub(crate) const MOST_REQUESTS: usize = 10_000_000;
/// A load: so many times what the pods hold is all at one moment.
pub(crate) const MOST_LOAD: f64 = 1000.0;
/// And the least: below, a run is of pods that stand idle for days.
pub(crate) const LEAST_LOAD: f64 = 0.001;

/// Milliseconds in which an adapter is brought: no engine stands still for longer, and a run would not end.
pub(crate) const MOST_LORA_LOAD_MS: f64 = 60_000.0;
/// Adapters: beyond some thousands each has hardly a request in a run.
const MOST_ADAPTERS: i64 = 10_000;

/// A number of pods.
pub(crate) fn pods() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_PODS as u64)
}

/// A number of dispatchers.
pub(crate) fn dispatchers() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_DISPATCHERS)
}

/// A number of seeds, at least so many.
pub(crate) fn seeds(least: u64) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(least..=MOST_SEEDS)
}

/// A number of requests.
pub(crate) fn requests() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_REQUESTS as u64)
}

/// A number of adapters.
pub(crate) fn adapters() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=MOST_ADAPTERS)
}

/// Milliseconds in which an adapter is brought.
///
/// # Errors
/// When it is no such number.
pub(crate) fn lora_load_ms(text: &str) -> Result<f64, String> {
    let ms = text.parse().ok().filter(|ms| (0.0..=MOST_LORA_LOAD_MS).contains(ms));
    ms.ok_or_else(|| format!("not a number from 0 to {MOST_LORA_LOAD_MS}"))
}
