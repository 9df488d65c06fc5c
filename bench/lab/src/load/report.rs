//! What a run comes to: per class and over all, with every request's record behind it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Class, LoadPlan, Outcome, Record};

/// Everything a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// From the first to the last planned arrival, in seconds; rates are per second of this.
    pub window_s: f64,
    /// From the start to the last outcome, in seconds.
    pub elapsed_s: f64,
    /// Requests that were planned and have no record; zero unless the load itself is broken.
    pub without_outcome: usize,
    /// 99th percentile of how late the load sent, in milliseconds. Large means that the client was saturated.
    pub lag_p99_ms: f64,
    /// Per class, in the plan's order.
    pub classes: Vec<ClassReport>,
    /// All classes together.
    pub total: ClassReport,
    /// One per request, in the plan's order.
    #[serde(skip)]
    pub records: Vec<Record>,
}

/// What a set of requests comes to.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// The class's name; `all` for all of them.
    pub name: String,
    /// Requests sent.
    pub sent: usize,
    /// Served to their end.
    pub ok: usize,
    /// Refused with 429.
    pub shed: usize,
    /// Failed.
    pub failed: usize,
    /// Refusals by the reason given.
    pub shed_reasons: BTreeMap<String, usize>,
    /// Failures by kind.
    pub failures: BTreeMap<String, usize>,
    /// Time from sending to the first token of served requests, in milliseconds.
    pub ttft_ms: Percentiles,
    /// Mean time per token after the first of served requests, in milliseconds.
    pub tpot_ms: Percentiles,
    /// Share of all sent requests that were served inside both objectives.
    pub attainment_sent: f64,
    /// Share of the served ones.
    pub attainment_served: f64,
    /// Requests per second served inside both objectives.
    pub goodput_rps: f64,
}

/// Percentiles by nearest rank; `None` without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

impl Percentiles {
    /// Of these values, in any order.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let rank = |percent: usize| {
            let nearest = (values.len() * percent).div_ceil(100);
            values.get(nearest.saturating_sub(1)).copied()
        };
        Self { p50: rank(50), p95: rank(95), p99: rank(99) }
    }
}

impl LoadReport {
    /// Sums up the records of a run of `plan`.
    pub(super) fn new(plan: &LoadPlan, records: Vec<Record>, elapsed_s: f64) -> Self {
        let window_s = plan.requests.last().map_or(0.0, |last| last.at.as_secs_f64());
        let by_class = |(index, class): (usize, &Class)| {
            let of_class = records.iter().filter(move |record| record.class == index);
            ClassReport::of(&class.name, of_class, window_s)
        };
        Self {
            window_s,
            elapsed_s,
            without_outcome: plan.requests.len().saturating_sub(records.len()),
            lag_p99_ms: Percentiles::of(records.iter().map(|record| record.lag_ms))
                .p99
                .unwrap_or(0.0),
            classes: plan.classes.iter().enumerate().map(by_class).collect(),
            total: ClassReport::of("all", records.iter(), window_s),
            records,
        }
    }
}

impl ClassReport {
    /// Sums up these records of a run whose arrivals took `window_s` seconds.
    pub fn of<'a>(
        name: &str,
        records: impl Iterator<Item = &'a Record> + Clone,
        window_s: f64,
    ) -> Self {
        let (mut ok, mut shed_reasons, mut failures) = (0, BTreeMap::new(), BTreeMap::new());
        for record in records.clone() {
            match &record.outcome {
                Outcome::Ok => ok += 1,
                Outcome::Refused { reason } => {
                    *shed_reasons.entry(reason.clone()).or_default() += 1
                }
                Outcome::Failed(failure) => *failures.entry(failure.name()).or_default() += 1,
            }
        }
        let (shed, failed) = (shed_reasons.values().sum(), failures.values().sum());
        let sent: usize = ok + shed + failed;
        let attained = records.clone().filter(|record| record.attained).count();
        let served = records.filter(|record| record.outcome == Outcome::Ok);
        Self {
            name: name.to_owned(),
            sent,
            ok,
            shed,
            failed,
            shed_reasons,
            failures,
            ttft_ms: Percentiles::of(served.clone().filter_map(|record| record.ttft_ms)),
            tpot_ms: Percentiles::of(served.filter_map(|record| record.tpot_ms)),
            attainment_sent: share(attained, sent),
            attainment_served: share(attained, ok),
            goodput_rps: if window_s > 0.0 { attained as f64 / window_s } else { 0.0 },
        }
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failure;

    fn record(outcome: Outcome, attained: bool) -> Record {
        Record {
            index: 0,
            class: 0,
            at_s: 0.0,
            lag_ms: 0.0,
            outcome,
            ttft_ms: Some(100.0),
            tpot_ms: Some(20.0),
            e2e_ms: 1.0,
            input_tokens: 1,
            output_tokens: 2,
            attained,
        }
    }

    #[test]
    fn shed_and_failed_requests_count_against_attainment_over_all_sent() {
        let records = [
            record(Outcome::Ok, true),
            record(Outcome::Ok, false),
            record(Outcome::Refused { reason: "rejected-saturated".to_owned() }, false),
            record(Outcome::Failed(Failure::Truncated), false),
        ];
        let report = ClassReport::of("x", records.iter(), 2.0);
        assert_eq!((report.sent, report.ok, report.shed, report.failed), (4, 2, 1, 1));
        assert_eq!((report.attainment_sent, report.attainment_served), (0.25, 0.5));
        assert_eq!(report.goodput_rps, 0.5);
        assert_eq!(report.shed_reasons["rejected-saturated"], 1);
        assert_eq!(report.failures["truncated"], 1);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let found = Percentiles::of((1..=100).map(f64::from));
        assert_eq!((found.p50, found.p95, found.p99), (Some(50.0), Some(95.0), Some(99.0)));
        assert_eq!(Percentiles::of([7.0].into_iter()).p99, Some(7.0));
        assert_eq!(Percentiles::of(std::iter::empty()).p50, None);
    }
}
