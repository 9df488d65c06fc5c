//! Where in a file a key stands: from its path to its line; and which keys stand there twice.
//!
//! The reader of the configuration forgets lines once a value is read, and most problems are found
//! after that. So the text is walked a second time, by a parser that keeps them, when there is
//! something to say, or that only the walk finds. A text that is no YAML has no lines, and problems go
//! without.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Parser};

/// The lines of a file's keys.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    of: HashMap<String, usize>,
    repeated: Vec<Repeated>,
}

/// A key that its mapping has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Its path.
    pub key: String,
    /// Where it stands again.
    pub line: usize,
    /// Where it stood before.
    pub before: usize,
}

/// What is being walked: a mapping with the key at hand, or a list with the number at hand.
enum Level {
    Mapping { path: String, key: Option<String>, keys: HashSet<String> },
    Sequence { path: String, next: usize },
}

impl Level {
    /// The path of a value that begins here, if one does; a mapping's next scalar is a key otherwise.
    fn value(&mut self) -> Option<String> {
        match self {
            Self::Mapping { path, key, .. } => key.take().map(|key| child(path, &key)),
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
            Event::Scalar(text, ..) => self.scalar(levels, text, line),
            // As a key it is one that no path names.
            Event::Alias(anchor) => self.scalar(levels, &format!("*{anchor}"), line),
            Event::MappingStart(..) => {
                let path = self.value(levels, line);
                levels.push(Level::Mapping { path, key: None, keys: HashSet::new() });
            }
            Event::SequenceStart(..) => {
                let path = self.value(levels, line);
                levels.push(Level::Sequence { path, next: 0 });
            }
            _ => {}
        }
    }

    /// A key, where one is due, or a value.
    fn scalar(&mut self, levels: &mut [Level], text: &str, line: usize) {
        if let Some(Level::Mapping { path, key: key @ None, keys }) = levels.last_mut() {
            let path = child(path, text);
            if !keys.insert(text.to_owned()) {
                self.repeat(&path, line);
            }
            self.note(path, line);
            *key = Some(text.to_owned());
        } else {
            self.value(levels, line);
        }
    }

    /// A key is there again: from here on it and what is under it stand where they stand last.
    fn repeat(&mut self, path: &str, line: usize) {
        let before = self.of.get(path).copied().unwrap_or(line);
        self.repeated.push(Repeated { key: path.to_owned(), line, before });
        let within = |key: &str| {
            key.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.of.retain(|key, _| !within(key));
    }

    /// A value begins; its path.
    fn value(&mut self, levels: &mut [Level], line: usize) -> String {
        let path = levels.last_mut().and_then(Level::value).unwrap_or_default();
        self.note(path.clone(), line);
        path
    }

    /// The first mention counts: that of a key comes before that of its value.
    fn note(&mut self, path: String, line: usize) {
        self.of.entry(path).or_insert(line);
    }

    /// Every repetition of a key within its mapping.
    pub fn repeated(&self) -> &[Repeated] {
        &self.repeated
    }

    /// The line of a key, or of the nearest one around it that the file has; `None` when it has none of
    /// them.
    pub fn nearest(&self, key: &str) -> Option<usize> {
        let mut key = key;
        loop {
            if let Some(line) = self.of.get(key) {
                return Some(*line);
            }
            key = key.rfind(['.', '[']).and_then(|end| key.get(..end))?;
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
        for (key, line) in [("pools[1].dns.host", 11), ("admin.tokens[3].name", 3), ("", 2)] {
            assert_eq!(lines.nearest(key), Some(line), "{key}");
        }
        for key in ["queue", "service_tiers.flex"] {
            assert_eq!(lines.nearest(key), None, "{key}");
        }
        assert_eq!(Lines::of("").nearest("pools"), None);
    }

    #[test]
    fn a_repeated_key_is_one_of_the_same_mapping() {
        let text = "a: { x: 1, 'x': 2 }\nb:\n- y: 1\n- y: 1\n  z: 2\n  y: 3\na.x: 4\na: 5\n\
                    c: { &k k: 1, *k : x, x: 1 }\n";
        let lines = Lines::of(text);
        let said = lines.repeated().iter().map(|again| (&*again.key, again.line, again.before));
        assert_eq!(said.collect::<Vec<_>>(), [("a.x", 1, 1), ("b[1].y", 6, 4), ("a", 8, 1)]);
    }

    #[test]
    fn what_is_repeated_stands_where_it_stands_last() {
        let lines = Lines::of("a: { x: 1, y: 1 }\nab: 2\na:\n  x: 3\n");
        for (key, line) in [("a", 3), ("a.x", 4), ("a.y", 3), ("ab", 2)] {
            assert_eq!(lines.nearest(key), Some(line), "{key}");
        }
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
