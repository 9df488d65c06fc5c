//! What came out: figures, a table for people, and pictures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{
    cost::{Bill, quantile},
    drive::{Course, Driven},
};
use crate::report::{Curves, write_curves};

/// One run. Times are in microseconds; those without `wall` in their name are the thread's own on the processor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Decided {
    pub(super) pods: usize,
    pub(super) qps: f64,
    pub(super) patterns: usize,
    pub(super) depth: usize,
    pub(super) evaluator: &'static str,
    pub(super) decisions: u64,
    /// Decisions that one core would make in a second, with everything that comes with them.
    pub(super) decisions_per_s: f64,
    /// All calls, divided by the requests given out.
    pub(super) cpu_us_per_decision: f64,
    /// Share of one core at `qps`.
    pub(super) cpu_share: f64,
    /// Of the calls that gave a request to a pod.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) p50_wall_us: f64,
    pub(super) p99_wall_us: f64,
    pub(super) p999_wall_us: f64,
    pub(super) rows_per_decision: f64,
    /// In the calls that gave a request to a pod.
    pub(super) allocations_per_decision: f64,
    /// In all calls.
    pub(super) allocations_per_request: f64,
    pub(super) events_per_decision: f64,
    /// Requests refused, and those that wait at the end, without the backlog.
    pub(super) refused: u64,
    pub(super) waiting: usize,
    /// Mean requests on a pod at the end.
    pub(super) residents: f64,
    /// Calls and their time, by kind of event.
    pub(super) kinds: BTreeMap<&'static str, (u64, f64)>,
}

/// The board alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Turned {
    pub(super) depth: u64,
    /// One request in and the head out.
    pub(super) head_us: f64,
    /// One request in and anyone out.
    pub(super) turnover_us: f64,
    /// The longest that one took to go in until so many waited.
    pub(super) longest_us: f64,
}

impl Decided {
    pub(super) fn of(course: &Course, evaluator: &'static str, driven: Driven) -> Self {
        let Bill { events, dispatched, refused, cpu_us, allocations, deciding, by_kind } =
            driven.bill;
        let count = dispatched.max(1) as f64;
        let mut cpu: Vec<f64> = deciding.iter().map(|cost| cost.cpu_us).collect();
        let mut wall: Vec<f64> = deciding.iter().map(|cost| cost.wall_us).collect();
        let in_them: u64 = deciding.iter().map(|cost| cost.allocations).sum();
        Self {
            pods: course.pods,
            qps: course.qps,
            patterns: course.patterns,
            depth: course.depth,
            evaluator,
            decisions: dispatched,
            decisions_per_s: 1e6 * count / cpu_us,
            cpu_us_per_decision: cpu_us / count,
            cpu_share: cpu_us / 1e6 / driven.seconds.max(1e-9),
            p50_us: quantile(&mut cpu, 0.5),
            p99_us: quantile(&mut cpu, 0.99),
            p999_us: quantile(&mut cpu, 0.999),
            p50_wall_us: quantile(&mut wall, 0.5),
            p99_wall_us: quantile(&mut wall, 0.99),
            p999_wall_us: quantile(&mut wall, 0.999),
            rows_per_decision: driven.rows as f64 / count,
            allocations_per_decision: in_them as f64 / count,
            allocations_per_request: allocations as f64 / count,
            events_per_decision: events as f64 / count,
            refused,
            waiting: driven.waiting,
            residents: driven.residents,
            kinds: by_kind,
        }
    }

    /// The time by kind of event.
    pub(super) fn kinds(&self) -> String {
        let Self { pods, qps, evaluator, depth, .. } = self;
        let mut text = format!("{pods} pods, {qps} requests/s, {evaluator}, {depth} waiting:");
        for (kind, (count, cpu_us)) in &self.kinds {
            let (each, of_all) = (cpu_us / *count as f64, cpu_us / self.decisions.max(1) as f64);
            let _ = write!(
                text,
                "\n  {kind}: {count} calls, {each:.2} us each, {of_all:.2} us per decision"
            );
        }
        text
    }
}

fn table_of(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(header);
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// The runs as a table.
pub(super) fn decisions(runs: &[Decided]) -> Table {
    let mut table = table_of(&[
        "pods",
        "requests/s",
        "evaluator",
        "waiting",
        "decisions/s",
        "us each",
        "core",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "p99 wall",
        "rows",
        "allocs",
        "allocs all",
        "held",
    ]);
    for run in runs {
        table.add_row([
            run.pods.to_string(),
            run.qps.to_string(),
            run.evaluator.to_owned(),
            run.depth.to_string(),
            format!("{:.0}", run.decisions_per_s),
            format!("{:.1}", run.cpu_us_per_decision),
            format!("{:.0} %", run.cpu_share * 100.0),
            format!("{:.1}", run.p50_us),
            format!("{:.1}", run.p99_us),
            format!("{:.1}", run.p999_us),
            format!("{:.1}", run.p99_wall_us),
            format!("{:.1}", run.rows_per_decision),
            format!("{:.2}", run.allocations_per_decision),
            format!("{:.2}", run.allocations_per_request),
            format!("{}+{}", run.waiting, run.refused),
        ]);
    }
    table
}

/// The board alone as a table.
pub(super) fn queue(turned: &[Turned]) -> Table {
    let mut table = table_of(&[
        "waiting",
        "us for one in and the head out",
        "us for one in and anyone out",
        "longest for one in, us",
    ]);
    for one in turned {
        let [head, anyone] = [one.head_us, one.turnover_us].map(|us| format!("{us:.2}"));
        let longest = format!("{:.0}", one.longest_us);
        table.add_row([one.depth.to_string(), head, anyone, longest]);
    }
    table
}

/// A quantity of a run.
type Of = fn(&Decided) -> f64;

/// Cost against pods, depth and rate: one file for each that has two values or more.
pub(super) fn plot(runs: &[Decided], turned: &[Turned], folder: &Path) -> Result<()> {
    let axes: [(&str, &str, Of); 3] = [
        ("pods", "pods", |run| run.pods as f64),
        ("depth", "requests waiting", |run| run.depth as f64),
        ("qps", "requests per second", |run| run.qps),
    ];
    for (name, words, of) in axes {
        let lines = lines(runs, of, name);
        if lines.iter().any(|(_, points)| points.len() > 1) {
            write_curves(
                folder,
                Curves {
                    name: format!("decide-{name}"),
                    title: "CPU time of a decision, with all events that come with it".to_owned(),
                    x: words.to_owned(),
                    y: "CPU per decision, us".to_owned(),
                    is_log: true,
                    lines,
                },
            )?;
        }
    }
    if turned.len() > 1 {
        let line = |who: &str, of: fn(&Turned) -> f64| {
            let points = turned.iter().map(|one| (one.depth as f64, of(one)));
            (format!("{who} leaves"), points.collect())
        };
        let lines = vec![line("head", |one| one.head_us), line("anyone", |one| one.turnover_us)];
        write_curves(
            folder,
            Curves {
                name: "decide-queue".to_owned(),
                title: "One request into the board and one out of it".to_owned(),
                x: "requests waiting".to_owned(),
                y: "CPU, us".to_owned(),
                is_log: false,
                lines,
            },
        )?;
    }
    Ok(())
}

/// A line for each evaluator and each value of the quantities that are not across; a rate that all have is in no name.
fn lines(runs: &[Decided], of: Of, across: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let rates: BTreeSet<String> = runs.iter().map(|run| run.qps.to_string()).collect();
    for run in runs {
        let mut name = run.evaluator.to_owned();
        let rest = [
            ("pods", run.pods.to_string(), "pods"),
            ("depth", run.depth.to_string(), "waiting"),
            ("qps", run.qps.to_string(), "requests/s"),
        ];
        let told = |what: &str| what != across && (what != "qps" || rates.len() > 1);
        for (_, value, words) in rest.into_iter().filter(|(what, ..)| told(what)) {
            let _ = write!(name, ", {value} {words}");
        }
        lines.entry(name).or_default().push((of(run), run.cpu_us_per_decision));
    }
    lines.into_iter().collect()
}
