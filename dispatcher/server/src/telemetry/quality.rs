//! How good the predictions are, as series: over all outcomes, and by version, pod class and pattern.
//!
//! The predictor bounds the number of versions, classes and patterns, and so of series.

use weir_schema::{Grade, Grades, Status, TargetQuality};

use super::{
    exposition::Page,
    series::{self, Series},
};

/// Label of the one pattern that holds all beyond the bound.
const OTHER: &str = "other";
/// Label of a bucket without an upper edge.
const NO_EDGE: &str = "inf";

impl Page {
    /// Notes how good a pool's predictions are.
    pub(super) fn quality(&mut self, model: &str, of: &Status) {
        self.target(model, "ttft", &of.ttft);
        self.target(model, "tpot", &of.tpot);
        for version in &of.versions {
            let name = version.version.to_string();
            let series = [&series::VERSION_STATED_MAPE, &series::VERSION_COVERAGE];
            self.slice(series, &[model, &name], version.grades);
        }
        for class in &of.classes {
            let series = [&series::CLASS_MAPE, &series::CLASS_COVERAGE];
            self.slice(series, &[model, &class.pod_class], class.grades);
        }
        for pattern in &of.patterns {
            let edge = |edge: Option<u32>| edge.map_or(NO_EDGE.to_owned(), |edge| edge.to_string());
            let (input, output) = (edge(pattern.input_tokens), edge(pattern.output_tokens));
            self.pattern([model, &pattern.pod_class, &input, &output], pattern.grades);
        }
        self.pattern([model, OTHER, OTHER, OTHER], of.other_patterns);
    }

    fn target(&mut self, model: &str, target: &str, of: &TargetQuality) {
        let labels = [model, target];
        if let Some(grade) = of.stated {
            self.set(&series::LIVE_MAPE, &labels, f64::from(grade.mape));
            self.set(&series::COVERAGE, &labels, f64::from(grade.coverage));
        }
        self.set(&series::P90_FACTOR, &labels, f64::from(of.p90_factor));
        if let Some(evidence) = of.drift.evidence {
            self.set(&series::DRIFT_EVIDENCE, &labels, f64::from(evidence));
        }
        self.count(&series::DRIFT_ALARMS, &[model, target, "slower"], of.drift.slower);
        self.count(&series::DRIFT_ALARMS, &[model, target, "faster"], of.drift.faster);
    }

    fn pattern(&mut self, labels: [&str; 4], grades: Grades) {
        self.slice([&series::PATTERN_MAPE, &series::PATTERN_COVERAGE], &labels, grades);
        for (target, grade) in both(grades) {
            let [model, class, input, output] = labels;
            let labels = [model, class, input, output, target];
            self.count(&series::PATTERN_OUTCOMES, &labels, grade.outcomes);
        }
    }

    /// Notes error and coverage of a slice, which `labels` name.
    fn slice(&mut self, [mape, coverage]: [&Series; 2], labels: &[&str], grades: Grades) {
        for (target, grade) in both(grades) {
            let labels: Vec<&str> = labels.iter().copied().chain([target]).collect();
            self.set(mape, &labels, f64::from(grade.mape));
            self.set(coverage, &labels, f64::from(grade.coverage));
        }
    }
}

/// The grades that there are, with the name of their target.
fn both(grades: Grades) -> impl Iterator<Item = (&'static str, Grade)> {
    let named = [("ttft", grades.ttft), ("tpot", grades.tpot)];
    named.into_iter().filter_map(|(target, grade)| Some((target, grade?)))
}

#[cfg(test)]
pub(super) mod tests {
    use weir_schema::{
        BundleEvaluator, ClassQuality, Drift, PatternQuality, Rollback, Source, VersionQuality,
    };

    use super::*;
    use crate::telemetry::exposition::tests::written;

    const GRADE: Grade = Grade { outcomes: 40, mape: 0.25, coverage: 0.875 };
    const GRADES: Grades = Grades { ttft: Some(GRADE), tpot: Some(GRADE) };

    /// A predictor that has seen and done everything.
    pub(in crate::telemetry) fn status() -> Status {
        let target = TargetQuality {
            p90_factor: 1.5,
            stated: Some(GRADE),
            model_mape: Some(0.5),
            next_mape: Some(0.25),
            drift: Drift { slower: 2, faster: 1, evidence: Some(0.5) },
        };
        let pattern = |input_tokens, output_tokens| PatternQuality {
            pod_class: "c".into(),
            input_tokens,
            output_tokens,
            grades: GRADES,
        };
        Status {
            model_version: 6,
            model_evaluator: Some(BundleEvaluator {
                source: Source::Onnx,
                reason: "operator".into(),
                detail: "operator Cast is not known to the forest".into(),
            }),
            ttft: target,
            tpot: target,
            versions: vec![VersionQuality { version: 7, grades: GRADES }],
            classes: vec![ClassQuality { pod_class: "c".into(), grades: GRADES }],
            patterns: vec![pattern(Some(1024), Some(256)), pattern(None, None)],
            other_patterns: GRADES,
            rollbacks: 3,
            last_rollback: Some(Rollback { from: 7, to: 6, reason: "worse".into() }),
            ..Status::default()
        }
    }

    #[test]
    fn coverage_factors_drift_and_rollbacks_are_series_and_so_is_every_slice() {
        let mut page = Page::default();
        page.predictor("m", &status());
        let text = written(&page.collect());
        for line in [
            "weir_live_mape{model=\"m\",target=\"ttft\"} 0.25",
            "weir_coverage{model=\"m\",target=\"tpot\"} 0.875",
            "weir_p90_factor{model=\"m\",target=\"ttft\"} 1.5",
            "weir_drift_evidence{model=\"m\",target=\"ttft\"} 0.5",
            "weir_drift_alarms_total{change=\"slower\",model=\"m\",target=\"tpot\"} 2",
            "weir_rollbacks_total{model=\"m\"} 3",
            "weir_bundle_evaluator{evaluator=\"onnx\",model=\"m\",reason=\"operator\",version=\"6\"} 1",
            "weir_version_stated_mape{model=\"m\",target=\"ttft\",version=\"7\"} 0.25",
            "weir_version_coverage{model=\"m\",target=\"ttft\",version=\"7\"} 0.875",
            "weir_class_mape{model=\"m\",pod_class=\"c\",target=\"ttft\"} 0.25",
            "weir_class_coverage{model=\"m\",pod_class=\"c\",target=\"tpot\"} 0.875",
            "weir_pattern_mape{input_tokens=\"1024\",model=\"m\",output_tokens=\"256\",pod_class=\"c\",target=\"ttft\"} 0.25",
            "weir_pattern_coverage{input_tokens=\"inf\",model=\"m\",output_tokens=\"inf\",pod_class=\"c\",target=\"tpot\"} 0.875",
            "weir_pattern_outcomes{input_tokens=\"other\",model=\"m\",output_tokens=\"other\",pod_class=\"other\",target=\"ttft\"} 40",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
