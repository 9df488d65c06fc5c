//! The way of a log line from whoever logs to standard error, which nobody who logs waits for.
//!
//! A reader of standard error that stalls would otherwise hold up every thread that has something to say, the one that ends
//! the process included. So lines go into a bounded buffer and a thread of its own writes them; what finds the buffer full
//! is dropped and counted, and said once the reader goes on. A line that cannot be written, for its reader is gone or its disk is full, is
//! lost and counted, and nobody is the worse for it.
//!
//! (The crate tracing-appender has the same, but tells a full buffer at the end by printing, which waits for that reader after all.)

use std::{
    io::{self, Write},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

use crate::worker::Worker;

/// Most bytes that wait: some thousand lines, a burst of a second at the level debug.
const MOST_BYTES: usize = 1 << 20;
/// How long the end of the process waits for lines that are not written.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where lines wait to be written.
#[derive(Debug, Default)]
pub struct Lines {
    waiting: Mutex<Waiting>,
    news: Condvar,
    /// Lines that found no room.
    dropped: AtomicU64,
    /// Lines that could not be written, of which nothing can be said there either.
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    closed: bool,
}

impl Lines {
    /// Lines that were not written.
    pub fn lost(&self) -> u64 {
        self.dropped.load(Relaxed) + self.failed.load(Relaxed)
    }

    /// Takes a line that is whole; never waits for its writer.
    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.closed || waiting.text.len() + line.len() > MOST_BYTES {
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        waiting.text.extend_from_slice(line);
        self.news.notify_one();
    }

    /// Writes what comes until the end; `said` is told how many lines found no room, once there is some again.
    fn write(&self, mut out: impl Write, said: impl Fn(u64)) {
        let (mut text, mut told) = (Vec::new(), 0);
        while self.take(&mut text) {
            // Each by itself: other processes write to the same stream, and a short line is not torn by theirs.
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                if out.write_all(line).is_err() {
                    self.failed.fetch_add(1, Relaxed);
                }
            }
            let dropped = self.dropped.load(Relaxed);
            if dropped > mem::replace(&mut told, dropped) {
                said(dropped);
            }
        }
    }

    /// Replaces `text` by what waits, once something does; says whether anything is left to be written.
    fn take(&self, text: &mut Vec<u8>) -> bool {
        text.clear();
        let mut waiting = self.waiting.lock();
        while waiting.text.is_empty() && !waiting.closed {
            self.news.wait(&mut waiting);
        }
        mem::swap(text, &mut waiting.text);
        !text.is_empty()
    }

    fn close(&self) {
        self.waiting.lock().closed = true;
        self.news.notify_one();
    }
}

/// What logs writes here.
#[derive(Debug)]
pub struct Inlet(Arc<Lines>);

impl<'a> MakeWriter<'a> for Inlet {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Inlet {
    /// A line is written at once and whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The thread that writes. Dropping it lets what waits be written, for a bounded time.
#[derive(Debug)]
pub struct Scribe {
    lines: Arc<Lines>,
    worker: Option<Worker>,
}

impl Scribe {
    /// Starts to write to `out` what comes by the inlet.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        out: impl Write + Send + 'static,
        said: impl Fn(u64) + Send + 'static,
    ) -> io::Result<(Self, Inlet)> {
        let lines = Arc::new(Lines::default());
        let of = lines.clone();
        let worker = Worker::spawn("weir-log", move |_| of.write(out, said))?;
        let inlet = Inlet(lines.clone());
        Ok((Self { lines, worker: Some(worker) }, inlet))
    }

    /// Where the lines wait.
    pub const fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.lines.close();
        self.worker.take().map(|worker| worker.join(FAREWELL));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, SyncSender, sync_channel},
        time::Instant,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A reader that takes a line when the test takes it.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            self.0.send(line.to_owned()).map_err(gone).map(|()| line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Scribe, Inlet, Receiver<Vec<u8>>, Receiver<u64>) {
        let (send, read) = sync_channel(0);
        let (tell, told) = sync_channel(9);
        let (scribe, inlet) =
            Scribe::start(Slow(send), move |lost| tell.send(lost).unwrap()).unwrap();
        (scribe, inlet, read, told)
    }

    fn log(inlet: &Inlet, line: &[u8]) {
        inlet.make_writer().write_all(line).unwrap();
    }

    #[test]
    fn who_logs_does_not_wait_for_a_reader_that_stalls() {
        let (scribe, inlet, read, told) = slow();
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let begun = Instant::now();
        for _ in 0..5000 {
            log(&inlet, &line);
        }
        assert!(begun.elapsed() < LONG);
        let lost = scribe.lines().lost();
        assert!(
            (2900..4000).contains(&lost),
            "{lost}: a buffer waits, and perhaps one is being written"
        );
        // It is said once the reader goes on.
        for _ in 0..5000 - lost {
            assert_eq!(read.recv_timeout(LONG).unwrap(), line);
        }
        assert_eq!(told.recv_timeout(LONG).unwrap(), lost);
    }

    #[test]
    fn the_end_writes_what_waits_and_waits_no_longer_than_it_may() {
        let (scribe, inlet, read, _told) = slow();
        for line in [b"one\n", b"two\n"] {
            log(&inlet, line);
        }
        let reader = std::thread::spawn(move || [read.recv(), read.recv()].map(Result::unwrap));
        drop(scribe);
        assert_eq!(reader.join().unwrap(), [b"one\n", b"two\n"]);

        let (scribe, inlet, _read, _told) = slow();
        log(&inlet, b"never read\n");
        let begun = Instant::now();
        drop(scribe);
        assert!(begun.elapsed() < FAREWELL * 10);
    }

    #[test]
    fn a_reader_that_is_gone_costs_its_lines_and_no_more() {
        let (scribe, inlet, read, told) = slow();
        drop(read);
        log(&inlet, b"nobody reads\n");
        let lines = scribe.lines().clone();
        drop(scribe);
        assert_eq!(lines.lost(), 1);
        assert!(told.try_recv().is_err(), "there is nobody to tell");
    }
}
