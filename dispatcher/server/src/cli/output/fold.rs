//! Lines broken between words where a terminal ends. What is piped or written to a file stays as it is.

use std::io::{IsTerminal as _, stdout};

use ratatui::crossterm::terminal;
use textwrap::{Options, WordSeparator, WordSplitter};

/// What stands before the rest of a broken line.
const INDENT: &str = "    ";
/// Below it there is no room to break in.
const LEAST: usize = 40;

/// The text for standard output: folded if that is a terminal whose width is known.
pub(super) fn to_terminal(text: String) -> String {
    let width = if stdout().is_terminal() { terminal::size().ok() } else { None };
    match width.map(|(columns, _)| usize::from(columns)) {
        Some(width) if width >= LEAST => text.lines().map(|line| fold(line, width)).collect(),
        _ => text,
    }
}

/// One line in as many as it takes; each ends in a line feed. Words that are longer than a line are left to
/// the terminal.
fn fold(line: &str, width: usize) -> String {
    let options = Options::new(width)
        .subsequent_indent(INDENT)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(line, options) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_between_words_and_what_follows_is_indented() {
        assert_eq!(fold("it waits: no pod is ready", 14), "it waits: no\n    pod is\n    ready\n");
        assert_eq!(fold("as wide as the terminal", 23), "as wide as the terminal\n");
        assert_eq!(fold("", 10), "\n");
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_is_left_whole() {
        assert_eq!(fold("b0/i131072/o16-and-more", 10), "b0/i131072/o16-and-more\n");
        assert_eq!(fold("a b0/i131072/o16 x", 10), "a\n    b0/i131072/o16\n    x\n");
        assert_eq!(
            fold("\u{e9}\u{e9}\u{e9} \u{e9}\u{e9}", 4),
            "\u{e9}\u{e9}\u{e9}\n    \u{e9}\u{e9}\n"
        );
    }
}
