//! A bundle in service: its session, its live error beside the prior's, and which of the two is used.

use weir_schema::{PredictError, Row, Source};

use crate::bundle::Bundle;
use crate::live::{LiveMean, relative_error};
use crate::target::{Both, Target};

/// Outcomes of this version before the prior may take a target from it.
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
    /// Error of the prior on those same outcomes.
    pub(super) prior: Both<LiveMean>,
    /// The evaluator in use per target.
    pub(super) source: Both<Source>,
    pub(super) failures_in_a_row: u32,
}

impl Serving {
    pub(super) fn new(bundle: Bundle) -> Self {
        Self {
            bundle,
            model: Both::default(),
            prior: Both::default(),
            source: Both { ttft: Source::Onnx, tpot: Source::Onnx },
            failures_in_a_row: 0,
        }
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
    pub(super) fn learn(&mut self, target: Target, model_ms: f32, prior_ms: f32, measured_ms: f32) {
        self.model.get_mut(target).add(relative_error(model_ms, measured_ms));
        self.prior.get_mut(target).add(relative_error(prior_ms, measured_ms));
        let (model, prior) = (self.model.get(target), self.prior.get(target));
        if model.count() < TRUSTED_OUTCOMES {
            return;
        }
        let (Some(model), Some(prior)) = (model.mean(), prior.mean()) else { return };
        let source = self.source.get_mut(target);
        *source = match *source {
            Source::Onnx if prior < TAKEOVER * model => Source::Prior,
            Source::Prior if model < TAKEOVER * prior => Source::Onnx,
            unchanged => unchanged,
        };
    }

    /// Where and why the prior is used instead of the bundle, if so.
    pub(super) fn lost_to_prior(&self) -> Option<String> {
        let lost = |target: Target| {
            let (model, prior) = (self.model.get(target).mean()?, self.prior.get(target).mean()?);
            let version = self.bundle.version();
            (*self.source.get(target) == Source::Prior).then(|| {
                let name = target.name();
                format!("{name}: live error {prior:.3} of the prior, {model:.3} of v{version}")
            })
        };
        let reasons: Vec<String> = Target::ALL.into_iter().filter_map(lost).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}
