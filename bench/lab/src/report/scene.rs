//! Series that can be compared: one setting, one load, one seed, several policies.

use super::{
    Series,
    choice::{Choice, choose},
    common::Common,
    group::objectives_words,
    input::{Placed, Runs},
    words::{counted, exact, number, slug},
};
use crate::workload::Objective;

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene<'a> {
    /// What they have in common.
    common: Common,
    /// That in words, with the load, which no other scene of the page has.
    pub(super) heading: String,
    /// One per policy.
    pub(super) series: Vec<&'a Series>,
    /// Place of the class that is spoken of: the first of the highest band.
    pub(super) class: usize,
}

/// What makes series comparable.
fn key(of: &Placed<Series>) -> (usize, u64, u64) {
    (of.setting, of.item.load.to_bits(), of.item.seed)
}

/// The series that count.
pub(super) fn chosen(runs: &Runs) -> Choice<&Placed<Series>> {
    choose(
        &runs.series,
        |of| (key(of), of.item.policy.as_str()),
        |of| runs.rank(of.item.requests, of.file),
    )
}

/// These by what they can be compared in.
pub(super) fn scenes(runs: &Runs) -> Vec<Scene<'_>> {
    let mut scenes: Vec<Vec<&Placed<Series>>> = Vec::new();
    for series in chosen(runs).kept {
        let same = |scene: &&mut Vec<&Placed<Series>>| {
            scene.first().is_some_and(|first| key(first) == key(series))
        };
        match scenes.iter_mut().find(same) {
            Some(scene) => scene.push(series),
            None => scenes.push(vec![series]),
        }
    }
    let firsts: Vec<&Placed<Series>> =
        scenes.iter().filter_map(|scene| scene.first().copied()).collect();
    let all = scenes.iter().filter_map(|scene| {
        let first = scene.first()?;
        Some(Scene {
            common: runs.common(first.setting),
            heading: heading(runs, first, &firsts),
            series: scene.iter().map(|series| &series.item).collect(),
            class: top_class(&first.item.classes),
        })
    });
    all.collect()
}

/// The seed is told where there are several.
fn heading(runs: &Runs, of: &Placed<Series>, all: &[&Placed<Series>]) -> String {
    let (heading, Series { load, seed, .. }) = (runs.heading(of.setting), &of.item);
    let several = all.iter().any(|other| other.item.seed != *seed);
    let seed = if several { format!(", seed {seed}") } else { String::new() };
    format!("{heading}, load {}{seed}", exact(*load))
}

fn top_class(classes: &[Objective]) -> usize {
    let highest = classes.iter().map(|class| class.band).max();
    classes.iter().position(|class| Some(class.band) == highest).unwrap_or(0)
}

impl Scene<'_> {
    /// What the class that is spoken of is promised.
    pub(super) fn objective(&self) -> Option<&Objective> {
        self.series.first()?.classes.get(self.class)
    }

    /// Its name.
    pub(super) fn class_name(&self) -> &str {
        self.objective().map_or("all", |class| &class.name)
    }

    /// What was run, as a sentence.
    pub(super) fn what_was_run(&self) -> String {
        let Some(of) = self.series.first() else { return String::new() };
        let policies = counted(self.series.len(), "policy", "policies");
        let promise = objectives_words(&of.classes);
        format!(
            "{policies} in front of {}{}; traffic `{}` at load {}; {promise}; seed {}, {} after the warm-up.",
            self.common.pool_words(),
            self.common.before(),
            of.workload,
            number(of.load),
            of.seed,
            counted(of.requests, "request", "requests"),
        )
    }

    /// A name for files.
    pub(super) fn slug(&self) -> String {
        slug(&self.heading)
    }
}
