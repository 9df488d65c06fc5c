//! Where in a file a key stands: from its path to its line.
//!
//! The reader of the configuration forgets lines once a value is read, and most problems are found
//! after that. So the text is walked a second time, by a parser that keeps them, when there is
//! something to say. A text that is no YAML has no lines, and problems go without.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser};

/// The lines of a file's keys.
#[derive(Clone, Debug, Default)]
pub struct Lines(HashMap<String, usize>);

/// What is being walked: a mapping with the key at hand, or a list with the number at hand.
enum Level {
    Mapping { path: String, key: Option<String> },
    Sequence { path: String, next: usize },
}

impl Level {
    /// The path of a value that begins here, if one does; a mapping's next scalar is a key otherwise.
    fn value(&mut self) -> Option<String> {
        match self {
            Self::Mapping { path, key } => key.take().map(|key| child(path, &key)),
            Self::Sequence { path, next } => {
                let path = format!("{path}[{next}]");
                *next += 1;
                Some(path)
            }
        }
    }
}

fn child(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl Lines {
    /// Walks a text. What follows a mistake in it is not seen.
    pub fn of(text: &str) -> Self {
        let mut lines = Self::default();
        let mut levels: Vec<Level> = Vec::new();
        for step in Parser::new_from_str(text) {
            let Ok((event, span)) = step else { break };
            lines.step(&mut levels, &event, span.start.line());
        }
        lines
    }

    fn step(&mut self, levels: &mut Vec<Level>, event: &Event<'_>, line: usize) {
        match event {
            Event::MappingEnd | Event::SequenceEnd => drop(levels.pop()),
            Event::Scalar(text, ..) => {
                if let Some(Level::Mapping { path, key: key @ None }) = levels.last_mut() {
                    self.note(child(path, text), line);
                    *key = Some(text.to_string());
                } else {
                    self.value(levels, line);
                }
            }
            Event::Alias(_) => drop(self.value(levels, line)),
            Event::MappingStart(..) => {
                let path = self.value(levels, line);
                levels.push(Level::Mapping { path, key: None });
            }
            Event::SequenceStart(..) => {
                let path = self.value(levels, line);
                levels.push(Level::Sequence { path, next: 0 });
            }
            _ => {}
        }
    }

    /// A value begins; its path.
    fn value(&mut self, levels: &mut [Level], line: usize) -> String {
        let path = levels.last_mut().and_then(Level::value).unwrap_or_default();
        self.note(path.clone(), line);
        path
    }

    /// The first mention counts: that of a key comes before that of its value.
    fn note(&mut self, path: String, line: usize) {
        self.0.entry(path).or_insert(line);
    }

    /// The line of a key, or of the nearest one around it that the file has.
    pub fn nearest(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(line) = self.0.get(key) {
                return Some(*line);
            }
            if key.is_empty() {
                return None;
            }
            key = key.rfind(['.', '[']).and_then(|end| key.get(..end)).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\nlisten: x\nadmin:\n  listen: y\npools:\n- model: m\n  pods:\n  \
                        - { name: a, url: b }\n  -\n    url: c\n- { model: n,\n    pods: [] }\n";

    #[test]
    fn a_key_stands_where_it_is_written() {
        let lines = Lines::of(TEXT);
        for (key, line) in [
            ("listen", 2),
            ("admin", 3),
            ("admin.listen", 4),
            ("pools[0]", 6),
            ("pools[0].model", 6),
            ("pools[0].pods[0].url", 8),
            ("pools[0].pods[1].url", 10),
            ("pools[1].model", 11),
            ("pools[1].pods", 12),
        ] {
            assert_eq!(lines.nearest(key), Some(line), "{key}");
        }
    }

    #[test]
    fn a_key_that_is_missing_stands_where_it_would_have_to() {
        let lines = Lines::of(TEXT);
        for (key, line) in [("pools[1].dns.host", 11), ("admin.tokens[3].name", 3), ("queue", 2)] {
            assert_eq!(lines.nearest(key), Some(line), "{key}");
        }
        assert_eq!(Lines::of("").nearest("pools"), None);
    }

    #[test]
    fn what_comes_before_a_mistake_is_found_all_the_same() {
        let lines = Lines::of("a: 1\nb: [unclosed\n");
        assert_eq!(lines.nearest("a"), Some(1));
    }

    #[test]
    fn an_anchor_is_found_where_it_is_used() {
        let lines = Lines::of("a: &x { b: 1 }\nc: *x\nd: 2\n");
        assert_eq!(lines.nearest("c.b"), Some(2));
        assert_eq!(lines.nearest("d"), Some(3));
    }
}
