//! The verdict: what must hold for the demo to have shown what it set out to show.

use serde::Serialize;
use weir_schema::{ClassQuality, Grade};

use super::{args::Policy, summary::Summary};

/// Versions that must have decided requests: one swap under load at least.
const VERSIONS: usize = 2;
/// Largest error of the median TTFT that was stated lately, whichever version stated it, as a fraction. Of one version it is a matter
/// of when it came: one that has learned from the load before, or decided for few, is off by more.
const MAPE_TTFT: f64 = 0.10;
/// The same of TPOT.
const MAPE_TPOT: f64 = 0.06;
/// Largest error of the median TTFT of one class in a pool of several, as a fraction. A class has a part of the outcomes, and
/// a GPU type whose steps are long queues more coarsely.
const CLASS_MAPE_TTFT: f64 = 0.15;
/// Largest error of the median TPOT of one class in a pool of several, as a fraction.
const CLASS_MAPE_TPOT: f64 = 0.10;
/// Attainment of interactive requests while the pods can hold the load.
const INTERACTIVE_LOW: f64 = 0.99;
/// Attainment of interactive requests while they cannot.
const INTERACTIVE_HIGH: f64 = 0.93;

/// One thing that must hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) required: String,
    pub(super) measured: String,
    pub(super) passed: bool,
}

/// Invariants hold for every policy; the rest is Weir's to show.
pub(super) fn checks(policy: Policy, summary: &Summary) -> Vec<Check> {
    let mut checks = invariants(summary);
    if policy == Policy::Weir {
        checks.extend(promises(summary));
        checks.extend(by_pod_class(summary));
    }
    checks
}

/// In a pool of several GPU types no type's predictions may be worse than stated here.
fn by_pod_class(summary: &Summary) -> Vec<Check> {
    let classes = summary.pod_classes.iter().filter(|_| summary.pod_classes.len() > 1);
    let checks = |class: &ClassQuality| {
        let (name, grades) = (&class.pod_class, &class.grades);
        [
            at_most(&format!("TTFT error on {name}"), error(grades.ttft), CLASS_MAPE_TTFT),
            at_most(&format!("TPOT error on {name}"), error(grades.tpot), CLASS_MAPE_TPOT),
        ]
    };
    classes.flat_map(checks).collect()
}

fn invariants(summary: &Summary) -> Vec<Check> {
    let (lost, doubles) = (summary.requests_without_outcome, summary.double_starts);
    let idle = summary.ledger_idle;
    let ledger = if idle { "zero" } else { "not zero" };
    vec![
        check("requests without exactly one outcome", "0", lost.to_string(), lost == 0),
        check("requests started twice", "0", doubles.to_string(), doubles == 0),
        check("queue and ledger at the end", "zero", ledger.to_owned(), idle),
    ]
}

fn promises(summary: &Summary) -> Vec<Check> {
    let interactive = summary.class("interactive");
    let low = interactive.map(|class| class.attainment_low);
    let high = interactive.map(|class| class.attainment_high);
    let shed = summary.class("batch").map_or(0, |class| class.shed);
    let versions = summary.versions_served.len();
    vec![
        check(
            "model versions that served",
            "2 or more",
            versions.to_string(),
            versions >= VERSIONS,
        ),
        at_most("TTFT prediction error", error(summary.stated_ttft), MAPE_TTFT),
        at_most("TPOT prediction error", error(summary.stated_tpot), MAPE_TPOT),
        at_least("interactive attained, low load", low, INTERACTIVE_LOW),
        at_least("interactive attained, overload", high, INTERACTIVE_HIGH),
        check("batch shed with 429", "some", shed.to_string(), shed > 0),
    ]
}

fn error(grade: Option<Grade>) -> Option<f64> {
    grade.map(|grade| f64::from(grade.mape))
}

fn check(what: &str, required: &str, measured: String, passed: bool) -> Check {
    Check { what: what.to_owned(), required: required.to_owned(), measured, passed }
}

fn at_most(what: &str, value: Option<f64>, bound: f64) -> Check {
    let passed = value.is_some_and(|value| value <= bound);
    check(what, &format!("at most {}", percent(Some(bound))), percent(value), passed)
}

fn at_least(what: &str, value: Option<f64>, bound: f64) -> Check {
    let passed = value.is_some_and(|value| value >= bound);
    check(what, &format!("at least {}", percent(Some(bound))), percent(value), passed)
}

/// A fraction for people.
pub(crate) fn percent(fraction: Option<f64>) -> String {
    fraction.map_or("none".to_owned(), |fraction| format!("{:.2} %", fraction * 1e2))
}
