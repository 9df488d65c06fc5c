//! A named thread with a runtime of its own, told to stop and joined at the end.
//!
//! What may block or must not be delayed by the data plane gets one: the fleet, the admin listener,
//! the spool's writer, the bundle loader. Nothing runs in the background outside a [`Worker`] or a
//! task that a worker owns.

use std::{
    future::Future,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use tokio::sync::watch;

/// A running thread.
#[derive(Debug)]
pub struct Worker {
    name: &'static str,
    stop: watch::Sender<bool>,
    /// Closed when the thread is over.
    over: Receiver<()>,
}

/// Tells a worker to end.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Ends when the worker is told to stop, or its owner is gone.
    pub async fn requested(&mut self) {
        // An error means that the owner is gone, which asks for the same.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether the worker was told to stop.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Worker {
    /// Starts a thread that runs `body` and is over when it returns.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn spawn<B>(name: &'static str, body: B) -> io::Result<Self>
    where
        B: FnOnce(Stop) + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let (done, over) = sync_channel(1);
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            body(Stop(stopped));
            drop(done);
        })?;
        Ok(Self { name, stop, over })
    }

    /// Starts a thread that drives the future of `body` on a runtime of its own. The tasks it leaves
    /// behind end with it, and calls that block, such as the system's looking up of a name, are not waited for.
    ///
    /// # Errors
    /// When the system gives no thread or no runtime.
    pub fn spawn_async<B, F>(name: &'static str, body: B) -> io::Result<Self>
    where
        B: FnOnce(Stop) -> F + Send + 'static,
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Self::spawn(name, move |stop| {
            runtime.block_on(body(stop));
            // Dropped, it would wait until the last name server has not answered either.
            runtime.shutdown_background();
        })
    }

    /// Asks it to end, without waiting.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Asks it to end and waits for that at most `within`. Says whether it is over; if not, the
    /// process ends without it.
    pub fn join(self, within: Duration) -> bool {
        self.stop();
        let over = self.over.recv_timeout(within) != Err(RecvTimeoutError::Timeout);
        if !over {
            tracing::warn!(worker = self.name, "still busy, left behind");
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_worker_ends_when_it_is_told_to() {
        let worker =
            Worker::spawn_async("test-obeys", |mut stop| async move { stop.requested().await });
        assert!(worker.unwrap().join(LONG));
    }

    #[test]
    fn a_worker_does_not_wait_for_what_blocks_on_its_runtime() {
        let (begun, seen) = sync_channel::<()>(1);
        let (release, held) = sync_channel::<()>(1);
        let worker = Worker::spawn_async("test-looks-up", |mut stop| async move {
            let looking_up = tokio::task::spawn_blocking(move || {
                drop(begun);
                let _ = held.recv();
            });
            tokio::select! {
                _ = looking_up => {}
                () = stop.requested() => {}
            }
        });
        assert_eq!(seen.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        assert!(worker.unwrap().join(LONG), "a name server hangs");
        drop(release);
    }

    #[test]
    fn a_worker_that_does_not_end_is_left_behind() {
        let (release, held) = sync_channel::<()>(1);
        let worker = Worker::spawn("test-busy", move |_| {
            let _ = held.recv();
        });
        let worker = worker.unwrap();
        assert!(!worker.join(Duration::from_millis(1)));
        drop(release);
    }

    #[test]
    fn a_worker_ends_when_its_owner_is_gone() {
        let (gone, seen) = sync_channel::<()>(1);
        let worker = Worker::spawn_async("test-orphan", |mut stop| async move {
            stop.requested().await;
            drop(gone);
        });
        drop(worker.unwrap());
        assert_eq!(seen.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }
}
