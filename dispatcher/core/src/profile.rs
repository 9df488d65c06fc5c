//! Capacities and violations by measured profiles: what AIBrix's routing rests on.
//!
//! A profile says, for each pattern, the highest rate that keeps its objective and the latency there.
//! By Little's law the requests in flight are then `Capacity(P) = RPS(P) x E2E(P)`, and one request
//! of the pattern takes `Load(P) = 1 / Capacity(P)` of a pod: a pod is full when the loads of what is on it
//! reach 1 (AIBrix RFC, issue 642). [`Profiles`] answers that for a pod class and a request's tokens,
//! or for a lane's pattern.
//!
//! [`Violation`] ranks what waits: how far a request is from its objectives, as a signed slack and as a
//! probability, over every objective that is set. AIBrix takes the first one that is set, and the mean
//! latency only.
//!
//! Pure functions on values that a policy holds. A class without a profile, and a pattern that its
//! profile calls infeasible, are values too: nothing here fails.

use std::{collections::BTreeMap, sync::Arc};

use weir_schema::{
    Prediction, Quantiles,
    profile::{Cell, Infeasible, Objectives, PatternProfile},
};

use crate::{BucketEdges, Slo, headroom::judge, pattern::Pattern};

/// Sums of loads drift by their last bits.
const FULL: f64 = 1.0 + 1e-9;

/// Standard deviations from the median to the 90th percentile of a normal distribution.
const Z90: f64 = 1.281_551_565_5;

/// Requests of a pattern that are in flight at the highest rate: `RPS x E2E`.
pub fn capacity(rps: f64, e2e_s: f64) -> f64 {
    rps * e2e_s
}

/// Share of a pod that one request of a pattern takes: `1 / Capacity`. Infinite without a capacity.
pub fn load(capacity: f64) -> f64 {
    if capacity > 0.0 { capacity.recip() } else { f64::INFINITY }
}

/// Whether a pod with `used` of its capacity taken has room for `load` more. An empty pod always has:
/// a request that needs more than a whole pod must still be served somewhere.
pub fn has_room(used: f64, load: f64) -> bool {
    used <= 0.0 || used + load <= FULL
}

/// What a pattern costs on pods of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Requests in flight at the highest rate.
    pub capacity: f64,
    /// Share of a pod that one request takes.
    pub load: f64,
    /// Rate and latencies as measured.
    pub cell: Cell,
    /// Whether the pattern lies inside the profile's grid; otherwise this is the cost of its edge.
    pub inside: bool,
}

/// Profiles by pod class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profiles(BTreeMap<u16, Arc<PatternProfile>>);

impl Profiles {
    /// Sets the profile of a class.
    pub fn insert(&mut self, class: u16, profile: Arc<PatternProfile>) {
        self.0.insert(class, profile);
    }

    /// The profile of a class.
    pub fn get(&self, class: u16) -> Option<&PatternProfile> {
        self.0.get(&class).map(Arc::as_ref)
    }

    /// Whether no class has a profile.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What a request of these sizes costs on a class; `None` when the class has no profile.
    ///
    /// # Errors
    /// When the class cannot serve the pattern inside its profile's objective.
    pub fn cost(
        &self,
        class: u16,
        input_tokens: u32,
        output_tokens: u32,
    ) -> Option<Result<Cost, &Infeasible>> {
        let cell = self.get(class)?.at(f64::from(input_tokens), f64::from(output_tokens));
        Some(cell.map(|reading| {
            let capacity = capacity(reading.value.rps, reading.value.e2e_s);
            Cost { capacity, load: load(capacity), cell: reading.value, inside: reading.inside }
        }))
    }

    /// What a lane's pattern costs on a class: that of its largest request. A bucket without an upper
    /// edge is taken at the profile's own edge.
    ///
    /// # Errors
    /// As [`Profiles::cost`].
    pub fn cost_of(
        &self,
        class: u16,
        pattern: &Pattern,
        edges: &BucketEdges,
    ) -> Option<Result<Cost, &Infeasible>> {
        let upper =
            |edges: &[u32], bucket: u8| edges.get(usize::from(bucket)).copied().unwrap_or(u32::MAX);
        let input_tokens = upper(&edges.input, pattern.input);
        self.cost(class, input_tokens, upper(&edges.output, pattern.output))
    }
}

/// Latency objectives of a request of known size, in milliseconds from arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Targets {
    /// For the first token.
    pub ttft_ms: Option<f64>,
    /// For each output token after the first.
    pub tpot_ms: Option<f64>,
    /// For each token of prompt and output.
    pub tpat_ms: Option<f64>,
    /// For the whole response.
    pub e2e_ms: Option<f64>,
}

impl From<&Slo> for Targets {
    fn from(slo: &Slo) -> Self {
        let (ttft_ms, tpot_ms) = (judge::ttft_slo_ms(slo), judge::tpot_slo_ms(slo));
        Self { ttft_ms, tpot_ms, ..Self::default() }
    }
}

impl From<&Objectives> for Targets {
    fn from(of: &Objectives) -> Self {
        let ms = |seconds: Option<f64>| seconds.map(|seconds| seconds * 1000.0);
        Self {
            ttft_ms: ms(of.ttft_s),
            tpot_ms: ms(of.tpot_s),
            tpat_ms: ms(of.tpat_s),
            e2e_ms: ms(of.e2e_s),
        }
    }
}

impl Targets {
    /// These, and `other` where there is none: a request's own before those of its pod's profile.
    pub fn or(self, other: Self) -> Self {
        Self {
            ttft_ms: self.ttft_ms.or(other.ttft_ms),
            tpot_ms: self.tpot_ms.or(other.tpot_ms),
            tpat_ms: self.tpat_ms.or(other.tpat_ms),
            e2e_ms: self.e2e_ms.or(other.e2e_ms),
        }
    }
}

/// What a request would take if it were sent now. An unknown part is no reason to rank it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// From dispatch to the first token.
    pub ttft_ms: Option<Quantiles>,
    /// From dispatch to the end.
    pub e2e_ms: Option<Quantiles>,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Output tokens expected.
    pub output_tokens: u32,
}

impl Expected {
    /// By a prediction. The quantiles of the end are sums of those of its parts: slow pods are slow in both.
    pub fn of_prediction(prediction: &Prediction, input_tokens: u32, output_tokens: u32) -> Self {
        let (ttft, tpot) = (prediction.ttft_ms, prediction.tpot_ms);
        let decoded = output_tokens.saturating_sub(1) as f32;
        let p50 = ttft.p50 + decoded * tpot.p50;
        let p90 = ttft.p90 + decoded * tpot.p90;
        let e2e_ms = Some(Quantiles { p50, p90 });
        Self { ttft_ms: Some(ttft), e2e_ms, input_tokens, output_tokens }
    }

    /// By a profile, which has a mean only: `spread` is the 90th percentile as a multiple of it.
    pub fn of_cell(cell: &Cell, spread: f32, input_tokens: u32, output_tokens: u32) -> Self {
        let quantiles = |seconds: f64| {
            let p50 = (seconds * 1000.0) as f32;
            Quantiles { p50, p90: p50 * spread.max(1.0) }
        };
        let (ttft_ms, e2e_ms) = (cell.ttft_s.map(quantiles), Some(quantiles(cell.e2e_s)));
        Self { ttft_ms, e2e_ms, input_tokens, output_tokens }
    }
}

/// How near a request is to missing its objectives: over all that are set, the least slack and the
/// greatest probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation {
    /// Time left after the expected latency, in milliseconds; negative when it is expected to be late.
    /// AIBrix's rank is the negative of this, in seconds.
    pub slack_ms: f64,
    /// Probability that an objective is missed, of the one most likely to be.
    pub probability: f64,
}

impl Violation {
    /// The violation of a request that has waited `waited_ms`. `None` when no objective is set whose
    /// latency is known.
    ///
    /// Objectives and what stands against them are AIBrix's (`slo_queue.go`, `rank`): the first token
    /// against TTFT; the end against `TPOT x output + TTFT`, against `TPAT x (input + output)` and
    /// against E2E.
    pub fn of(targets: &Targets, expected: &Expected, waited_ms: f64) -> Option<Self> {
        let output = f64::from(expected.output_tokens);
        let tokens = f64::from(expected.input_tokens) + output;
        let paced = targets.tpot_ms.map(|tpot| tpot * output + targets.ttft_ms.unwrap_or_default());
        let each = [
            (targets.ttft_ms, expected.ttft_ms),
            (paced, expected.e2e_ms),
            (targets.tpat_ms.map(|tpat| tpat * tokens), expected.e2e_ms),
            (targets.e2e_ms, expected.e2e_ms),
        ];
        let known = each.into_iter().filter_map(|(target, latency)| {
            let (target, latency) = (target?, latency?);
            let left_ms = target - waited_ms;
            let slack_ms = left_ms - f64::from(latency.p50);
            Some(Self { slack_ms, probability: exceeds(latency, left_ms) })
        });
        known.reduce(|one, other| Self {
            slack_ms: one.slack_ms.min(other.slack_ms),
            probability: one.probability.max(other.probability),
        })
    }
}

/// Probability that a latency with these quantiles is above `limit_ms`, as a log-normal one: latencies
/// are positive and skewed, and two quantiles determine it.
pub fn exceeds(latency: Quantiles, limit_ms: f64) -> f64 {
    let (p50, p90) = (f64::from(latency.p50), f64::from(latency.p90));
    if limit_ms <= 0.0 {
        return 1.0;
    }
    let sigma = (p90 / p50).ln() / Z90;
    if !sigma.is_finite() || sigma <= 0.0 {
        return f64::from(u8::from(p50 > limit_ms));
    }
    upper_tail((limit_ms / p50).ln() / sigma)
}

/// Probability that a standard normal variable is above `z`; error below 1e-7 (Abramowitz and Stegun,
/// Handbook of Mathematical Functions, 26.2.17).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let series = terms.iter().rev().fold(0.0, |sum, term| t * (term + sum));
    let tail = series * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
