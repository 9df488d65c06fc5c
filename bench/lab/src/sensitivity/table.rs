//! The lines for people.

use comfy_table::{CellAlignment, Table, presets};

use super::line::{AtLoad, Line};
use crate::study::told;

/// The lines as a table; `at` is the share that highest loads keep.
pub(super) fn of(lines: &[Line], at: f64) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let mut header = vec!["what is changed".to_owned()];
    let loads = lines.first().map(|line| line.loads.as_slice()).unwrap_or_default();
    header.extend(loads.iter().map(|at| format!("attained at {}: weir, best push", at.load)));
    let share = format!("{:.0} %", at * 100.0);
    header.extend([format!("load at {share}: weir"), "best push".to_owned(), "ratio".to_owned()]);
    table.set_header(header);
    for line in lines {
        table.add_row(cells(line));
    }
    table.column_iter_mut().skip(1).for_each(|one| one.set_cell_alignment(CellAlignment::Right));
    table
}

fn cells(line: &Line) -> Vec<String> {
    let attained = |at: &AtLoad| {
        format!("{:.1}, {:.1} ({})", at.attainment * 100.0, at.rival_attainment * 100.0, at.rival)
    };
    let mut cells = vec![line.change.clone()];
    cells.extend(line.loads.iter().map(attained));
    cells.push(highest(line.max_load, line.bounded));
    cells.push(format!("{} ({})", highest(line.rival_max_load, line.rival_bounded), line.rival));
    let at_least = if line.bounded { "" } else { "at least " };
    let ratio = |ratio: f64| format!("{at_least}{ratio:.2}x");
    cells.push(line.ratio.map_or_else(|| "-".to_owned(), ratio));
    cells
}

/// A highest load. The search ends at the same load of every changed pool, which is another one of the unchanged pool.
fn highest(load: f64, bounded: bool) -> String {
    if bounded { told(load, bounded) } else { format!("at least {load:.2}") }
}
