//! Series that can be compared: one setting, one load, one seed, several policies.

use super::{
    Series,
    group::{before, heading, objectives_words, pool_words},
    input::Runs,
    words::{number, slug},
};
use crate::workload::Objective;

/// Runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scene<'a> {
    /// One per policy.
    pub(super) series: Vec<&'a Series>,
    /// Place of the class that is spoken of: the first of the highest band.
    pub(super) class: usize,
}

/// What makes series comparable.
fn key(of: &Series) -> (&str, &str, &str, usize, u32, usize, u64, u64) {
    let (load, pods) = (of.load.to_bits(), of.pods);
    (&of.workload, &of.mix, &of.gpu, pods, of.chunk_tokens, of.dispatchers, load, of.seed)
}

/// The series by what they can be compared in. Of a policy that comes twice, the first counts.
pub(super) fn scenes(runs: &Runs) -> Vec<Scene<'_>> {
    let mut scenes: Vec<Scene<'_>> = Vec::new();
    for series in &runs.series {
        let same = |scene: &&mut Scene<'_>| {
            scene.series.first().is_some_and(|first| key(first) == key(series))
        };
        match scenes.iter_mut().find(same) {
            Some(scene) if scene.series.iter().any(|known| known.policy == series.policy) => {}
            Some(scene) => scene.series.push(series),
            None => scenes.push(Scene { series: vec![series], class: top_class(&series.classes) }),
        }
    }
    scenes
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

    /// A heading.
    pub(super) fn heading(&self) -> String {
        let Some(of) = self.series.first() else { return String::new() };
        let setting = heading(&of.workload, &of.mix, of.pods, of.chunk_tokens);
        format!("{setting}{}, load {}", before(of.dispatchers), number(of.load))
    }

    /// What was run, as a sentence.
    pub(super) fn what_was_run(&self) -> String {
        let Some(of) = self.series.first() else { return String::new() };
        let count = self.series.len();
        let policies = if count == 1 { "1 policy".to_owned() } else { format!("{count} policies") };
        let promise = objectives_words(&of.classes);
        format!(
            "{policies} in front of {}{}; traffic `{}` at load {}; {promise}; seed {}, {} requests after the warm-up.",
            pool_words(of.pods, &of.gpu, of.chunk_tokens),
            before(of.dispatchers),
            of.workload,
            number(of.load),
            of.seed,
            of.requests,
        )
    }

    /// A name for files.
    pub(super) fn slug(&self) -> String {
        slug(&self.heading())
    }
}
