//! The configuration: what the file says, checked once, as what each part is told.
//!
//! A file is composed from the raw parts that stand beside the modules they configure
//! ([`RawConfig`]); [`Config::check`] turns it into [`Config`] and finds every problem, not only the
//! first. Nothing reads the raw form after that.
//!
//! # Layout
//! - [`raw`]: the file's shape and its defaults
//! - `reference`: docs/configuration.md, written from the schema
//! - [`policy`]: a pool's policy, by name or part by part
//! - [`secret`]: what the environment holds for it
//! - [`load`]: file, environment and flags
//! - [`parse`]: from text to the raw form
//! - [`reload`], [`watch`], [`keys`]: a changed file while requests wait and run
//! - [`problems`], [`locate`], [`suggest`]: what is said about a file that is wrong

pub mod keys;
pub mod load;
pub mod locate;
pub mod parse;
pub mod policy;
pub mod problems;
pub mod raw;
pub mod reference;
pub mod reload;
pub mod secret;
pub mod suggest;
#[cfg(test)]
mod tests;
pub mod watch;

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use http::HeaderValue;
use weir_core::{Bounds, NeedConfig, PodClass, Profiles, PullConfig, SchedulerConfig, prefix};
use weir_predict::ClassProfile;

use self::raw::{RawPool, RawPrefill, RawQueue};
pub use self::{
    load::{ConfigError, Origin},
    policy::RawPolicy,
    problems::{Problem, Problems},
    raw::{RawConfig, choice, required, schema},
    reload::{Applied, ConfigTally, Reloader},
};
use crate::{
    accept,
    admin::config::AdminConfig,
    api::config::ApiConfig,
    fleet::config::{Members, RawClass, ScrapeConfig},
    learn::{LearnConfig, profile},
    replicas::ReplicasConfig,
    shutdown::ShutdownConfig,
    state::config::StateConfig,
    telemetry::{compat::RawTelemetry, log::LogConfig},
    tls::Identity,
    upstream::UpstreamConfig,
};

/// Most pods that one request may go on at, one after the other.
const MOST_MIGRATIONS: u32 = 16;

/// What the parts of the dispatcher are told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the OpenAI API.
    pub listen: SocketAddr,
    /// Who it is there; `None`: it is spoken to in the clear.
    pub tls: Option<Arc<Identity>>,
    /// Threads of the data plane.
    pub threads: usize,
    /// Address of the admin side.
    pub admin: SocketAddr,
    /// Who that is; `None`: it is spoken to in the clear.
    pub admin_tls: Option<Arc<Identity>>,
    /// The admin side: who may look and change.
    pub seat: AdminConfig,
    /// The data API.
    pub api: ApiConfig,
    /// One per model.
    pub pools: Vec<PoolConfig>,
    /// How pods are scraped.
    pub scrape: ScrapeConfig,
    /// The way to the pods.
    pub upstream: UpstreamConfig,
    /// Other dispatchers in front of the same pods; `None`: there are none.
    pub replicas: Option<ReplicasConfig>,
    /// Where the state is kept; `None`: every process begins anew.
    pub state: Option<StateConfig>,
    /// Samples, bundles, trainer.
    pub learn: LearnConfig,
    /// What is told to those who watch.
    pub telemetry: RawTelemetry,
    /// What is logged.
    pub log: LogConfig,
    /// How the dispatcher stops.
    pub shutdown: ShutdownConfig,
    /// What it was checked from.
    pub raw: Arc<RawConfig>,
}

/// What a pool is told.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// What its scheduler is told; the model's name is in it.
    pub scheduler: SchedulerConfig,
    /// Further names of the model.
    pub aliases: Vec<Arc<str>>,
    /// Adapters of the model.
    pub adapters: Vec<Arc<str>>,
    /// Tokens that the model takes, as clients are told.
    pub max_model_len: Option<u32>,
    /// What its pods are told in `Authorization`; `None`: what a request has.
    pub pods_key: Option<HeaderValue>,
    /// Name of the objective of requests that ask for none; `None`: that of all pools.
    pub objective: Option<String>,
    /// Where its prompts are computed; `None`: by its pods.
    pub prefill: Option<PrefillConfig>,
    /// How often a request may go on at another pod when the one that had it is lost.
    pub migration_limit: u32,
    /// Where its pods come from.
    pub members: Members,
    /// What was measured of its pod classes, by index.
    pub profiles: Vec<(u16, ClassProfile)>,
}

/// Where the prompts of a pool are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillConfig {
    /// Number of the pool whose pods do.
    pub pool: usize,
    /// A prompt of which a pod that answers has fewer tokens to compute is computed there.
    pub local_tokens: u32,
    /// Whether one that no pod prefills at once may go to a pod that answers.
    pub overflow: bool,
}

impl Config {
    /// Checks and converts a raw configuration.
    ///
    /// # Errors
    /// Every value that cannot be used.
    pub fn check(raw: &RawConfig) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let listen = address("listen", &raw.listen, &mut problems);
        let admin = address("admin.listen", &raw.admin.listen, &mut problems);
        let tls = Identity::check("tls", raw.tls.as_ref(), &accept::API, &mut problems);
        let admin_tls = raw.admin.tls.as_ref();
        let admin_tls = Identity::check("admin.tls", admin_tls, &accept::ADMIN, &mut problems);
        let seat = raw.admin.check(&mut problems);
        problems.require((1..=256).contains(&raw.threads), "threads", "must be from 1 to 256");
        let api = problems.take(raw.api().check());
        let upstream = problems.take(UpstreamConfig::try_from(raw.upstream.clone()));
        let pools = pools(raw, &mut problems);
        let scrape = raw.scrape.check(&mut problems);
        let replicas = raw.replicas.check(&mut problems);
        let state = raw.state.check(&mut problems);
        let asked_at = replicas.as_ref().map(|replicas| replicas.listen);
        apart(
            &[("listen", listen), ("admin.listen", admin), ("replicas.listen", asked_at)],
            &mut problems,
        );
        let learn =
            LearnConfig::check(&raw.model, &raw.spool, &raw.trainer, &raw.classes, &mut problems);
        raw.telemetry.check(raw.pools.len(), &mut problems);
        let log = raw.log.check(&mut problems);
        let shutdown = raw.shutdown.check(&mut problems);
        let (Some(listen), Some(admin), Some(api), Some(upstream)) = (listen, admin, api, upstream)
        else {
            return Err(problems);
        };
        let config = Self {
            listen,
            tls,
            threads: raw.threads,
            admin,
            admin_tls,
            seat,
            api,
            pools,
            scrape,
            upstream,
            replicas,
            state,
            learn,
            telemetry: raw.telemetry.clone(),
            log,
            shutdown,
            raw: Arc::new(raw.clone()),
        };
        problems.none_or(config)
    }

    /// What is noteworthy: in the profiles of pod classes, of who is let in, and of who is believed. A line each.
    pub fn notes(&self) -> Vec<String> {
        let profiles = self.pools.first().map(|pool| profile::notes(&pool.profiles));
        let admin = self.raw.admin.note(self.admin);
        let replicas = self.raw.replicas.note();
        let profiles = profiles.unwrap_or_default().into_iter();
        let ended = [("tls", &self.tls), ("admin.tls", &self.admin_tls)];
        let ended = ended.into_iter().filter_map(|(key, tls)| tls.as_ref()?.note(key));
        let pools = self.raw.pools.iter().enumerate().filter_map(|(index, pool)| {
            let anybody = !pool.tls.as_ref()?.verify;
            anybody.then(|| {
                format!("pools[{index}].tls.verify: whoever answers at an address of its pods is believed")
            })
        });
        let profiles = profiles.chain(self.open()).chain(admin).chain(replicas);
        profiles.chain(ended).chain(pools).collect()
    }

    /// That the API is open to whoever reaches it.
    fn open(&self) -> Option<String> {
        let listen = self.listen;
        let open = self.raw.keys.is_empty() && !listen.ip().is_loopback();
        open.then(|| {
            format!(
                "listen: {listen} is reachable from elsewhere and there are no keys: everybody is let in, \
                 and headers are trusted"
            )
        })
    }
}

fn address(key: &str, text: &str, problems: &mut Problems) -> Option<SocketAddr> {
    let address = text.parse().ok();
    if address.is_none() {
        problems.add(key, format!("{text:?} is no address; write for example 127.0.0.1:8080"));
    }
    address
}

/// Refuses an address that an earlier one of these listeners has taken.
fn apart(listeners: &[(&str, Option<SocketAddr>)], problems: &mut Problems) {
    for (at, (key, address)) in listeners.iter().enumerate() {
        let taken = |(_, other): &&(&str, Option<SocketAddr>)| {
            other.zip(*address).is_some_and(|(other, address)| collide(other, address))
        };
        if let Some((other, _)) = listeners.iter().take(at).find(taken) {
            problems.add(key, format!("has the port of {other}; give it one of its own"));
        }
    }
}

/// Whether only one of them can be listened on: both have one port of one address, or of all of its kind. The
/// system gives a port of its own where there is none.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let all = |address: SocketAddr| address.ip().is_unspecified();
    let same_kind = one.is_ipv4() == other.is_ipv4();
    let same_ip = one.ip() == other.ip() || (same_kind && (all(one) || all(other)));
    one.port() != 0 && one.port() == other.port() && same_ip
}

fn pools(raw: &RawConfig, problems: &mut Problems) -> Vec<PoolConfig> {
    let classes = classes(&raw.classes, problems);
    let profiles = profile::check(&raw.classes, problems);
    let bounds = bounds(&raw.queue, raw.limits.max_body_bytes, problems);
    let buckets = raw.patterns.check(problems);
    check_pull(&raw.pull, problems);
    problems.require(!raw.pools.is_empty(), "pools", "name at least one model and its pods");
    let mut names = BTreeSet::new();
    let mut pools = Vec::with_capacity(raw.pools.len());
    for (index, pool) in raw.pools.iter().enumerate() {
        let key = format!("pools[{index}]");
        check_names(&key, pool, &mut names, problems);
        let members = Members::check(&key, pool, &raw.classes, problems);
        check_rules(&key, pool, raw, problems);
        let pull = PullConfig { stale_after_ms: raw.scrape.stale_after_ms, ..raw.pull };
        let scheduler = SchedulerConfig {
            model: Arc::from(pool.model.as_str()),
            policy: pool.policy.preset(),
            rules: Some(pool.policy.rules()),
            rules_by_header: pool.policy_by_header.as_ref().map(RawPolicy::rules),
            default_capacity: pool.default_capacity,
            places: pool.places(&members.seats),
            classes: classes.clone(),
            profiles: capacities(&profiles),
            buckets: buckets.clone(),
            bounds,
            pull,
            need: pool.autoscale,
            max_attempts: raw.upstream.max_attempts,
            named_tokens: prefix::BLOCK_TOKENS,
            ..SchedulerConfig::default()
        };
        let named = |names: &[String]| names.iter().map(|name| Arc::from(name.as_str())).collect();
        let (aliases, adapters) = (named(&pool.aliases), named(&pool.adapters));
        let (objective, profiles) = (pool.default_objective.clone(), profiles.clone());
        let env = pool.pods_key_env.as_deref();
        let pods_key =
            env.and_then(|env| secret::bearer(env, &format!("{key}.pods_key_env"), problems));
        pools.push(PoolConfig {
            scheduler,
            aliases,
            adapters,
            max_model_len: pool.max_model_len,
            pods_key,
            objective,
            prefill: prefill(&key, pool, raw, problems),
            migration_limit: pool.migration_limit,
            members,
            profiles,
        });
    }
    Members::note_shared(pools.iter_mut().map(|pool| &mut pool.members));
    pools
}

/// Who computes the prompts of a pool.
fn prefill(
    key: &str,
    pool: &RawPool,
    raw: &RawConfig,
    problems: &mut Problems,
) -> Option<PrefillConfig> {
    let RawPrefill { pool: name, local_tokens, overflow } = pool.prefill.as_ref()?;
    let key = format!("{key}.prefill.pool");
    let Some(at) = raw.pools.iter().position(|other| other.model == *name) else {
        let others = raw.pools.iter().filter(|other| other.model != pool.model);
        let instead = suggest::one_of(name, others.map(|other| other.model.as_str()));
        problems.add(&key, format!("{name:?} is not the model of a pool; {instead}"));
        return None;
    };
    let by = raw.pools.get(at)?;
    let users = raw.pools.iter().filter_map(|pool| pool.prefill.as_ref());
    for (fine, why) in [
        (by.model != pool.model, "is this pool; name another one, of pods that prefill"),
        (by.prefill.is_none(), "has its own prompts computed elsewhere"),
        (
            by.aliases.is_empty() && by.adapters.is_empty(),
            "has aliases or adapters; nobody but this pool asks it for anything",
        ),
        (
            by.pods_key_env.is_none(),
            "has a pods_key_env of its own; that of this pool goes to both",
        ),
        (
            users.filter(|other| other.pool == *name).count() == 1,
            "computes the prompts of another pool too; give each its own",
        ),
    ] {
        problems.require(fine, &key, why);
    }
    Some(PrefillConfig { pool: at, local_tokens: *local_tokens, overflow: *overflow })
}

/// What the scheduler is told of the profiles.
fn capacities(profiles: &[(u16, ClassProfile)]) -> Profiles {
    let mut capacities = Profiles::default();
    for (class, of) in profiles {
        if let Some(patterns) = &of.profile.patterns {
            capacities.insert(*class, patterns.clone());
        }
    }
    capacities
}

/// What a pool says of its policy and of what the policy asks for.
fn check_rules(key: &str, pool: &RawPool, raw: &RawConfig, problems: &mut Problems) {
    pool.policy.check(&format!("{key}.policy"), problems);
    if let Some(second) = &pool.policy_by_header {
        second.check(&format!("{key}.policy_by_header"), problems);
    }
    let sane = pool.default_capacity.is_finite() && pool.default_capacity > 0.0;
    problems.require(sane, &format!("{key}.default_capacity"), "must be above 0");
    let bounded = pool.migration_limit <= MOST_MIGRATIONS;
    problems.require(bounded, &format!("{key}.migration_limit"), "must be at most 16");
    let NeedConfig { attained, load, .. } = pool.autoscale;
    let sane = (0.5..=0.999).contains(&attained);
    problems.require(sane, &format!("{key}.autoscale.attained"), "must be from 0.5 to 0.999");
    let sane = (0.02..=2.0).contains(&load);
    problems.require(sane, &format!("{key}.autoscale.load"), "must be from 0.02 to 2");
    problems.require(
        pool.max_model_len != Some(0),
        &format!("{key}.max_model_len"),
        "must be above 0",
    );
    let unknown =
        pool.default_objective.as_ref().filter(|name| !raw.objectives.contains_key(*name));
    if let Some(name) = unknown {
        let key = format!("{key}.default_objective");
        let instead = suggest::one_of(name, raw.objectives.keys().map(String::as_str));
        problems.add(&key, format!("{name:?} is not among the objectives; {instead}"));
    }
}

fn check_names(key: &str, pool: &RawPool, names: &mut BTreeSet<String>, problems: &mut Problems) {
    problems.require(
        !pool.model.is_empty(),
        &format!("{key}.model"),
        "missing; write the name that requests ask for",
    );
    for (list, names) in [("aliases", &pool.aliases), ("adapters", &pool.adapters)] {
        let blank = names.iter().any(String::is_empty);
        problems.require(!blank, &format!("{key}.{list}"), "a name must not be empty");
    }
    for name in std::iter::once(&pool.model).chain(&pool.aliases).chain(&pool.adapters) {
        if !names.insert(name.clone()) {
            problems.add(key, format!("the model name {name:?} is taken already; name it once"));
        }
    }
}

fn classes(raw: &[RawClass], problems: &mut Problems) -> Vec<PodClass> {
    let some = !raw.is_empty() && raw.len() <= usize::from(u16::MAX);
    problems.require(some, "classes", "name at least one");
    let mut classes: Vec<PodClass> = Vec::with_capacity(raw.len());
    for (index, class) in raw.iter().enumerate() {
        let key = format!("classes[{index}]");
        let class = class.check(&key, problems);
        let new = classes.iter().all(|other| other.name != class.name);
        problems.require(
            new,
            &format!("{key}.name"),
            "is the name of another class too; give each its own",
        );
        classes.push(class);
    }
    classes
}

fn bounds(raw: &RawQueue, max_body_bytes: u32, problems: &mut Problems) -> Bounds {
    problems.require(raw.max_requests > 0, "queue.max_requests", "must be at least 1");
    // A larger body would find the queue full whenever it came.
    let why = "must be at least 1 and not below limits.max_body_bytes";
    problems.require(raw.max_bytes >= max_body_bytes.max(1).into(), "queue.max_bytes", why);
    let mut seconds = |key: &str, value: f64| {
        let sane = (0.0..=86_400.0).contains(&value);
        problems.require(sane, &format!("queue.{key}"), "must be from 0 to 86400");
        Duration::try_from_secs_f64(value).unwrap_or_default()
    };
    Bounds {
        max_requests: raw.max_requests,
        max_bytes: raw.max_bytes,
        max_predicted_wait: seconds("max_predicted_wait_s", raw.max_predicted_wait_s),
        max_wait: seconds("max_wait_s", raw.max_wait_s),
        max_wait_late: seconds("max_wait_late_s", raw.max_wait_late_s),
        max_wait_no_pods: seconds("max_wait_no_pods_s", raw.max_wait_no_pods_s),
    }
}

fn check_pull(pull: &PullConfig, problems: &mut Problems) {
    let shares = [
        ("tpot_margin", pull.tpot_margin),
        ("remaining_quantile", pull.remaining_quantile),
        ("risk_at_once", pull.risk_at_once),
        ("risk_when_due", pull.risk_when_due),
        ("big_chunk_share", pull.big_chunk_share),
        ("pass_share", pull.pass_share),
        ("bind_share", pull.bind_share),
        ("hold_share", pull.hold_share),
        ("late_share", pull.late_share),
        ("warm_slack", pull.warm_slack),
        ("kv_limit", pull.kv_limit),
        ("yield_share", pull.yield_share),
        ("kv_growth", pull.kv_growth),
    ];
    for (name, share) in shares {
        let sane = (0.0..=1.0).contains(&share);
        problems.require(sane, &format!("pull.{name}"), "must be from 0 to 1");
    }
    for (name, factor, least) in
        [("hopeless_factor", pull.hopeless_factor, 1.0), ("cold_weight", pull.cold_weight, 0.0)]
    {
        let sane = (least..=100.0).contains(&factor);
        problems.require(sane, &format!("pull.{name}"), &format!("must be from {least} to 100"));
    }
    let sane = (0.0..=86_400_000.0).contains(&pull.long_prompt_ms);
    problems.require(sane, "pull.long_prompt_ms", "must be from 0 to 86400000");
    let sane = (0.0..=60_000.0).contains(&pull.pending_ms);
    problems.require(sane, "pull.pending_ms", "must be from 0 to 60000");
    let untouched = pull.stale_after_ms == PullConfig::default().stale_after_ms;
    problems.require(untouched, "pull.stale_after_ms", "set scrape.stale_after_ms instead");
}
