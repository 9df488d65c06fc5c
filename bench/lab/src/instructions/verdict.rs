//! Counts against those that are stored.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::work::Work;

/// What a count means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As many as were stored, within the tolerance.
    Kept,
    /// More than that: the guard trips.
    More,
    /// Fewer than that: worth storing.
    Fewer,
    /// Nothing is stored, or by another compiler.
    Unjudged,
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Kept => "kept",
            Self::More => "MORE",
            Self::Fewer => "fewer",
            Self::Unjudged => "not judged",
        })
    }
}

/// A workload with its counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) work: &'static Work,
    pub(super) count: u64,
    pub(super) stored: Option<u64>,
}

impl Counted {
    /// The change as a share of what is stored.
    fn change(&self) -> Option<f64> {
        let stored = self.stored.filter(|stored| *stored > 0)?;
        Some(self.count as f64 / stored as f64 - 1.0)
    }

    /// What it means when the compiler is the one of the file.
    pub(super) fn verdict(&self, is_same_compiler: bool) -> Verdict {
        match self.change().filter(|_| is_same_compiler) {
            None => Verdict::Unjudged,
            Some(change) if change > self.work.tolerance => Verdict::More,
            Some(change) if change < -self.work.tolerance => Verdict::Fewer,
            Some(_) => Verdict::Kept,
        }
    }
}

/// All of them as a table.
pub(super) fn table(counted: &[Counted], is_same_compiler: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["workload", "instructions per", "stored", "counted", "change", "may", ""]);
    let numbers = table.column_iter_mut().skip(2).take(4);
    numbers.for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    for one in counted {
        table.add_row([
            one.work.name.to_owned(),
            one.work.per.to_owned(),
            one.stored.map_or_else(|| "-".to_owned(), |stored| stored.to_string()),
            one.count.to_string(),
            one.change()
                .map_or_else(|| "-".to_owned(), |change| format!("{:+.2} %", change * 100.0)),
            format!("{:.0} %", one.work.tolerance * 100.0),
            one.verdict(is_same_compiler).to_string(),
        ]);
    }
    table
}
