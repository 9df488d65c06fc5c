//! How much memory bodies have that are being read, over all threads, and which of them makes room for another.
//!
//! What is usual is not counted (`budget`). A larger body that finds no room waits for a moment, and one that hardly comes
//! is given up for it, as connections are on which nothing is asked ([`super::room`]): otherwise whoever sends half of some large
//! bodies would have all others refused for as long as a body may take. It is the one that has for longest not come 64 KiB further,
//! and none that has within the last second. So what is held against others has to be sent, and goes on to be.
//!
//! Where all of them come as they should, or nothing is given back in time, the newcomer is refused.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::error::ApiError;
use crate::budget::{Budget, Part};

/// Bytes that a body comes further in [`STAYS`], or gives way: at that pace a body of 4 MiB takes a minute.
const FAR: usize = 64 << 10;
/// Time that a body has for that, and that one waits for room where nobody gives way.
const STAYS: Duration = Duration::from_secs(1);
/// One that is given up has so long for that until another is.
const LEAVES: Duration = Duration::from_millis(100);

/// The bodies that are being read and are large.
#[derive(Debug, Default)]
pub struct Reading {
    budget: Budget,
    all: Mutex<Readers>,
    /// Told whenever memory is given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Readers {
    by_number: BTreeMap<u64, Arc<Reader>>,
    number: u64,
}

/// What all know of a large body.
#[derive(Debug)]
struct Reader {
    since: Instant,
    /// Milliseconds since then after which it had last come far enough.
    moved: AtomicU64,
    /// It waits for room itself, so that it cannot come.
    waits: AtomicBool,
    given_up: AtomicBool,
    /// Whoever reads it.
    waker: AtomicWaker,
}

/// The memory of one body.
#[derive(Debug)]
pub struct Share<'a> {
    reading: &'a Reading,
    /// What all may have.
    most: usize,
    part: Part<&'a Budget>,
    /// Once it is counted. Dropped after what it has.
    seat: Option<Seat<'a>>,
}

/// A body's place among the large ones.
#[derive(Debug)]
struct Seat<'a> {
    reading: &'a Reading,
    reader: Arc<Reader>,
    number: u64,
    /// Its bytes when it had last come far enough.
    come: usize,
}

impl Reading {
    /// Memory for a body, which has none yet, where all may have so much.
    pub const fn share(&self, most: usize) -> Share<'_> {
        Share { reading: self, most, part: Part::of(&self.budget), seat: None }
    }

    /// Bytes that are counted.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    fn enter(&self) -> Seat<'_> {
        let reader = Arc::new(Reader::default());
        let mut all = self.all.lock();
        all.number += 1;
        let number = all.number;
        all.by_number.insert(number, reader.clone());
        Seat { reading: self, reader, number, come: 0 }
    }

    /// Gives one up that hardly comes. Otherwise says when there may be one; `None`: there is nobody to become one.
    fn give_up_one(&self, now: Instant) -> Result<(), Option<Instant>> {
        let all = self.all.lock();
        let moved = all.by_number.values().filter_map(|reader| Some((reader.moved_at()?, reader)));
        let (at, reader) = moved.min_by_key(|(at, _)| *at).ok_or(None)?;
        if at + STAYS > now {
            return Err(Some(at + STAYS));
        }
        reader.given_up.store(true, SeqCst);
        reader.waker.wake();
        Ok(())
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            moved: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }
}

impl Reader {
    fn moves(&self) {
        let after = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(after, SeqCst);
    }

    /// `None` of one that does not count: it waits itself, or is given up.
    fn moved_at(&self) -> Option<Instant> {
        let counts = !self.waits.load(SeqCst) && !self.given_up.load(SeqCst);
        counts.then(|| self.since + Duration::from_millis(self.moved.load(SeqCst)))
    }
}

impl Share<'_> {
    /// Takes what a body needs that is to have so many bytes.
    ///
    /// # Errors
    /// When there is no room, and nobody makes any.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if !self.part.grow(bytes, self.most) {
            // Boxed, for it is large and rare.
            Box::pin(self.wait_to_grow(bytes)).await?;
        }
        if self.seat.is_none() && self.part.is_counted() {
            self.seat = Some(self.reading.enter());
        }
        Ok(())
    }

    /// The body has come to so many bytes.
    pub fn has_come_to(&mut self, bytes: usize) {
        if let Some(seat) = &mut self.seat
            && bytes - seat.come >= FAR
        {
            seat.come = bytes;
            seat.reader.moves();
        }
    }

    /// Ready once it is to give up what it has; whoever polls is told when that changes.
    pub fn poll_given_up(&self, cx: &Context<'_>) -> Poll<ApiError> {
        let Some(seat) = &self.seat else { return Poll::Pending };
        seat.reader.waker.register(cx.waker());
        if seat.reader.given_up.load(SeqCst) {
            Poll::Ready(ApiError::NoRoom)
        } else {
            Poll::Pending
        }
    }

    async fn wait_to_grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.set_waiting(true);
        let mut until = Instant::now() + STAYS;
        loop {
            let freed = self.reading.freed.notified();
            if self.part.grow(bytes, self.most) {
                self.set_waiting(false);
                return Ok(());
            }
            let now = Instant::now();
            if now >= until {
                return Err(ApiError::NoRoom);
            }
            let look_at = match self.reading.give_up_one(now) {
                Ok(()) => {
                    until = now + STAYS;
                    now + LEAVES
                }
                Err(at) => at.unwrap_or(until).min(until),
            };
            let _ = timeout_at(look_at, freed).await;
        }
    }

    fn set_waiting(&self, waits: bool) {
        if let Some(Seat { reader, .. }) = &self.seat {
            // It may come again from now on.
            reader.moves();
            reader.waits.store(waits, SeqCst);
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.reading.all.lock().by_number.remove(&self.number);
        self.reading.freed.notify_waiters();
    }
}
