//! Columns without lines between them, as kubectl prints them: read by eye, cut by awk.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// A column: its title, and whether its values are figures.
pub(crate) type Column = (&'static str, Side);

/// Where the values of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Text.
    Left,
    /// Figures.
    Right,
}

pub(crate) use Side::{Left, Right};

/// A table that grows by rows.
#[derive(Debug)]
pub(crate) struct Grid {
    table: Table,
    columns: Vec<Side>,
    rows: usize,
}

impl Grid {
    /// An empty table.
    pub(crate) fn new(columns: &[Column]) -> Self {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let sides: Vec<Side> = columns.iter().map(|(_, side)| *side).collect();
        table.set_header(columns.iter().map(|(title, side)| cell(title, *side)));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self { table, columns: sides, rows: 0 }
    }

    /// Adds a row of as many values as there are columns.
    pub(crate) fn row<V: Into<String>>(&mut self, values: impl IntoIterator<Item = V>) {
        let cells = values.into_iter().zip(&self.columns);
        self.table.add_row(cells.map(|(value, side)| cell(&plain(&value.into()), *side)));
        self.rows += 1;
    }

    /// The text, or `nothing` as a line when there is no row.
    pub(crate) fn text_or(&self, nothing: &str) -> String {
        if self.rows == 0 {
            return format!("{nothing}\n");
        }
        let table = self.table.to_string();
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

fn cell(text: &str, side: Side) -> Cell {
    Cell::new(text).set_alignment(match side {
        Left => CellAlignment::Left,
        Right => CellAlignment::Right,
    })
}

/// What clients send (request ids, tenants) may hold control characters; a terminal must not obey them.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Lines of a label and a value, the values below each other.
pub(crate) fn facts(facts: &[(&str, String)]) -> String {
    let widest = facts.iter().map(|(label, _)| label.len()).max().unwrap_or(0) + 1;
    let shown = facts.iter().filter(|(_, value)| !value.is_empty());
    let line = |(label, value): &(&str, String)| {
        format!("{:<width$}  {}\n", format!("{label}:"), plain(value), width = widest)
    };
    shown.map(line).collect()
}

/// A text of several sentences, each on a line of its own.
pub(crate) fn sentences(text: &str) -> String {
    let lines = text.lines().flat_map(|line| line.split_inclusive(". "));
    lines.map(|sentence| plain(sentence.trim_end()) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_right_and_no_line_ends_in_spaces() {
        let mut grid = Grid::new(&[("LANE", Left), ("DEPTH", Right), ("WHY", Left)]);
        grid.row(["b0/i512/o256", "7", "late"]);
        grid.row(["b0", "1234", ""]);
        let want = "LANE          DEPTH  WHY\n\
                    b0/i512/o256      7  late\n\
                    b0             1234\n";
        assert_eq!(grid.text_or("nothing"), want);
    }

    #[test]
    fn an_empty_table_says_so() {
        assert_eq!(Grid::new(&[("LANE", Left)]).text_or("nothing waits"), "nothing waits\n");
    }

    #[test]
    fn what_clients_send_cannot_steer_the_terminal() {
        let mut grid = Grid::new(&[("REQUEST", Left)]);
        grid.row(["a\u{1b}[2Jb\nc"]);
        assert_eq!(grid.text_or(""), "REQUEST\na\u{fffd}[2Jb\u{fffd}c\n");
    }

    #[test]
    fn facts_stand_below_each_other_and_empty_ones_are_left_out() {
        let text = facts(&[
            ("pod", "pod-0".into()),
            ("breaker", String::new()),
            ("phase", "ready".into()),
        ]);
        assert_eq!(text, "pod:      pod-0\nphase:    ready\n");
    }
}
