//! What an operator sees of the bundles and does with them: list, look again, pin, unpin, roll back.
//!
//! The list is read from the folder by whoever asks. Orders go to the loader's thread, which alone loads
//! bundles, and are answered when they are done; while it is busy with another one, or ended, they are
//! refused after `PATIENCE`. A pin is a file beside `current`: it holds when this process starts anew, and for everybody who
//! takes bundles from the folder. Where the folder cannot be written it holds in this process, as long as it runs.
//! While that file cannot be read, or what it names cannot serve, nothing is taken from the folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use parking_lot::Mutex;
use serde::Serialize;
use weir_schema::{
    FeatureGain, Holdout, Manifest,
    manifest::{
        MANIFEST_CAP, MANIFEST_FILE, bundle_name, bundle_version, current_bundle, read_capped,
    },
    schema_hash,
};

use super::reload::Bell;

/// How long an order may take: to load a bundle for every pool takes tens of milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Orders that wait for the loader at most.
const ORDERS: usize = 8;
/// What an operator wants of the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Look at the folder now, and try again what was refused.
    Reload,
    /// Serve this version until it is unpinned, whatever is published.
    Pin(u64),
    /// Serve what `current` names again.
    Unpin,
    /// Pin the newest version before the one that serves.
    Rollback,
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The folder has no such bundle.
    #[error("there is no bundle v{0}")]
    NoBundle(u64),
    /// Nothing is older than what serves.
    #[error("there is no bundle before the one in service")]
    NoPredecessor,
    /// The bundle is unfit.
    #[error("bundle v{version} is refused: {reason}")]
    Refused {
        /// Which.
        version: u64,
        /// Why.
        reason: String,
    },
    /// There is no loader to ask: it did not find ONNX Runtime, or this process is about to end.
    #[error("bundles cannot be loaded: {0}")]
    NoLoader(String),
    /// The pin stays where it is written.
    #[error("the pin cannot be taken off: {0}")]
    PinStays(String),
    /// The loader did not answer in time.
    #[error("the loader is busy")]
    Busy,
}

/// An order and where its answer goes.
pub(super) type Slip = (Order, SyncSender<Result<(), OrderError>>);

/// Where orders are left; the loader holds the other end.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    orders: SyncSender<Slip>,
    bell: Bell,
    /// Versions that were tried and refused, with the reason.
    refused: Arc<Mutex<BTreeMap<u64, String>>>,
    /// What serves on an operator's word.
    pinned: Arc<Mutex<Option<u64>>>,
    /// Why what the folder says is pinned does not serve.
    pin_failing: Arc<Mutex<Option<String>>>,
}

/// The loader's side of a [`Shelf`].
#[derive(Debug)]
pub struct Counter {
    pub(super) orders: Receiver<Slip>,
    pub(super) refused: Arc<Mutex<BTreeMap<u64, String>>>,
    pub(super) pinned: Arc<Mutex<Option<u64>>>,
    pub(super) pin_failing: Arc<Mutex<Option<String>>>,
}

/// A bundle on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BundleView {
    /// Its version.
    pub version: u64,
    /// Whether `current` names it.
    pub current: bool,
    /// When it was trained, in milliseconds since 1970; `None` when its manifest cannot be read.
    pub trained_at_unix_ms: Option<u64>,
    /// Rows it was trained on, for TTFT and TPOT.
    pub rows: [usize; 2],
    /// Trees per target.
    pub trees: usize,
    /// Its errors on the newest slice.
    pub holdout: Option<Holdout>,
    /// What each feature brings; empty when the bundle does not say.
    pub gains: Vec<FeatureGain>,
    /// Why it was, or would be, refused.
    pub refused: Option<String>,
}

impl Shelf {
    /// A shelf over a folder of bundles, and the loader's side of it. `bell` wakes the loader.
    pub fn new(dir: PathBuf, bell: Bell) -> (Self, Counter) {
        let (orders, taken) = sync_channel(ORDERS);
        let shelf = Self {
            dir,
            orders,
            bell,
            refused: Arc::default(),
            pinned: Arc::default(),
            pin_failing: Arc::default(),
        };
        let counter = Counter {
            orders: taken,
            refused: shelf.refused.clone(),
            pinned: shelf.pinned.clone(),
            pin_failing: shelf.pin_failing.clone(),
        };
        (shelf, counter)
    }

    /// Has the loader carry out an order. Waits for it, at most `PATIENCE`: not to be called on a
    /// thread that must not block.
    ///
    /// # Errors
    /// Why it was not carried out. What served before serves on.
    pub fn order(&self, order: Order) -> Result<(), OrderError> {
        let (reply, replied) = sync_channel(1);
        self.orders.try_send((order, reply)).map_err(|_| OrderError::Busy)?;
        self.bell.ring();
        match replied.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(OrderError::Busy),
            Err(RecvTimeoutError::Disconnected) => {
                Err(OrderError::NoLoader("the loader has ended".to_owned()))
            }
        }
    }

    /// The version that is pinned.
    pub fn pinned(&self) -> Option<u64> {
        *self.pinned.lock()
    }

    /// Why what the folder says is pinned cannot be read or cannot serve; nothing is taken from the folder meanwhile.
    pub fn pin_failing(&self) -> Option<String> {
        self.pin_failing.lock().clone()
    }

    /// Every bundle in the folder, newest first. Reads their manifests, so it may block.
    pub fn bundles(&self) -> Vec<BundleView> {
        let current = current_bundle(&self.dir).ok().flatten();
        let refused = self.refused.lock().clone();
        let view = |version: u64| {
            let dir = self.dir.join(bundle_name(version));
            let mut view = read(version, &dir);
            view.current = current.as_deref() == Some(&dir);
            view.refused = refused.get(&version).cloned().or(view.refused);
            view
        };
        versions(&self.dir).into_iter().rev().map(view).collect()
    }
}

/// The versions in a folder, oldest first.
pub(super) fn versions(dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut versions: Vec<u64> = names.filter_map(|name| bundle_version(&name)).collect();
    versions.sort_unstable();
    versions
}

/// What the manifest of a bundle says.
fn read(version: u64, dir: &Path) -> BundleView {
    let blank = BundleView { version, ..BundleView::default() };
    match manifest(&dir.join(MANIFEST_FILE)) {
        Err(reason) => BundleView { refused: Some(reason), ..blank },
        Ok(manifest) => BundleView {
            trained_at_unix_ms: Some(manifest.trained_at_unix_ms),
            rows: manifest.rows,
            trees: manifest.trees,
            holdout: Some(manifest.holdout),
            gains: manifest.gains,
            refused: (manifest.schema != schema_hash()).then(|| {
                let ours = schema_hash();
                format!("it has feature schema {}, this program {ours}", manifest.schema)
            }),
            ..blank
        },
    }
}

fn manifest(path: &Path) -> Result<Manifest, String> {
    let bytes = read_capped(path, MANIFEST_CAP).map_err(|error| format!("no manifest: {error}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("corrupt manifest: {error}"))
}
