//! What outlives the process: what was learned of each pool, what its pods have cached, and what an operator holds.
//!
//! Without it a restart under load costs requests their objectives: nothing is known of any cache and prompts go where they are computed
//! anew, answers are taken for as long as the configuration guesses, and what an operator has cordoned or paused takes requests again.
//!
//! A [`Keeper`] has a thread of its own. It writes a file for each pool now and then, when what an operator holds has changed, and at
//! the end; it looks at the pods one by one, and rests in between, so that no request waits for it. A folder belongs to one dispatcher
//! at a time, which has it locked: one that finds it locked, as in an upgrade, goes on from what is there and writes nothing until the
//! other is gone. What cannot be read or written costs what is in it and nothing else.
//!
//! # What is believed of what is read
//! - What an operator holds: all of it, however old it is. It is said in the log.
//! - What was learned: each part that can be true of the pool as it is configured now; see [`weir_core::learned`].
//! - What a pod has cached: if it is younger than 10 minutes, and the pod's process says of itself that it is the one that it was; see
//!   [`Witness`].
//!
//! # Layout
//! - [`config`]: where, and how often
//! - `file`: the file of a pool
//! - `lock`: the folder is this dispatcher's

pub mod config;
mod file;
mod lock;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval, sleep};
use weir_core::Time;

pub use self::file::KeptPod;
use self::{
    config::StateConfig,
    file::{Kept, bytes, read, write},
    lock::Lock,
};
use crate::{
    fleet::pod::Witness,
    hub::{Hub, held::Held},
    worker::Stop,
};

/// From one look at what operators hold to the next.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before a folder that refused is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// What pods had cached longer ago is not believed, and not waited for longer than that.
const MOST_AGE: Duration = Duration::from_secs(600);
/// Times as long as the look at a pod took, for which others have the desk.
const REST: u32 = 20;

/// What became of the state, for metrics.
#[derive(Debug, Default)]
pub struct StateTally {
    /// When all of it was last written, in milliseconds of Unix time; 0: never.
    pub written_ms: AtomicU64,
    /// Bytes of all files as last written.
    pub bytes: AtomicU64,
    /// Files that could not be used when the process began.
    pub unusable: AtomicU64,
    /// Times that a file could not be written.
    pub unwritten: AtomicU64,
}

impl StateTally {
    /// Time from when all of it was last written to a Unix time in milliseconds; `None` where it never was.
    pub fn age(&self, now_ms: u64) -> Option<Duration> {
        let written_ms = Some(self.written_ms.load(Relaxed)).filter(|written_ms| *written_ms > 0);
        written_ms.map(|written_ms| Duration::from_millis(now_ms.saturating_sub(written_ms)))
    }
}

/// Keeps the state of all pools.
pub struct Keeper {
    config: StateConfig,
    lock: Lock,
    pools: Vec<Pool>,
    tally: Arc<StateTally>,
    /// Until when pods are waited for of which it was read what they had cached.
    expects_until: Time,
}

/// A pool, and what was last written of it.
struct Pool {
    hub: Arc<Hub>,
    held: Held,
    bytes: u64,
    written_ms: u64,
    /// When it is written again.
    next: Time,
    /// Whether it could not be written the last time.
    waits: bool,
}

/// What became of a writing.
enum Outcome {
    Written,
    /// The folder is another dispatcher's.
    Elsewhere,
    Failed(io::Error),
}

impl Keeper {
    /// Has the pools go on from what was kept of them.
    pub fn open(config: StateConfig, hubs: &[Arc<Hub>], tally: Arc<StateTally>) -> Self {
        hubs.iter().for_each(|hub| recall(&config, hub, &tally));
        let now = hubs.first().map_or(Time::ZERO, |hub| hub.clock().now());
        let pool = |hub: &Arc<Hub>| Pool {
            hub: hub.clone(),
            held: hub.held(),
            bytes: 0,
            written_ms: 0,
            next: now.plus(config.every),
            waits: false,
        };
        let pools = hubs.iter().map(pool).collect();
        let expects_until = now.plus(MOST_AGE);
        Self { config, lock: Lock::default(), pools, tally, expects_until }
    }

    /// Writes what is due until it is told to stop, and then all.
    pub async fn run(mut self, mut stop: Stop) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = stop.requested() => {}
            }
            self.look(&stop).await;
            if stop.is_requested() {
                return;
            }
        }
    }

    async fn look(&mut self, stop: &Stop) {
        let Self { config, lock, pools, tally, .. } = self;
        for pool in &mut *pools {
            let now = pool.hub.clock().now();
            if now >= self.expects_until {
                pool.hub.expect_cached(Vec::new());
            }
            let held = pool.hub.held();
            let is_due = now >= pool.next || (held != pool.held && !pool.waits);
            if !is_due && !stop.is_requested() {
                continue;
            }
            let outcome = match lock.take(&config.dir) {
                Ok(true) => pool.write(config, &pool.kept(held, stop).await),
                Ok(false) => Outcome::Elsewhere,
                Err(error) => Outcome::Failed(error),
            };
            let pause = if matches!(outcome, Outcome::Written) { config.every } else { RETRY };
            pool.next = pool.hub.clock().now().plus(pause);
            tally.unwritten.fetch_add(u64::from(matches!(outcome, Outcome::Failed(_))), Relaxed);
            pool.note(config, &outcome);
        }
        let written_ms = pools.iter().map(|pool| pool.written_ms).min();
        tally.written_ms.store(written_ms.unwrap_or(0), Relaxed);
        tally.bytes.store(pools.iter().map(|pool| pool.bytes).sum(), Relaxed);
    }
}

impl Pool {
    /// What is to be kept of it now.
    async fn kept(&self, held: Held, stop: &Stop) -> Kept {
        let mut pods = self.hub.still_expected();
        for pod in &*self.hub.pods() {
            let witness = *pod.witness.lock();
            // Of one that says nothing of itself nobody would know whether it still is the same.
            if witness == Witness::default() {
                continue;
            }
            let begun = Instant::now();
            let cached = self.hub.cached_on(pod.id);
            if !stop.is_requested() {
                sleep(REST * begun.elapsed()).await;
            }
            pods.push(KeptPod { address: pod.address.clone(), witness, cached });
        }
        let (model, learned) = (self.hub.model().to_string(), self.hub.learned());
        Kept { model, written_ms: self.hub.clock().unix_ms(), held, learned, pods }
    }

    fn write(&mut self, config: &StateConfig, kept: &Kept) -> Outcome {
        let written = bytes(kept).and_then(|bytes| {
            write(&config.dir, &kept.model, &bytes)?;
            Ok(bytes.len() as u64)
        });
        match written {
            Ok(bytes) => {
                (self.bytes, self.written_ms) = (bytes, kept.written_ms);
                self.held.clone_from(&kept.held);
                Outcome::Written
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Says what is another than before.
    fn note(&mut self, config: &StateConfig, outcome: &Outcome) {
        let (model, dir) = (&**self.hub.model(), config.dir.display());
        let waits = !matches!(outcome, Outcome::Written);
        if std::mem::replace(&mut self.waits, waits) == waits {
            return;
        }
        match outcome {
            Outcome::Written => tracing::info!(model, %dir, "state is written again"),
            Outcome::Elsewhere => {
                tracing::warn!(model, %dir, "another dispatcher has the folder; state is not written");
            }
            Outcome::Failed(error) => {
                tracing::warn!(model, %dir, %error, "state cannot be written; a restart begins anew");
            }
        }
    }
}

/// Has a pool go on from what was kept of it.
fn recall(config: &StateConfig, hub: &Hub, tally: &StateTally) {
    let model = &**hub.model();
    let kept = match read(&config.dir, model) {
        Ok(Some(kept)) => kept,
        Ok(None) => return,
        Err(why) => {
            let file = file::path(&config.dir, model);
            tracing::warn!(model, file = %file.display(), %why, "state is not used: it begins anew");
            tally.unusable.fetch_add(1, Relaxed);
            return;
        }
    };
    let age = Duration::from_millis(hub.clock().unix_ms().saturating_sub(kept.written_ms));
    let age_s = age.as_secs_f64();
    let pods = kept.pods.len();
    tracing::info!(model, age_s, pods, "goes on from what an earlier process has left");
    hub.hold_newer(&kept.held);
    hub.recall(kept.learned);
    if age <= MOST_AGE {
        hub.expect_cached(kept.pods);
    }
}
