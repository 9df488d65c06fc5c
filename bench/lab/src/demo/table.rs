//! The summary for people: one table and the verdict under it.

use comfy_table::{Cell, CellAlignment, Table, presets};
use weir_schema::{Grade, Grades};

use super::{
    checks::percent,
    summary::{ClassSummary, Summary},
};
use crate::host;

/// A label, and what is said of each class.
type ClassRow = (String, fn(&ClassSummary) -> String);

impl Summary {
    /// The table and the verdict.
    pub(super) fn for_people(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let names = self.classes.iter().map(|class| class.name.clone());
        table.set_header(std::iter::once(format!("policy {}", self.policy)).chain(names));
        for (label, value) in self.class_rows() {
            table.add_row(std::iter::once(label).chain(self.classes.iter().map(value)));
        }
        for row in self.version_rows().into_iter().chain(self.stated_rows()).chain(self.run_rows())
        {
            table.add_row(row.map(Cell::new));
        }
        table
            .column_iter_mut()
            .skip(1)
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        format!("{table}\n{}", self.verdict())
    }

    fn class_rows(&self) -> [ClassRow; 8] {
        let load = |rps: f64| rps / self.plan.capacity_rps;
        let attained = |rps| format!("attained of sent, load {:.1}", load(rps));
        [
            ("sent".to_owned(), |class| class.sent.to_string()),
            ("ok".to_owned(), |class| class.ok.to_string()),
            ("shed (429)".to_owned(), |class| class.shed.to_string()),
            ("failed".to_owned(), |class| class.failed.to_string()),
            (attained(self.plan.low_rps), |class| percent(Some(class.attainment_low))),
            (attained(self.plan.high_rps), |class| percent(Some(class.attainment_high))),
            ("TTFT p50 / p99 ms".to_owned(), |class| pair(class.ttft_ms.p50, class.ttft_ms.p99, 0)),
            ("TPOT p50 / p99 ms".to_owned(), |class| pair(class.tpot_ms.p50, class.tpot_ms.p99, 1)),
        ]
    }

    fn version_rows(&self) -> Vec<[String; 4]> {
        let row = |version: &super::admin::Version| {
            [
                format!("model v{}", version.version),
                format!("TTFT off {}", percent(version.mape_ttft)),
                format!("TPOT off {}", percent(version.mape_tpot)),
                format!("decided {}", version.served),
            ]
        };
        self.versions.iter().map(row).collect()
    }

    /// What was stated against what was measured, over all and for each of several pod classes.
    fn stated_rows(&self) -> Vec<[String; 4]> {
        let several = self.pod_classes.iter().filter(|_| self.pod_classes.len() > 1);
        let classes = several.map(|class| {
            let Grades { ttft, tpot } = class.grades;
            (format!("on {}", class.pod_class), ttft, tpot)
        });
        let all = ("stated, lately".to_owned(), self.stated_ttft, self.stated_tpot);
        let row = |(label, ttft, tpot): (String, Option<Grade>, Option<Grade>)| {
            let outcomes = ttft.map_or(0, |grade| grade.outcomes);
            [label, stated("TTFT", ttft), stated("TPOT", tpot), format!("outcomes {outcomes}")]
        };
        std::iter::once(all).chain(classes).map(row).collect()
    }

    fn run_rows(&self) -> [[String; 4]; 2] {
        let swaps = self.versions_served.len().saturating_sub(1);
        [
            [
                "learning".to_owned(),
                format!("samples: {}", self.samples),
                format!("swaps: {swaps}"),
                String::new(),
            ],
            [
                "invariants".to_owned(),
                format!("{} without outcome", self.requests_without_outcome),
                format!("{} started twice", self.double_starts),
                format!("ledger {}", if self.ledger_idle { "at zero" } else { "NOT at zero" }),
            ],
        ]
    }

    fn verdict(&self) -> String {
        let lines = self.checks.iter().map(|check| {
            let word = if check.passed { "holds" } else { "FAILS" };
            format!("{word}  {}: {} (required: {})\n", check.what, check.measured, check.required)
        });
        lines.chain(self.excuse()).collect()
    }

    /// What may have been late for want of a processor, if anything fails.
    fn excuse(&self) -> Option<String> {
        let stolen = self.stolen_share.filter(|share| !self.passed && host::is_much(*share))?;
        let share = percent(Some(stolen));
        Some(format!(
            "The host took {share} of the processors' time meanwhile, so that pods, load and Weir were late for reasons of its own. Repeat it when the host is calm.\n"
        ))
    }
}

/// The error of a median, and the share at or below the 90th percentile.
fn stated(target: &str, grade: Option<Grade>) -> String {
    let of = |part: fn(&Grade) -> f32| percent(grade.as_ref().map(|grade| f64::from(part(grade))));
    format!("{target} off {}, p90 covers {}", of(|grade| grade.mape), of(|grade| grade.coverage))
}

/// Two figures of one kind.
pub(crate) fn pair(one: Option<f64>, other: Option<f64>, decimals: usize) -> String {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.decimals$}"));
    format!("{} / {}", text(one), text(other))
}
