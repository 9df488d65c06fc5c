//! How many connections may be open, over all threads.
//!
//! Every thread has a listener of its own, and to which one a connection comes is the system's choice, which is far from even:
//! so the threads have one bound together and no shares of it. A thread has a place only for who has come, and keeps none for
//! who may; one that finds no place is told of the next that becomes free, whoever had it. Nothing is locked but by a thread
//! that waits, and to wake it.

use std::{
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};

/// The places that are left.
#[derive(Debug)]
pub struct Room {
    free: AtomicUsize,
    /// Told of every place that becomes free, also where nobody waits yet.
    freed: Notify,
}

/// A connection's place, free again when dropped.
#[derive(Debug)]
pub struct Place(Arc<Room>);

impl Room {
    /// Room for so many connections.
    pub fn of(connections: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(connections), freed: Notify::new() })
    }

    /// A place, if one is free.
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        let taken = self.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1));
        taken.is_ok().then(|| Place(self.clone()))
    }

    /// Accepts the next connection for which there is a place.
    ///
    /// # Errors
    /// Those of accepting.
    pub async fn accept(
        self: &Arc<Self>,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, Place)> {
        loop {
            let accepted = poll_fn(|cx| {
                // Given back where nobody has come, and so offered to who waits for one.
                let Some(place) = self.take() else { return Poll::Ready(None) };
                listener.poll_accept(cx).map_ok(|(stream, _)| (stream, place)).map(Some)
            });
            match accepted.await {
                Some(accepted) => return accepted,
                None => self.freed.notified().await,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, SeqCst);
        self.0.freed.notify_one();
    }
}
