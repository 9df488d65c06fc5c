//! Brings new bundles into service.
//!
//! A thread of its own looks at the bundles' folder when the system says that something changed in
//! it, and every 5 s in case it did not say. A bundle is read and verified here, off the hot
//! path, once per pool (each chain owns its session), handed over through the pool's slot, and taken up at once, also by
//! a pool without pods: what lies in a slot is nobody's version.
//!
//! What serves goes on serving whatever happens to the folder: a bundle that is refused is not tried
//! again until its files change, and one whose folder is removed stays loaded, which a metric says.
//! Without ONNX Runtime bundles are evaluated by their flattened trees; where the configuration wants it and
//! nothing else, the pools serve on the prior, and their status says why. While an operator has pinned a
//! version, which a file in the folder says, what is published waits; it waits too while that file cannot be read or what
//! it names cannot serve, for somebody went away from what is published. What the trainer says there of its rounds is read
//! for metrics, and the trainer is told there what serves.

mod pin;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use weir_predict::{Bundle, BundleError, Choice, Evaluators, Offer, Runtime, Slot};
use weir_schema::{
    LastRound,
    manifest::{
        CURRENT_FILE, MANIFEST_FILE, MODEL_FILE, bundle_name, bundle_version, current_bundle,
        pinned_version,
    },
};

use self::pin::Said;
use super::{
    pointer::Notice,
    shelf::{self, Counter, Order, OrderError},
};

/// Pause between two looks at the folder when nothing is heard of it.
const RECHECK: Duration = Duration::from_secs(5);

/// Why nothing serves before the first bundle.
const NO_BUNDLE: &str = "no bundle yet";

/// What became of the bundles, for metrics.
#[derive(Debug, Default)]
pub struct ReloadTally {
    /// Whether ONNX Runtime was found.
    pub runtime_found: AtomicBool,
    /// Version handed over last; 0 is none.
    pub version: AtomicU64,
    /// Bundles handed over.
    pub loaded: AtomicU64,
    /// Bundles refused.
    pub refused: AtomicU64,
    /// Whether the bundle in service is gone from the disk.
    pub missing: AtomicBool,
    /// What the trainer says of its last round.
    pub round: Mutex<Option<LastRound>>,
    /// Why the last bundle was refused, or why none is loaded.
    pub reason: Mutex<Option<String>>,
}

impl ReloadTally {
    fn say(&self, reason: Option<String>) {
        *self.reason.lock() = reason;
    }
}

/// Wakes the loader: the folder changed, or it is to stop.
#[derive(Clone, Debug)]
pub struct Bell(SyncSender<()>);

impl Bell {
    /// A bell and its listener. One ring is remembered; further ones are the same ring.
    pub fn new() -> (Self, Receiver<()>) {
        let (ring, heard) = sync_channel(1);
        (Self(ring), heard)
    }

    /// Wakes the loader.
    pub fn ring(&self) {
        let _ = self.0.try_send(());
    }
}

/// What the loader needs.
pub struct Reload {
    /// Folder of the bundles; created when missing.
    pub bundles: PathBuf,
    /// ONNX Runtime; searched for when `None`.
    pub library: Option<PathBuf>,
    /// What evaluates bundles.
    pub choice: Choice,
    /// Names of the configuration's pod classes, in its order.
    pub classes: Vec<String>,
    /// One per pool.
    pub slots: Vec<Slot>,
    /// Has each pool take up what lies in its slot, and says which version it serves from then on; 0 is none.
    pub take_up: Box<dyn Fn() -> Vec<u64> + Send>,
    /// What pools go back to if what they serve does worse.
    pub go_back_to: Box<dyn Fn() -> Vec<u64> + Send>,
    /// What is told to metrics.
    pub tally: Arc<ReloadTally>,
    /// What operators order.
    pub counter: Counter,
}

impl Reload {
    /// Loads what there is and what comes, until `stopped` says so after a ring of `bell`.
    pub fn run(self, bell: Bell, heard: &Receiver<()>, stopped: impl Fn() -> bool) {
        let runtime = Runtime::load(self.library.as_deref());
        self.tally.runtime_found.store(runtime.is_ok(), Relaxed);
        let runtime = match runtime {
            Ok(runtime) => Some(runtime),
            Err(error) if self.choice == Choice::Ort => {
                return self.without_runtime(&error.to_string(), heard, stopped);
            }
            Err(reason) => {
                tracing::info!(%reason, "bundles are evaluated by their trees alone");
                None
            }
        };
        let evaluators = Evaluators { choice: self.choice, runtime };
        let _watcher = self.listen(bell);
        let mut loader = Loader::new(self, evaluators);
        while !stopped() {
            loader.reload.look_at_rounds();
            loader.look();
            loader.carry_out();
            for slot in &loader.reload.slots {
                slot.retire();
            }
            if heard.recv_timeout(RECHECK) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Nothing can be loaded: says so to everybody who asks.
    fn without_runtime(&self, reason: &str, heard: &Receiver<()>, stopped: impl Fn() -> bool) {
        self.withdraw(reason);
        while !stopped() {
            self.look_at_rounds();
            while let Ok((_, reply)) = self.counter.orders.try_recv() {
                let _ = reply.try_send(Err(OrderError::NoLoader(reason.to_owned())));
            }
            if heard.recv_timeout(RECHECK) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Takes note of how the trainer does. Where nothing can be read what was read before stays, and grows old.
    fn look_at_rounds(&self) {
        if let Ok(Some(last)) = LastRound::read(&self.bundles) {
            *self.tally.round.lock() = Some(last);
        }
    }

    fn withdraw(&self, reason: &str) {
        tracing::warn!(reason, "serving on the prior");
        self.withdraw_all(reason);
        self.tally.say(Some(reason.to_owned()));
    }

    fn withdraw_all(&self, reason: &str) {
        self.hand_over(self.slots.iter().map(|_| Offer::Withdraw { reason: reason.to_owned() }));
    }

    /// Gives each pool its offer and has it taken up.
    fn hand_over(&self, offers: impl Iterator<Item = Offer>) {
        self.slots.iter().zip(offers).for_each(|(slot, offer)| slot.publish(offer));
        (self.take_up)();
    }

    /// Rings the bell on changes of the folder. Without it the regular look has to do.
    fn listen(&self, bell: Bell) -> Option<RecommendedWatcher> {
        let listening = || -> notify::Result<RecommendedWatcher> {
            fs::create_dir_all(&self.bundles)?;
            // Looking at the folder is an access too: only a change may ring, or every look would
            // cause the next.
            let heard = move |event: notify::Result<notify::Event>| {
                if !event.is_ok_and(|event| event.kind.is_access()) {
                    bell.ring();
                }
            };
            let mut watcher = notify::recommended_watcher(heard)?;
            watcher.watch(&self.bundles, RecursiveMode::NonRecursive)?;
            Ok(watcher)
        };
        let listening = listening();
        if let Err(error) = &listening {
            let dir = self.bundles.display();
            tracing::warn!(%dir, %error, "changes are not heard of; looking every 5 s");
        }
        listening.ok()
    }
}

/// What was tried, and in which state it was: the same is not tried twice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    bundle: PathBuf,
    pointer: Option<Stamp>,
    manifest: Option<Stamp>,
    /// It may come after the manifest, or grow.
    model: Option<Stamp>,
}

impl Attempt {
    fn of(bundles: &Path, bundle: PathBuf, pointer: &str) -> Self {
        Self {
            pointer: stamp(&bundles.join(pointer)),
            manifest: stamp(&bundle.join(MANIFEST_FILE)),
            model: stamp(&bundle.join(MODEL_FILE)),
            bundle,
        }
    }
}

/// When a file or who may read it was changed, in seconds and nanoseconds, and its length.
type Stamp = (i64, i64, u64);

struct Loader {
    reload: Reload,
    evaluators: Evaluators,
    /// What was handed over last.
    serving: Option<PathBuf>,
    tried: Option<Attempt>,
    /// What the folder was seen to say is pinned.
    pinned: Said,
    /// What the trainer is told.
    notice: Notice,
}

impl Loader {
    fn new(reload: Reload, evaluators: Evaluators) -> Self {
        let notice = Notice::default();
        Self { reload, evaluators, serving: None, tried: None, pinned: Said::Nothing, notice }
    }

    /// Carries out what operators have ordered.
    fn carry_out(&mut self) {
        while let Ok((order, reply)) = self.reload.counter.orders.try_recv() {
            let done = match order {
                Order::Reload => {
                    self.tried = None;
                    self.check_refused();
                    self.follow_pin(true);
                    self.look();
                    Ok(())
                }
                Order::Pin(version) => self.pin_on_order(version),
                Order::Unpin => self.unpin_on_order(),
                Order::Rollback => self.roll_back(),
            };
            tracing::info!(?order, ?done, "ordered by an operator");
            // Whoever asked may have gone.
            let _ = reply.try_send(done);
        }
    }

    /// The version of each pool, which has nothing left in its slot. What was handed over last counts where nothing serves.
    fn in_service(&self) -> Vec<u64> {
        let handed = self.reload.tally.version.load(Relaxed);
        let serves = (self.reload.take_up)().into_iter();
        serves.map(|version| if version == 0 { handed } else { version }).collect()
    }

    /// Pins the newest version before the one in service that can serve. Where none can, what is wrong with the newest is said.
    fn roll_back(&mut self) -> Result<(), OrderError> {
        let mut failed = Err(OrderError::NoPredecessor);
        for version in self.predecessors() {
            let pinned = self.pin_on_order(version);
            if pinned.is_ok() {
                return pinned;
            }
            if failed == Err(OrderError::NoPredecessor) {
                failed = pinned;
            }
        }
        failed
    }

    /// The versions before the one in service, newest first. A pool may serve an older one than was handed over last, which
    /// it has rolled back, and a newer one where it had rolled back what was handed over.
    fn predecessors(&self) -> Vec<u64> {
        let handed = self.reload.tally.version.load(Relaxed);
        let serving = self.in_service().into_iter().fold(handed, u64::min);
        let mut versions = shelf::versions(&self.reload.bundles);
        versions.retain(|version| *version < serving);
        versions.sort_unstable_by(|one, other| other.cmp(one));
        versions
    }

    /// Whether what a pool serves is gone from the disk.
    fn is_gone(&self) -> bool {
        let handed = self.reload.tally.version.load(Relaxed);
        let is_gone = |dir: &Path| !dir.join(MANIFEST_FILE).is_file();
        self.in_service().into_iter().any(|version| match &self.serving {
            Some(dir) if version == handed => is_gone(dir),
            Some(_) => is_gone(&self.reload.bundles.join(bundle_name(version))),
            None => false,
        })
    }

    fn look(&mut self) {
        self.follow_pin(false);
        let gone = self.is_gone();
        if self.reload.tally.missing.swap(gone, Relaxed) != gone && gone {
            tracing::warn!("the bundle in service is gone from the disk; it stays in service");
        }
        let counter = &self.reload.counter;
        if counter.pinned.lock().is_none() && counter.pin_failing.lock().is_none() {
            self.look_at_current();
        }
        self.say_what_serves();
    }

    fn look_at_current(&mut self) {
        match current_bundle(&self.reload.bundles) {
            Ok(Some(bundle)) => self.consider(bundle),
            Ok(None) if self.serving.is_none() => self.reload.tally.say(Some(NO_BUNDLE.into())),
            Ok(None) => {}
            Err(error) => self.reload.tally.say(Some(format!("no current bundle: {error}"))),
        }
    }

    /// Tells the trainer what it may not remove: what the pools serve or may go back to, and which no pointer names.
    fn say_what_serves(&mut self) {
        let dir = &self.reload.bundles;
        let current = current_bundle(dir).ok().flatten();
        let pinned = pinned_version(dir).ok().flatten();
        let is_named = |version: u64| {
            Some(version) == pinned || current.as_ref() == Some(&dir.join(bundle_name(version)))
        };
        let mut serves: BTreeSet<u64> = self.in_service().into_iter().collect();
        serves.extend((self.reload.go_back_to)());
        // Zero is none.
        serves.retain(|version| *version > 0 && !is_named(*version));
        self.notice.say(&self.reload.bundles, serves);
    }

    fn consider(&mut self, bundle: PathBuf) {
        let attempt = Attempt::of(&self.reload.bundles, bundle, CURRENT_FILE);
        // A folder that is gone has nothing to offer; what serves stays.
        if self.tried.as_ref() == Some(&attempt)
            || (attempt.manifest.is_none() && self.serving.is_some())
        {
            return;
        }
        match self.load(&attempt.bundle, Offer::Bundle) {
            Ok(version) => self.note_loaded(version, attempt.bundle.clone()),
            Err(error) => self.refuse(&attempt.bundle, &error),
        }
        self.tried = Some(attempt);
    }

    fn note_loaded(&mut self, version: u64, dir: PathBuf) {
        self.reload.tally.loaded.fetch_add(1, Relaxed);
        self.reload.tally.version.store(version, Relaxed);
        self.reload.tally.say(None);
        self.reload.counter.refused.lock().remove(&version);
        self.serving = Some(dir);
        tracing::info!(version, "bundle handed over");
    }

    fn load(&self, dir: &Path, offer: fn(Box<Bundle>) -> Offer) -> Result<u64, BundleError> {
        // All or none: pools of one dispatcher do not serve different versions on purpose.
        let bundles = self.reload.slots.iter().map(|_| self.read(dir));
        let bundles = bundles.collect::<Result<Vec<_>, _>>()?;
        let version = bundles.first().map_or(0, Bundle::version);
        bundles.first().into_iter().for_each(say_evaluator);
        let offers = bundles.into_iter().map(|bundle| offer(Box::new(bundle)));
        self.reload.hand_over(offers);
        Ok(version)
    }

    /// A bundle that has passed every check.
    fn read(&self, dir: &Path) -> Result<Bundle, BundleError> {
        let bundle = Bundle::load_by(&self.evaluators, dir)?;
        if bundle.manifest.fits(&self.reload.classes) {
            return Ok(bundle);
        }
        let (bundle, ours) = (bundle.manifest.classes.clone(), self.reload.classes.clone());
        Err(BundleError::OtherClasses { bundle, ours })
    }

    /// Looks again at every bundle that was refused, and forgets that of those which are sound by now, or gone.
    fn check_refused(&self) {
        let known = self.reload.counter.refused.lock().clone();
        for version in known.into_keys() {
            let dir = self.reload.bundles.join(bundle_name(version));
            let error = if dir.is_dir() { self.read(&dir).err() } else { None };
            let mut refused = self.reload.counter.refused.lock();
            match error {
                Some(error) => refused.insert(version, error.to_string()),
                None => refused.remove(&version),
            };
        }
    }

    /// Counts a refusal and keeps its reason.
    fn note_refused(&self, dir: &Path, error: &BundleError) {
        let reason = error.reason();
        tracing::warn!(bundle = %dir.display(), reason, %error, "bundle refused");
        self.reload.tally.refused.fetch_add(1, Relaxed);
        let name = dir.file_name().and_then(|name| name.to_str());
        if let Some(version) = name.and_then(bundle_version) {
            self.reload.counter.refused.lock().insert(version, error.to_string());
        }
    }

    fn refuse(&self, dir: &Path, error: &BundleError) {
        let reason = error.reason();
        self.note_refused(dir, error);
        self.reload.tally.say(Some(format!("bundle refused: {reason}")));
        if self.serving.is_none() {
            self.reload.withdraw_all(&format!("bundle refused: {reason}"));
        }
    }
}

/// Says what evaluates a bundle, and why that is not the forest.
fn say_evaluator(bundle: &Bundle) {
    let (version, by) = (bundle.version(), bundle.evaluator());
    let (evaluator, reason, detail) = (by.source.name(), by.reason, by.detail);
    if reason.is_empty() {
        tracing::info!(version, evaluator, "bundle verified");
    } else {
        tracing::info!(version, evaluator, reason, detail, "bundle verified");
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = fs::metadata(path).ok()?;
    Some((of.ctime(), of.ctime_nsec(), of.len()))
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
