//! The names of the spool's segment files.
//!
//! A spool is a directory of segments of samples, one JSON object per line. Only the newest segment
//! is appended to; its last line may be torn. The writer (the dispatcher) removes the oldest
//! segments when the spool grows past its cap; the reader (the trainer) never writes.

use std::path::{Path, PathBuf};

const PREFIX: &str = "samples-";
const SUFFIX: &str = ".jsonl";

/// The file name of a segment. Names sort by number.
pub fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:012}{SUFFIX}")
}

/// The number of a segment, if the path names one.
pub fn segment_number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// The segments of a spool, oldest first.
///
/// # Errors
/// When the directory cannot be read.
pub fn segments(dir: &Path) -> std::io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some(number) = segment_number(&path) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_name_gives_its_number_back() {
        assert_eq!(segment_number(Path::new(&segment_name(42))), Some(42));
        assert_eq!(segment_number(Path::new("samples-x.jsonl")), None);
    }
}
