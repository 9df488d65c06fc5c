//! What was stated against what was measured: over all outcomes, and by version, class and pattern.
//!
//! Every slice is graded alike: the quantiles of the decision itself, whichever evaluator they came
//! from. The number of slices is bounded: the newest [`VERSIONS`], [`CLASSES`] classes, [`PATTERNS`]
//! patterns. A pattern beyond that goes into one that holds all others, unless one of those kept has
//! not been seen for [`FORGOTTEN`] outcomes and gives up its place.

use std::{collections::BTreeMap, sync::Arc};

use weir_schema::{
    ClassQuality, Feature, Features, Grade, Grades, PatternQuality, Prediction, Sample, Target,
    VersionQuality, relative_error,
};

use crate::both::Both;
use crate::live::{COVERAGE_WINDOW, LiveMean};
use crate::prior::measurable;

/// Versions kept.
const VERSIONS: usize = 8;
/// Classes kept; they are those of the configuration, which are few.
const CLASSES: usize = 64;
/// Patterns kept: each is a handful of series for whoever scrapes them.
const PATTERNS: usize = 64;
/// Outcomes of others after which a pattern may lose its place.
const FORGOTTEN: u64 = 10_000;

/// Error and coverage of what was stated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    error: Both<LiveMean>,
    coverage: Both<LiveMean<COVERAGE_WINDOW>>,
}

impl Marks {
    fn add(&mut self, stated: &Prediction, measured: &Both<Option<f32>>) {
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

    pub(super) fn grades(&self) -> Grades {
        let of = |target| {
            let (error, coverage) = (self.error.get(target), self.coverage.get(target));
            let (mape, coverage) = (error.mean()? as f32, coverage.mean()? as f32);
            Some(Grade { outcomes: error.count(), mape, coverage })
        };
        Grades { ttft: of(Target::Ttft), tpot: of(Target::Tpot) }
    }
}

/// Everything that is graded.
#[derive(Debug, Default)]
pub(super) struct Gradebook {
    all: Marks,
    versions: BTreeMap<u64, Marks>,
    classes: BTreeMap<Arc<str>, Marks>,
    patterns: Patterns,
}

impl Gradebook {
    /// A book whose patterns are those between these edges, ascending, of input and of expected
    /// output tokens.
    pub(super) fn with_edges(input: &[u32], output: &[u32]) -> Self {
        let patterns =
            Patterns { input: input.into(), output: output.into(), ..Patterns::default() };
        Self { patterns, ..Self::default() }
    }

    pub(super) fn add(&mut self, sample: &Sample, measured: &Both<Option<f32>>) {
        let stated = &sample.predicted;
        self.all.add(stated, measured);
        self.versions.entry(stated.model_version).or_default().add(stated, measured);
        if self.versions.len() > VERSIONS {
            let mut others = self.versions.keys().filter(|one| **one != stated.model_version);
            if let Some(oldest) = others.next().copied() {
                self.versions.remove(&oldest);
            }
        }
        // A sample of a pod that has left has no class.
        if sample.pod_class.is_empty() {
            return;
        }
        if let Some(marks) = self.classes.get_mut(&sample.pod_class) {
            marks.add(stated, measured);
        } else if self.classes.len() < CLASSES {
            self.classes.entry(sample.pod_class.clone()).or_default().add(stated, measured);
        }
        self.patterns.add(sample, measured);
    }

    pub(super) fn all(&self) -> Grades {
        self.all.grades()
    }

    pub(super) fn versions(&self) -> Vec<VersionQuality> {
        let versions = self.versions.iter();
        versions
            .map(|(&version, marks)| VersionQuality { version, grades: marks.grades() })
            .collect()
    }

    pub(super) fn classes(&self) -> Vec<ClassQuality> {
        let view = |(class, marks): (&Arc<str>, &Marks)| ClassQuality {
            pod_class: class.to_string(),
            grades: marks.grades(),
        };
        self.classes.iter().map(view).collect()
    }

    pub(super) fn patterns(&self) -> (Vec<PatternQuality>, Grades) {
        (self.patterns.views(), self.patterns.others.grades())
    }
}

/// A pod class and a bucket of input and of expected output tokens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    pod_class: Arc<str>,
    input: usize,
    output: usize,
}

#[derive(Debug, Default)]
struct Patterns {
    input: Vec<u32>,
    output: Vec<u32>,
    /// With the outcome at which each was last seen.
    cells: BTreeMap<Cell, (Marks, u64)>,
    others: Marks,
    outcomes: u64,
}

impl Patterns {
    fn add(&mut self, sample: &Sample, measured: &Both<Option<f32>>) {
        self.outcomes += 1;
        let row = Features(sample.row);
        let cell = Cell {
            pod_class: sample.pod_class.clone(),
            input: bucket(&self.input, row.get(Feature::InputTokens)),
            output: bucket(&self.output, row.get(Feature::ExpectedOutputTokens)),
        };
        if !self.cells.contains_key(&cell) && self.cells.len() >= PATTERNS && !self.make_room() {
            return self.others.add(&sample.predicted, measured);
        }
        let (marks, seen) = self.cells.entry(cell).or_default();
        marks.add(&sample.predicted, measured);
        *seen = self.outcomes;
    }

    /// Forgets the pattern that was not seen for longest, if that is long enough.
    fn make_room(&mut self) -> bool {
        let oldest = self.cells.iter().min_by_key(|(_, (_, seen))| *seen);
        let Some((cell, (_, seen))) = oldest else { return false };
        if self.outcomes - seen < FORGOTTEN {
            return false;
        }
        let cell = cell.clone();
        self.cells.remove(&cell).is_some()
    }

    fn views(&self) -> Vec<PatternQuality> {
        let view = |(cell, (marks, _)): (&Cell, &(Marks, u64))| PatternQuality {
            pod_class: cell.pod_class.to_string(),
            input_tokens: self.input.get(cell.input).copied(),
            output_tokens: self.output.get(cell.output).copied(),
            grades: marks.grades(),
        };
        self.cells.iter().map(view).collect()
    }
}

/// Index of the first edge that is not below `value`, as the scheduler's patterns count; past the
/// last edge, and for a value that is missing, their number.
fn bucket(edges: &[u32], value: f32) -> usize {
    if value.is_nan() {
        return edges.len();
    }
    edges.partition_point(|edge| f64::from(*edge) < f64::from(value))
}

#[cfg(test)]
mod tests {
    use weir_schema::{Quantiles, SampleOutcome, schema_hash};

    use super::*;

    const MEASURED: Both<Option<f32>> = Both { ttft: Some(100.0), tpot: None };

    fn sample(class: &str, input: f32, output: f32, version: u64, ttft: (f32, f32)) -> Sample {
        let mut row = Features::default();
        row.set(Feature::InputTokens, input);
        row.set(Feature::ExpectedOutputTokens, output);
        let predicted = Prediction {
            ttft_ms: Quantiles { p50: ttft.0, p90: ttft.1 },
            model_version: version,
            ..Prediction::default()
        };
        Sample {
            schema: schema_hash().into(),
            at_unix_ms: 1,
            model: "m".into(),
            pod_class: class.into(),
            row: row.0,
            predicted,
            streamed: true,
            outcome: SampleOutcome::Complete,
            ttft_ms: Some(100.0),
            tpot_ms: None,
            e2e_ms: 1000.0,
            wait_ms: 0.0,
            output_tokens: 10,
        }
    }

    #[test]
    fn each_slice_has_the_grades_of_its_own_outcomes() {
        let mut book = Gradebook::with_edges(&[64, 128], &[16]);
        book.add(&sample("a", 64.0, 16.0, 1, (100.0, 120.0)), &MEASURED);
        book.add(&sample("a", 65.0, 17.0, 2, (50.0, 80.0)), &MEASURED);
        book.add(&sample("b", 4096.0, f32::NAN, 2, (150.0, 200.0)), &MEASURED);
        let grade = |outcomes, mape, coverage| Some(Grade { outcomes, mape, coverage });
        let all = book.all();
        assert_eq!((all.ttft, all.tpot), (grade(3, 1.0 / 3.0, 2.0 / 3.0), None));
        let versions: Vec<_> =
            book.versions().into_iter().map(|one| (one.version, one.grades.ttft)).collect();
        assert_eq!(versions, [(1, grade(1, 0.0, 1.0)), (2, grade(2, 0.5, 0.5))]);
        let classes: Vec<_> =
            book.classes().into_iter().map(|one| (one.pod_class, one.grades.ttft)).collect();
        let want = [("a".to_owned(), grade(2, 0.25, 0.5)), ("b".to_owned(), grade(1, 0.5, 1.0))];
        assert_eq!(classes, want);
        let (patterns, others) = book.patterns();
        let edges: Vec<_> =
            patterns.iter().map(|one| (one.input_tokens, one.output_tokens)).collect();
        assert_eq!(edges, [(Some(64), Some(16)), (Some(128), None), (None, None)]);
        assert_eq!(others, Grades::default());
    }

    /// llm-d's numbers (vectors, quantile_metrics): coverage_pct, and violation_pct as the rest of it.
    #[test]
    fn coverage_is_that_of_llm_ds_quantile_metrics() {
        let Ok(folder) = std::env::var("WEIR_VECTORS") else {
            println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
            return;
        };
        let file = std::path::Path::new(&folder).join("llmd_vectors.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let metrics = &vectors["quantile_metrics"];
        let numbers = |name: &str| {
            let numbers = metrics[name].as_array().unwrap().iter();
            numbers.map(|number| number.as_f64().unwrap() as f32).collect::<Vec<f32>>()
        };
        let mut marks = Marks::default();
        for (measured, stated) in numbers("y_true").into_iter().zip(numbers("y_pred")) {
            let stated = Prediction {
                ttft_ms: Quantiles { p50: stated, p90: stated },
                ..Prediction::default()
            };
            marks.add(&stated, &Both { ttft: Some(measured), tpot: None });
        }
        let coverage = f64::from(marks.grades().ttft.unwrap().coverage) * 100.0;
        let close = |got: f64, name: &str| (got - metrics[name].as_f64().unwrap()).abs() < 1e-3;
        assert!(close(coverage, "coverage_pct"), "{coverage}");
        assert!(close(100.0 - coverage, "violation_pct"), "{coverage}");
    }

    #[test]
    fn the_number_of_slices_is_bounded_and_an_old_pattern_gives_up_its_place() {
        let edges: Vec<u32> = (1..=100).collect();
        let mut book = Gradebook::with_edges(&edges, &[]);
        let of = |input: f32| sample("a", input, 1.0, input as u64, (100.0, 100.0));
        (1..=80_u16).for_each(|input| book.add(&of(f32::from(input)), &MEASURED));
        let (patterns, others) = book.patterns();
        assert_eq!((patterns.len(), book.versions().len()), (PATTERNS, VERSIONS));
        assert_eq!(book.versions()[0].version, 73);
        assert_eq!(others.ttft.unwrap().outcomes, 80 - PATTERNS as u64);

        (0..FORGOTTEN).for_each(|_| book.add(&of(2.0), &MEASURED));
        book.add(&of(90.0), &MEASURED);
        let (patterns, _) = book.patterns();
        let inputs: Vec<_> = patterns.iter().filter_map(|one| one.input_tokens).collect();
        assert_eq!(patterns.len(), PATTERNS);
        assert!(inputs.contains(&90) && inputs.contains(&2) && !inputs.contains(&1), "{inputs:?}");
    }

    #[test]
    fn classes_are_bounded_too_and_a_pod_that_has_left_counts_only_in_all() {
        let mut book = Gradebook::default();
        let of = |class: String| sample(&class, 1.0, 1.0, 0, (100.0, 100.0));
        (0..100).for_each(|number| book.add(&of(format!("class-{number}")), &MEASURED));
        book.add(&of(String::new()), &MEASURED);
        assert_eq!((book.classes().len(), book.patterns().0.len()), (CLASSES, PATTERNS));
        assert_eq!(book.all().ttft.unwrap().outcomes, 101);
    }
}
