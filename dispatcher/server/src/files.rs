//! Files that are replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Replaces a file by one with these bytes, which is written as `part` beside it first; no two may write that at a time. Whoever reads
/// the file reads all of it, and so does whoever starts after the power went.
///
/// # Errors
/// When the folder cannot be written. What was there is there still, or the new file is and may not outlast the power.
pub fn replace(file: &Path, part: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut to = options.write(true).create(true).truncate(true).mode(mode).open(part)?;
    let written =
        to.write_all(bytes).and_then(|()| to.sync_all()).and_then(|()| fs::rename(part, file));
    if written.is_err() {
        // What is left of it would take the room that there is too little of.
        let _ = fs::remove_file(part);
    }
    written.and_then(|()| file.parent().map_or(Ok(()), flush))
}

/// Flushes the names in a folder.
///
/// # Errors
/// When it cannot be read or flushed.
pub fn flush(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
