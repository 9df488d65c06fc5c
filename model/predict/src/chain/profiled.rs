//! The pod classes that have a profile: whether it or the prior serves each target there.
//!
//! The rule is that between bundle and prior (`serving`): the profile is trusted for its first
//! outcomes, and then whichever has the lower live error on the same outcomes serves. What it measured
//! may be another engine version than what runs now. Errors are per class, because files are.

use std::collections::BTreeMap;

use weir_schema::{Feature, Features, ProfileStatus, Row, Source, Target, relative_error};

use super::serving::keeps;
use crate::both::Both;
use crate::live::LiveMean;
use crate::prior;
use crate::profile::{ClassProfile, Median};

/// What would serve without a bundle: a median per target, and whose it is.
pub(super) type NextBest = Both<Option<(f32, Source)>>;

/// The profiles of a pool.
#[derive(Debug, Default)]
pub(super) struct Profiled(BTreeMap<u16, Class>);

#[derive(Debug)]
struct Class {
    profile: ClassProfile,
    error: Both<LiveMean>,
    /// Error of the prior on the same outcomes.
    prior: Both<LiveMean>,
    /// Whether the profile is preferred to the prior.
    preferred: Both<bool>,
    /// Readings at an edge of the grid.
    outside: Both<u64>,
}

impl Profiled {
    /// Adds the profile of a class, which starts without a record.
    pub(super) fn set(&mut self, class: u16, profile: ClassProfile) {
        let preferred = Both { ttft: true, tpot: true };
        let class_of = |profile| Class {
            profile,
            error: Both::default(),
            prior: Both::default(),
            preferred,
            outside: Both::default(),
        };
        self.0.insert(class, class_of(profile));
    }

    /// What serves a row without a bundle, at the moment of a decision.
    pub(super) fn decide(&mut self, row: &Row) -> NextBest {
        let class = class_of(row);
        if let Some(class) = self.0.get_mut(&class) {
            let medians = class.profile.medians(row);
            for target in Target::ALL {
                let outside = medians.get(target).is_some_and(|median| !median.inside);
                *class.outside.get_mut(target) += u64::from(outside);
            }
            return class.next_best(row, &medians);
        }
        prior::medians(row).map(|prior| prior.map(|ms| (ms, Source::Prior)))
    }

    /// The profile's medians for a row and what serves it without a bundle, looking back.
    pub(super) fn recall(&self, row: &Row) -> (Both<Option<f32>>, NextBest) {
        if let Some(class) = self.0.get(&class_of(row)) {
            let medians = class.profile.medians(row);
            return (
                medians.map(|median| median.map(|of| of.value)),
                class.next_best(row, &medians),
            );
        }
        (Both::default(), prior::medians(row).map(|prior| prior.map(|ms| (ms, Source::Prior))))
    }

    /// Learns from one outcome what profile and prior are worth on the row's class.
    pub(super) fn learn(&mut self, row: &Row, target: Target, profile_ms: f32, measured_ms: f32) {
        let Some(class) = self.0.get_mut(&class_of(row)) else { return };
        let Some(prior_ms) = *prior::medians(row).get(target) else { return };
        let (error, prior) = (class.error.get_mut(target), class.prior.get_mut(target));
        error.add(relative_error(profile_ms, measured_ms));
        prior.add(relative_error(prior_ms, measured_ms));
        let preferred = class.preferred.get_mut(target);
        *preferred = keeps(*preferred, error, prior);
    }

    /// What serves a target of the pool without a bundle: the profile if it does for any class.
    pub(super) fn source(&self, target: Target) -> Source {
        let any = self.0.values().any(|class| class.serves(target));
        if any { Source::Profile } else { Source::Prior }
    }

    /// Where and why the prior is used instead of a profile, if so.
    pub(super) fn lost_to_prior(&self) -> Option<String> {
        let lost = |class: &Class, target: Target| {
            let (error, prior) = (class.error.get(target).mean()?, class.prior.get(target).mean()?);
            (!class.preferred.get(target)).then(|| {
                let (target, name) = (target.name(), &class.profile.class);
                format!(
                    "{target}: live error {prior:.3} of the prior, {error:.3} of the profile of {name}"
                )
            })
        };
        let each = |class| Target::ALL.into_iter().filter_map(move |target| lost(class, target));
        let reasons: Vec<String> = self.0.values().flat_map(each).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    pub(super) fn status(&self) -> Vec<ProfileStatus> {
        let recent = |mean: &LiveMean| mean.mean().map(|mean| mean as f32);
        let status = |class: &Class| ProfileStatus {
            class: class.profile.class.to_string(),
            preferred_ttft: class.serves(Target::Ttft),
            preferred_tpot: class.serves(Target::Tpot),
            live_mape_ttft: recent(&class.error.ttft),
            live_mape_tpot: recent(&class.error.tpot),
            outside_ttft: class.outside.ttft,
            outside_tpot: class.outside.tpot,
        };
        self.0.values().map(status).collect()
    }
}

impl Class {
    fn serves(&self, target: Target) -> bool {
        *self.preferred.get(target) && self.profile.knows(target)
    }

    /// The preferred evaluator's median, or the other's where it has none.
    fn next_best(&self, row: &Row, medians: &Both<Option<Median>>) -> NextBest {
        let prior = prior::medians(row);
        let choose = |target: Target| {
            let profile = medians.get(target).map(|median| (median.value, Source::Profile));
            let prior = prior.get(target).map(|ms| (ms, Source::Prior));
            if *self.preferred.get(target) { profile.or(prior) } else { prior.or(profile) }
        };
        Both { ttft: choose(Target::Ttft), tpot: choose(Target::Tpot) }
    }
}

/// The row's pod class. A row without one is of the first.
fn class_of(row: &Row) -> u16 {
    Features(*row).get(Feature::PodClass) as u16
}

#[cfg(test)]
#[path = "profiled_tests.rs"]
mod tests;
