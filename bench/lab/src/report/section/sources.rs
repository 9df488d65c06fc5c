//! The run files that a report was made of, so that every figure can be repeated.

use std::collections::BTreeMap;

use super::{Part, Section, limits};
use crate::report::{
    group,
    html::Table,
    input::Runs,
    scene,
    words::{clock, counted},
};

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
    let superseded = superseded(runs);
    Some(Section {
        id: "sources",
        title: "Run files",
        lead: format!(
            "This page was made of {} with {}.{left_out}{superseded}",
            counted(runs.files.len(), "run file", "run files"),
            counted(runs.rows.len(), "row", "rows")
        ),
        how: "The simulation is deterministic: the same command gives the same rows on the same kind of machine. Another processor architecture, or another library of mathematical functions, may round otherwise.",
        parts: vec![Part { table, open: true, ..Part::default() }],
    })
}

/// What is on no part of the page because another run counts, by files.
fn superseded(runs: &Runs) -> String {
    let rows = group::superseded(runs).into_iter().map(|(answer, by)| (answer.file, by));
    let limits = limits::chosen(runs).superseded.into_iter().map(|(line, by)| (line.file, by));
    let series = scene::chosen(runs).superseded.into_iter().map(|(one, by)| (one.file, by));
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    rows.chain(limits).chain(series).for_each(|pair| *counts.entry(pair).or_default() += 1);
    if counts.is_empty() {
        return String::new();
    }
    let name = |file: usize| runs.files.get(file).map_or("", |file| &file.name);
    let one = |((file, by), count): (&(usize, usize), &usize)| {
        let runs = counted(*count, "run", "runs");
        let by = if file == by { "another of the same file" } else { name(*by) };
        format!("{runs} of {} by {by}", name(*file))
    };
    let list = counts.iter().map(one).collect::<Vec<_>>().join(", ");
    format!(
        " Superseded, for of runs that answer the same question the one with more requests counts, and of equals the one of the newer file: {list}."
    )
}
