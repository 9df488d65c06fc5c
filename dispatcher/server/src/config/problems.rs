//! Everything wrong with a configuration, each with the key it is about.

use std::fmt;

/// The problems found so far. Checks go on after one, so that an operator sees all at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Notes a problem of the value at `key`.
    pub fn add(&mut self, key: &str, message: impl fmt::Display) {
        self.0.push(format!("{key}: {message}"));
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
    pub fn lines(&self) -> &[String] {
        &self.0
    }

    /// `value` if there is no problem.
    ///
    /// # Errors
    /// The problems, if there are any.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<String> for Problems {
    fn from(line: String) -> Self {
        Self(vec![line])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Problems {}
