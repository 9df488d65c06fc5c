//! How good the stated numbers are: grades, drift, and the factors of the 90th percentile.
//!
//! Each evaluator has factors of its own, learned from every outcome that it had a median for whether
//! or not it served: so the 90th percentile is right at once when the other evaluator takes over. What was promised is one thing of
//! all of them: what one missed the next one makes up for. A
//! new version of a bundle starts with the factor that its own holdout had: what the version before it got
//! wrong says nothing about it. Each pod class has its own too: with one factor for two GPU types the pool's
//! 90 % is too much on one and too little on the other.

use std::collections::BTreeMap;

use weir_schema::{
    Feature, Features, Grade, Holdout, Prediction, Quantiles, Row, Sample, Source, Target,
    TargetQuality,
};

use super::grades::Gradebook;
use super::serving::Serving;
use crate::both::Both;
use crate::conformal::{Conformal, Promise};
use crate::drift::DriftTest;
use crate::live::LiveMean;
use crate::prior::measurable;

/// TTFT's factor before outcomes: queues make it the more skewed of the two.
const TTFT_FACTOR: f32 = 1.5;
/// TPOT's factor before outcomes: a mean over many steps varies less.
const TPOT_FACTOR: f32 = 1.2;
/// How far an outcome moves the rank of the factor. An outcome of either target is known when its response is over, some hundred outcomes
/// after it was stated at a busy pool, and what corrects faster than it hears of the correction swings: three hundred outcomes late and
/// at 0.01 the rank is up at its end and down at the other in turns.
const FOLLOW: f64 = 0.004;

/// The current factors of one target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors {
    pub(super) model: f32,
    pub(super) profile: f32,
    pub(super) prior: f32,
}

/// Those of a pod class without outcomes.
const FIRST_FACTORS: Both<Factors> = Both {
    ttft: Factors { model: TTFT_FACTOR, profile: TTFT_FACTOR, prior: TTFT_FACTOR },
    tpot: Factors { model: TPOT_FACTOR, profile: TPOT_FACTOR, prior: TPOT_FACTOR },
};

impl Factors {
    pub(super) const fn of(&self, source: Source) -> f32 {
        match source {
            Source::Onnx | Source::Forest => self.model,
            Source::Profile => self.profile,
            Source::Prior => self.prior,
        }
    }
}

/// Rows of a holdout from which its quantile counts.
pub(super) const ENOUGH_ROWS: usize = 20;

/// What each evaluator would have said of one outcome, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// That of the bundle which serves, or of one that it follows.
    pub(super) model_ms: Option<f32>,
    /// It is that of the bundle which serves.
    pub(super) own: bool,
    pub(super) profile_ms: Option<f32>,
    pub(super) prior_ms: Option<f32>,
}

/// What was stated at the decision: the quantiles, and whose they were.
fn stated(predicted: &Prediction) -> Both<(Quantiles, Source)> {
    Both {
        ttft: (predicted.ttft_ms, predicted.ttft_source),
        tpot: (predicted.tpot_ms, predicted.tpot_source),
    }
}

/// The pod class that a row is about, by index.
fn class_of(row: &Row) -> u16 {
    Features(*row).get(Feature::PodClass) as u16
}

/// The factors of one pod class.
#[derive(Debug)]
struct ClassFactors {
    promise: Both<Promise>,
    model: Both<Conformal>,
    profile: Both<Conformal>,
    prior: Both<Conformal>,
}

impl ClassFactors {
    fn starting_at(first: Both<Factors>) -> Self {
        let fresh = |of: fn(Factors) -> f32| Both {
            ttft: Conformal::new(of(first.ttft)),
            tpot: Conformal::new(of(first.tpot)),
        };
        Self {
            promise: Both { ttft: Promise::new(FOLLOW), tpot: Promise::new(FOLLOW) },
            model: fresh(|one| one.model),
            profile: fresh(|one| one.profile),
            prior: fresh(|one| one.prior),
        }
    }

    fn now(&self) -> Both<Factors> {
        let of = |target| Factors {
            model: self.model.get(target).factor(),
            profile: self.profile.get(target).factor(),
            prior: self.prior.get(target).factor(),
        };
        Both { ttft: of(Target::Ttft), tpot: of(Target::Tpot) }
    }
}

#[derive(Debug)]
pub(super) struct Calibration {
    /// What was stated, whichever evaluator stated it.
    pub(super) grades: Gradebook,
    drift: Both<DriftTest>,
    /// By the class's index; those of the configuration, which are few.
    classes: BTreeMap<u16, ClassFactors>,
    /// Those of a pod class without outcomes.
    first: Both<Factors>,
}

impl Default for Calibration {
    fn default() -> Self {
        let (grades, drift, classes) = (Gradebook::default(), Both::default(), BTreeMap::new());
        Self { grades, drift, classes, first: FIRST_FACTORS }
    }
}

impl Calibration {
    /// Another bundle serves, whose errors are no longer those of the one before.
    pub(super) fn renew(&mut self, holdout: &Holdout) {
        for target in Target::ALL {
            let error = match target {
                Target::Ttft => &holdout.ttft,
                Target::Tpot => &holdout.tpot,
            };
            let ratio = error.ratio_p90 as f32;
            let sound = ratio.is_finite() && ratio > 0.0 && error.rows >= ENOUGH_ROWS;
            let factor = if sound { ratio } else { FIRST_FACTORS.get(target).model };
            for class in self.classes.values_mut() {
                class.model.get_mut(target).renew(factor, class.promise.get(target));
            }
            self.first.get_mut(target).model = factor.max(1.0);
        }
    }

    /// The factors for a row.
    pub(super) fn factors(&self, row: &Row) -> Both<Factors> {
        self.classes.get(&class_of(row)).map_or(self.first, ClassFactors::now)
    }

    /// Compares what was stated at the decision with what was measured. `serves`: the version in service, if one is. Outcomes of
    /// another were under way when that took over, and are no test of it.
    pub(super) fn grade(
        &mut self,
        sample: &Sample,
        measured: &Both<Option<f32>>,
        serves: Option<u64>,
    ) {
        self.grades.add(sample, measured);
        let stated = stated(&sample.predicted);
        for target in Target::ALL {
            let (quantiles, source) = *stated.get(target);
            let version = if source.is_bundle() { sample.predicted.model_version } else { 0 };
            if source.is_bundle() && Some(version) != serves {
                continue;
            }
            let median = measurable(quantiles.p50);
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

    /// Learns the factors: from what was stated, and of every evaluator that had a median.
    pub(super) fn learn(&mut self, target: Target, sample: &Sample, said: Said, measured_ms: f32) {
        let (quantiles, _) = *stated(&sample.predicted).get(target);
        let stated_ms = measurable(quantiles.p90);
        let first = self.first;
        let class = self.classes.entry(class_of(&sample.row));
        let class = class.or_insert_with(|| ClassFactors::starting_at(first));
        let promise = class.promise.get_mut(target);
        if let Some(stated_ms) = stated_ms {
            promise.settle(measured_ms <= stated_ms);
        }
        let each = [
            (&mut class.model, said.model_ms, said.own),
            (&mut class.profile, said.profile_ms, true),
            (&mut class.prior, said.prior_ms, true),
        ];
        for (factor, median_ms, own) in each {
            let factor = factor.get_mut(target);
            if let Some(median_ms) = median_ms {
                factor.observe(median_ms, measured_ms, own);
            }
            factor.keep(promise);
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
        let largest = |one: Option<f32>, class: &ClassFactors| {
            let factor = class.now().get(target).of(source);
            Some(one.map_or(factor, |one| one.max(factor)))
        };
        let largest = self.classes.values().fold(None, largest);
        TargetQuality {
            p90_factor: largest.unwrap_or(self.first.get(target).of(source)),
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

#[cfg(test)]
mod tests {
    use weir_schema::TargetError;

    use super::*;

    fn holdout(ratio_p90: f64) -> Holdout {
        let error = TargetError { rows: 50, ratio_p90, ..TargetError::default() };
        Holdout { ttft: error, tpot: error }
    }

    #[test]
    fn a_new_bundle_starts_at_the_factors_of_its_own_holdout() {
        let (mut calibration, row) = (Calibration::default(), Features::default().0);
        assert_eq!(calibration.factors(&row).tpot.model, TPOT_FACTOR);
        calibration.renew(&holdout(1.07));
        assert_eq!(calibration.factors(&row).tpot.model, 1.07);
        assert_eq!(calibration.factors(&row).tpot.prior, TPOT_FACTOR, "the prior is no bundle");
        let said = Said { own: true, model_ms: Some(10.0), profile_ms: None, prior_ms: None };
        let sample = super::super::tests::sample(row, Prediction::default(), 50.0, 20.0);
        for _ in 0..60 {
            calibration.learn(Target::Tpot, &sample, said, 20.0);
        }
        assert_eq!(calibration.factors(&row).tpot.model, 2.0);
        calibration.renew(&holdout(1.1));
        assert_eq!(calibration.factors(&row).tpot.model, 1.1);
        calibration.renew(&holdout(f64::NAN));
        assert_eq!(calibration.factors(&row).tpot.model, TPOT_FACTOR);
    }

    #[test]
    fn what_the_prior_missed_the_bundle_makes_up_for() {
        let row = Features::default().0;
        let stated_by = |tpot_source| Prediction {
            tpot_ms: Quantiles { p50: 10.0, p90: 19.0 },
            tpot_source,
            ..Prediction::default()
        };
        let factor_after = |measured_ms: f32| {
            let mut calibration = Calibration::default();
            let mut learn = |source, model_ms, tpot_ms: f32| {
                let said = Said { own: true, model_ms, profile_ms: None, prior_ms: Some(10.0) };
                let sample = super::super::tests::sample(row, stated_by(source), 50.0, tpot_ms);
                calibration.learn(Target::Tpot, &sample, said, tpot_ms);
            };
            (1..=100_u8).for_each(|step| {
                learn(Source::Onnx, Some(10.0), 10.0 + f32::from(step) / 10.0);
            });
            // The bundle has no median for these, so that nothing but what is owed can move its factor.
            (0..20).for_each(|_| learn(Source::Prior, None, measured_ms));
            calibration.factors(&row).tpot.model
        };
        assert!(factor_after(18.0) < factor_after(20.0));
    }

    #[test]
    fn what_a_bundle_stated_counts_when_the_next_one_serves_already() {
        let row = Features::default().0;
        let stated = Prediction {
            tpot_ms: Quantiles { p50: 10.0, p90: 19.0 },
            tpot_source: Source::Onnx,
            ..Prediction::default()
        };
        let factor_after = |late_ms: f32| {
            let mut calibration = Calibration::default();
            let learn = |calibration: &mut Calibration, model_ms, tpot_ms: f32| {
                let said = Said { own: true, model_ms, profile_ms: None, prior_ms: None };
                let sample = super::super::tests::sample(row, stated, 50.0, tpot_ms);
                calibration.learn(Target::Tpot, &sample, said, tpot_ms);
            };
            (1..=100_u8).for_each(|step| {
                learn(&mut calibration, Some(10.0), 10.0 + f32::from(step) / 10.0);
            });
            // Under way when the next one came: that one has no median for them.
            (0..20).for_each(|_| learn(&mut calibration, None, late_ms));
            calibration.renew(&holdout(1.1));
            calibration.factors(&row).tpot.model
        };
        assert!(factor_after(18.0) < factor_after(20.0));
    }

    /// Share covered and the factor of each stretch of 500 outcomes, when each is known 300 outcomes after it was stated, and after
    /// a while they are all half as slow again for as long.
    fn late_course() -> Vec<(f32, f32)> {
        use std::collections::VecDeque;
        let (mut calibration, mut noise) = (Calibration::default(), crate::noise::Noise::new(3));
        let (mut flights, row) = (VecDeque::new(), Features::default().0);
        let mut stretch = |level: f64| {
            let mut covered = 0_u16;
            for _ in 0..500 {
                let measured_ms = (100.0 * level * (0.3 * noise.normal()).exp()) as f32;
                let p90 = 100.0 * calibration.factors(&row).ttft.prior;
                covered += u16::from(measured_ms <= p90);
                let ttft_ms = Quantiles { p50: 100.0, p90 };
                flights.push_back((Prediction { ttft_ms, ..Prediction::default() }, measured_ms));
                if flights.len() > 300
                    && let Some((predicted, measured_ms)) = flights.pop_front()
                {
                    let sample = super::super::tests::sample(row, predicted, measured_ms, 20.0);
                    let said =
                        Said { own: true, model_ms: None, profile_ms: None, prior_ms: Some(100.0) };
                    calibration.learn(Target::Ttft, &sample, said, measured_ms);
                }
            }
            (f32::from(covered) / 500.0, calibration.factors(&row).ttft.prior)
        };
        let mut course: Vec<_> = (0..10).map(|_| stretch(1.0)).collect();
        course.push(stretch(1.5));
        course.extend((0..30).map(|_| stretch(1.0)));
        course
    }

    #[test]
    fn late_outcomes_do_not_swing_the_factor_after_a_stretch_that_was_missed() {
        let course = late_course();
        // What comes right after is covered by what that stretch has left owed.
        let settled = course.iter().enumerate().filter(|(at, _)| !(10..15).contains(at));
        for (at, (covered, factor)) in settled {
            assert!((0.83..=0.97).contains(covered), "{at}: {covered} of {course:?}");
            assert!((1.2..=2.0).contains(factor), "{at}: {factor} of {course:?}");
        }
    }
}
