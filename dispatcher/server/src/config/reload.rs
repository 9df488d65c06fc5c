//! Takes a changed configuration over while requests wait and run.
//!
//! The file is read, checked as at the start, and compared with what runs, key by key. What can change
//! is changed in all parts; what needs a restart stays as it is and is named. A file that cannot be used
//! changes nothing: every check is made before the first part is touched, and no part can refuse after
//! that. Requests that wait keep their objectives and their place.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use weir_core::Event;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Config, ConfigError, Origin, PoolConfig, Problem, Problems, RawConfig,
    keys::{Applies, Change, compare},
};
use crate::{
    admin::config::Rights,
    api::{Api, ApiConfig, Pool, objective::House},
    clock::Clock,
    fleet::config::Members,
    hub::Hub,
    telemetry::log,
    upstream::Prefill,
};

/// Why there is nothing to compare with or to take in, and what to do.
pub const NO_FILE: &str = "there is no file: the process was started without --config; `weir check > \
                           weir.yaml` writes what it runs on";

/// What became of the configuration, for metrics.
#[derive(Debug, Default)]
pub struct ConfigTally {
    /// Reloads that changed something.
    pub applied: AtomicU64,
    /// Reloads of a file that says what runs already.
    pub unchanged: AtomicU64,
    /// Reloads of a file that cannot be used.
    pub refused: AtomicU64,
    /// A number that is equal in dispatchers that run the same configuration.
    pub hash: AtomicU64,
    /// When what runs was taken over, in microseconds of the process's clock.
    pub since_us: AtomicU64,
    /// Whether the file cannot be used as it is now.
    pub failing: AtomicBool,
    /// Keys of the file that wait for a restart.
    pub needs_restart: AtomicU64,
}

/// What a reload came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Keys that count now.
    pub applied: Vec<String>,
    /// Keys that differ and count after a restart.
    pub needs_restart: Vec<String>,
}

/// The parts that a reload reaches.
pub struct Parts {
    /// The data API.
    pub api: Arc<Api>,
    /// The pools, in the order of the configuration that the process began with.
    pub hubs: Vec<Arc<Hub>>,
    /// Tells the fleet which pods each pool has.
    pub members: watch::Sender<Vec<Members>>,
    /// Who may look at the admin side and change something there.
    pub rights: Rights,
}

/// Reloads the configuration of a running dispatcher.
pub struct Reloader {
    origin: Origin,
    parts: Parts,
    clock: Clock,
    tally: Arc<ConfigTally>,
    running: Mutex<Running>,
}

/// What counts now.
struct Running {
    raw: Arc<RawConfig>,
    pools: Vec<PoolConfig>,
    /// The text, or the reason why there is none, that was looked at last.
    seen: Option<String>,
}

/// A file that was read and checked, beside what runs.
struct Read {
    changes: Vec<Change>,
    raw: RawConfig,
    config: Config,
}

impl Reloader {
    /// A reloader of what `config` was checked from, read from `origin`.
    pub fn new(
        origin: Origin,
        config: &Config,
        parts: Parts,
        clock: Clock,
        tally: Arc<ConfigTally>,
    ) -> Self {
        let seen = origin.text().ok();
        let (raw, pools) = (config.raw.clone(), config.pools.clone());
        tally.hash.store(hash(&raw), Relaxed);
        Self { origin, parts, clock, tally, running: Mutex::new(Running { raw, pools, seen }) }
    }

    /// The file; `None` when the process began without one.
    pub fn file(&self) -> Option<&Path> {
        self.origin.file.as_deref()
    }

    /// What counts now.
    pub fn running(&self) -> Arc<RawConfig> {
        self.running.lock().raw.clone()
    }

    /// What counts now, as a file that says everything.
    pub fn effective(&self) -> String {
        let running = self.running.lock();
        // What was read from YAML can be written as YAML.
        serde_yaml_ng::to_string(&running.raw).unwrap_or_default()
    }

    /// What the file says otherwise than what runs.
    ///
    /// # Errors
    /// When the file cannot be used: everything that is wrong with it.
    pub fn diff(&self) -> Result<Vec<Change>, Problems> {
        let running = self.running.lock();
        let text = self.text()?;
        Ok(self.read(&running.raw, &text)?.changes)
    }

    /// Takes the file over.
    ///
    /// # Errors
    /// When the file cannot be used: everything that is wrong with it. Then nothing has changed.
    pub fn reload(&self) -> Result<Applied, Problems> {
        let mut running = self.running.lock();
        let text = self.text();
        self.take_over(&mut running, text)
    }

    /// The same if the file has changed since it was looked at last; `None` when it has not.
    pub fn reload_if_changed(&self) -> Option<Result<Applied, Problems>> {
        let mut running = self.running.lock();
        let text = self.text();
        let seen = text.as_ref().map_or_else(ToString::to_string, Clone::clone);
        (running.seen.as_ref() != Some(&seen)).then(|| self.take_over(&mut running, text))
    }

    fn text(&self) -> Result<String, Problems> {
        let wrong = |message| Err(Problem { key: String::new(), line: None, message }.into());
        let Some(file) = &self.origin.file else { return wrong(NO_FILE.to_owned()) };
        // Reading a pipe would wait for its writer, and nothing would be reloaded any more.
        if std::fs::metadata(file).is_ok_and(|about| !about.is_file()) {
            return wrong(format!("{} is no regular file", file.display()));
        }
        self.origin.text().map_err(ConfigError::problems)
    }

    fn take_over(
        &self,
        running: &mut Running,
        text: Result<String, Problems>,
    ) -> Result<Applied, Problems> {
        running.seen = Some(text.as_ref().map_or_else(ToString::to_string, Clone::clone));
        let read = text.and_then(|text| self.read(&running.raw, &text));
        self.tally.failing.store(read.is_err(), Relaxed);
        let read = match read {
            Ok(read) => read,
            Err(problems) => {
                self.tally.refused.fetch_add(1, Relaxed);
                tracing::error!(%problems, "configuration refused; what ran before goes on");
                return Err(problems);
            }
        };
        let applied = self.apply(running, read).inspect_err(|_| {
            self.tally.refused.fetch_add(1, Relaxed);
        })?;
        let changed = !applied.applied.is_empty();
        let tally = if changed { &self.tally.applied } else { &self.tally.unchanged };
        tally.fetch_add(1, Relaxed);
        self.tally.needs_restart.store(applied.needs_restart.len() as u64, Relaxed);
        Ok(applied)
    }

    /// Checks the file as it is, and what would run of it.
    fn read(&self, running: &RawConfig, text: &str) -> Result<Read, Problems> {
        let file = self.origin.load_text(text).map_err(ConfigError::problems)?;
        still_closed(running, &file.raw)?;
        let mistake = |error: serde_yaml_ng::Error| {
            Problems::from(Problem { key: String::new(), line: None, message: error.to_string() })
        };
        let (changes, raw) = compare(running, &file.raw).map_err(mistake)?;
        let config = Config::check(&raw).map_err(|mut problems| {
            problems.add("", "the file can be used after a restart only: it needs keys that do not change before");
            problems
        })?;
        Ok(Read { changes, raw, config })
    }

    fn apply(&self, running: &mut Running, read: Read) -> Result<Applied, Problems> {
        let Read { changes, raw, config } = read;
        let pools = pools_of(&self.parts.hubs, &config);
        // The one part that could refuse goes first; the names were checked already.
        self.parts.api.adopt(config.api.clone(), pools).map_err(|error| {
            Problems::from(Problem { key: "pools".into(), line: None, message: error.to_string() })
        })?;
        let both = running.pools.iter().zip(&config.pools);
        for (hub, (before, after)) in self.parts.hubs.iter().zip(both) {
            if before.scheduler != after.scheduler {
                let held = hub.paused();
                hub.post(Event::Reconfigure(Box::new(after.scheduler.clone())));
                let still = hub.paused();
                // By other buckets there may be no lane of that name any more.
                for lane in held.iter().filter(|lane| !still.contains(lane)) {
                    tracing::warn!(
                        model = &**hub.model(),
                        lane,
                        "a paused lane is gone with its buckets: resumed"
                    );
                }
            }
        }
        let members: Vec<Members> = config.pools.iter().map(|pool| pool.members.clone()).collect();
        if running.pools.iter().map(|pool| &pool.members).ne(&members) {
            self.parts.members.send_replace(members);
        }
        self.parts.rights.store(Arc::new(config.seat));
        if running.raw.log.level != raw.log.level {
            log::follow(&config.log);
        }
        self.tally.hash.store(hash(&raw), Relaxed);
        if *running.raw != raw {
            let up_us = u64::try_from(self.clock.up().as_micros()).unwrap_or(u64::MAX);
            self.tally.since_us.store(up_us, Relaxed);
        }
        (running.raw, running.pools) = (Arc::new(raw), config.pools);
        Ok(said(&changes))
    }
}

/// Refuses a file that has lost its keys or its tokens: half a file, or one of another place, must not let everybody in.
fn still_closed(running: &RawConfig, file: &RawConfig) -> Result<(), Problems> {
    let mut problems = Problems::default();
    problems.require(
        running.keys.is_empty() || !file.keys.is_empty(),
        "keys",
        "are in force and missing in the file, which would let everybody in; restart to open the API",
    );
    problems.require(
        running.admin.tokens.is_empty() || !file.admin.tokens.is_empty(),
        "admin.tokens",
        "are in force and missing in the file, which would let everybody look; restart to open the admin side",
    );
    problems.none_or(())
}

/// Says what changed, and sorts it.
fn said(changes: &[Change]) -> Applied {
    let mut applied = Applied::default();
    let mut lines = Vec::new();
    for change in changes {
        if change.applies == Applies::Reload {
            lines.push(change.line());
            applied.applied.push(change.key.clone());
        } else {
            applied.needs_restart.push(change.key.clone());
        }
    }
    if !lines.is_empty() {
        tracing::info!(changed = lines.join(", "), "configuration reloaded");
    }
    if !applied.needs_restart.is_empty() {
        let keys = applied.needs_restart.join(", ");
        tracing::warn!(keys, "these keys of the file count after a restart only");
    }
    applied
}

/// The pools as the data API is told of them.
pub fn pools_of(hubs: &[Arc<Hub>], config: &Config) -> Vec<Pool> {
    let prefills =
        |at| config.pools.iter().any(|pool| pool.prefill.is_some_and(|by| by.pool == at));
    let pools = hubs.iter().zip(&config.pools).enumerate();
    let of = |(at, (hub, pool)): (usize, (&Arc<Hub>, &PoolConfig))| {
        let prefill = pool.prefill.and_then(|by| {
            Some(Arc::new(Prefill::new(hubs.get(by.pool)?.clone(), by.local_tokens, by.overflow)))
        });
        Pool { prefill, prefills: prefills(at), ..pool_of(hub, pool, &config.api) }
    };
    pools.map(of).collect()
}

/// One of them, without what it has to do with others.
fn pool_of(hub: &Arc<Hub>, pool: &PoolConfig, api: &ApiConfig) -> Pool {
    let objective = pool.objective.as_ref().and_then(|name| api.objectives.named(name));
    let scheduler = &pool.scheduler;
    let house = House {
        objective: objective.cloned(),
        require_slo: scheduler.rules().require_slo,
        second: scheduler.rules_by_header.as_ref().map(|rules| rules.require_slo),
    };
    let (aliases, adapters) = (pool.aliases.clone(), pool.adapters.clone());
    let max_model_len = pool.max_model_len;
    let pods_key = pool.pods_key.clone();
    let (hub, prefill, prefills) = (hub.clone(), None, false);
    let migration_limit = pool.migration_limit;
    Pool {
        hub,
        aliases,
        adapters,
        max_model_len,
        house,
        pods_key,
        prefill,
        migration_limit,
        prefills,
    }
}

/// Of so many bits that a metric's number holds it exactly. Pools run on in the order in which the process found
/// them, whatever the file's is by now; the other lists are as the file has them, or their keys differ from it.
fn hash(raw: &RawConfig) -> u64 {
    let mut raw = raw.clone();
    raw.pools.sort_by(|one, other| one.model.cmp(&other.model));
    xxh3_64(serde_yaml_ng::to_string(&raw).unwrap_or_default().as_bytes()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::config::{RawAdmin, RawToken},
        api::config::RawKey,
        config::raw::RawPool,
    };

    #[test]
    fn pools_in_another_order_are_the_same_configuration() {
        let pool = |model: &str| RawPool { model: model.to_owned(), ..RawPool::default() };
        let file = |pools| RawConfig { pools, ..RawConfig::default() };
        let running = file(vec![pool("a"), pool("b")]);
        let reordered = file(vec![pool("b"), pool("a")]);
        let (changes, taken_over) = compare(&running, &reordered).unwrap();
        assert_eq!((changes, &taken_over), (vec![], &running));
        // Of the one that was reloaded, and of one that starts with the file as it is now.
        assert_eq!(hash(&taken_over), hash(&reordered));
        let other = RawPool { default_capacity: 3.0, ..pool("b") };
        assert_ne!(hash(&running), hash(&file(vec![pool("a"), other])));
    }

    #[test]
    fn a_file_that_has_lost_its_keys_or_tokens_is_refused() {
        let none = RawConfig::default();
        let some = RawConfig { keys: vec![RawKey::default()], ..RawConfig::default() };
        let said = still_closed(&some, &none).unwrap_err().to_string();
        assert!(said.starts_with("keys: ") && said.contains("restart to open the API"), "{said}");
        let admin = RawAdmin { tokens: vec![RawToken::default()], ..RawAdmin::default() };
        let watched = RawConfig { admin, ..RawConfig::default() };
        let said = still_closed(&watched, &none).unwrap_err().to_string();
        assert!(said.starts_with("admin.tokens: "), "{said}");
        for (running, file) in [
            (&none, &none),
            (&none, &some),
            (&some, &some),
            (&none, &watched),
            (&watched, &watched),
        ] {
            assert_eq!(still_closed(running, file), Ok(()));
        }
    }
}
