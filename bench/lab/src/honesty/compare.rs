//! The two runs beside each other, and the verdict.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::real::{BUSY_LAG_MS, Figures, Slice};

/// How far a simulated latency may be from the real one, as a share of it.
const LATENCY_WITHIN: f64 = 0.10;
/// How far a simulated attainment may be from the real one, as a difference of shares.
const ATTAINMENT_WITHIN: f64 = 0.02;

/// Both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// Where the requests are from.
    pub slice: String,
    /// Requests compared, on each side.
    pub requests: usize,
    /// Simulations.
    pub simulations: usize,
    /// What was added to every simulated TTFT, in milliseconds.
    pub network_ms: f64,
    /// How late the load sent at the 99th percentile, in milliseconds: large means that the machine was too busy to tell.
    pub lag_p99_ms: f64,
    /// The figures.
    pub lines: Vec<Line>,
    /// Whether every one of them holds.
    pub holds: bool,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    /// What it is.
    pub figure: String,
    /// In milliseconds, or a share.
    pub real: f64,
    /// The median over the simulations.
    pub simulated: f64,
    /// The lowest and the highest of them.
    pub range: [f64; 2],
    /// A share of the real latency, or a difference of shares.
    pub deviation: f64,
    /// How large that may be; `None` where the figure is only shown.
    pub within: Option<f64>,
}

impl Line {
    fn latency(figure: &str, real: Option<f64>, simulated: Vec<Option<f64>>) -> Option<Self> {
        let simulated: Option<Vec<f64>> = simulated.into_iter().collect();
        let mut line = Self::new(figure, real?, simulated?)?;
        line.deviation = line.simulated / line.real - 1.0;
        line.within = Some(LATENCY_WITHIN);
        Some(line)
    }

    fn share(figure: &str, real: f64, simulated: Vec<f64>) -> Option<Self> {
        let mut line = Self::new(figure, real, simulated)?;
        line.deviation = line.simulated - line.real;
        Some(line)
    }

    fn new(figure: &str, real: f64, mut simulated: Vec<f64>) -> Option<Self> {
        simulated.sort_by(f64::total_cmp);
        Some(Self {
            figure: figure.to_owned(),
            real,
            simulated: *simulated.get(simulated.len() / 2)?,
            range: [*simulated.first()?, *simulated.last()?],
            deviation: 0.0,
            within: None,
        })
    }

    fn holds(&self) -> bool {
        self.within.is_none_or(|within| self.deviation.abs() <= within)
    }

    /// Whether it is a latency.
    fn is_latency(&self) -> bool {
        self.figure.ends_with(" ms")
    }
}

impl Comparison {
    pub(super) fn new(
        slice: &Slice,
        real: &Figures,
        simulated: &[Figures],
        (network_ms, lag_p99_ms): (f64, f64),
    ) -> Self {
        let latency = |name: &str, of: fn(&Figures) -> Option<f64>| {
            Line::latency(name, of(real), simulated.iter().map(of).collect())
        };
        let mut lines: Vec<Line> = [
            latency("TTFT p50 ms", |figures| figures.ttft.p50),
            latency("TTFT p95 ms", |figures| figures.ttft.p95),
            latency("TPOT p50 ms", |figures| figures.tpot.p50),
            latency("TPOT p95 ms", |figures| figures.tpot.p95),
        ]
        .into_iter()
        .flatten()
        .collect();
        let attained = simulated.iter().map(|figures| figures.attained).collect();
        let all = Line::share("attained", real.attained, attained);
        lines.extend(all.map(|line| Line { within: Some(ATTAINMENT_WITHIN), ..line }));
        for (place, class) in slice.classes.iter().enumerate().filter(|_| slice.classes.len() > 1) {
            let of = |figures: &Figures| figures.attained_by_class.get(place).copied().flatten();
            let each: Option<Vec<f64>> = simulated.iter().map(of).collect();
            let line = of(real).zip(each);
            lines.extend(line.and_then(|(real, each)| {
                Line::share(&format!("attained, {}", class.name), real, each)
            }));
        }
        let requests = slice.compared().len();
        let share = |figures: &Figures| figures.not_served as f64 / requests.max(1) as f64;
        let not_served = simulated.iter().map(share).collect();
        lines.extend(Line::share("not served", share(real), not_served));
        Self {
            slice: slice.name.clone(),
            requests,
            simulations: simulated.len(),
            network_ms,
            lag_p99_ms,
            holds: lines.iter().all(Line::holds),
            lines,
        }
    }

    pub(super) fn for_people(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header(["", "real", "simulated", "its range", "deviation", "within", ""]);
        for line in &self.lines {
            table.add_row(cells(line));
        }
        let numbers =
            table.column_iter_mut().enumerate().filter(|(column, _)| (1..6).contains(column));
        numbers.for_each(|(_, column)| column.set_cell_alignment(CellAlignment::Right));
        let mut text = format!("{table}\n");
        let _ = writeln!(
            text,
            "{} requests compared, {} simulations. {:.1} ms of network and processor were measured on lone requests and added to \
             every simulated TTFT. The load sent its requests up to {:.1} ms late (99 %).",
            self.requests, self.simulations, self.network_ms, self.lag_p99_ms,
        );
        text.push_str(self.verdict());
        text
    }

    fn verdict(&self) -> &'static str {
        match (self.holds, self.lag_p99_ms > BUSY_LAG_MS) {
            (true, _) => "The simulation holds.",
            (false, false) => "The simulation does not hold.",
            (false, true) => {
                "The simulation does not hold, but this machine was too busy to tell: the load itself was late. Repeat it on an idle one."
            }
        }
    }
}

fn cells(line: &Line) -> [String; 7] {
    let value = |value: f64| match line.is_latency() {
        true => format!("{value:.1}"),
        false => format!("{:.1} %", value * 100.0),
    };
    let unit = if line.is_latency() { "%" } else { "points" };
    let [low, high] = line.range;
    [
        line.figure.clone(),
        value(line.real),
        value(line.simulated),
        format!("{} to {}", value(low), value(high)),
        format!("{:+.1} {unit}", line.deviation * 100.0),
        line.within.map_or_else(String::new, |within| format!("{:.0} {unit}", within * 100.0)),
        match line.within {
            Some(_) if line.holds() => "holds".to_owned(),
            Some(_) => "does not".to_owned(),
            None => String::new(),
        },
    ]
}
