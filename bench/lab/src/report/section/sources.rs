//! The run files that a report was made of, so that every figure can be repeated.

use super::{Part, Section};
use crate::report::{html::Table, input::Runs, words::clock};

pub(super) fn section(runs: &Runs) -> Option<Section> {
    if runs.files.is_empty() {
        return None;
    }
    let mut table = Table::new(["file", "rows", "took", "command"]);
    for file in &runs.files {
        let seconds = file.seconds.map_or_else(|| "-".to_owned(), clock);
        let command =
            file.command.as_ref().map_or_else(|| "-".to_owned(), |command| format!("`{command}`"));
        table.row([file.name.clone(), file.rows.to_string(), seconds, command]);
    }
    let left_out = match runs.left_out.as_slice() {
        [] => String::new(),
        names => format!(" Left out, for they are no run files: {}.", names.join(", ")),
    };
    Some(Section {
        id: "sources",
        title: "Run files",
        lead: format!(
            "This page was made of {} run files with {} rows.{left_out}",
            runs.files.len(),
            runs.rows.len()
        ),
        how: "The simulation is deterministic: the same command gives the same rows on any machine.",
        parts: vec![Part { table, open: true, ..Part::default() }],
    })
}
