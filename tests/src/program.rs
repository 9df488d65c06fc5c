//! A child process: ended with its owner, its two outputs kept as text.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use crate::wait::{eventually, within};

/// Bytes of a log that are read.
const LONGEST_LOG: u64 = 64 << 20;

/// A running or ended program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Program {
    /// Starts `command`; both its outputs go to the file `log`.
    ///
    /// # Panics
    /// When the system refuses.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let out =
            File::options().create(true).append(true).open(log).expect("a log can be written");
        let err = out.try_clone().expect("a file can be shared");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log: log.to_owned(), ended: None }
    }

    /// What it wrote so far: not more than a test can be about, for some files have no end.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let read =
            File::open(&self.log).and_then(|log| log.take(LONGEST_LOG).read_to_string(&mut text));
        if read.is_ok() { text } else { String::new() }
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Panics
    /// When the system does not know.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be asked for");
        }
        self.ended
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        self.ended = self.child.wait().ok();
    }

    /// Asks it to end, with SIGTERM.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Stops it where it is, as on a machine that hangs.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn hang(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on after [`Program::hang`].
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, which: &str) {
        let sent = Command::new("kill").args([which, &self.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "the signal was not sent");
    }

    /// Its exit status, once it has ended by itself.
    pub async fn exit(&mut self) -> ExitStatus {
        eventually("the program ends", async || self.ended().ok_or(())).await
    }

    /// Waits until its log has this text: what a program logs is written by a thread of its own, a moment after
    /// whoever asked for it has an answer.
    ///
    /// # Panics
    /// When it takes too long to write it.
    pub async fn logs(&self, text: &str) {
        eventually(text, async || {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        })
        .await;
    }

    /// The first line of its log for which `find` finds something.
    ///
    /// # Panics
    /// When it ends without such a line, or takes too long to write it.
    pub async fn says<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        let limit = std::time::Duration::from_secs(30);
        within(limit, what, async || {
            let ended = self.ended();
            let log = self.log();
            let found = log.lines().find_map(&find);
            assert!(found.is_some() || ended.is_none(), "{what}: ended with {ended:?}:\n{log}");
            found.ok_or(log)
        })
        .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("---- {}\n{}", self.log.display(), self.log());
        }
    }
}
