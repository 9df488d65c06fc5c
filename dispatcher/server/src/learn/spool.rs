//! Writes samples to the spool.
//!
//! A thread of its own takes samples from the bounded channel that the hubs write to, so that a slow
//! disk delays no request: when the channel is full the hubs drop samples and count them. A segment
//! is closed when it is full and the oldest ones are removed when the spool is. A disk that refuses
//! costs samples, which are counted, and nothing else: the writer tries a new segment every
//! 5 s. After a failed write the segment is cut to its last whole line, or removed if it has none, and left: a line that is
//! torn is forgiven by the trainer only at a segment's end. A restart begins a new segment for the same reason.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use async_channel::Receiver;
use weir_schema::{
    Sample,
    spool::{segment_name, segments},
};

use super::{config::SpoolConfig, versions::Versions};

/// Samples that fit between the hubs and the writer: some seconds of a busy dispatcher.
pub const SAMPLES_QUEUED: usize = 8192;

/// Pause before a disk that refused is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Pause after a write, in which samples collect. To wake this thread for each of them would cost the data plane more than
/// everything else that a sample takes.
const COLLECT: Duration = Duration::from_millis(100);

/// Bytes collected before they are written even though more samples are waiting.
const BATCH_BYTES: usize = 256 << 10;

/// What the spool came to, for metrics.
#[derive(Debug, Default)]
pub struct SpoolTally {
    /// Samples written.
    pub written: AtomicU64,
    /// Samples lost because the disk refused them.
    pub lost: AtomicU64,
    /// Times the disk refused.
    pub errors: AtomicU64,
    /// Bytes of all segments.
    pub bytes: AtomicU64,
    /// Number of segments.
    pub segments: AtomicU64,
}

/// Writes every sample that arrives, until the channel is closed and empty.
pub fn run(
    config: &SpoolConfig,
    samples: &Receiver<Sample>,
    versions: &Versions,
    tally: &Arc<SpoolTally>,
) {
    let mut spool = Spool::new(config.clone(), tally.clone());
    // What an earlier process left counts too. There may be no folder yet.
    spool.trim();
    let mut batch = Batch::default();
    while let Ok(sample) = samples.recv_blocking() {
        batch.add(&sample, versions);
        while batch.bytes.len() < BATCH_BYTES
            && let Ok(sample) = samples.try_recv()
        {
            batch.add(&sample, versions);
        }
        spool.take(&batch, Instant::now());
        batch.clear();
        if samples.is_empty() && !samples.is_closed() {
            thread::sleep(COLLECT);
        }
    }
}

/// Whole lines that are written at once.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    samples: u64,
}

impl Batch {
    fn add(&mut self, sample: &Sample, versions: &Versions) {
        versions.observe(sample);
        sample.write_line(&mut self.bytes);
        self.samples += 1;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.samples = 0;
    }
}

/// The segments on disk.
struct Spool {
    config: SpoolConfig,
    tally: Arc<SpoolTally>,
    open: Option<Segment>,
    /// The disk refused; not to be tried before this.
    retry_at: Option<Instant>,
}

struct Segment {
    file: File,
    path: PathBuf,
    /// Of whole lines.
    bytes: u64,
}

impl Segment {
    /// Whether nothing of it is left in the folder.
    fn is_gone(&self) -> bool {
        self.file.metadata().is_ok_and(|of| of.nlink() == 0)
    }
}

impl Spool {
    fn new(config: SpoolConfig, tally: Arc<SpoolTally>) -> Self {
        Self { config, tally, open: None, retry_at: None }
    }

    fn take(&mut self, batch: &Batch, now: Instant) {
        if self.retry_at.is_some_and(|at| now < at) {
            self.tally.lost.fetch_add(batch.samples, Relaxed);
            return;
        }
        match self.write(batch) {
            Ok(()) => {
                self.retry_at = None;
                self.tally.written.fetch_add(batch.samples, Relaxed);
            }
            Err(error) => {
                tracing::warn!(dir = %self.config.dir.display(), %error, "samples cannot be written");
                self.leave();
                self.retry_at = Some(now + RETRY);
                self.tally.lost.fetch_add(batch.samples, Relaxed);
                self.tally.errors.fetch_add(1, Relaxed);
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        // One that was removed takes no more lines: nobody would find them.
        self.open.take_if(|segment| segment.is_gone());
        let begins = self.open.is_none();
        let segment = match &mut self.open {
            Some(segment) => segment,
            closed => closed.insert(begin(&self.config)?),
        };
        segment.file.write_all(&batch.bytes)?;
        let bytes = batch.bytes.len() as u64;
        segment.bytes += bytes;
        if segment.bytes >= self.config.segment_bytes {
            self.open = None;
        }
        let total = self.tally.bytes.fetch_add(bytes, Relaxed) + bytes;
        // The folder is looked at only when there is something to be done or to be learned.
        if begins || total > self.config.max_bytes {
            self.trim();
        }
        Ok(())
    }

    /// Leaves the open segment after a failed write, without what was torn. A disk that refuses this too keeps it.
    fn leave(&mut self) {
        let Some(Segment { path, bytes, .. }) = self.open.take() else { return };
        let _ = match bytes {
            0 => fs::remove_file(&path),
            whole => {
                OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(whole))
            }
        };
        self.trim();
    }

    /// Removes the oldest segments until the spool is below its bound; the one that is written to
    /// stays. What cannot be removed is passed over, and what somebody else has removed is gone.
    fn trim(&self) {
        let Ok(all) = segments(&self.config.dir) else { return };
        let length = |(_, path): (u64, PathBuf)| Some((fs::metadata(&path).ok()?.len(), path));
        let all: Vec<(u64, PathBuf)> = all.into_iter().filter_map(length).collect();
        let mut total: u64 = all.iter().map(|(bytes, _)| bytes).sum();
        let mut left = all.len();
        for (bytes, path) in all.iter().take(all.len().saturating_sub(1)) {
            if total <= self.config.max_bytes {
                break;
            }
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "a segment cannot be removed");
                }
                _ => {
                    total -= bytes;
                    left -= 1;
                }
            }
        }
        self.tally.bytes.store(total, Relaxed);
        self.tally.segments.store(left as u64, Relaxed);
    }
}

/// Begins a segment with the next free number.
fn begin(config: &SpoolConfig) -> io::Result<Segment> {
    fs::create_dir_all(&config.dir)?;
    let last = segments(&config.dir)?.last().map_or(0, |(number, _)| *number);
    let path: PathBuf = config.dir.join(segment_name(last + 1));
    let file = OpenOptions::new().append(true).create_new(true).open(&path)?;
    Ok(Segment { file, path, bytes: 0 })
}

#[cfg(test)]
mod tests {
    use super::{super::versions::tests::sample, *};

    fn spool(dir: &std::path::Path, segment_bytes: u64, max_bytes: u64) -> Spool {
        let config = SpoolConfig { dir: dir.to_owned(), segment_bytes, max_bytes };
        Spool::new(config, Arc::default())
    }

    fn batch(samples: u64) -> Batch {
        let mut batch = Batch::default();
        (0..samples).for_each(|_| batch.add(&sample(1, 100.0), &Versions::default()));
        batch
    }

    fn lines(dir: &std::path::Path) -> usize {
        let text = |(_, path): &(u64, PathBuf)| fs::read_to_string(path).unwrap();
        let all: Vec<String> = segments(dir).unwrap().iter().map(text).collect();
        let lines = all.iter().flat_map(|text| text.lines());
        lines.filter(|line| serde_json::from_str::<Sample>(line).is_ok()).count()
    }

    #[test]
    fn a_segment_that_was_removed_takes_no_more_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = spool(dir.path(), 1 << 20, 4 << 20);
        spool.take(&batch(3), Instant::now());
        for (_, path) in segments(dir.path()).unwrap() {
            fs::remove_file(path).unwrap();
        }
        spool.take(&batch(2), Instant::now());
        assert_eq!(lines(dir.path()), 2);
    }

    #[test]
    fn what_cannot_be_removed_costs_no_sample_and_keeps_no_other_segment() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(segment_name(1))).unwrap();
        let mut spool = spool(dir.path(), 1, 20_000);
        for _ in 0..40 {
            spool.take(&batch(3), Instant::now());
        }
        assert_eq!(spool.tally.written.load(Relaxed), 120);
        assert_eq!((spool.tally.lost.load(Relaxed), spool.tally.errors.load(Relaxed)), (0, 0));
        assert!(spool.tally.bytes.load(Relaxed) <= 20_000 + 5000);
    }

    #[test]
    fn every_sample_becomes_a_line_and_a_closed_channel_ends_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let (sink, samples) = async_channel::bounded(16);
        (0..5).for_each(|_| sink.try_send(sample(1, 100.0)).unwrap());
        sink.close();
        let (versions, tally) = (Versions::default(), Arc::default());
        let config =
            SpoolConfig { dir: dir.path().join("new"), segment_bytes: 1 << 20, max_bytes: 4 << 20 };
        run(&config, &samples, &versions, &tally);
        assert_eq!(lines(&config.dir), 5);
        assert_eq!((tally.written.load(Relaxed), versions.samples()), (5, 5));
    }

    #[test]
    fn a_full_segment_is_followed_by_another_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let size = batch(1).bytes.len() as u64;
        let mut spool = spool(dir.path(), 2 * size, 6 * size);
        for _ in 0..20 {
            spool.take(&batch(1), Instant::now());
        }
        let numbers: Vec<u64> = segments(dir.path()).unwrap().iter().map(|(n, _)| *n).collect();
        assert_eq!(numbers, [8, 9, 10]);
        assert_eq!(lines(dir.path()), 6);
        assert_eq!(spool.tally.bytes.load(Relaxed), 6 * size);
        assert_eq!(spool.tally.segments.load(Relaxed), 3);
    }

    #[test]
    fn a_restart_begins_a_new_segment() {
        let dir = tempfile::tempdir().unwrap();
        spool(dir.path(), 1 << 20, 4 << 20).take(&batch(1), Instant::now());
        spool(dir.path(), 1 << 20, 4 << 20).take(&batch(1), Instant::now());
        assert_eq!(segments(dir.path()).unwrap().len(), 2);
        assert_eq!(lines(dir.path()), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_fills_up_leaves_whole_lines_and_no_empty_segment() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = spool(dir.path(), 1 << 20, 4 << 20);
        spool.take(&batch(3), Instant::now());
        let whole = batch(3).bytes.len() as u64;
        let segment = |number: u64, text: &[u8], bytes| {
            let path = dir.path().join(segment_name(number));
            fs::write(&path, text).unwrap();
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            Segment { file: full, path, bytes }
        };
        // Nothing but a torn line was written to it.
        spool.open = Some(segment(2, b"{\"torn", 0));
        spool.take(&batch(1), Instant::now());
        assert_eq!(segments(dir.path()).unwrap().len(), 1);
        let torn = [batch(3).bytes, b"{\"torn".to_vec()].concat();
        spool.open = Some(segment(2, &torn, whole));
        spool.retry_at = None;
        spool.take(&batch(1), Instant::now());
        let left = segments(dir.path()).unwrap();
        let sizes: Vec<u64> = left.iter().map(|(_, path)| path.metadata().unwrap().len()).collect();
        assert_eq!(sizes, [whole, whole]);
        assert_eq!((spool.tally.errors.load(Relaxed), spool.tally.lost.load(Relaxed)), (2, 2));
        assert_eq!(spool.tally.bytes.load(Relaxed), 2 * whole);
        assert_eq!(spool.tally.segments.load(Relaxed), 2);
    }

    #[test]
    fn a_disk_that_refuses_costs_samples_until_it_is_well_again() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("spool");
        fs::write(&blocked, "a file where the folder should be").unwrap();
        let mut spool = spool(&blocked, 1 << 20, 4 << 20);
        let start = Instant::now();
        spool.take(&batch(2), start);
        spool.take(&batch(3), start + RETRY / 2);
        assert_eq!(spool.tally.lost.load(Relaxed), 5);
        assert_eq!(spool.tally.errors.load(Relaxed), 1);
        fs::remove_file(&blocked).unwrap();
        spool.take(&batch(4), start + RETRY);
        assert_eq!(spool.tally.written.load(Relaxed), 4);
        assert_eq!(lines(&blocked), 4);
    }
}
