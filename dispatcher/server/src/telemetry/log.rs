//! Log lines, to standard error: for people, or one JSON object per line. How they get there is in [`super::lines`].
//!
//! Never a prompt, an answer or a key: nothing that logs is given one.

use std::{
    io::{self, IsTerminal as _},
    sync::{Arc, OnceLock},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use super::lines::{Lines, Scribe};
use crate::config::Problems;

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object per line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLog {
    /// Form of a line: pretty or json.
    pub format: LogFormat,
    /// error, warn, info, debug or trace; or a filter by module, such as info,weir::hub=debug.
    pub level: String,
}

impl Default for RawLog {
    fn default() -> Self {
        Self { format: LogFormat::Pretty, level: "info".to_owned() }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The first part of a filter that is neither a level nor gives one to something. The parser takes such a word for a
/// module's name, and a filter that names no other level silences all the rest.
fn no_level(filter: &str) -> Option<&str> {
    let mut words = filter.split(',').map(str::trim);
    // Commas may stand in the fields of a span, in brackets.
    words.find(|word| {
        !word.contains(['=', '[', ']'])
            && !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word))
    })
}

impl RawLog {
    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> LogConfig {
        if let Err(error) = EnvFilter::try_new(&self.level) {
            problems.add("log.level", format!("{:?}: {error}", self.level));
        } else if let Some(word) = no_level(&self.level) {
            problems.add(
                "log.level",
                format!("{word:?} is not one of {}, nor module=level", LEVELS.join(", ")),
            );
        }
        LogConfig { format: self.format, filter: self.level.clone() }
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Form of a line.
    pub format: LogFormat,
    /// Filter by level and module.
    pub filter: String,
}

/// The lines of this process; there is one logger to a process.
static LINES: OnceLock<Arc<Lines>> = OnceLock::new();

/// Lines of this process that were not written.
pub fn lost() -> u64 {
    LINES.get().map_or(0, |lines| lines.lost())
}

/// Starts logging, until what this returns is dropped. A process that logs already goes on as it was.
///
/// # Errors
/// When the system gives no thread.
pub fn start(config: &LogConfig) -> io::Result<Scribe> {
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = io::stderr().is_terminal();
    let said = |lost| tracing::warn!(lost, "log lines were not written: their reader is too slow");
    let (scribe, inlet) = Scribe::start(io::stderr(), said)?;
    let _ = LINES.set(scribe.lines().clone());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(inlet)
        // Said on standard error itself, by whoever logs.
        .log_internal_errors(false)
        .with_ansi(colours);
    let started = match config.format {
        LogFormat::Pretty => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(started);
    Ok(scribe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(level: &str) -> Vec<String> {
        let mut problems = Problems::default();
        RawLog { level: level.to_owned(), ..RawLog::default() }.check(&mut problems);
        problems.lines().to_vec()
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_told_what_is() {
        for right in ["info", "WARN", "off", "info,weir::hub=debug", "warn,weir[pod{a=1}]=trace"] {
            assert!(problems(right).is_empty(), "{right}: {:?}", problems(right));
        }
        for wrong in ["warning", "inf", "weir", "info,weir::hub", "", "info,", "info,weir=loud"] {
            assert_eq!(problems(wrong).len(), 1, "{wrong}");
        }
        assert_eq!(
            problems("warning"),
            [
                "log.level: \"warning\" is not one of off, error, warn, info, debug, trace, nor module=level"
            ]
        );
    }
}
