//! Listens for changes of the configuration file and for SIGHUP, and reloads.
//!
//! The folder is watched, not the file: Kubernetes changes a mounted file by turning the link `..data`
//! beside it to another folder, and editors write a new file and rename it. Every few seconds the text
//! is compared in case nothing was heard, which is all that happens on a system that tells nothing.

use std::{path::Path, sync::Arc, time::Duration};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep},
};

use super::reload::Reloader;
use crate::worker::Stop;

/// Pause between two looks at the file when nothing is heard of it.
const RECHECK: Duration = Duration::from_secs(5);
/// Time for a change to be complete: editors write in several steps.
const SETTLE: Duration = Duration::from_millis(50);

/// Reloads what changes until it is told to stop.
pub async fn watch(reloader: Arc<Reloader>, mut stop: Stop) {
    let heard = Arc::new(Notify::new());
    let _watcher = reloader.file().and_then(|file| listen(file, heard.clone()));
    let mut hangup = signal(SignalKind::hangup()).ok();
    let mut recheck = interval(RECHECK);
    recheck.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
                continue;
            }
            () = heard.notified() => sleep(SETTLE).await,
            _ = recheck.tick() => {}
        }
        if reloader.file().is_some() {
            let _ = reloader.reload_if_changed();
        }
    }
}

async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Hears of changes in the file's folder. Without it the regular look has to do.
fn listen(file: &Path, heard: Arc<Notify>) -> Option<RecommendedWatcher> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let tell = move |event: notify::Result<notify::Event>| {
        if !event.is_ok_and(|event| event.kind.is_access()) {
            heard.notify_one();
        }
    };
    let listening = notify::recommended_watcher(tell).and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    if let Err(error) = &listening {
        tracing::warn!(%error, "changes of the configuration are not heard of; looking every 5 s");
    }
    listening.ok()
}
