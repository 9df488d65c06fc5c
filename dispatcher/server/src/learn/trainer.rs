//! Keeps a `weir train` running beside `weir serve`, when the configuration says so.
//!
//! A process of its own, so that training can neither crash the dispatcher nor hold its memory. It is
//! started again when it ends, after a pause that doubles from 1 s to 1 min while it does not last;
//! it is killed at shutdown, which is safe at any moment because a bundle appears by a rename, and when nothing was heard
//! of it for long: it says on its standard output when a round is over, and while it waits for the folder. It
//! also ends by itself when its standard input closes, that is when this process is gone.
//! How its rounds end it says beside the bundles, as does one that somebody else started.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt as _,
    process::{ChildStdout, Command},
    time::{Instant, sleep, timeout},
};

/// The flag that ties a trainer's life to its standard input.
pub const SUPERVISED_FLAG: &str = "--supervised";

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A trainer that ran this long has started well; its next end is a new one.
const LASTED: Duration = Duration::from_secs(60);

/// A round that takes longer hangs. Of 50,000 samples it takes seconds, of ten thousand trees minutes; a machine whose other
/// processes leave the trainer a tenth of a core has made it ten times as long.
const LONGEST_ROUND: Duration = Duration::from_secs(3600);

/// What the trainer's process came to, for metrics.
#[derive(Debug, Default)]
pub struct TrainerTally {
    /// Whether it runs.
    pub up: AtomicBool,
    /// Times it was started again.
    pub restarts: AtomicU64,
}

/// How the trainer is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long it may say nothing.
    pub patience: Duration,
}

impl Launch {
    /// This very program as a trainer with the configuration in `file`, whose rounds start `interval` apart.
    pub fn this_program(file: Option<&Path>, interval: Duration) -> Self {
        let mut arguments = vec!["train".to_owned(), SUPERVISED_FLAG.to_owned()];
        if let Some(file) = file {
            arguments.extend(["--config".to_owned(), file.display().to_string()]);
        }
        let patience = interval + LONGEST_ROUND;
        let program = found_at(std::env::current_exe(), std::env::args_os().next());
        Self { program, arguments, patience }
    }
}

/// Where this program is. Without /proc the system does not say, and it is where it was called.
fn found_at(told: io::Result<PathBuf>, called: Option<OsString>) -> PathBuf {
    told.unwrap_or_else(|_| called.unwrap_or_else(|| "weir".into()).into())
}

/// Keeps the trainer running; to drop the future kills it.
pub async fn supervise(launch: &Launch, tally: &TrainerTally) {
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let ended = run(launch, tally).await;
        tally.up.store(false, Relaxed);
        if started.elapsed() >= LASTED {
            pause = FIRST_PAUSE;
        }
        let how = ended.unwrap_or_else(|error| error.to_string());
        tracing::warn!(how, again_in_s = pause.as_secs(), "the trainer ended");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        tally.restarts.fetch_add(1, Relaxed);
    }
}

async fn run(launch: &Launch, tally: &TrainerTally) -> io::Result<String> {
    let mut child = Command::new(&launch.program)
        .args(&launch.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            io::Error::other(format!("cannot start {}: {error}", launch.program.display()))
        })?;
    tally.up.store(true, Relaxed);
    // Held open for as long as this process lives; `wait` would close it at once.
    let _open = child.stdin.take();
    let heard = child.stdout.take();
    tokio::select! {
        ended = child.wait() => return Ok(ended?.to_string()),
        () = silence(heard, launch.patience) => {}
    }
    child.kill().await?;
    Ok(format!("nothing was heard of it for {} s; killed", launch.patience.as_secs()))
}

/// Ends when nothing was heard for so long. What is said does not matter.
async fn silence(mut heard: Option<ChildStdout>, patience: Duration) {
    let mut said = [0; 256];
    while let Some(out) = &mut heard {
        match timeout(patience, out.read(&mut said)).await {
            Ok(Ok(bytes)) if bytes > 0 => {}
            // Closed: nothing can be heard of it any more.
            Ok(_) => heard = None,
            Err(_) => return,
        }
    }
    sleep(patience).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Launch {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Launch { program: "/bin/sh".into(), arguments, patience: LONGEST_ROUND }
    }

    /// A named pipe: what a child does with it is an event that a test can wait for.
    fn pipe_in(dir: &Path) -> PathBuf {
        let pipe = dir.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        pipe
    }

    #[tokio::test]
    async fn a_trainer_that_ends_is_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, tally) = (pipe_in(dir.path()), TrainerTally::default());
        let launch = shell(&format!("echo started > {}", pipe.display()));
        let twice = tokio::task::spawn_blocking(move || {
            for _ in 0..2 {
                assert_eq!(std::fs::read_to_string(&pipe).unwrap(), "started\n");
            }
        });
        tokio::select! {
            () = supervise(&launch, &tally) => unreachable!(),
            read = twice => read.unwrap(),
        }
        assert_eq!(tally.restarts.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_trainer_does_not_outlive_its_supervisor() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = pipe_in(dir.path());
        let launch = shell(&format!("echo started; exec cat > {}", pipe.display()));
        let tally = TrainerTally::default();
        // Opens when the child does, and ends when the child is gone.
        let opened = pipe.clone();
        let open = tokio::task::spawn_blocking(move || std::fs::File::open(opened).unwrap());
        let mut file = tokio::select! {
            () = supervise(&launch, &tally) => unreachable!(),
            file = open => file.unwrap(),
        };
        let read = tokio::task::spawn_blocking(move || io::Read::read(&mut file, &mut [0]));
        assert_eq!(read.await.unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn a_trainer_that_says_nothing_for_long_is_killed_and_one_that_speaks_is_not() {
        let patience = Duration::from_millis(300);
        let tally = TrainerTally::default();
        // A stopped process hears no other signal than the last one.
        for hangs in ["kill -STOP $$", "exec >&-; exec sleep 1000"] {
            let ended = run(&Launch { patience, ..shell(hangs) }, &tally).await.unwrap();
            assert!(ended.contains("nothing was heard"), "{hangs}: {ended}");
        }
        let speaks = "for turn in 1 2 3 4 5 6 7 8 9 10; do echo; sleep 0.1; done; exit 3";
        let patience = Duration::from_secs(60);
        let ended = run(&Launch { patience, ..shell(speaks) }, &tally).await.unwrap();
        assert!(ended.contains('3'), "{ended}");
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_is_named_and_looked_for_where_it_was_called() {
        let told = || Err(io::ErrorKind::NotFound.into());
        assert_eq!(found_at(told(), Some("./weir".into())), Path::new("./weir"));
        assert_eq!(found_at(told(), None), Path::new("weir"));
        assert_eq!(found_at(Ok("/bin/weir".into()), Some("w".into())), Path::new("/bin/weir"));
        let launch = Launch { program: "/no/weir".into(), ..shell("") };
        let error = run(&launch, &TrainerTally::default()).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot start /no/weir: "), "{error}");
    }

    #[test]
    fn the_trainer_is_this_program_with_the_same_file() {
        let launch = Launch::this_program(Some(Path::new("/etc/weir.yaml")), LASTED);
        assert_eq!(launch.patience, LASTED + LONGEST_ROUND);
        assert_eq!(launch.arguments, ["train", "--supervised", "--config", "/etc/weir.yaml"]);
    }
}
