//! The figures, for people and as JSON, each beside what it should be.

use std::fmt::Write as _;

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;

use super::{
    fresh::Fresh,
    process::Process,
    round::Rounds,
    rows::RowCost,
    swap::{LIMIT_MS, RATE_RPS, Stretch, Swaps},
};

/// A round takes no more than this of one core, in seconds.
const ROUND_S: f64 = 1.0;
/// The trainer holds no more than this, in MB.
const PEAK_MB: f64 = 300.0;
/// A sample takes no longer than an interval and this, in seconds.
const FRESH_S: f64 = 2.0;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub rows: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluators: Option<Vec<RowCost>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swaps: Option<Swaps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh: Option<Fresh>,
}

impl Report {
    /// Nothing was measured yet.
    pub(super) const fn new(rows: u32) -> Self {
        Self { rows, rounds: None, process: None, evaluators: None, swaps: None, fresh: None }
    }

    /// The tables.
    pub(super) fn for_people(&self) -> String {
        let mut lines: Vec<[String; 4]> = Vec::new();
        self.training(&mut lines);
        self.freshness(&mut lines);
        let mut text = String::new();
        if !lines.is_empty() {
            let _ = writeln!(text, "Training on {} samples", self.rows);
            let _ = writeln!(text, "{}", table(["", "measured", "target", ""], lines));
        }
        if let Some(costs) = &self.evaluators {
            let _ = writeln!(text, "A row, in nanoseconds on a processor");
            let line = |cost: &RowCost| {
                let ns = |ns: f64| format!("{ns:.0}");
                let ratio = format!("{:.1}", cost.ratio());
                [cost.rows.to_string(), ns(cost.forest_ns), ns(cost.onnx_ns), ratio]
            };
            let lines = costs.iter().map(line).collect();
            let head = ["rows of a call", "forest", "onnx runtime", "ratio"];
            let _ = writeln!(text, "{}", table(head, lines));
        }
        if let Some(swaps) = &self.swaps {
            let _ = writeln!(text, "Decisions at {RATE_RPS} per second");
            let _ = writeln!(
                text,
                "{}",
                table(["", "without swaps", "with swaps", ""], swapped(swaps))
            );
        }
        text
    }

    fn training(&self, lines: &mut Vec<[String; 4]>) {
        if let Some(rounds) = &self.rounds {
            let took = rounds.median;
            let name = "round, median, s of one core (wall)";
            let measured = format!("{:.2} ({:.2})", took.cpu_s, took.wall_s);
            lines.push(line(name, measured, ROUND_S, took.cpu_s));
        }
        if let Some(process) = &self.process {
            let took = process.took;
            let name = "weir train --once, s of one core (wall)";
            let measured = format!("{:.2} ({:.2})", took.cpu_s, took.wall_s);
            lines.push([name.to_owned(), measured, String::new(), String::new()]);
            let measured = format!("{:.0}", process.peak_mb);
            lines.push(line("its peak memory, MB", measured, PEAK_MB, process.peak_mb));
        }
    }

    fn freshness(&self, lines: &mut Vec<[String; 4]>) {
        let Some(fresh) = &self.fresh else { return };
        let most_of = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
        let longest = most_of(&fresh.longest_s);
        let most = fresh.interval_s + FRESH_S;
        lines.push(line(
            "sample to serving model, longest, s",
            format!("{longest:.2}"),
            most,
            longest,
        ));
        let after: Vec<String> = fresh.served_after_s.iter().map(|s| format!("{s:.2}")).collect();
        let name = "start of a round to its model's service, s";
        lines.push([name.to_owned(), after.join(" "), String::new(), String::new()]);
        let held = match fresh.held_back_s.len() {
            0 => "none".to_owned(),
            some => format!("{some}: {:.2}", most_of(&fresh.held_back_s)),
        };
        let name = "models after rounds that were held back, longest, s";
        lines.push([name.to_owned(), held, String::new(), String::new()]);
    }
}

fn line(name: &str, measured: String, most: f64, value: f64) -> [String; 4] {
    let verdict = if value <= most { "met" } else { "missed" };
    [name.to_owned(), measured, format!("{most:.0}"), verdict.to_owned()]
}

fn swapped(swaps: &Swaps) -> Vec<[String; 4]> {
    let both = |name: &str, of: &dyn Fn(&Stretch) -> String, sound: Option<bool>| {
        let verdict = sound.map_or("", |sound| if sound { "met" } else { "missed" });
        [name.to_owned(), of(&swaps.without), of(&swaps.with), verdict.to_owned()]
    };
    let with = &swaps.with;
    let lost = with.lost == 0 && with.failures == 0;
    vec![
        both("decisions", &|of| of.decisions.to_string(), None),
        both("bundles that came into service", &|of| of.swaps.to_string(), None),
        both("lost", &|of| of.lost.to_string(), Some(lost)),
        both("failed predictions", &|of| of.failures.to_string(), None),
        both("longest call on a processor, ms", &|of| format!("{:.2}", of.longest_cpu_ms), None),
        both("longest call by the wall, ms", &|of| format!("{:.2}", of.longest_wall_ms), None),
        both(
            &format!("calls above {LIMIT_MS} ms on a processor"),
            &|of| of.over_cpu.to_string(),
            Some(with.over_cpu == 0),
        ),
        both(
            &format!("calls above {LIMIT_MS} ms by the wall"),
            &|of| of.over_wall.to_string(),
            None,
        ),
        both(
            "us on a processor per decision, with all its events",
            &|of| format!("{:.1}", 1e6 * of.cpu_s / of.decisions.max(1) as f64),
            None,
        ),
    ]
}

fn table(head: [&str; 4], lines: Vec<[String; 4]>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(head);
    for line in lines {
        table.add_row(line);
    }
    table
}
