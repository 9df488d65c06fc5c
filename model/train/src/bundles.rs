//! The directory of bundles: which one serves, and how the next one gets there.
//!
//! Owned by one trainer at a time, by a lock that the system lets go when the process ends,
//! however it ends. A bundle is written under a hidden name, flushed, and renamed; then `current`
//! is replaced by a rename. A crash at any point leaves hidden entries, which the next trainer
//! removes, or a whole bundle that nothing points to, whose version is not used again. A directory
//! that was removed is made and taken over anew: a lock on what has no name keeps nobody out.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Read as _, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use weir_schema::{
    LastRound, Manifest,
    manifest::{
        CURRENT_FILE, MANIFEST_CAP, MANIFEST_FILE, MODEL_CAP, MODEL_FILE, bundle_name,
        bundle_version, current_bundle, pinned_version, read_capped, serving_versions,
    },
    round::ROUND_FILE,
    schema_hash,
};

use crate::{TrainError, onnx::Graph};

/// What every entry is called until it is whole.
const PART: &str = ".part-";
/// What the owner holds.
const LOCK_FILE: &str = ".trainer.lock";

/// The bundle that `current` names.
pub(crate) struct Serving {
    /// Its version.
    pub version: u64,
    /// When it was trained: it has seen every sample up to then.
    pub trained_at_unix_ms: u64,
    /// Its graph.
    pub graph: Graph,
}

/// The directory of bundles.
#[derive(Debug)]
pub(crate) struct Bundles {
    dir: PathBuf,
    keep: usize,
    /// `None` where the file system knows no locks.
    lock: Option<File>,
    /// The highest version that was ever visible here to this trainer.
    highest: u64,
}

impl Bundles {
    /// Takes the directory over and removes what a crash left in it.
    pub(crate) fn open(dir: &Path, keep: usize) -> Result<Self, TrainError> {
        fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let lock = lock(dir)?;
        let mut bundles = Self { dir: dir.to_owned(), keep, lock, highest: 0 };
        for name in bundles.names()?.iter().filter(|name| name.starts_with(PART)) {
            let path = dir.join(name);
            match remove(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed what a crash left"),
                // Another user's, mostly. It costs room and nothing else.
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "what a crash left stays")
                }
            }
        }
        bundles.highest = bundles.highest_version()?;
        Ok(bundles)
    }

    /// Makes sure that the directory is there and still this trainer's, and says whether it had to be taken over anew.
    ///
    /// # Errors
    /// Those of [`Self::open`]: also when another trainer was there first.
    pub(crate) fn hold(&mut self) -> Result<bool, TrainError> {
        if self.is_held() {
            return Ok(false);
        }
        tracing::warn!(dir = %self.dir.display(), "the folder of the bundles or its lock is gone");
        let anew = Self::open(&self.dir, self.keep)?;
        *self = Self { highest: self.highest.max(anew.highest), ..anew };
        Ok(true)
    }

    fn is_held(&self) -> bool {
        let Some(lock) = &self.lock else { return self.dir.is_dir() };
        let file = |about: fs::Metadata| (about.dev(), about.ino());
        let there = fs::metadata(self.dir.join(LOCK_FILE)).map(file);
        matches!((lock.metadata().map(file), there), (Ok(held), Ok(there)) if held == there)
    }

    /// The bundle being served, if it can be compared with: whole, of this schema and of these pod classes. Of others no
    /// dispatcher serves it.
    pub(crate) fn serving(&self, classes: &[String]) -> Option<Serving> {
        match self.read_serving(classes) {
            Ok(serving) => serving,
            Err(reason) => {
                tracing::warn!(reason, "the current bundle cannot be compared with");
                None
            }
        }
    }

    fn read_serving(&self, classes: &[String]) -> Result<Option<Serving>, String> {
        let Some(path) = current_bundle(&self.dir).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let read = |file: &str, cap: u64| {
            let path = path.join(file);
            read_capped(&path, cap).map_err(|error| format!("{}: {error}", path.display()))
        };
        let manifest: Manifest = serde_json::from_slice(&read(MANIFEST_FILE, MANIFEST_CAP)?)
            .map_err(|error| error.to_string())?;
        if manifest.schema != schema_hash() {
            return Err(format!("it is of schema {}", manifest.schema));
        }
        if !manifest.fits(classes) {
            return Err(format!("it is of the pod classes {:?}", manifest.classes));
        }
        let model = read(MODEL_FILE, MODEL_CAP)?;
        if sha256(&model) != manifest.sha256 {
            return Err("its graph is not the one its manifest was written for".into());
        }
        let graph = Graph::decode(&model).map_err(|error| error.to_string())?;
        let Manifest { version, trained_at_unix_ms, .. } = manifest;
        Ok(Some(Serving { version, trained_at_unix_ms, graph }))
    }

    /// A version that is higher than every one that was ever visible here.
    pub(crate) fn next_version(&self) -> Result<u64, TrainError> {
        self.highest_version()?.checked_add(1).ok_or_else(|| {
            failed("count on in", &self.dir)(io::Error::other("the highest version is taken"))
        })
    }

    fn highest_version(&self) -> Result<u64, TrainError> {
        let current = current_bundle(&self.dir).ok().flatten();
        let current = current.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let names = self.names()?;
        // What stays hidden has taken its name too: nothing could be written under it.
        let names = names.iter().map(|name| name.strip_prefix(PART).unwrap_or(name));
        let versions = names.chain(current).filter_map(bundle_version);
        Ok(versions.fold(self.highest, u64::max))
    }

    /// Publishes a bundle, makes it the current one, and removes the oldest.
    pub(crate) fn publish(&mut self, manifest: &Manifest, model: &[u8]) -> Result<(), TrainError> {
        if model.len() as u64 > MODEL_CAP {
            let why = "larger than any dispatcher reads: ask for fewer trees or less depth";
            return Err(failed("publish into", &self.dir)(io::Error::other(why)));
        }
        let name = bundle_name(manifest.version);
        let (part, whole) = (self.part(&name), self.dir.join(&name));
        let written = write_bundle(&part, manifest, model)
            .and_then(|()| fs::rename(&part, &whole).map_err(failed("rename into", &whole)))
            .and_then(|()| sync_dir(&self.dir));
        let pointed = written.and_then(|()| self.put(CURRENT_FILE, format!("{name}\n").as_bytes()));
        if let Err(error) = pointed {
            // Best effort: what stays is hidden or unnamed, and goes at the next start.
            let _ = remove(&part);
            if !self.is_current(&name) {
                let _ = remove(&whole);
            }
            return Err(error);
        }
        self.highest = manifest.version;
        self.prune();
        Ok(())
    }

    fn part(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{PART}{name}"))
    }

    /// Says how the last round ended. In a folder that is not this trainer's whoever has it says so.
    pub(crate) fn note(&self, last: &LastRound) -> Result<(), TrainError> {
        if !self.is_held() {
            return Ok(());
        }
        let text = serde_json::to_vec(last)
            .map_err(|error| failed("write", &self.dir)(io::Error::other(error)))?;
        self.put(ROUND_FILE, &text)
    }

    /// What was said last, by this trainer or one before it; `None` also when that cannot be read.
    pub(crate) fn noted(&self) -> Option<LastRound> {
        LastRound::read(&self.dir).ok().flatten()
    }

    /// Replaces a file as a whole.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), TrainError> {
        let (part, whole) = (self.part(name), self.dir.join(name));
        let put = write_file(&part, bytes)
            .and_then(|()| fs::rename(&part, &whole).map_err(failed("rename into", &whole)));
        if put.is_err() {
            let _ = remove(&part);
        }
        put?;
        sync_dir(&self.dir)
    }

    fn is_current(&self, name: &str) -> bool {
        current_bundle(&self.dir).is_ok_and(|current| current == Some(self.dir.join(name)))
    }

    /// Removes the oldest bundles but those that serve, may serve again or are pinned. A failure costs only room, so it is told and borne.
    fn prune(&self) {
        let names = match self.names() {
            Ok(names) => names,
            Err(error) => return tracing::warn!(%error, "old bundles stay"),
        };
        let mut bundles: Vec<(u64, String)> =
            names.into_iter().filter_map(|name| Some((bundle_version(&name)?, name))).collect();
        bundles.sort_unstable_by(|one, other| other.cmp(one));
        // What cannot be read may be a pin: then nothing is removed that may be meant.
        let meant = pinned_version(&self.dir).and_then(|pinned| {
            Ok(serving_versions(&self.dir)?.into_iter().chain(pinned).collect())
        });
        let meant: BTreeSet<u64> = match meant {
            Ok(meant) => meant,
            Err(error) => return tracing::warn!(%error, "old bundles stay"),
        };
        let old = bundles.iter().skip(self.keep);
        let old = old.filter(|(version, _)| !meant.contains(version)).map(|(_, name)| name);
        for name in old.filter(|name| !self.is_current(name)) {
            if let Err(error) = self.discard(name) {
                tracing::warn!(%error, "an old bundle stays");
            }
        }
    }

    fn discard(&self, name: &str) -> Result<(), TrainError> {
        // Renamed first, so that nobody meets half of it under its name.
        let (whole, part) = (self.dir.join(name), self.part(name));
        fs::rename(&whole, &part).map_err(failed("rename", &whole))?;
        remove(&part).map_err(failed("remove", &part))
    }

    /// Names of the entries; those that are not text are none of ours.
    fn names(&self) -> Result<Vec<String>, TrainError> {
        let entries = fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok()));
        let names: io::Result<Vec<Option<String>>> = names.collect();
        Ok(names.map_err(failed("list", &self.dir))?.into_iter().flatten().collect())
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Two trainers in one directory would take each other's unfinished bundles for a crash's.
fn lock(dir: &Path) -> Result<Option<File>, TrainError> {
    let path = dir.join(LOCK_FILE);
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => {
            // For whoever finds it locked; a disk that is full costs that alone.
            let _ = file.set_len(0).and_then(|()| (&file).write_all(this_process().as_bytes()));
            Ok(Some(file))
        }
        Err(TryLockError::WouldBlock) => {
            Err(TrainError::Locked { dir: dir.to_owned(), by: holder(&path) })
        }
        Err(TryLockError::Error(error)) => {
            tracing::warn!(path = %path.display(), %error, "no locks here: run one trainer only");
            Ok(None)
        }
    }
}

/// This process, for somebody who may be on another machine or in another container.
fn this_process() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let on = if host.is_empty() { "" } else { " on " };
    format!("process {}{on}{}\n", std::process::id(), host.trim())
}

/// Who has a lock, as far as its file says.
fn holder(lock: &Path) -> String {
    let mut said = String::new();
    let read = File::open(lock).and_then(|file| file.take(256).read_to_string(&mut said));
    let line = said.lines().next().filter(|line| line.starts_with("process ") && read.is_ok());
    line.unwrap_or("a process that has not said which it is").to_owned()
}

fn write_bundle(part: &Path, manifest: &Manifest, model: &[u8]) -> Result<(), TrainError> {
    // One of this name is left from a publish that failed and could not clean up after itself.
    let _ = remove(part);
    fs::create_dir(part).map_err(failed("create", part))?;
    let text = serde_json::to_vec_pretty(manifest)
        .map_err(|error| failed("write", part)(io::Error::other(error)))?;
    write_file(&part.join(MODEL_FILE), model)?;
    write_file(&part.join(MANIFEST_FILE), &text)?;
    sync_dir(part)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(failed("write", path))
}

/// Flushes the names in a directory.
fn sync_dir(dir: &Path) -> Result<(), TrainError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("flush", dir))
}

/// Removes a file, a link or a directory with all in it.
fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrainError {
    let path = path.to_owned();
    move |reason| TrainError::Publish { action, path, reason }
}

#[cfg(test)]
#[path = "bundles_tests.rs"]
mod tests;
