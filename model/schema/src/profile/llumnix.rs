//! Llumnix's profiles: TTFT by prompt tokens, TPOT by batch and tokens per request.
//!
//! The files are those of `--ttft-profiling-data-path` and `--tpot-profiling-data-path`, in
//! milliseconds. The formulas are those of its latency predictor; four things differ, because there
//! they fail:
//!
//! - A reading outside the grid is that of the edge, and a prompt longer than the longest one
//!   profiled is computed as several of it. Llumnix answers infinity, which filters every pod.
//! - A grid need not be complete: each batch size has its own context lengths (a large batch of long
//!   contexts does not fit a cache), and edges of its own. On a complete grid this is the bilinear
//!   form.
//! - Cached tokens are not computed, so they cost nothing; and no latency is below zero.
//! - Any statistic of the file can be chosen; there it is always the median.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ProfileError, Reading, axis::place, text::number};

/// Fewest tokens per request that TPOT is looked up with, as in Llumnix.
const LEAST_TOKENS_PER_REQUEST: f64 = 8.0;

/// Which statistic of a point counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Percentile {
    /// The mean.
    Mean,
    /// The median: what Llumnix uses.
    #[default]
    P50,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
}

impl Percentile {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Mean, Self::P50, Self::P95, Self::P99];

    /// Its key in the files and in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }
}

/// Latencies along one axis.
#[derive(Clone, Debug, Default, PartialEq)]
struct Curve {
    at: Vec<f64>,
    ms: Vec<f64>,
}

impl Curve {
    fn push(&mut self, at: f64, ms: f64) {
        self.at.push(at);
        self.ms.push(ms);
    }

    fn read(&self, at: f64) -> Reading<f64> {
        let place = place(&self.at, at);
        let ms = |index: usize| self.ms.get(index).copied().unwrap_or_default();
        Reading { value: place.between(ms(place.low), ms(place.high)), inside: place.inside }
    }

    fn last(&self) -> f64 {
        self.at.last().copied().unwrap_or_default()
    }
}

/// TTFT of an otherwise idle pod by prompt tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct TtftCurve(Curve);

/// TPOT by the number of decoding requests and the tokens each of them holds.
#[derive(Clone, Debug, PartialEq)]
pub struct TpotGrid {
    batches: Vec<f64>,
    /// One for each of `batches`, by tokens per request.
    curves: Vec<Curve>,
}

/// Requests that decode together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Their number.
    pub requests: f64,
    /// Tokens of context they hold together.
    pub tokens: f64,
}

/// A prompt on a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefill {
    /// Prompt tokens that the pod has to compute before it, cached ones not counted.
    pub ahead_tokens: f64,
    /// Its own prompt tokens, cached ones not counted.
    pub own_tokens: f64,
    /// Time that the pod has had for `ahead_tokens`, in milliseconds.
    pub elapsed_ms: f64,
    /// Most tokens the engine puts into one step.
    pub chunk_tokens: f64,
    /// What decodes meanwhile.
    pub decoding: Batch,
}

impl TtftCurve {
    /// Reads the results of a TTFT file.
    ///
    /// # Errors
    /// When a point is missing something or cannot be true.
    pub(super) fn from_json(value: &Value, percentile: Percentile) -> Result<Self, ProfileError> {
        let points = points(value, ["tokens_num", "tokens_num"], percentile)?;
        let mut curve = Curve::default();
        points.into_iter().for_each(|((tokens, _), ms)| curve.push(f64::from_bits(tokens), ms));
        Ok(Self(curve))
    }

    /// TTFT of a prompt, in milliseconds, by Llumnix's rule: what is left of the work ahead and the
    /// prompt itself; once the work ahead must be done, the prompt alone.
    pub fn ttft_ms(&self, tpot: Option<&TpotGrid>, prefill: &Prefill) -> Reading<f64> {
        let ahead = self.prefill_ms(tpot, prefill.ahead_tokens, prefill);
        if prefill.elapsed_ms > ahead.value {
            return self.prefill_ms(tpot, prefill.own_tokens, prefill);
        }
        let all = self.prefill_ms(tpot, prefill.ahead_tokens + prefill.own_tokens, prefill);
        Reading { value: (all.value - prefill.elapsed_ms).max(0.0), ..all }
    }

    /// Time to compute `tokens` in chunks, each with a decode step of the batch beside it:
    /// the sum over chunks of `T_prefill(chunk) + T_tpot(batch)`.
    fn prefill_ms(&self, tpot: Option<&TpotGrid>, tokens: f64, on: &Prefill) -> Reading<f64> {
        if tokens <= 0.0 {
            return Reading { value: 0.0, inside: true };
        }
        let chunk = on.chunk_tokens.min(self.0.last()).max(1.0);
        let decode = tpot.map(|tpot| tpot.tpot_ms(on.decoding));
        let decode = decode.unwrap_or(Reading { value: 0.0, inside: true });
        let step = |tokens| {
            let prefill = self.0.read(tokens);
            (prefill.value + decode.value, prefill.inside)
        };
        // Full chunks are all alike; only the last one differs.
        let full = (tokens / chunk).floor();
        let rest = tokens - full * chunk;
        let (full_ms, full_inside) = if full > 0.0 { step(chunk) } else { (0.0, true) };
        let (rest_ms, rest_inside) = if rest > 0.0 { step(rest) } else { (0.0, true) };
        let split = chunk < on.chunk_tokens && full > 0.0 && rest > 0.0;
        let inside = full_inside && rest_inside && decode.inside && !split;
        Reading { value: full * full_ms + rest_ms, inside }
    }
}

impl TpotGrid {
    /// Reads the results of a TPOT file.
    ///
    /// # Errors
    /// When a point is missing something or cannot be true.
    pub(super) fn from_json(value: &Value, percentile: Percentile) -> Result<Self, ProfileError> {
        let points = points(value, ["batch_size", "tokens_per_request"], percentile)?;
        let mut grid = Self { batches: Vec::new(), curves: Vec::new() };
        for ((batch, tokens), ms) in points {
            let batch = f64::from_bits(batch);
            if grid.batches.last() != Some(&batch) {
                grid.batches.push(batch);
                grid.curves.push(Curve::default());
            }
            if let Some(curve) = grid.curves.last_mut() {
                curve.push(f64::from_bits(tokens), ms);
            }
        }
        Ok(grid)
    }

    /// TPOT of a batch, in milliseconds; zero when nothing decodes.
    pub fn tpot_ms(&self, batch: Batch) -> Reading<f64> {
        if batch.requests <= 0.0 || batch.tokens <= 0.0 {
            return Reading { value: 0.0, inside: true };
        }
        let each = (batch.tokens / batch.requests).max(LEAST_TOKENS_PER_REQUEST);
        let place = place(&self.batches, batch.requests);
        let read = |index: usize| self.curves.get(index).map(|curve| curve.read(each));
        let (Some(low), Some(high)) = (read(place.low), read(place.high)) else {
            return Reading { value: 0.0, inside: false };
        };
        Reading {
            value: place.between(low.value, high.value),
            inside: place.inside && low.inside && high.inside,
        }
    }
}

/// The points of a file by their two coordinates, ascending. The coordinates are positive, and the
/// bits of positive floats are in the order of their values.
type Points = BTreeMap<(u64, u64), f64>;

fn points(value: &Value, axes: [&str; 2], percentile: Percentile) -> Result<Points, ProfileError> {
    let results = value.get("results").and_then(Value::as_array).map(Vec::as_slice);
    let mut points = Points::new();
    for (index, point) in results.unwrap_or_default().iter().enumerate() {
        let read = |key: &str| {
            let value = point.get(key).and_then(number);
            let part = format!("results[{index}].{key}");
            let value = value.ok_or_else(|| ProfileError::wrong(&part, "is missing"))?;
            let sound = value.is_finite() && value > 0.0;
            let why = "must be a finite number above 0";
            if sound { Ok(value) } else { Err(ProfileError::wrong(part, why)) }
        };
        let [first, second] = axes;
        let (at, beside) = (read(first)?, read(second)?);
        let ms = read(percentile.name())?;
        if points.insert((at.to_bits(), beside.to_bits()), ms).is_some() {
            let part = format!("results[{index}]");
            return Err(ProfileError::wrong(part, "is a second point at the same place"));
        }
    }
    Ok(points)
}

#[cfg(test)]
#[path = "llumnix_tests.rs"]
mod tests;
