//! Text inside markup.

/// The text with everything escaped that means something in markup.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            _ => safe.push(letter),
        }
    }
    safe
}

/// A text in which `` `this` `` is code.
pub(super) fn prose(text: &str) -> String {
    let mut html = String::new();
    for (place, part) in text.split('`').enumerate() {
        let safe = escape(part);
        html.push_str(&if place % 2 == 1 { format!("<code>{safe}</code>") } else { safe });
    }
    html
}

/// A table: its head, and its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Names of the columns.
    pub(super) head: Vec<String>,
    /// Cells as prose.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self { head: head.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// As markup, in a box that scrolls by itself where the screen is narrow.
    pub(super) fn markup(&self) -> String {
        let cells = |cells: &[String], tag: &str| -> String {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", prose(cell))).collect()
        };
        let rows: String =
            self.rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row, "td"))).collect();
        let head = cells(&self.head, "th");
        format!(
            "<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_cannot_write_markup() {
        assert_eq!(prose("a <b> & `c<d`"), "a &lt;b&gt; &amp; <code>c&lt;d</code>");
    }
}
