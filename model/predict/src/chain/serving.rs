//! A bundle in service: its session, its live error beside that of whatever would serve in its place,
//! and which of the two is used.
//!
//! What would serve in its place is the next evaluator in the order of trust: the profile of the row's
//! pod class if there is one and it does better than the prior, else the prior (`profiled`).

use weir_schema::{
    Feature, Features, Holdout, PredictError, Row, Source, Target, TargetError, relative_error,
};

use crate::both::Both;
use crate::bundle::Bundle;
use crate::chain::calibration::ENOUGH_ROWS;
use crate::live::LiveMean;

/// Outcomes of an evaluator before the next one may take a target from it.
const TRUSTED_OUTCOMES: u64 = 30;
/// The other evaluator takes over below this share of the current one's error.
const TAKEOVER: f64 = 0.9;
/// Latencies that can be true, in milliseconds: ten microseconds to an hour.
const SANE_MS: std::ops::RangeInclusive<f32> = 0.01..=3_600_000.0;

#[derive(Debug)]
pub(super) struct Serving {
    pub(super) bundle: Bundle,
    /// Error of the bundle on the outcomes that it had predicted.
    pub(super) model: Both<LiveMean>,
    /// Error of the next evaluator on those same outcomes.
    pub(super) next: Both<LiveMean>,
    /// Whether the bundle is preferred to the next evaluator.
    pub(super) preferred: Both<bool>,
    pub(super) failures_in_a_row: u32,
}

impl Serving {
    pub(super) fn new(bundle: Bundle) -> Self {
        let preferred = begins(&bundle.manifest.holdout);
        let (model, next) = (Both::default(), Both::default());
        Self { bundle, model, next, preferred, failures_in_a_row: 0 }
    }

    /// A bundle after the one that has served so far. If it is a newer one, what was learned of that one stands until its own
    /// outcomes say otherwise: where few come before the next bundle, each would begin as one that nothing is known against.
    pub(super) fn after(bundle: Bundle, before: Option<&Self>) -> Self {
        let fresh = Self::new(bundle);
        let Some(before) = before.filter(|before| fresh.follows(before.bundle.version())) else {
            return fresh;
        };
        let Self { mut model, mut next, mut preferred, .. } = fresh;
        for target in Target::ALL {
            // What its own holdout has against it, its own outcomes have to say otherwise.
            if *preferred.get(target) {
                *model.get_mut(target) = before.model.get(target).at_most(TRUSTED_OUTCOMES);
                *next.get_mut(target) = before.next.get(target).at_most(TRUSTED_OUTCOMES);
                *preferred.get_mut(target) = *before.preferred.get(target);
            }
        }
        Self { model, next, preferred, ..fresh }
    }

    /// Nothing is known against it any more but what its holdout has.
    pub(super) fn begin_anew(&mut self) {
        (self.model, self.next) = (Both::default(), Both::default());
        self.preferred = begins(&self.bundle.manifest.holdout);
    }

    /// Whether a version is this bundle's, or one that it came after.
    pub(super) fn follows(&self, version: u64) -> bool {
        (1..=self.bundle.version()).contains(&version)
    }

    /// The same, back in service with what it knew when it was replaced.
    pub(super) fn returned(mut self) -> Self {
        self.failures_in_a_row = 0;
        self
    }

    /// The bundle's medians for a batch.
    ///
    /// # Errors
    /// When the session fails or any value cannot be a latency.
    pub(super) fn evaluate(&mut self, rows: &[Row]) -> Result<&[[f32; 2]], PredictError> {
        let medians = self.bundle.evaluator.evaluate(rows)?;
        for (row, [ttft_ms, tpot_ms]) in medians.iter().enumerate() {
            for (target, value) in [(Target::Ttft, ttft_ms), (Target::Tpot, tpot_ms)] {
                if !SANE_MS.contains(value) {
                    let (target, value) = (target.name(), value.to_string());
                    return Err(PredictError::NotANumber { row, target, value });
                }
            }
        }
        self.failures_in_a_row = 0;
        Ok(medians)
    }

    /// Learns from one outcome what each evaluator is worth, and chooses again.
    pub(super) fn learn(&mut self, target: Target, model_ms: f32, next_ms: f32, measured_ms: f32) {
        let (model, next) = (self.model.get_mut(target), self.next.get_mut(target));
        model.add(relative_error(model_ms, measured_ms));
        next.add(relative_error(next_ms, measured_ms));
        let preferred = self.preferred.get_mut(target);
        *preferred = keeps(*preferred, model, next);
    }

    /// Where and why the next evaluator is used instead of the bundle, if so.
    pub(super) fn lost_to(&self, next: Both<Source>) -> Option<String> {
        let lost = |target: Target| {
            if *self.preferred.get(target) {
                return None;
            }
            let (name, version) = (target.name(), self.bundle.version());
            let live = self.next.get(target).mean().zip(self.model.get(target).mean());
            Some(match live {
                Some((error, model)) => {
                    let next = next.get(target).name();
                    format!("{name}: live error {error:.3} of the {next}, {model:.3} of v{version}")
                }
                None => format!("{name}: the holdout of v{version} is against it"),
            })
        };
        let reasons: Vec<String> = Target::ALL.into_iter().filter_map(lost).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// Whether a bundle is preferred before any outcome of its own: not where the prior did better on its own holdout, as with a
/// first bundle of few rows.
fn begins(holdout: &Holdout) -> Both<bool> {
    let prior_is_better =
        |error: &TargetError| error.rows >= ENOUGH_ROWS && error.prior_mape < TAKEOVER * error.mape;
    Both { ttft: !prior_is_better(&holdout.ttft), tpot: !prior_is_better(&holdout.tpot) }
}

/// Whether the step-time model itself answers a row with latencies that can be true.
pub(super) fn is_about_something_true(row: &Row) -> bool {
    let [ttft, tpot] = [Feature::PriorTtftMs, Feature::PriorTpotMs];
    [ttft, tpot].iter().all(|prior| SANE_MS.contains(&Features(*row).get(*prior)))
}

/// Whether an evaluator that is `preferred` to the next one, or not, is so after another outcome.
pub(super) fn keeps(preferred: bool, own: &LiveMean, next: &LiveMean) -> bool {
    let (Some(error), Some(next)) = (own.mean(), next.mean()) else { return preferred };
    if own.count() < TRUSTED_OUTCOMES {
        return preferred;
    }
    if preferred { next >= TAKEOVER * error } else { error < TAKEOVER * next }
}
