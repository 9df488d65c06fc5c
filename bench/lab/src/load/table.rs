//! The report for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{ClassReport, LoadReport, Percentiles};

const COLUMNS: [&str; 10] = [
    "class",
    "sent",
    "ok",
    "shed (429)",
    "failed",
    "TTFT p50/p95/p99 ms",
    "TPOT p50/p95/p99 ms",
    "attained of sent",
    "of served",
    "goodput rps",
];

impl LoadReport {
    /// The table and the lines under it.
    pub fn for_people(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(COLUMNS);
        for class in &self.classes {
            table.add_row(row(class));
        }
        if self.classes.len() > 1 {
            table.add_row(row(&self.total));
        }
        table
            .column_iter_mut()
            .skip(1)
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let mut text = format!("{table}\n");
        for class in &self.classes {
            for (what, counts) in [("shed", &class.shed_reasons), ("failed", &class.failures)] {
                let counts: Vec<String> =
                    counts.iter().map(|(name, n)| format!("{name}: {n}")).collect();
                if !counts.is_empty() {
                    text += &format!("{} {what}: {}\n", class.name, counts.join(", "));
                }
            }
        }
        text += &format!(
            "{} requests in {:.1} s, all over after {:.1} s; sent late by {:.1} ms at p99\n",
            self.total.sent, self.window_s, self.elapsed_s, self.lag_p99_ms
        );
        text
    }
}

fn row(class: &ClassReport) -> [String; 10] {
    [
        class.name.clone(),
        class.sent.to_string(),
        class.ok.to_string(),
        class.shed.to_string(),
        class.failed.to_string(),
        percentiles(&class.ttft_ms, 0),
        percentiles(&class.tpot_ms, 1),
        format!("{:.2} %", class.attainment_sent * 1e2),
        format!("{:.2} %", class.attainment_served * 1e2),
        format!("{:.2}", class.goodput_rps),
    ]
}

fn percentiles(values: &Percentiles, decimals: usize) -> String {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.decimals$}"));
    [text(values.p50), text(values.p95), text(values.p99)].join(" / ")
}
