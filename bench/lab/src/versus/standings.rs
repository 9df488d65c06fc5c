//! What everybody came to.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::way::Way;
use crate::{
    load::Class,
    real::{BUSY_LAG_MS, Figures, Gave, Got, Slice},
};

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
    #[serde(skip)]
    judged_by: Vec<Class>,
}

/// One of them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Standing {
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
    #[serde(skip)]
    got: Vec<Got>,
    /// Seconds in which those that count came.
    #[serde(skip)]
    seconds: f64,
}

impl Standings {
    /// Nobody has run yet.
    pub(super) fn new(slices: &[Slice], ways: &[Way]) -> Self {
        let first = slices.first();
        let judged_by = first.map(|slice| slice.classes.clone()).unwrap_or_default();
        let row = |way: &Way| Standing { policy: way.name(), ..Standing::default() };
        Self {
            slice: first.map(|slice| slice.name.clone()).unwrap_or_default(),
            classes: judged_by.iter().map(|class| class.name.clone()).collect(),
            rounds: slices.len(),
            rows: ways.iter().map(row).collect(),
            judged_by,
        }
    }

    /// Adds a run of who sits there, and says what it came to.
    pub(super) fn add(&mut self, seat: usize, slice: &Slice, gave: &Gave) -> String {
        let Some(row) = self.rows.get_mut(seat) else { return String::new() };
        row.add(&self.judged_by, slice, gave)
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
    fn add(&mut self, classes: &[Class], slice: &Slice, gave: &Gave) -> String {
        let compared = slice.compared();
        let came = slice.requests.get(compared.clone()).unwrap_or_default();
        let ends = came.first().zip(came.last());
        let got = gave.got.get(compared).unwrap_or_default();
        let round = Figures::over(classes, got).attained;
        let [low, high] = if self.got.is_empty() { [round; 2] } else { self.attained_range };
        self.attained_range = [low.min(round), high.max(round)];
        self.got.extend_from_slice(got);
        self.seconds += ends.map_or(0.0, |(first, last)| (last.at - first.at).as_secs_f64());
        self.lag_p99_ms = self.lag_p99_ms.max(gave.lag_p99_ms);
        let Figures { ttft, tpot, attained, attained_by_class, not_served } =
            Figures::over(classes, &self.got);
        self.requests = self.got.len();
        (self.attained, self.attained_by_class, self.not_served) =
            (attained, attained_by_class, not_served);
        (self.ttft_ms_p50, self.ttft_ms_p95) = (ttft.p50, ttft.p95);
        (self.tpot_ms_p50, self.tpot_ms_p95) = (tpot.p50, tpot.p95);
        self.goodput_rps = attained * self.requests as f64 / self.seconds.max(1e-9);
        format!("{}: {} in time", self.policy, percent(Some(round)))
    }

    fn cells(&self, ranged: bool, by_class: bool) -> Vec<String> {
        let [low, high] = self.attained_range.map(|share| percent(Some(share)));
        let pair = |p50: Option<f64>, p95: Option<f64>, digits: usize| {
            let one =
                |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.digits$}"));
            format!("{} / {}", one(p50), one(p95))
        };
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

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}
