//! How good the stated numbers are: live errors, coverage, and the factors of the 90th percentile.
//!
//! Each evaluator has factors of its own, learned from every outcome that it had a median for whether
//! or not it served: so the 90th percentile is right at once when the other evaluator takes over. A
//! new version of a bundle starts with the factors of the one before.

use serde::{Deserialize, Serialize};
use weir_schema::{Correction, Prediction, Source};

use super::serving::Serving;
use crate::conformal::Conformal;
use crate::live::{LiveMean, relative_error};
use crate::prior::measurable;
use crate::target::{Both, Target};

/// TTFT's factor before outcomes: queues make it the more skewed of the two.
const TTFT_FACTOR: f32 = 1.5;
/// TPOT's factor before outcomes: a mean over many steps varies less.
const TPOT_FACTOR: f32 = 1.2;

/// Recent quality of the chain's answers; `None` before any outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Factors from the median to the 90th percentile, of the evaluators that serve now.
    pub correction: Correction,
    /// Share of outcomes at or below the stated 90th percentile of TTFT.
    pub coverage_ttft: Option<f32>,
    /// Share of outcomes at or below the stated 90th percentile of TPOT.
    pub coverage_tpot: Option<f32>,
    /// Mean absolute relative error of the served bundle's TTFT, as a fraction.
    pub model_mape_ttft: Option<f32>,
    /// Mean absolute relative error of the served bundle's TPOT, as a fraction.
    pub model_mape_tpot: Option<f32>,
    /// The error of TTFT on the same outcomes by what would serve in its place, as a fraction.
    pub next_mape_ttft: Option<f32>,
    /// The error of TPOT on the same outcomes by what would serve in its place, as a fraction.
    pub next_mape_tpot: Option<f32>,
}

/// The current factors of one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    pub(super) model: f32,
    pub(super) profile: f32,
    pub(super) prior: f32,
}

impl Factors {
    pub(super) const fn of(&self, source: Source) -> f32 {
        match source {
            Source::Onnx | Source::Forest => self.model,
            Source::Profile => self.profile,
            Source::Prior => self.prior,
        }
    }
}

/// What each evaluator would have said of one outcome, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    pub(super) model_ms: Option<f32>,
    pub(super) profile_ms: Option<f32>,
    pub(super) prior_ms: Option<f32>,
}

#[derive(Debug)]
pub(super) struct Calibration {
    /// Error of what was stated, whichever evaluator stated it.
    error: Both<LiveMean>,
    coverage: Both<LiveMean>,
    model: Both<Conformal>,
    profile: Both<Conformal>,
    prior: Both<Conformal>,
}

impl Default for Calibration {
    fn default() -> Self {
        let fresh =
            || Both { ttft: Conformal::new(TTFT_FACTOR), tpot: Conformal::new(TPOT_FACTOR) };
        Self {
            error: Both::default(),
            coverage: Both::default(),
            model: fresh(),
            profile: fresh(),
            prior: fresh(),
        }
    }
}

impl Calibration {
    pub(super) fn factors(&self) -> Both<Factors> {
        let of = |target| Factors {
            model: self.model.get(target).factor(),
            profile: self.profile.get(target).factor(),
            prior: self.prior.get(target).factor(),
        };
        Both { ttft: of(Target::Ttft), tpot: of(Target::Tpot) }
    }

    /// Compares what was stated at the decision with what was measured.
    pub(super) fn grade(&mut self, stated: &Prediction, measured: Both<Option<f32>>) {
        let stated = Both { ttft: stated.ttft_ms, tpot: stated.tpot_ms };
        for target in Target::ALL {
            let quantiles = stated.get(target);
            let median = measurable(quantiles.p50);
            if let (Some(median_ms), Some(measured_ms)) = (median, *measured.get(target)) {
                self.error.get_mut(target).add(relative_error(median_ms, measured_ms));
                let covered = f64::from(u8::from(measured_ms <= quantiles.p90));
                self.coverage.get_mut(target).add(covered);
            }
        }
    }

    /// Learns the factors of every evaluator that had a median.
    pub(super) fn learn(&mut self, target: Target, said: Said, measured_ms: f32) {
        let each = [
            (&mut self.model, said.model_ms),
            (&mut self.profile, said.profile_ms),
            (&mut self.prior, said.prior_ms),
        ];
        for (factor, median_ms) in each {
            if let Some(median_ms) = median_ms {
                factor.get_mut(target).observe(median_ms, measured_ms);
            }
        }
    }

    pub(super) fn served_error(&self) -> Both<Option<f32>> {
        self.error.map(recent)
    }

    pub(super) fn quality(&self, source: Both<Source>, serving: Option<&Serving>) -> Quality {
        let factors = self.factors();
        let p90 = |target| factors.get(target).of(*source.get(target));
        let coverage = self.coverage.map(recent);
        let model = serving.map(|serving| serving.model.map(recent)).unwrap_or_default();
        let next = serving.map(|serving| serving.next.map(recent)).unwrap_or_default();
        Quality {
            correction: Correction { ttft_p90: p90(Target::Ttft), tpot_p90: p90(Target::Tpot) },
            coverage_ttft: coverage.ttft,
            coverage_tpot: coverage.tpot,
            model_mape_ttft: model.ttft,
            model_mape_tpot: model.tpot,
            next_mape_ttft: next.ttft,
            next_mape_tpot: next.tpot,
        }
    }
}

fn recent(mean: &LiveMean) -> Option<f32> {
    mean.mean().map(|mean| mean as f32)
}
