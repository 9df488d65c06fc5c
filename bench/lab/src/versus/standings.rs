//! What everybody came to.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::way::Way;
use crate::{
    demo::{pair, percent},
    load::Class,
    real::{BUSY_LAG_MS, Figures, Gave, Got, Slice},
};

/// What counts of a run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    got: Vec<Got>,
    /// Seconds in which these came.
    seconds: f64,
    lag_p99_ms: f64,
}

impl Ran {
    pub(super) fn of(slice: &Slice, gave: Gave) -> Self {
        let compared = slice.compared();
        let came = slice.requests.get(compared.clone()).unwrap_or_default();
        let ends = came.first().zip(came.last());
        Self {
            got: gave.got.get(compared).unwrap_or_default().to_vec(),
            seconds: ends.map_or(0.0, |(first, last)| (last.at - first.at).as_secs_f64()),
            lag_p99_ms: gave.lag_p99_ms,
        }
    }

    /// Share inside both objectives.
    pub(super) fn attained(&self, classes: &[Class]) -> f64 {
        Figures::over(classes, &self.got).attained
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standings {
    /// Where the requests are from.
    slice: String,
    /// Names of the classes, in the order of `attained_by_class`.
    classes: Vec<String>,
    rounds: usize,
    /// In the order in which they were named.
    rows: Vec<Standing>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
struct Standing {
    policy: &'static str,
    /// Requests that count.
    requests: usize,
    /// Share of them inside both objectives.
    attained: f64,
    /// The lowest and the highest of a round.
    attained_range: [f64; 2],
    /// The same share of each class; `None` without a request of it.
    attained_by_class: Vec<Option<f64>>,
    /// Requests inside both objectives per second in which they came.
    goodput_rps: f64,
    ttft_ms_p50: Option<f64>,
    ttft_ms_p95: Option<f64>,
    tpot_ms_p50: Option<f64>,
    tpot_ms_p95: Option<f64>,
    /// Refused, failed, or given up.
    not_served: usize,
    /// How late the load sent at the 99th percentile, in its worst round.
    lag_p99_ms: f64,
}

impl Standings {
    /// Of the runs of each, by round.
    pub(super) fn of(slices: &[Slice], ways: &[Way], ran: &[Vec<Ran>]) -> Self {
        let first = slices.first();
        let classes = first.map(|slice| slice.classes.as_slice()).unwrap_or_default();
        let row = |(way, rounds): (&Way, &Vec<Ran>)| Standing::of(way.name(), classes, rounds);
        Self {
            slice: first.map(|slice| slice.name.clone()).unwrap_or_default(),
            classes: classes.iter().map(|class| class.name.clone()).collect(),
            rounds: slices.len(),
            rows: ways.iter().zip(ran).map(row).collect(),
        }
    }

    pub(super) fn for_people(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let by_class: &[String] = if self.classes.len() > 1 { &self.classes } else { &[] };
        let head = ["policy", "in time"].map(str::to_owned).into_iter();
        let head = head.chain((self.rounds > 1).then(|| "of a round".to_owned()));
        let head = head.chain(by_class.iter().cloned());
        let rest = ["rps in time", "TTFT p50 / p95 ms", "TPOT p50 / p95 ms", "not served"];
        table.set_header(head.chain(rest.map(str::to_owned)));
        for row in &self.rows {
            table.add_row(row.cells(self.rounds > 1, !by_class.is_empty()));
        }
        table
            .column_iter_mut()
            .skip(1)
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let requests = self.rows.first().map_or(0, |row| row.requests);
        let late_ms = self.rows.iter().map(|row| row.lag_p99_ms).fold(0.0, f64::max);
        let busy = if late_ms > BUSY_LAG_MS {
            " This machine was too busy to tell: repeat it on an idle one."
        } else {
            ""
        };
        format!(
            "{table}\n{requests} requests of each count, all in {} round{}. The load sent its requests up to {late_ms:.1} ms late (99 %).{busy}",
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
        )
    }
}

impl Standing {
    fn of(policy: &'static str, classes: &[Class], rounds: &[Ran]) -> Self {
        let got: Vec<Got> = rounds.iter().flat_map(|round| round.got.iter().copied()).collect();
        let seconds: f64 = rounds.iter().map(|round| round.seconds).sum();
        let Figures { ttft, tpot, attained, attained_by_class, not_served } =
            Figures::over(classes, &got);
        let each = || rounds.iter().map(|round| round.attained(classes));
        Self {
            policy,
            requests: got.len(),
            attained,
            attained_range: [each().fold(1.0, f64::min), each().fold(0.0, f64::max)],
            attained_by_class,
            goodput_rps: attained * got.len() as f64 / seconds.max(1e-9),
            ttft_ms_p50: ttft.p50,
            ttft_ms_p95: ttft.p95,
            tpot_ms_p50: tpot.p50,
            tpot_ms_p95: tpot.p95,
            not_served,
            lag_p99_ms: rounds.iter().map(|round| round.lag_p99_ms).fold(0.0, f64::max),
        }
    }

    fn cells(&self, ranged: bool, by_class: bool) -> Vec<String> {
        let [low, high] = self.attained_range.map(|share| percent(Some(share)));
        let head = [self.policy.to_owned(), percent(Some(self.attained))].into_iter();
        let head = head.chain(ranged.then(|| format!("{low} to {high}")));
        let classes = self.attained_by_class.iter().filter(|_| by_class);
        let head = head.chain(classes.map(|share| percent(*share)));
        let rest = [
            format!("{:.2}", self.goodput_rps),
            pair(self.ttft_ms_p50, self.ttft_ms_p95, 0),
            pair(self.tpot_ms_p50, self.tpot_ms_p95, 1),
            self.not_served.to_string(),
        ];
        head.chain(rest).collect()
    }
}
