//! `weir config`: what is in force in a running dispatcher, how the file differs, and taking it in.
//! `weir check` looks at a file before any dispatcher does.

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answers::has,
    failure::Failure,
    output::{
        Format, OutputArgs, Sheet,
        figures::text,
        table::{Grid, Left},
    },
    remote::{Admin, RemoteArgs},
};

/// The configuration of a running dispatcher.
#[derive(Clone, Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum ConfigCommand {
    /// Print the configuration in force
    Show,
    /// List the keys whose values differ between what is in force and the file, and what each takes
    Diff,
    /// Take in the file: all of it that can be, or nothing when any of it is wrong
    Reload,
}

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.remote)?;
    let format = args.output.output;
    match args.command {
        ConfigCommand::Show => show(&admin, format),
        ConfigCommand::Diff => {
            format.print::<Changes>("the differences", admin.get("/config/diff")?)
        }
        ConfigCommand::Reload => {
            format.print::<Reloaded>("reload", admin.post("/config/reload", &json!({}))?)
        }
    }
}

fn show(admin: &Admin, format: Format) -> Result<(), Failure> {
    format.print::<Effective>("the configuration", admin.get("/config")?)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Effective {
    effective: String,
    file: Option<String>,
    origin: Value,
}

has! {
    Effective: "effective";
    Changes: "changes";
    Reloaded: "applied" | "needs_restart";
}

impl Sheet for Effective {
    fn sheet(&self, wide: bool) -> String {
        let from = self.file.clone().unwrap_or_else(|| "the built-in configuration".to_owned());
        let origin = match &self.origin {
            Value::String(origin) if wide => format!("# {origin}\n"),
            _ => String::new(),
        };
        let end = if self.effective.ends_with('\n') { "" } else { "\n" };
        format!("# in force, from {from}\n{origin}{}{end}", self.effective)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Changes {
    changes: Vec<Change>,
}

/// A key whose values differ.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Change {
    key: String,
    running: Value,
    file: Value,
    applies: String,
}

impl Sheet for Changes {
    fn sheet(&self, _: bool) -> String {
        let columns = [("KEY", Left), ("IN FORCE", Left), ("FILE", Left), ("APPLIES BY", Left)];
        let mut grid = Grid::new(&columns);
        for change in &self.changes {
            let values = [short(&change.running), short(&change.file)];
            let [running, file] = values;
            grid.row([change.key.clone(), running, file, text(&change.applies)]);
        }
        grid.text_or("the file is in force")
    }
}

/// A value on one line; `-` when it is not set.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => {
            let text = other.to_string();
            if text.chars().count() <= 60 {
                return text;
            }
            text.chars().take(57).collect::<String>() + "..."
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reloaded {
    applied: Vec<String>,
    needs_restart: Vec<String>,
}

impl Sheet for Reloaded {
    fn sheet(&self, _: bool) -> String {
        let lines = |word: &str, keys: &[String]| {
            keys.iter().map(|key| format!("{word}: {key}\n")).collect::<String>()
        };
        if self.applied.is_empty() && self.needs_restart.is_empty() {
            return "the file is in force already\n".to_owned();
        }
        lines("applied", &self.applied) + &lines("needs a restart", &self.needs_restart)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn differences_say_what_each_takes() {
        let changes: Changes = from_value(json!({"changes": [
            {"key": "objectives.interactive.ttft_ms", "running": 2000, "file": 1500, "applies": "reload"},
            {"key": "listen", "running": "127.0.0.1:8080", "file": null, "applies": "restart"},
        ]}))
        .unwrap();
        let text = changes.sheet(false);
        assert!(text.contains("objectives.interactive.ttft_ms  2000"), "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with("restart"), "{text}");
        assert_eq!(Changes::default().sheet(false), "the file is in force\n");
    }

    #[test]
    fn a_reload_says_what_was_applied_and_what_needs_a_restart() {
        let done: Reloaded =
            from_value(json!({"applied": ["pools"], "needs_restart": ["listen"]})).unwrap();
        assert_eq!(done.sheet(false), "applied: pools\nneeds a restart: listen\n");
        assert_eq!(Reloaded::default().sheet(false), "the file is in force already\n");
    }
}
