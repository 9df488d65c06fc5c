//! Log lines, to standard error: for people, or one JSON object per line.
//!
//! Never a prompt, an answer or a key: nothing that logs is given one.

use std::io::IsTerminal as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

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

impl RawLog {
    /// The validated form.
    pub fn check(&self, problems: &mut Problems) -> LogConfig {
        if let Err(error) = EnvFilter::try_new(&self.level) {
            problems.add("log.level", format!("{:?}: {error}", self.level));
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

/// Starts logging. A process that logs already goes on as it was.
pub fn start(config: &LogConfig) {
    let filter = EnvFilter::try_new(&config.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let started = match config.format {
        LogFormat::Pretty => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    drop(started);
}
