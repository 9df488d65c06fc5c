//! What a client command prints: a table for people, or the admin side's own answer as JSON or YAML.
//!
//! JSON and YAML are the answer as it came, every member of it: scripts see new members without a new
//! `weir`. A table is read leniently, so that an older or newer dispatcher still shows what it has.
//!
//! # Layout
//! - [`table`]: columns without lines, as kubectl prints them
//! - [`figures`]: times, sizes and shares, short
//! - [`fold`]: lines broken where a terminal ends

pub(super) mod figures;
mod fold;
pub(super) mod table;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{
    answers::{self, Answer},
    failure::Failure,
};

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    /// The admin side's answer
    Json,
    /// The same as YAML
    Yaml,
}

/// How a client command prints.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Form of what is printed
    #[arg(short, long, value_name = "FORM", value_enum, default_value_t, global = true)]
    pub(super) output: Format,
}

/// An answer that can be shown to people.
pub(super) trait Sheet: Answer {
    /// The text, with its last line feed; `wide` asks for every column.
    fn sheet(&self, wide: bool) -> String;
}

impl Format {
    /// What is printed of an answer.
    ///
    /// # Errors
    /// When the answer is not understood.
    pub(super) fn text<S: Sheet>(self, what: &str, answer: Value) -> Result<String, Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::not_understood(what, error);
        answers::check::<S>(&answer).map_err(|error| broken(&error))?;
        match self {
            Self::Json => serde_json::to_string_pretty(&answer)
                .map(|text| text + "\n")
                .map_err(|error| broken(&error)),
            Self::Yaml => serde_yaml_ng::to_string(&answer).map_err(|error| broken(&error)),
            Self::Table | Self::Wide => {
                let read: S = answers::read(answer).map_err(|error| broken(&error))?;
                Ok(read.sheet(self == Self::Wide))
            }
        }
    }

    /// Prints an answer.
    ///
    /// # Errors
    /// When it is not understood or cannot be written.
    pub(super) fn print<S: Sheet>(self, what: &str, answer: Value) -> Result<(), Failure> {
        let text = self.text::<S>(what, answer)?;
        // Every column is more than a terminal holds.
        if self == Self::Table { print(&fold::to_terminal(text)) } else { print(&text) }
    }

    /// Whether people read it.
    pub(super) const fn is_for_people(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// Prints to standard output. A reader that has gone away is no failure.
///
/// # Errors
/// When the output cannot be written.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write as _};
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says something beside the results, on standard error.
pub(super) fn say(words: impl std::fmt::Display) {
    show(&format!("weir: {words}\n"));
}

/// Shows a text beside the results, on standard error. That it cannot be shown is no failure: the exit code says how it ended.
pub(super) fn show(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// How a command ended, said and as an exit code.
pub(super) fn exit(done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&failure);
            ExitCode::from(failure.code())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Depth {
        depth: u64,
    }

    answers::has! { Depth: "depth"; }

    impl Sheet for Depth {
        fn sheet(&self, wide: bool) -> String {
            format!("{} {wide}\n", self.depth)
        }
    }

    #[test]
    fn json_and_yaml_are_the_whole_answer_and_a_table_what_is_known_of_it() {
        let answer = json!({"depth": 3, "new": [1]});
        let text = |format: Format| format.text::<Depth>("queues", answer.clone()).unwrap();
        let json: Value = serde_json::from_str(&text(Format::Json)).unwrap();
        assert_eq!(json, answer);
        let yaml: Value = serde_yaml_ng::from_str(&text(Format::Yaml)).unwrap();
        assert_eq!(yaml, answer);
        assert_eq!(text(Format::Table), "3 false\n");
        assert_eq!(text(Format::Wide), "3 true\n");
    }

    #[test]
    fn what_has_nothing_of_the_answer_is_none_in_any_form() {
        for format in [Format::Table, Format::Wide, Format::Json, Format::Yaml] {
            for answer in [json!({}), json!([]), json!(null), json!("ok"), json!({"pods": 1})] {
                let failure = format.text::<Depth>("queues", answer).unwrap_err();
                assert!(failure.to_string().contains("it has no `depth`"), "{failure}");
            }
        }
    }

    #[test]
    fn an_answer_of_another_shape_is_a_failure_that_names_the_call() {
        let failure = Format::Table.text::<Depth>("queues", json!({"depth": "?"})).unwrap_err();
        assert!(failure.to_string().contains("queues"), "{failure}");
        assert_eq!(failure.code(), 1);
    }
}
