//! Reads what was appended to the spool since the last look.
//!
//! Owns one place per segment: which file it was and how far it was read. The writer may append,
//! rotate and remove segments meanwhile; a line is taken once, when its newline has been written.
//! Nothing found in the spool is an error: it is counted and, when it is a file, named. Memory is
//! one line, whatever a file holds.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use weir_schema::{Sample, spool::segments};

use super::{
    Skipped,
    admit::{Refused, admit},
};

/// Longest line that is read. A sample is about a kilobyte; its model name may be long.
const MAX_LINE: u64 = 64 * 1024;

/// How far one segment was read.
#[derive(Debug, Default)]
struct Place {
    /// Device and inode, which tell a new file of an old name.
    file: (u64, u64),
    /// Bytes taken; always the start of a line, unless `discarding`.
    offset: u64,
    /// Inside a line that is too long, up to its newline.
    discarding: bool,
    /// The broken last line was counted.
    torn: bool,
    /// The segment was named as unreadable.
    refused: bool,
}

impl Place {
    /// Starts over when the segment is another file, or was cut, since the last look.
    fn meet(&mut self, found: &Metadata) {
        let file = (found.dev(), found.ino());
        if self.file != file || found.len() < self.offset {
            *self = Self { file, ..Self::default() };
        }
    }
}

/// Reads a spool, look by look.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    dir: PathBuf,
    schema: String,
    places: BTreeMap<u64, Place>,
    /// It was said that there is no such folder yet.
    awaited: bool,
    /// The line being read, kept for its room.
    pub(super) line: Vec<u8>,
}

impl SpoolReader {
    /// A reader that has seen nothing.
    pub(crate) fn new(dir: PathBuf, schema: String) -> Self {
        Self { dir, schema, places: BTreeMap::new(), awaited: false, line: Vec::new() }
    }

    /// Gives `take` every sample that is new since the last look, oldest segment first.
    pub(crate) fn read(
        &mut self,
        now_unix_ms: u64,
        skipped: &mut Skipped,
        mut take: impl FnMut(Sample, &mut Skipped),
    ) {
        let found = match segments(&self.dir) {
            Ok(found) => found,
            // Nothing was ever written there: the dispatcher makes the folder with its first samples.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.places.is_empty() => {
                if !std::mem::replace(&mut self.awaited, true) {
                    tracing::info!(spool = %self.dir.display(), "no samples yet: the folder is not there");
                }
                return;
            }
            Err(error) => {
                // The places are kept: the directory may come back as it was.
                skipped.unreadable += 1;
                skipped.tell(format!("{}: {error}", self.dir.display()));
                return;
            }
        };
        self.places.retain(|number, _| found.iter().any(|(there, _)| there == number));
        let newest = found.last().map(|(number, _)| *number);
        for (number, path) in &found {
            let place = self.places.entry(*number).or_default();
            let schema = &self.schema;
            let done = read_segment(path, place, &mut self.line, |piece| match piece {
                Piece::Line(line) => match admit(line, schema, now_unix_ms) {
                    Ok(sample) => take(sample, skipped),
                    Err(why) => count(why, path, skipped),
                },
                Piece::TooLong => skipped.too_long += 1,
                Piece::Torn if Some(*number) == newest => {}
                Piece::Torn => skipped.torn += 1,
            });
            // The writer appends to the newest only: what breaks off there may yet go on.
            place.torn &= Some(*number) != newest;
            note_outcome(done, path, place, skipped);
        }
    }
}

/// What a segment is made of.
enum Piece<'a> {
    /// A line without its newline.
    Line(&'a [u8]),
    /// The start of a line that is longer than [`MAX_LINE`].
    TooLong,
    /// The rest of a segment that does not end in a newline; told once.
    Torn,
}

/// Reads from the place to the present end, and moves the place.
fn read_segment(
    path: &Path,
    place: &mut Place,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(Piece<'_>),
) -> io::Result<()> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        // Opening a pipe would block until somebody writes to it.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    place.meet(&found);
    if found.len() == place.offset {
        return Ok(());
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(place.offset))?;
    // No further than the end seen now, or a fast writer would never let a look end.
    let mut reader = BufReader::with_capacity(1 << 16, file.take(found.len() - place.offset));
    loop {
        buffer.clear();
        let got = (&mut reader).take(MAX_LINE).read_until(b'\n', buffer)? as u64;
        let ends = buffer.pop_if(|last| *last == b'\n').is_some();
        match (ends, got) {
            (_, 0) => return Ok(()),
            (true, _) if place.discarding => place.discarding = false,
            (true, _) => each(Piece::Line(buffer)),
            (false, _) if place.discarding => {}
            (false, MAX_LINE) => {
                place.discarding = true;
                each(Piece::TooLong);
            }
            (false, _) => {
                if !std::mem::replace(&mut place.torn, true) {
                    each(Piece::Torn);
                }
                return Ok(());
            }
        }
        place.offset += got;
    }
}

/// Counts a refused line.
fn count(why: Refused, path: &Path, skipped: &mut Skipped) {
    match why {
        Refused::NotUtf8 => skipped.not_utf8 += 1,
        Refused::NotJson => skipped.not_json += 1,
        Refused::OtherSchema => skipped.other_schema += 1,
        Refused::Absurd(what) => {
            skipped.absurd += 1;
            tracing::debug!(segment = %path.display(), what, "skipped an absurd sample");
        }
    }
}

/// Names a segment that could not be read: always in the look's problems, once in its count.
fn note_outcome(done: io::Result<()>, path: &Path, place: &mut Place, skipped: &mut Skipped) {
    match done {
        Ok(()) => place.refused = false,
        // Removed by the writer between the listing and now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            skipped.unreadable += u64::from(!place.refused);
            skipped.tell(format!("{}: {error}", path.display()));
            place.refused = true;
        }
    }
}
