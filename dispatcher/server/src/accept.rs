//! Accepting connections where that may fail, and where there are more than there is room for.
//!
//! A listener that is out of files fails ten times a second, and one that strangers flood closes a thousand connections in that
//! time. Both come in rows, of which the first is said, and how many there were once nothing of the kind has happened for a while.
//! `/metrics` counts all of them.

use std::{
    future::pending,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

/// Pause of accepting when the process is out of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);
/// A row is over when nothing has happened for so long: longer than who is refused waits before trying again.
const CALM: Duration = Duration::from_secs(10);

/// The listeners of this process, as far as its threads share what became of them.
pub static API: Listening = Listening::named("api");
/// The admin side's.
pub static ADMIN: Listening = Listening::named("admin");
/// That of other dispatchers' calls.
pub static REPLICAS: Listening = Listening::named("replicas");

/// What became of a listener.
#[derive(Debug)]
pub struct Listening {
    /// What it is called in the log and in metrics.
    pub name: &'static str,
    failures: Row,
    displaced: Row,
    handshakes_failed: AtomicU64,
}

impl Listening {
    pub(crate) const fn named(name: &'static str) -> Self {
        let (failures, displaced) = (Row::new(), Row::new());
        Self { name, failures, displaced, handshakes_failed: AtomicU64::new(0) }
    }

    /// The TLS handshake of a client failed.
    pub fn handshake_failed(&self, error: &io::Error) {
        self.handshakes_failed.fetch_add(1, Relaxed);
        tracing::debug!(%error, listener = self.name, "TLS handshake failed");
    }

    /// Accepting failed while so many connections were `open`: ends when it may be tried again.
    pub async fn failed(&self, error: io::Error, open: usize) {
        if concerns_one_client(&error) {
            return;
        }
        if self.failures.one_more() {
            tracing::warn!(%error, open, listener = self.name, "cannot accept connections");
        }
        sleep(PAUSE).await;
    }

    /// A connection was closed for a newer one, for so many were `open`.
    pub fn displaced(&self, open: usize) {
        if self.displaced.one_more() {
            tracing::warn!(
                open,
                listener = self.name,
                "no more connections are kept; some are closed for newer ones"
            );
        }
    }

    /// Ends when a row of either is over, which it says; never where there is none.
    pub async fn calm(&self) {
        tokio::select! {
            failures = self.failures.over() => {
                tracing::info!(failures, listener = self.name, "connections can be accepted again");
            }
            closed = self.displaced.over() => {
                tracing::info!(closed, listener = self.name, "no connection is closed for newer ones any more");
            }
        }
    }

    /// How often accepting failed since the start.
    pub fn failures(&self) -> u64 {
        self.failures.total()
    }

    /// How many TLS handshakes failed since the start.
    pub fn handshakes_failed(&self) -> u64 {
        self.handshakes_failed.load(Relaxed)
    }

    /// How many connections were closed for newer ones since the start.
    pub fn displacements(&self) -> u64 {
        self.displaced.total()
    }
}

/// Whether accepting failed for the sake of one client, so that the next may do better at once.
pub fn concerns_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// What happens many times in a row, seen by all who share it.
#[derive(Debug)]
pub struct Row {
    /// How often since the row began, and when it did last.
    now: Mutex<(u64, Option<Instant>)>,
    total: AtomicU64,
}

impl Row {
    /// Nothing has happened.
    pub(crate) const fn new() -> Self {
        Self { now: Mutex::new((0, None)), total: AtomicU64::new(0) }
    }

    /// It happened. Whether it is the first of a row.
    pub fn one_more(&self) -> bool {
        self.total.fetch_add(1, Relaxed);
        let mut now = self.now.lock();
        *now = (now.0 + 1, Some(Instant::now()));
        now.0 == 1
    }

    /// Ends when the row that there is now is over, with how often it happened; never where there is none. Of several that wait for it
    /// one is told.
    pub async fn over(&self) -> u64 {
        loop {
            let last = self.now.lock().1;
            let Some(last) = last else { return pending().await };
            sleep_until(last + CALM).await;
            let mut now = self.now.lock();
            if now.1.is_some_and(|last| last.elapsed() >= CALM) {
                return std::mem::take(&mut *now).0;
            }
        }
    }

    fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_row_is_said_when_it_begins_and_when_nothing_has_happened_for_a_while() {
        let row = Row::new();
        assert!(timeout(LONG, row.over()).await.is_err(), "there is none");
        let mut said = 0;
        for _ in 0..100 {
            said += u32::from(row.one_more());
            sleep(CALM / 2).await;
        }
        assert_eq!(said, 1);
        let begun = Instant::now();
        assert_eq!((row.over().await, begun.elapsed()), (100, CALM / 2));
        assert!(timeout(LONG, row.over()).await.is_err(), "it was said");
        assert!(row.one_more(), "another one begins");
        assert_eq!(row.total(), 101);
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_that_wait_for_the_end_one_is_told() {
        let row = Row::new();
        row.one_more();
        let both = async { tokio::join!(row.over(), row.over()) };
        assert!(timeout(LONG, both).await.is_err());
        row.one_more();
        let grows = async {
            sleep(CALM / 2).await;
            assert!(!row.one_more());
        };
        let begun = Instant::now();
        assert_eq!(tokio::join!(row.over(), grows).0, 2);
        assert_eq!(begun.elapsed(), CALM * 3 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn accepting_pauses_where_the_process_lacks_something_and_is_said_once() {
        let listening = Listening::named("test");
        let begun = Instant::now();
        listening.failed(io::ErrorKind::ConnectionAborted.into(), 1).await;
        assert_eq!((begun.elapsed(), listening.failures()), (Duration::ZERO, 0));
        // EMFILE, ENFILE and ENOMEM as Linux numbers them.
        for code in [24, 23, 12] {
            listening.failed(io::Error::from_raw_os_error(code), 1).await;
        }
        assert_eq!((begun.elapsed(), listening.failures()), (PAUSE * 3, 3));
        listening.displaced(64);
        assert_eq!(listening.displacements(), 1);
        for _ in 0..2 {
            timeout(LONG, listening.calm()).await.unwrap();
        }
        assert!(timeout(LONG, listening.calm()).await.is_err());
    }
}
