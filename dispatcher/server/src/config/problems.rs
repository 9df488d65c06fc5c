//! Everything wrong with a configuration, each with the key it is about, the line it stands in and what
//! to write instead.

use std::fmt;

use serde::Serialize;

use super::locate::Lines;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The key, by its path in the file: `pools[0].pods[1].url`. Empty when it is the file as a whole.
    pub key: String,
    /// The line of the key, or of the nearest part of the file that has it, from 1; `None` when no line
    /// says it.
    pub line: Option<usize>,
    /// What is wrong, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The problems found so far. Checks go on after one, so that an operator sees all at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Notes a problem of the value at `key`.
    pub fn add(&mut self, key: &str, message: impl fmt::Display) {
        self.0.push(Problem { key: key.to_owned(), line: None, message: message.to_string() });
    }

    /// Notes a problem unless `holds`.
    pub fn require(&mut self, holds: bool, key: &str, message: &str) {
        if !holds {
            self.add(key, message);
        }
    }

    /// What a part came to; its problems are noted here.
    pub fn take<T>(&mut self, part: Result<T, Self>) -> Option<T> {
        part.map_err(|mut problems| self.0.append(&mut problems.0)).ok()
    }

    /// The problems, in the order in which they were found.
    pub fn all(&self) -> &[Problem] {
        &self.0
    }

    /// The problems in words, in the order in which they were found.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Notes where in the file each stands, and puts them into its order. A value that a flag or a variable of the environment said
    /// stands in no line: `said_elsewhere` names who said it. Nor does a default.
    #[must_use]
    pub fn located(mut self, lines: &Lines, said_elsewhere: &[(&str, String)]) -> Self {
        for problem in &mut self.0 {
            match said_elsewhere.iter().find(|(key, _)| *key == problem.key) {
                Some((_, by)) => problem.message = format!("{} (said by {by})", problem.message),
                None => {
                    problem.line = problem.line.or_else(|| lines.nearest(&problem.key));
                    // Of all keys only this one has no default.
                    if problem.line.is_none() && problem.key != "pools" {
                        problem.message +=
                            " (said by the default; the file does not have this key)";
                    }
                }
            }
        }
        self.0.sort_by_key(|problem| problem.line);
        self
    }

    /// `value` if there is no problem.
    ///
    /// # Errors
    /// The problems, if there are any.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<I: IntoIterator<Item = Problem>>(problems: I) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for Problems {}
