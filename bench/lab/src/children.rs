//! Child processes that end with their owner, and the ways this process is told to end.
//!
//! A [`Child`] is killed when it is dropped, on every way out of the function that holds it. What it says goes into a file,
//! whose last lines are what a person wants to read when it ends too early.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::{Instant, sleep},
};

use crate::results::say;

/// Lines of a child's log that an error shows.
const TAIL_LINES: usize = 15;
/// Time between two looks whether one that was asked to end has.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Exit code of a run that was told to end: what a shell says of SIGINT.
pub const INTERRUPTED: u8 = 130;

static INTERRUPT: Notify = Notify::const_new();

/// A running child process.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts `command` with its output in `log`. Its standard input is a pipe that closes when this process ends.
    ///
    /// # Errors
    /// When the log cannot be written or the program cannot be started.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let process = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), process, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// # Errors
    /// When it has ended, with the last lines that it wrote.
    pub fn check(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(self.epitaph(status)),
        }
    }

    /// Asks it to end by SIGTERM, and waits until it has.
    ///
    /// # Errors
    /// When it ends with a failure, or takes longer than this.
    pub async fn terminate(mut self, patience: Duration) -> Result<()> {
        let asked = Instant::now();
        let mut ask = Command::new("kill");
        let told = ask.args(["-TERM", &self.id().to_string()]).status().context("no kill")?;
        ensure!(told.success(), "{} cannot be asked to end", self.name);
        loop {
            match self.process.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!(self.epitaph(status)),
                None => ensure!(asked.elapsed() < patience, "{} does not end", self.name),
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    fn epitaph(&self, status: ExitStatus) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
        let (name, log) = (&self.name, self.log.display());
        format!("{name} ended with {status}; the end of {log}:\n{}", last.join("\n"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error here means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for Ctrl-C, for SIGTERM, or for [`interrupt`].
///
/// # Errors
/// When the system refuses the signal handlers.
pub async fn interrupted() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = ctrl_c.recv() => {}
        () = INTERRUPT.notified() => {}
    }
    Ok(())
}

/// Does this work unless it is interrupted; then it is dropped, with the children that it holds, and there is nothing.
///
/// # Errors
/// Those of the work, and when the system refuses the signal handlers.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    tokio::select! {
        done = work => done.map(Some),
        stopped = interrupted() => {
            stopped?;
            say!("interrupted; stopping what was started")?;
            Ok(None)
        }
    }
}

/// Ends whoever waits in [`interrupted`], now or later.
pub fn interrupt() {
    INTERRUPT.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn a_child_that_is_asked_to_end_does_so_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let patience = Duration::from_secs(60);
        let mut polite =
            shell("trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.02; done");
        let child = Child::start("polite", &mut polite, &log).unwrap();
        while !std::fs::read_to_string(&log).unwrap().contains("hello") {
            sleep(LOOK_AGAIN).await;
        }
        child.terminate(patience).await.unwrap();
        assert!(std::fs::read_to_string(&log).unwrap().ends_with("bye\n"));
        let rude = Child::start("rude", &mut shell("exec cat"), &log).unwrap();
        let error = rude.terminate(patience).await.unwrap_err().to_string();
        assert!(error.starts_with("rude ended with"), "{error}");
    }

    #[test]
    fn a_child_ends_when_its_owner_drops_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut child =
            Child::start("cat", &mut shell("exec cat"), &folder.path().join("log")).unwrap();
        child.check().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        let known = proc.exists();
        drop(child);
        assert!(!known || !proc.exists());
    }

    #[tokio::test]
    async fn an_interrupted_run_leaves_no_child_behind() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let child = Child::start("cat", &mut shell("exec cat"), &log).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", child.id()));
        assert!(proc.exists());
        let work = async move {
            std::future::pending::<()>().await;
            drop(child);
            Ok(())
        };
        interrupt();
        assert_eq!(unless_interrupted(work).await.unwrap(), None);
        assert!(!proc.exists());
        let done = unless_interrupted(async { Ok(7) }).await;
        assert_eq!(done.unwrap(), Some(7));
    }

    #[test]
    fn a_child_that_ended_is_reported_with_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut child =
            Child::start("sh", &mut shell("echo port is taken >&2; exit 3"), &log).unwrap();
        child.process.wait().unwrap();
        let error = child.check().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("port is taken"), "{error}");
    }
}
