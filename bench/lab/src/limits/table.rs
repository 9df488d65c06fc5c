//! Lines for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{highest::Highest, lines::Line};
use crate::study::told;

/// The lines as a table.
pub(super) fn of(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "policy",
        "load",
        "attained %",
        "limit %",
        "of limit %",
        "of oracle %",
        "TTFT mean ms",
        "limit",
        "x",
        "E2E mean ms",
        "limit",
        "x",
        "hit %",
        "limit %",
    ]);
    lines.iter().for_each(|line| {
        table.add_row(cells(line));
    });
    table.column_iter_mut().skip(1).for_each(|one| one.set_cell_alignment(CellAlignment::Right));
    table
}

/// Highest loads as a table.
pub(super) fn of_highest(rows: &[Highest]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["policy", "highest load", "of limit %", "of oracle %"]);
    for row in rows {
        let percent = |share: Option<f64>| {
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
        };
        let load = told(row.max_load, row.bounded);
        table.add_row([row.policy.clone(), load, percent(row.of_limit), percent(row.of_oracle)]);
    }
    table.column_iter_mut().skip(1).for_each(|one| one.set_cell_alignment(CellAlignment::Right));
    table
}

fn cells(line: &Line) -> [String; 14] {
    let number = |value: Option<f64>, digits| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    [
        line.policy.clone(),
        format!("{:.2}", line.load),
        percent(line.attainment),
        percent(line.attainment_limit),
        percent(line.of_limit),
        line.of_oracle.map_or_else(|| "-".to_owned(), percent),
        number(line.ttft_ms_mean, 0),
        number(line.ttft_ms_limit, 0),
        number(line.ttft_over_limit(), 2),
        number(line.e2e_ms_mean, 0),
        number(line.e2e_ms_limit, 0),
        number(line.e2e_over_limit(), 2),
        percent(line.prefix_hit),
        percent(line.prefix_hit_limit),
    ]
}
