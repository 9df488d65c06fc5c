//! Weir's command line, as an operator or a script uses it: what is typed, what is printed, how it ends.

use std::{
    net::SocketAddr,
    process::{Output, Stdio},
};

use serde_json::Value;
use tokio::process::Command;

use crate::{Stage, built};

/// Exit code: it could not be done.
pub const FAILED: i32 = 1;
/// Exit code: the words were wrong.
pub const USAGE: i32 = 2;
/// Exit code: nothing has that name.
pub const NOT_FOUND: i32 = 66;
/// Exit code: the admin side does not answer.
pub const UNREACHABLE: i32 = 69;
/// Exit code: the token is missing, wrong or may not.
pub const REFUSED: i32 = 77;

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Done {
    /// Its exit code.
    pub code: i32,
    /// Its output.
    pub out: String,
    /// What it said beside.
    pub err: String,
}

impl Done {
    /// Of a command that has ended by itself.
    ///
    /// # Panics
    /// When it was ended by a signal, or printed something else than text.
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("a command prints text");
        let code = output.status.code().expect("a command ends by itself");
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Its output, when it did what it was asked.
    ///
    /// # Panics
    /// When it did not.
    pub fn out(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// The same, read as JSON.
    ///
    /// # Panics
    /// When it did not, or printed something else.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.out()).expect("it printed JSON")
    }

    /// Asserts that it failed with this code and one line that says `words`.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_failed(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(words), "{words} is not said: {self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
    }
}

/// A command without a terminal and without anything of this environment that it would listen to.
pub fn command(words: &[&str]) -> Command {
    let mut command = Command::new(built::binary("weir"));
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    command.env_remove("WEIR_ADMIN").env_remove("WEIR_ADMIN_TOKEN");
    command
}

/// Runs a command at an admin side.
///
/// # Panics
/// When it cannot be started.
pub async fn run_at(admin: SocketAddr, words: &[&str]) -> Done {
    let mut command = command(words);
    let output = command.env("WEIR_ADMIN", admin.to_string()).output().await;
    Done::of(output.expect("weir runs"))
}

/// Runs a command at the dispatcher of a stage.
pub async fn run(stage: &Stage, words: &[&str]) -> Done {
    run_at(stage.weir.admin, words).await
}
