//! The demo's numbers, as they are written to `summary.json`.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_schema::{ClassQuality, Grade};

use super::{
    admin::{PoolView, Version},
    args::Policy,
    checks::{Check, checks},
};
use crate::load::{Class, ClassReport, LoadReport, Percentiles, Record};

/// A version's error is quoted from this many measurements on.
const ENOUGH_ROWS: u64 = 100;

/// The load that the demo sends.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Plan {
    /// Requests per second that all pods can hold, by formula.
    pub(super) capacity_rps: f64,
    /// TPOT objective that this is for, in milliseconds.
    #[serde(skip)]
    pub(super) tpot_ms: f64,
    /// Seconds of each stretch.
    pub(super) stretch_s: f64,
    /// Rate of the first stretch.
    pub(super) low_rps: f64,
    /// Rate of the second stretch.
    pub(super) high_rps: f64,
}

/// What was measured and asked.
pub(super) struct Evidence {
    pub(super) report: LoadReport,
    /// The pool when the last requests were sent. Model errors are read here: once arrivals stop the pods empty, and
    /// tokens come faster than anything known at dispatch could tell.
    pub(super) loaded: PoolView,
    /// The pool at the end.
    pub(super) pool: PoolView,
    pub(super) samples: u64,
    pub(super) double_starts: u64,
    /// Share of the processors' time that the host took while requests were sent.
    pub(super) stolen_share: Option<f64>,
}

/// `summary.json`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) policy: &'static str,
    /// Whether every check holds.
    pub(super) passed: bool,
    pub(super) checks: Vec<Check>,
    #[serde(flatten)]
    pub(super) plan: Plan,
    /// In the order of the mix.
    #[serde(serialize_with = "by_name")]
    pub(super) classes: Vec<ClassSummary>,
    /// Versions that decided at least one request, oldest first.
    pub(super) versions_served: Vec<u64>,
    /// Every version that was in service while requests were sent.
    pub(super) versions: Vec<Version>,
    /// The newest version with enough measurements: the one that the next two are about.
    pub(super) mape_version: Option<u64>,
    /// Error of its median TTFT against the measured one, as a fraction.
    pub(super) mape_ttft: Option<f64>,
    /// Error of its median TPOT, as a fraction.
    pub(super) mape_tpot: Option<f64>,
    /// What Weir stated of TTFT lately, whichever version stated it, against what was measured: the error of the median, and
    /// the coverage of the 90th percentile. Read while requests were sent.
    pub(super) stated_ttft: Option<Grade>,
    /// The same for TPOT.
    pub(super) stated_tpot: Option<Grade>,
    /// Both by pod class.
    pub(super) pod_classes: Vec<ClassQuality>,
    /// Samples that Weir wrote.
    pub(super) samples: u64,
    /// Requests that the load or Weir cannot account for.
    pub(super) requests_without_outcome: u64,
    /// Requests that a pod started and that had been started before.
    pub(super) double_starts: u64,
    /// Whether Weir's queue and ledger were back at zero at the end.
    pub(super) ledger_idle: bool,
    /// How late the load sent at the 99th percentile, in milliseconds.
    pub(super) load_lag_p99_ms: f64,
    /// Share of the processors' time that the host of a virtual machine took meanwhile; `null` where that is not told.
    pub(super) stolen_share: Option<f64>,
}

/// One class of requests.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ClassSummary {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) sent: usize,
    pub(super) ok: usize,
    pub(super) shed: usize,
    pub(super) failed: usize,
    /// Share of all that were sent in the first stretch which were served inside both objectives.
    pub(super) attainment_low: f64,
    /// The same for the second stretch.
    pub(super) attainment_high: f64,
    pub(super) ttft_ms: Percentiles,
    pub(super) tpot_ms: Percentiles,
}

impl Summary {
    /// Sums up, and judges.
    pub(super) fn new(policy: Policy, plan: Plan, classes: &[Class], evidence: &Evidence) -> Self {
        let Evidence { report, loaded, pool, samples, double_starts, stolen_share } = evidence;
        let predictor = &loaded.snapshot.predictor;
        let versions = loaded.model.versions.clone();
        let quoted = versions.iter().rfind(|version| version.rows_ttft >= ENOUGH_ROWS).cloned();
        let mut summary = Self {
            policy: policy.name(),
            passed: false,
            checks: Vec::new(),
            plan,
            classes: class_summaries(classes, report, plan.stretch_s),
            versions_served: versions.iter().filter(|v| v.served > 0).map(|v| v.version).collect(),
            versions,
            mape_version: quoted.as_ref().map(|version| version.version),
            mape_ttft: quoted.as_ref().and_then(|version| version.mape_ttft),
            mape_tpot: quoted.as_ref().and_then(|version| version.mape_tpot),
            stated_ttft: predictor.ttft.stated,
            stated_tpot: predictor.tpot.stated,
            pod_classes: predictor.classes.clone(),
            samples: *samples,
            requests_without_outcome: report.without_outcome as u64 + pool.unaccounted(),
            double_starts: *double_starts,
            ledger_idle: pool.idle(),
            load_lag_p99_ms: report.lag_p99_ms,
            stolen_share: *stolen_share,
        };
        summary.checks = checks(policy, &summary);
        summary.passed = summary.checks.iter().all(|check| check.passed);
        summary
    }

    /// The summary of a class, by name.
    pub(super) fn class(&self, name: &str) -> Option<&ClassSummary> {
        self.classes.iter().find(|class| class.name == name)
    }
}

fn class_summaries(classes: &[Class], report: &LoadReport, stretch_s: f64) -> Vec<ClassSummary> {
    let summary = |(index, class): (usize, &Class)| {
        let all = report.records.iter().filter(move |record| record.class == index);
        let low = |record: &&Record| record.at_s < stretch_s;
        let whole = ClassReport::of(&class.name, all.clone(), report.window_s);
        let first = ClassReport::of(&class.name, all.clone().filter(low), stretch_s);
        let second =
            ClassReport::of(&class.name, all.filter(move |record| !low(record)), stretch_s);
        ClassSummary {
            name: class.name.clone(),
            sent: whole.sent,
            ok: whole.ok,
            shed: whole.shed,
            failed: whole.failed,
            attainment_low: first.attainment_sent,
            attainment_high: second.attainment_sent,
            ttft_ms: whole.ttft_ms,
            tpot_ms: whole.tpot_ms,
        }
    };
    classes.iter().enumerate().map(summary).collect()
}

fn by_name<S: serde::Serializer>(classes: &[ClassSummary], to: S) -> Result<S::Ok, S::Error> {
    let map: BTreeMap<&str, &ClassSummary> =
        classes.iter().map(|class| (class.name.as_str(), class)).collect();
    map.serialize(to)
}
