//! A folder belongs to one dispatcher at a time.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// A file that this process has locked, which the system undoes when the process ends in whatever way.
#[derive(Debug, Default)]
pub(super) struct Lock(Option<File>);

impl Lock {
    /// Has the folder, which is made where there is none. `false`: another dispatcher has it.
    ///
    /// # Errors
    /// When it cannot be made, or not be locked.
    pub(super) fn take(&mut self, dir: &Path) -> io::Result<bool> {
        let is_there = |file: &File| file.metadata().is_ok_and(|of| of.nlink() > 0);
        if self.0.as_ref().is_some_and(is_there) {
            return Ok(true);
        }
        self.0 = None;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
        let file = open.open(dir.join("lock"))?;
        match file.try_lock() {
            Ok(()) => {
                self.0 = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_dispatchers_until_that_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        let (mut first, mut second) = (Lock::default(), Lock::default());
        assert!(first.take(&dir).unwrap());
        assert!(first.take(&dir).unwrap());
        assert!(!second.take(&dir).unwrap());
        drop(first);
        assert!(second.take(&dir).unwrap());
        // Somebody has cleared up.
        fs::remove_dir_all(&dir).unwrap();
        assert!(second.take(&dir).unwrap());
        assert!(dir.join("lock").exists());
        assert!(!Lock::default().take(&dir).unwrap());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_said() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Lock::default().take(&file).is_err());
    }
}
