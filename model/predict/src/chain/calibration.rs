//! How good the stated numbers are: grades, drift, and the factors of the 90th percentile.
//!
//! Each evaluator has factors of its own, learned from every outcome that it had a median for whether
//! or not it served: so the 90th percentile is right at once when the other evaluator takes over. A
//! new version of a bundle starts with the factors of the one before.

use weir_schema::{Grade, Sample, Source, Target, TargetQuality};

use super::grades::Gradebook;
use super::serving::Serving;
use crate::both::Both;
use crate::conformal::Conformal;
use crate::drift::DriftTest;
use crate::live::LiveMean;
use crate::prior::measurable;

/// TTFT's factor before outcomes: queues make it the more skewed of the two.
const TTFT_FACTOR: f32 = 1.5;
/// TPOT's factor before outcomes: a mean over many steps varies less.
const TPOT_FACTOR: f32 = 1.2;

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
    /// What was stated, whichever evaluator stated it.
    pub(super) grades: Gradebook,
    drift: Both<DriftTest>,
    model: Both<Conformal>,
    profile: Both<Conformal>,
    prior: Both<Conformal>,
}

impl Default for Calibration {
    fn default() -> Self {
        let fresh =
            || Both { ttft: Conformal::new(TTFT_FACTOR), tpot: Conformal::new(TPOT_FACTOR) };
        Self {
            grades: Gradebook::default(),
            drift: Both::default(),
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
    pub(super) fn grade(&mut self, sample: &Sample, measured: &Both<Option<f32>>) {
        self.grades.add(sample, measured);
        let stated = &sample.predicted;
        let by = Both {
            ttft: (stated.ttft_ms.p50, stated.ttft_source),
            tpot: (stated.tpot_ms.p50, stated.tpot_source),
        };
        for target in Target::ALL {
            let (median_ms, source) = *by.get(target);
            let version = if source == Source::Prior { 0 } else { stated.model_version };
            let median = measurable(median_ms);
            let (Some(median_ms), Some(measured_ms)) = (median, *measured.get(target)) else {
                continue;
            };
            let test = self.drift.get_mut(target);
            if let Some(change) = test.observe((source, version), median_ms, measured_ms) {
                let (latency, evaluator) = (target.name(), source.name());
                let change = change.name();
                tracing::warn!(latency, change, evaluator, version, "predictions drift");
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

    /// How good a target's numbers are, of which `source` states the next one.
    pub(super) fn quality(
        &self,
        target: Target,
        source: Source,
        stated: Option<Grade>,
        serving: Option<&Serving>,
    ) -> TargetQuality {
        let factors = self.factors();
        let factors = factors.get(target);
        TargetQuality {
            p90_factor: factors.of(source),
            stated,
            model_mape: serving.and_then(|serving| recent(serving.model.get(target))),
            next_mape: serving.and_then(|serving| recent(serving.next.get(target))),
            drift: self.drift.get(target).status(),
        }
    }
}

fn recent(mean: &LiveMean) -> Option<f32> {
    mean.mean().map(|mean| mean as f32)
}
