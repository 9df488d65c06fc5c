//! Listens for changes of the configuration file and for SIGHUP, and reloads.
//!
//! The folder is watched, not the file: Kubernetes changes a mounted file by turning the link `..data`
//! beside it to another folder, and editors write a new file and rename it. Every few seconds the text
//! is compared in case nothing was heard, which is all that happens on a system that tells nothing.
//!
//! Half a file may be a good one: a rate limit that is still to come lets everybody in. What comes into its place whole, by a
//! rename or a link that turns, is read soon; what is written in place, once it has been left alone for a while. SIGHUP reads at once.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{ModifyKind, RenameMode},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::{Instant, Interval, MissedTickBehavior, interval, sleep},
};

use super::reload::Reloader;
use crate::worker::Stop;

/// Pause between two looks at the file when nothing is heard of it.
const RECHECK: Duration = Duration::from_secs(5);
/// Time for a change that comes whole to be complete: a rename is heard of several times.
const SETTLE: Duration = Duration::from_millis(50);
/// How long a file that is written in place must have been left alone.
const STILL: Duration = Duration::from_millis(500);
/// After so long a file is read that is never left alone.
const LONGEST: Duration = Duration::from_secs(5);

/// Reloads what changes until it is told to stop.
pub async fn watch(reloader: Arc<Reloader>, mut stop: Stop) {
    let heard = Arc::new(Heard::default());
    let _watcher = reloader.file().and_then(|file| listen(file, heard.clone()));
    let mut hangup = signal(SignalKind::hangup()).ok();
    let mut recheck = interval(RECHECK);
    recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Of before the start nobody knows whether it was whole.
    let mut known = None;
    loop {
        tokio::select! {
            () = stop.requested() => return,
            () = hung_up(&mut hangup) => {
                // What came of it is in the log and in the metrics.
                let _ = reloader.reload().inspect_err(|problems| {
                    if reloader.file().is_none() {
                        tracing::warn!(%problems, "SIGHUP");
                    }
                });
            }
            () = changed(reloader.file(), &heard, &mut recheck, &mut known) => {
                let _ = reloader.reload_if_changed();
            }
        }
    }
}

/// Ends when the file is to be read: something was heard and is complete, or it is time for a look.
async fn changed(
    file: Option<&Path>,
    heard: &Heard,
    recheck: &mut Interval,
    known: &mut Option<Look>,
) {
    let Some(file) = file else { return std::future::pending().await };
    tokio::select! {
        () = heard.change.notified() => {
            sleep(SETTLE).await;
            if heard.written.load(Relaxed) {
                left_alone(file, heard).await;
            }
        }
        // It may be half written just now, by who is not heard.
        _ = recheck.tick() => if Look::at(file) != *known {
            left_alone(file, heard).await;
        }
    }
    *known = Look::at(file);
}

/// Ends when a file has been left alone for [`STILL`], or never is.
async fn left_alone(file: &Path, heard: &Heard) {
    let longest = Instant::now() + LONGEST;
    let look = || {
        // First: what is heard of after that may have come after the look.
        heard.written.store(false, Relaxed);
        Look::at(file)
    };
    let mut seen = look();
    loop {
        sleep(STILL).await;
        let now = look();
        if now == seen || Instant::now() >= longest {
            return;
        }
        seen = now;
    }
}

/// What changes with every write, and with every other file in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
}

impl Look {
    /// `None` where there is no file.
    pub(crate) fn at(file: &Path) -> Option<Self> {
        let about = fs::metadata(file).ok()?;
        Some(Self {
            file: (about.dev(), about.ino()),
            bytes: about.len(),
            written: (about.mtime(), about.mtime_nsec()),
        })
    }
}

/// What was heard of the file's folder.
#[derive(Debug, Default)]
struct Heard {
    change: Notify,
    /// Whether the file itself was written to, made or taken away since it was read last.
    written: AtomicBool,
}

impl Heard {
    /// Notes what is said of the folder in which a file of this name is.
    fn note(&self, event: notify::Result<Event>, name: Option<&OsStr>) {
        let in_place = match event {
            Ok(event) if event.kind.is_access() => return,
            Ok(event) => {
                let of_file = event.paths.iter().any(|path| path.file_name() == name);
                event.need_rescan() || (of_file && !comes_whole(event.kind))
            }
            Err(_) => true,
        };
        self.written.fetch_or(in_place, Relaxed);
        self.change.notify_one();
    }
}

/// Whether a file came into this place under another name before.
fn comes_whole(kind: EventKind) -> bool {
    matches!(kind, EventKind::Modify(ModifyKind::Name(mode)) if mode != RenameMode::From)
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Hears of changes in the file's folder. Without it the regular look has to do.
fn listen(file: &Path, heard: Arc<Heard>) -> Option<RecommendedWatcher> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let name = file.file_name().map(OsStr::to_owned);
    let tell = move |event| heard.note(event, name.as_deref());
    let listening = notify::recommended_watcher(tell).and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    if let Err(error) = &listening {
        tracing::warn!(%error, "changes of the configuration are not heard of; looking every 5 s");
    }
    listening.ok()
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, path::PathBuf};

    use notify::event::{CreateKind, DataChange, RemoveKind};
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;

    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const RENAMED: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));

    fn file() -> (TempDir, PathBuf) {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("weir.yaml");
        fs::write(&file, "pools: []\n").unwrap();
        (folder, file)
    }

    fn append(file: &Path, text: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn note(heard: &Heard, kind: EventKind, path: &Path) {
        heard.note(Ok(Event::new(kind).add_path(path.to_owned())), Some(OsStr::new("weir.yaml")));
    }

    /// How long it takes until the file is read, with a clock that looks again every hour.
    async fn until_read(file: &Path, heard: &Heard) -> Duration {
        let mut known = Look::at(file);
        let mut recheck = interval(Duration::from_secs(3600));
        recheck.tick().await;
        let begun = Instant::now();
        timeout(Duration::from_secs(60), changed(Some(file), heard, &mut recheck, &mut known))
            .await
            .unwrap();
        assert_eq!(known, Look::at(file));
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_written_in_two_steps_is_read_once_it_is_whole() {
        let (_folder, file) = file();
        let heard = Heard::default();
        let write = async {
            append(&file, "limits:\n");
            note(&heard, WRITTEN, &file);
            sleep(Duration::from_millis(300)).await;
            append(&file, "  requests_per_minute: 60\n");
            note(&heard, WRITTEN, &file);
            Instant::now()
        };
        let read = async {
            until_read(&file, &heard).await;
            Instant::now()
        };
        let (written, read) = tokio::join!(write, read);
        // What was heard meanwhile is of what was read.
        assert_eq!(until_read(&file, &heard).await, SETTLE);
        let after = read - written;
        assert!(after >= STILL && after <= 2 * STILL + SETTLE, "{after:?} after the last write");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_never_left_alone_is_read_after_all() {
        let (_folder, file) = file();
        let heard = Heard::default();
        note(&heard, WRITTEN, &file);
        let write = async {
            loop {
                append(&file, "#\n");
                sleep(STILL / 3).await;
            }
        };
        tokio::select! {
            took = until_read(&file, &heard) => assert!(took <= LONGEST + STILL, "{took:?}"),
            () = write => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_put_in_its_place_whole_is_read_soon() {
        let (folder, file) = file();
        let heard = Heard::default();
        let beside = folder.path().join("weir.yaml.new");
        fs::write(&beside, "pools: [] # other\n").unwrap();
        note(&heard, EventKind::Create(CreateKind::File), &beside);
        note(&heard, WRITTEN, &beside);
        fs::rename(&beside, &file).unwrap();
        note(&heard, RENAMED, &file);
        assert_eq!(until_read(&file, &heard).await, SETTLE);
        // The link that Kubernetes turns.
        note(&heard, RENAMED, &folder.path().join("..data"));
        assert_eq!(until_read(&file, &heard).await, SETTLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_taken_away_and_made_anew_is_waited_for() {
        let moved_away = EventKind::Modify(ModifyKind::Name(RenameMode::From));
        for away in [EventKind::Remove(RemoveKind::File), moved_away] {
            let (_folder, file) = file();
            let heard = Heard::default();
            fs::remove_file(&file).unwrap();
            note(&heard, away, &file);
            let write = async {
                sleep(STILL / 2).await;
                fs::write(&file, "pools: []\n").unwrap();
            };
            let (took, ()) = tokio::join!(until_read(&file, &heard), write);
            assert_eq!(took, SETTLE + 2 * STILL);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_nobody_speaks_of_is_waited_for_too() {
        let (_folder, file) = file();
        let mut recheck = interval(RECHECK);
        let mut known = Look::at(&file);
        let heard = Heard::default();
        let begun = Instant::now();
        changed(Some(&file), &heard, &mut recheck, &mut known).await;
        assert_eq!(begun.elapsed(), Duration::ZERO, "it is as it was");
        append(&file, "limits:\n");
        changed(Some(&file), &heard, &mut recheck, &mut known).await;
        assert_eq!(begun.elapsed(), RECHECK + STILL);
    }

    #[test]
    fn who_only_reads_the_folder_is_not_heard() {
        let heard = Heard::default();
        note(&heard, EventKind::Access(notify::event::AccessKind::Any), Path::new("weir.yaml"));
        assert!(!heard.written.load(Relaxed));
        heard.note(Err(notify::Error::generic("lost")), None);
        assert!(heard.written.load(Relaxed), "nobody knows what was not heard");
    }
}
