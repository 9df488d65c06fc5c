//! What a dispatcher writes into the bundles' folder: which version is pinned, and which ones the trainer may not remove.
//!
//! Called by the loader's thread. A file is flushed under a name that nobody else has, renamed, and the folder is flushed:
//! whoever reads it reads all of it, and so does whoever starts after the power went.

use std::{
    collections::BTreeSet,
    fs, io,
    path::Path,
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_schema::manifest::{PINNED_FILE, SERVING_FILE, bundle_name, serving_versions};

use crate::files::{flush, replace};

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

/// Which versions this dispatcher serves or may go back to, as it has said in the folder.
///
/// Others that share the folder say theirs in the same file. Each takes off what it has said itself and puts back what another has
/// taken off; a folder rings at a change, so that is soon. What is there at the start may be of one that is gone: it goes, and
/// whoever is still there puts its own back.
#[derive(Debug, Default)]
pub(super) struct Notice {
    /// `None` before anything was.
    said: Option<BTreeSet<u64>>,
    /// Whether it was told that the folder cannot be written.
    told: bool,
}

impl Notice {
    /// Says it, where the folder says something else.
    pub(super) fn say(&mut self, dir: &Path, serves: BTreeSet<u64>) {
        // One that cannot be read is written anew.
        let listed = serving_versions(dir).unwrap_or_default();
        let own = self.said.replace(serves.clone()).unwrap_or_else(|| listed.clone());
        let mut list: BTreeSet<u64> = &(&listed - &own) | &serves;
        list.retain(|version| dir.join(bundle_name(*version)).is_dir());
        if list == listed {
            return;
        }
        let written = if list.is_empty() {
            remove(dir, SERVING_FILE)
        } else {
            let names: String = list.iter().map(|one| bundle_name(*one) + "\n").collect();
            put(dir, SERVING_FILE, &names)
        };
        match written {
            Ok(()) => self.told = false,
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    let why = "the trainer is not told what serves here; it may remove that";
                    tracing::warn!(?list, %error, "{why}");
                }
            }
        }
    }
}

/// Replaces a file as a whole.
fn put(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // In containers several that share the folder have one id.
    let part = dir.join(format!(".{name}-{}-{}", process::id(), now.as_nanos()));
    replace(&dir.join(name), &part, text.as_bytes(), 0o666)
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

    fn versions<const N: usize>(versions: [u64; N]) -> BTreeSet<u64> {
        BTreeSet::from(versions)
    }

    #[test]
    fn several_dispatchers_say_what_serves_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        (1..=6).for_each(|version| fs::create_dir(dir.join(bundle_name(version))).unwrap());
        let listed = || serving_versions(dir).unwrap();
        let (mut one, mut other) = (Notice::default(), Notice::default());
        one.say(dir, versions([]));
        assert!(!dir.join(SERVING_FILE).exists(), "nothing to say, nothing written");
        one.say(dir, versions([3, 9]));
        assert_eq!(listed(), versions([3]), "what is not there is not listed");
        other.say(dir, versions([4]));
        assert_eq!(listed(), versions([4]), "it may be of one that is gone");
        one.say(dir, versions([3, 9]));
        assert_eq!(listed(), versions([3, 4]), "whoever is there puts it back");
        other.say(dir, versions([5]));
        assert_eq!(listed(), versions([3, 5]));
        one.say(dir, versions([]));
        other.say(dir, versions([]));
        assert!(!dir.join(SERVING_FILE).exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told_once_and_tried_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::create_dir(dir.join(bundle_name(3))).unwrap();
        fs::create_dir(dir.join(SERVING_FILE)).unwrap();
        let mut notice = Notice::default();
        notice.say(dir, versions([3]));
        assert!(notice.told);
        fs::remove_dir(dir.join(SERVING_FILE)).unwrap();
        notice.say(dir, versions([3]));
        assert!(!notice.told);
        assert_eq!(serving_versions(dir).unwrap(), versions([3]));
    }
}
