//! The evaluators in their order of trust, behind [`Predict`].
//!
//! A pool's scheduler owns one chain. The evaluators are the served bundle by its flattened trees or through
//! ONNX Runtime, the profiles of pod classes, and the step-time prior in the row. The chain answers every batch whose
//! rows carry a prior:
//!
//! - **Choice.** Per target, whichever of bundle and next evaluator has the lower live error on the same
//!   outcomes serves; the next one is the class's profile or the prior, by the same rule. An evaluator is
//!   trusted for its first outcomes, a bundle only where its own holdout has nothing against it, and a change
//!   of mind takes a difference of 10 % (`serving`, `profiled`).
//! - **Failure.** A bundle that errs, or answers something that cannot be a latency, costs that batch
//!   its model: the next evaluator answers all of it. Three times in a row and the bundle is withdrawn.
//! - **Swap.** Bundles come and go through the chain's [`Slot`] between two batches; the fits and
//!   the live errors stay. A newcomer's predecessor is kept until the newcomer has shown to be no
//!   worse on the same outcomes, else it is brought back (`probation`).
//! - **Quantiles.** The 90th percentile is the median times a factor learned from recent outcomes
//!   of the same pod class (`calibration`).
//! - **Grades.** What was stated is compared with what was measured, by version, pod class and pattern
//!   (`grades`), and a test says when that relation changes.
//!
//! When nothing can answer, because a row has no prior either, the batch is an error.

mod answer;
mod calibration;
mod grades;
mod probation;
mod profiled;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Rollback, Row, Sample, Source, Status, Target,
};
use weir_schema::{StepTime, StepsLearned, Stride};

use self::answer::{Model, fill};
use self::calibration::{Calibration, Said};
use self::grades::Gradebook;
use self::probation::{Probation, Verdict};
use self::profiled::Profiled;
use self::serving::Serving;
use crate::both::Both;
use crate::bundle::Bundle;
use crate::prior::{self, measurable};
use crate::profile::ClassProfile;
use crate::slot::{Offer, Slot};
use crate::step_fit::StepFit;

/// Failed calls in a row after which a bundle is withdrawn.
const FAILURES_IN_A_ROW: u32 = 3;
/// Rolled-back bundles remembered. Versions only rise, so an older one is not offered again.
const REFUSED_CAP: usize = 16;

/// The evaluators of one pool.
#[derive(Debug)]
pub struct Chain {
    slot: Slot,
    /// Generation of the slot that was last looked into.
    seen: u64,
    serving: Option<Serving>,
    /// Present only while something serves.
    probation: Option<Probation>,
    /// Version and SHA-256 of the bundles that were rolled back.
    refused: Vec<(u64, String)>,
    /// Why there is no bundle, or why it is not the newest.
    note: Option<String>,
    /// Why the last call fell to the next evaluator.
    failure: Option<String>,
    failures: u64,
    profiled: Profiled,
    rollbacks: u64,
    last_rollback: Option<Rollback>,
    calibration: Calibration,
    steps: BTreeMap<u16, StepFit>,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// A chain without a bundle and with a slot of its own.
    pub fn new() -> Self {
        Self::with_slot(Slot::new())
    }

    /// A chain without a bundle that takes its bundles from `slot`, which no other chain may read.
    pub fn with_slot(slot: Slot) -> Self {
        Self {
            slot,
            seen: 0,
            serving: None,
            probation: None,
            refused: Vec::new(),
            note: Some("no bundle yet".to_owned()),
            failure: None,
            failures: 0,
            profiled: Profiled::default(),
            rollbacks: 0,
            last_rollback: None,
            calibration: Calibration::default(),
            steps: BTreeMap::new(),
        }
    }

    /// Serves pods of a class by their profile whenever no bundle does.
    pub fn set_profile(&mut self, class: u16, profile: ClassProfile) {
        self.profiled.set(class, profile);
    }

    /// The same chain, which grades its predictions by pattern: by pod class and by these upper edges,
    /// ascending, of the buckets of input and of expected output tokens. Without edges a pattern is a
    /// pod class.
    pub fn with_patterns(mut self, input: &[u32], output: &[u32]) -> Self {
        self.calibration.grades = Gradebook::with_edges(input, output);
        self
    }

    /// Serves `bundle` from the next batch on, unless it serves already or was rolled back.
    pub fn set_bundle(&mut self, bundle: Bundle) {
        let version = bundle.version();
        if self.serving.as_ref().is_some_and(|serving| serving.bundle.is_same_as(&bundle)) {
            return self.slot.hand_back(bundle);
        }
        let rolled_back =
            |(old, sum): &(u64, String)| *old == version && *sum == bundle.manifest.sha256;
        if self.refused.iter().any(rolled_back) {
            self.note = Some(format!("bundle v{version} was rolled back and is not taken again"));
            return self.slot.hand_back(bundle);
        }
        tracing::info!(version, evaluator = bundle.source().name(), "bundle serves");
        self.calibration.renew(&bundle.manifest.holdout);
        self.failure = None;
        self.note = None;
        let serving = Serving::after(bundle, self.serving.as_ref());
        if let Some(replaced) = self.serving.replace(serving) {
            self.keep_predecessor(replaced, version);
        }
    }

    /// Serves `bundle` from the next batch on, whatever was held against it.
    pub fn pin(&mut self, bundle: Bundle) {
        let version = bundle.version();
        self.refused.retain(|(refused, _)| *refused != version);
        self.set_bundle(bundle);
        self.end_probation();
        self.serving.iter_mut().for_each(Serving::begin_anew);
    }

    /// Serves no bundle from now on.
    pub fn clear_bundle(&mut self, reason: &str) {
        if let Some(serving) = self.serving.take() {
            tracing::warn!(version = serving.bundle.version(), reason, "bundle withdrawn");
            self.slot.hand_back(serving.bundle);
        }
        self.end_probation();
        self.failure = None;
        self.note = Some(reason.to_owned());
    }

    /// Says why a more trusted evaluator does not serve; the next bundle clears it.
    pub fn set_fallback_reason(&mut self, reason: impl Into<String>) {
        self.note = Some(reason.into());
    }

    /// Keeps the bundle to go back to: the one just replaced, or the one before it when the replaced
    /// one was itself too new to be trusted; then the probation goes on, or bundles that follow one another faster than
    /// outcomes come would never be judged. None when an older version was put back on purpose.
    fn keep_predecessor(&mut self, replaced: Serving, version: u64) {
        let previous = self.probation.take();
        if replaced.bundle.version() > version {
            self.slot.hand_back(replaced.bundle);
            previous.into_iter().for_each(|old| self.slot.hand_back(old.predecessor.bundle));
            return;
        }
        let (probation, retire) = match previous {
            Some(previous) if !previous.is_established() => (previous, Some(replaced)),
            Some(previous) => (Probation::new(replaced), Some(previous.predecessor)),
            None => (Probation::new(replaced), None),
        };
        retire.into_iter().for_each(|old| self.slot.hand_back(old.bundle));
        self.probation = Some(probation);
    }

    fn end_probation(&mut self) {
        if let Some(probation) = self.probation.take() {
            self.slot.hand_back(probation.predecessor.bundle);
        }
    }

    fn roll_back(&mut self, probation: Probation, reason: &str) {
        let predecessor = probation.predecessor.returned();
        let to = predecessor.bundle.version();
        self.calibration.renew(&predecessor.bundle.manifest.holdout);
        let Some(failed) = self.serving.replace(predecessor) else { return };
        let version = failed.bundle.version();
        tracing::warn!(version, to, reason, "bundle rolled back");
        self.rollbacks += 1;
        self.last_rollback = Some(Rollback { from: version, to, reason: reason.to_owned() });
        if self.refused.len() == REFUSED_CAP {
            self.refused.remove(0);
        }
        self.refused.push((version, failed.bundle.manifest.sha256.clone()));
        self.slot.hand_back(failed.bundle);
        self.failure = None;
        self.note = Some(format!("rolled back from v{version}: {reason}"));
    }

    fn take_offer(&mut self) {
        match self.slot.take(&mut self.seen) {
            Some(Offer::Bundle(bundle)) => self.set_bundle(*bundle),
            Some(Offer::Pin(bundle)) => self.pin(*bundle),
            Some(Offer::Withdraw { reason }) => self.clear_bundle(&reason),
            None => {}
        }
    }

    /// Notes a failed call of the bundle, and ends its service when it fails again and again.
    fn note_failure(&mut self, error: &PredictError) {
        self.failures += 1;
        let Some(serving) = &mut self.serving else { return };
        serving.failures_in_a_row += 1;
        let (version, count) = (serving.bundle.version(), serving.failures_in_a_row);
        if count < FAILURES_IN_A_ROW {
            self.failure = Some(format!("bundle v{version} failed: {error}"));
            return;
        }
        let reason = format!("bundle v{version} failed {count} calls in a row: {error}");
        match self.probation.take() {
            Some(probation) => self.roll_back(probation, &reason),
            None => self.clear_bundle(&reason),
        }
    }

    /// The evaluator that serves a target now.
    fn source(&self, target: Target) -> Source {
        match &self.serving {
            Some(serving) if self.failure.is_none() && *serving.preferred.get(target) => {
                serving.bundle.source()
            }
            _ => self.profiled.source(target),
        }
    }

    fn learn_errors(&mut self, sample: &Sample, measured: Both<Option<f32>>) {
        let prior = prior::medians(&sample.row);
        let (profile, next) = self.profiled.recall(&sample.row);
        let predicted = &sample.predicted;
        let model = Both { ttft: predicted.model_ttft_ms, tpot: predicted.model_tpot_ms };
        let version = predicted.model_version;
        // One that was rolled back has no heir.
        let refused = self.refused.iter().any(|(refused, _)| *refused == version);
        let mut serving =
            self.serving.as_mut().filter(|serving| !refused && serving.follows(version));
        let own = serving.as_ref().is_some_and(|serving| serving.bundle.version() == version);
        for target in Target::ALL {
            let Some(measured_ms) = *measured.get(target) else { continue };
            let (profile_ms, prior_ms) = (*profile.get(target), *prior.get(target));
            let model_ms = serving.as_ref().and(*model.get(target)).and_then(measurable);
            let said = Said { model_ms, own, profile_ms, prior_ms };
            self.calibration.learn(target, sample, said, measured_ms);
            if let (Some(serving), Some(model_ms), Some((next_ms, _))) =
                (serving.as_mut(), model_ms, *next.get(target))
            {
                serving.learn(target, model_ms, next_ms, measured_ms);
            }
            if let Some(profile_ms) = profile_ms {
                self.profiled.learn(&sample.row, target, profile_ms, measured_ms);
            }
        }
    }

    fn judge_newcomer(&mut self, sample: &Sample, measured: Both<Option<f32>>) {
        let version = sample.predicted.model_version;
        let refused = self.refused.iter().any(|(refused, _)| *refused == version);
        if refused || self.serving.as_ref().is_none_or(|serving| !serving.follows(version)) {
            return;
        }
        let newer = |probation: &&mut Probation| probation.predecessor.bundle.version() < version;
        let Some(probation) = self.probation.as_mut().filter(newer) else { return };
        match probation.observe(sample, measured) {
            Verdict::Open => {}
            Verdict::Passed => self.end_probation(),
            Verdict::Worse(reason) => {
                if let Some(probation) = self.probation.take() {
                    self.roll_back(probation, &reason);
                }
            }
        }
    }
}

impl Predict for Chain {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        if rows.len() != out.len() {
            return Err(PredictError::Room { rows: rows.len(), room: out.len() });
        }
        self.take_offer();
        if let Some(serving) = &mut self.serving {
            let (version, preferred) = (serving.bundle.version(), serving.preferred);
            let source = serving.bundle.source();
            match serving.evaluate(rows) {
                Ok(medians) => {
                    self.failure = None;
                    let model = Model { medians, version, source, preferred };
                    return fill(rows, Some(&model), &mut self.profiled, &self.calibration, out);
                }
                // What takes longer than anything that is true is not the bundle's fault.
                Err(_) if !rows.iter().all(serving::is_about_something_true) => {}
                Err(error) => self.note_failure(&error),
            }
        }
        fill(rows, None, &mut self.profiled, &self.calibration, out)
    }

    fn take_up(&mut self) {
        self.take_offer();
    }

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.steps.get(&pod_class).map_or_else(StepTime::default, StepFit::step_time)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        self.steps.entry(stride.pod_class).or_default().observe(stride);
    }

    fn observe_first_token(&mut self, first: &FirstToken) {
        self.steps.entry(first.pod_class).or_default().observe_first_token(first);
    }

    fn doubt_steps(&mut self, pod_class: u16) {
        self.steps.entry(pod_class).and_modify(StepFit::doubt);
    }

    fn steps_learned(&self, pod_class: u16) -> Option<StepsLearned> {
        self.steps.get(&pod_class).map(StepFit::learned)
    }

    fn recall_steps(&mut self, pod_class: u16, learned: &StepsLearned) -> bool {
        let Some(fit) = StepFit::recalled(learned) else { return false };
        self.steps.insert(pod_class, fit);
        true
    }

    fn observe_sample(&mut self, sample: &Sample) {
        if !sample.streamed {
            return;
        }
        let measured =
            Both { ttft: Target::Ttft, tpot: Target::Tpot }.map(|of| sample.measured_ms(*of));
        let serves = self.serving.as_ref().map(|serving| serving.bundle.version());
        self.calibration.grade(sample, &measured, serves);
        self.learn_errors(sample, measured);
        self.judge_newcomer(sample, measured);
    }

    fn status(&self) -> Status {
        let reason = self.failure.as_ref().or(self.note.as_ref()).cloned();
        let next =
            Both { ttft: Target::Ttft, tpot: Target::Tpot }.map(|of| self.profiled.source(*of));
        let lost = || self.serving.as_ref().and_then(|serving| serving.lost_to(next));
        let (calibration, serving) = (&self.calibration, self.serving.as_ref());
        let grades = calibration.grades.all();
        let quality =
            |target, stated| calibration.quality(target, self.source(target), stated, serving);
        let (patterns, other_patterns) = calibration.grades.patterns();
        Status {
            ttft_source: self.source(Target::Ttft),
            tpot_source: self.source(Target::Tpot),
            model_version: serving.map_or(0, |serving| serving.bundle.version()),
            predecessor: self.probation.as_ref().map(|one| one.predecessor.bundle.version()),
            model_evaluator: serving.map(|serving| serving.bundle.evaluator()),
            fallback_reason: reason.or_else(lost).or_else(|| self.profiled.lost_to_prior()),
            failures: self.failures,
            profiles: self.profiled.status(),
            ttft: quality(Target::Ttft, grades.ttft),
            tpot: quality(Target::Tpot, grades.tpot),
            versions: calibration.grades.versions(),
            classes: calibration.grades.classes(),
            patterns,
            other_patterns,
            rollbacks: self.rollbacks,
            last_rollback: self.last_rollback.clone(),
        }
    }
}
