//! What a long run says while it runs: a line per thing done, with the time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use crate::results::say;

/// Lines with the time since the start.
pub(super) struct Progress {
    started: Instant,
    done: AtomicUsize,
    of: usize,
}

impl Progress {
    /// Of so many things to do, since `started`.
    pub(super) fn new(started: Instant, of: usize) -> Self {
        Self { started, done: AtomicUsize::new(0), of }
    }

    /// Something was done.
    pub(super) fn done(&self, what: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.say(&format!("{done}/{} {what}", self.of));
    }

    /// Something is to be said.
    pub(super) fn say(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs();
        // The files are what a lab is run for: they are written whether its lines can be or not.
        let _ = say!("[{:3}:{:02}] {what}", seconds / 60, seconds % 60);
    }
}
