//! What a dispatcher writes into the bundles' folder: which version is pinned.
//!
//! Called by the loader's thread. A file is flushed under a name that nobody else has, renamed, and the folder is flushed:
//! whoever reads it reads all of it, and so does whoever starts after the power went.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_schema::manifest::{PINNED_FILE, bundle_name};

/// Writes which version is pinned; `None`: that none is.
///
/// # Errors
/// When the folder cannot be written. What was said before is said still, or the new file is there and may not outlast the power.
pub(super) fn write_pin(dir: &Path, pinned: Option<u64>) -> io::Result<()> {
    match pinned {
        Some(version) => put(dir, PINNED_FILE, &format!("{}\n", bundle_name(version))),
        None => remove(dir, PINNED_FILE),
    }
}

/// Replaces a file as a whole.
fn put(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // In containers several that share the folder have one id.
    let part = dir.join(format!(".{name}-{}-{}", process::id(), now.as_nanos()));
    let mut file = File::options().write(true).create_new(true).open(&part)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&part, dir.join(name)));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.and_then(|()| flush(dir))
}

/// Removes a file that may not be there.
fn remove(dir: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(dir.join(name)) {
        Ok(()) => {
            // It is gone for everybody who looks now, which is what was asked for.
            let _ = flush(dir);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Flushes the names in a folder.
fn flush(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use weir_schema::manifest::pinned_version;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_pin_is_there_as_a_whole_or_not_and_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        write_pin(dir, None).unwrap();
        for version in [7, 3] {
            write_pin(dir, Some(version)).unwrap();
            assert_eq!(pinned_version(dir).unwrap(), Some(version));
        }
        assert_eq!(names(dir), ["pinned"]);
        write_pin(dir, None).unwrap();
        assert!(names(dir).is_empty());
        // A folder of that name stands in the way for any user.
        fs::create_dir(dir.join("pinned")).unwrap();
        assert!(write_pin(dir, Some(1)).is_err() && write_pin(dir, None).is_err());
        assert_eq!(names(dir), ["pinned"]);
        assert!(write_pin(&dir.join("gone"), Some(1)).is_err());
    }
}
