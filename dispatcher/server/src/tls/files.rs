//! What is made of files, and made anew when they change.
//!
//! Whoever asks for it has the files looked at, every few seconds at most: there is nothing to start, and nothing that watches
//! what nobody uses any more. A look is a question about each file to the system.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::pem::Wrong;
use crate::config::watch::Look;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Makes something of files, or says what is wrong with them.
type Make<T> = Box<dyn Fn() -> Result<T, Wrong> + Send + Sync>;

/// Something made of files.
pub(super) struct Kept<T> {
    /// What it is, for the log.
    of: String,
    files: Vec<PathBuf>,
    make: Make<T>,
    now: ArcSwap<T>,
    seen: Mutex<Seen>,
    tally: FilesTally,
}

/// What became of changed files.
#[derive(Debug, Default)]
pub struct FilesTally {
    /// Times that they were read anew.
    pub renewed: AtomicU64,
    /// Times that what they had was refused.
    pub refused: AtomicU64,
    /// Whether they cannot be used as they are, so that those before are in force.
    pub failing: AtomicBool,
}

/// What the files were when they were looked at last.
struct Seen {
    at: Instant,
    looks: Vec<Option<Look>>,
}

impl<T> Kept<T> {
    /// Made of these files now.
    pub(super) fn new(of: String, files: Vec<PathBuf>, make: Make<T>) -> Result<Self, Wrong> {
        // Before they are read: what is written after that is seen by the next look.
        let seen = Seen { at: Instant::now(), looks: looks(&files) };
        Ok(Self {
            now: ArcSwap::from_pointee(make()?),
            of,
            files,
            make,
            seen: Mutex::new(seen),
            tally: FilesTally::default(),
        })
    }

    /// As the files are, or were a few seconds ago; as they were before, if they cannot be used.
    pub(super) fn get(&self) -> Arc<T> {
        self.look(LOOK_EVERY);
        self.now.load_full()
    }

    /// What became of changes, as of the last look.
    pub(super) const fn tally(&self) -> &FilesTally {
        &self.tally
    }

    fn look(&self, every: Duration) {
        // Who looks already does it for all.
        let Some(mut seen) = self.seen.try_lock() else { return };
        if seen.at.elapsed() < every {
            return;
        }
        seen.at = Instant::now();
        let looks = looks(&self.files);
        if looks == seen.looks {
            return;
        }
        seen.looks = looks;
        let made = (self.make)();
        self.tally.failing.store(made.is_err(), Relaxed);
        match made {
            Ok(made) => {
                self.now.store(Arc::new(made));
                self.tally.renewed.fetch_add(1, Relaxed);
                tracing::info!(of = self.of, "tls files read anew");
            }
            Err(wrong) => {
                self.tally.refused.fetch_add(1, Relaxed);
                tracing::error!(of = self.of, %wrong, "tls files refused; those before stay in force");
            }
        }
    }

    /// The same as [`Kept::get`], without waiting for the next look.
    #[cfg(test)]
    pub(super) fn get_now(&self) -> Arc<T> {
        self.look(Duration::ZERO);
        self.now.load_full()
    }
}

fn looks(files: &[PathBuf]) -> Vec<Option<Look>> {
    files.iter().map(|file| Look::at(file)).collect()
}
