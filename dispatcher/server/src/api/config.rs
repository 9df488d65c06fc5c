//! The data API's part of the configuration: [`RawApi`] as it is written, [`ApiConfig`] as it is
//! used.
//!
//! The file's top level holds the fields of [`RawApi`] beside those of other modules, so whoever
//! composes the file builds a [`RawApi`] and calls [`RawApi::check`] once. Every problem names its
//! key by its path in the file.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::{Band, Slo};

use super::{
    auth::{Key, KeyRing},
    cors::is_origin,
    limit::Rate,
    objective::{Objective, Objectives},
};
use crate::config::{Problems, required, secret::Written, suggest::one_of};

/// What the file says about the data API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawApi {
    /// Classes of service by name.
    pub objectives: BTreeMap<String, RawObjective>,
    /// The objective of requests that ask for none, or for one that is not configured.
    pub default_objective: String,
    /// Objectives by the value of the body's `service_tier`.
    pub service_tiers: BTreeMap<String, String>,
    /// Accepted keys. Empty: everybody is let in, and headers are trusted.
    pub keys: Vec<RawKey>,
    /// Origins whose web pages may call, as browsers write them (`https://app.example`), or `*` for any. Empty: none may.
    pub cors_origins: Vec<String>,
    /// Bounds on what a client may send and for how long.
    pub limits: RawLimits,
}

/// A class of service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawObjective {
    /// Priority; a higher band goes first, below 0 is sheddable.
    pub band: i8,
    /// Objective for the time from arrival to the first token, in milliseconds; above 0.
    pub ttft_ms: Option<f64>,
    /// Objective for the mean time per output token, in milliseconds; above 0.
    pub tpot_ms: Option<f64>,
}

/// An accepted key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["tenant"]))]
pub struct RawKey {
    /// SHA-256 of the key, in hexadecimal. The key itself is never stored.
    pub sha256: String,
    /// Instead of `sha256`: the variable of the environment that holds the key.
    pub key_env: Option<String>,
    /// Who holds the key.
    pub tenant: String,
    /// The objective of requests under this key that ask for none.
    pub objective: Option<String>,
    /// The highest band that requests under this key get.
    pub max_band: Option<i8>,
    /// Whether objective, SLO and tenant headers under this key count, and `kv_transfer_params` in bodies go on. Each tenant so named has the key's rate to itself.
    pub trust_headers: bool,
    /// Whether a `priority` in the body of requests under this key goes on to the pod. Otherwise, and
    /// always when there are no keys, it is taken out.
    pub allow_priority: bool,
    /// Requests per minute of each of its tenants; absent: as in `limits`.
    #[schemars(range(min = 1))]
    pub requests_per_minute: Option<u32>,
    /// Requests that may come at once, beside `requests_per_minute`; absent: as many as per minute.
    #[schemars(range(min = 1, max = MOST_BURST))]
    pub burst: Option<u32>,
}

/// Bounds on what a client may send and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLimits {
    /// Largest request body in bytes.
    #[schemars(range(min = 1))]
    pub max_body_bytes: u32,
    /// Most bytes of request bodies that are being read at a time, over all connections, beside the first 64 KiB of each; no less than
    /// `max_body_bytes`. A body that finds no room has that of one of which less than 64 KiB came in a second, or is refused.
    pub max_reading_bytes: u32,
    /// Largest request head in bytes. It holds at most 100 headers.
    #[schemars(range(min = 8192))]
    pub max_header_bytes: u32,
    /// Most connections at once. Further ones get the places of those that have asked nothing for a second, or wait to be accepted.
    #[schemars(range(min = 1))]
    pub max_connections: u32,
    /// Requests per minute of each tenant; absent: no limit. Requests without a tenant share one.
    #[schemars(range(min = 1))]
    pub requests_per_minute: Option<u32>,
    /// Requests that may come at once, beside `requests_per_minute`; absent: as many as per minute.
    #[schemars(range(min = 1, max = MOST_BURST))]
    pub burst: Option<u32>,
    /// Tenants whose rate is tracked one by one; tenants beyond share one rate.
    #[schemars(range(min = 1))]
    pub max_tenants: u32,
    /// Longest time from the first byte of a request's head to its last, in milliseconds.
    #[schemars(range(min = 1, max = MOST_MS))]
    pub header_timeout_ms: u64,
    /// Longest time to read a body, in milliseconds.
    #[schemars(range(min = 1, max = MOST_MS))]
    pub body_timeout_ms: u64,
    /// Longest time in which a client takes not one byte of its response, in milliseconds.
    #[schemars(range(min = 1, max = MOST_MS))]
    pub write_timeout_ms: u64,
    /// Longest time that a connection is kept without a request, in milliseconds. Keep it above the
    /// idle timeout of the gateway in front.
    #[schemars(range(min = 1, max = MOST_MS))]
    pub idle_timeout_ms: u64,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
            max_reading_bytes: 512 << 20,
            max_header_bytes: 32 << 10,
            max_connections: 50_000,
            requests_per_minute: None,
            burst: None,
            max_tenants: 10_000,
            header_timeout_ms: 10_000,
            body_timeout_ms: 60_000,
            write_timeout_ms: 60_000,
            // Above the 60 s after which nginx, Kong and ALB drop idle upstream connections.
            idle_timeout_ms: 300_000,
        }
    }
}

impl Default for RawApi {
    fn default() -> Self {
        let objective = |band, ttft_ms, tpot_ms| RawObjective {
            band,
            ttft_ms: Some(ttft_ms),
            tpot_ms: Some(tpot_ms),
        };
        let tiers = [
            ("flex", "batch"),
            ("priority", "interactive"),
            ("default", "standard"),
            ("auto", "standard"),
        ];
        Self {
            objectives: BTreeMap::from([
                ("interactive".to_owned(), objective(1, 2000.0, 50.0)),
                ("standard".to_owned(), objective(0, 4000.0, 100.0)),
                ("batch".to_owned(), objective(-1, 30_000.0, 100.0)),
            ]),
            default_objective: "standard".to_owned(),
            service_tiers: tiers.map(|(tier, name)| (tier.to_owned(), name.to_owned())).into(),
            keys: vec![],
            cors_origins: vec![],
            limits: RawLimits::default(),
        }
    }
}

/// What the data API is told.
#[derive(Clone, Debug)]
pub struct ApiConfig {
    /// Classes of service, and which request gets which.
    pub objectives: Objectives,
    /// Accepted keys.
    pub keys: KeyRing,
    /// Origins whose web pages may call.
    pub cors_origins: Vec<HeaderValue>,
    /// Bounds on what a client may send and for how long.
    pub limits: Limits,
}

/// Bounds on what a client may send and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
    /// Most bytes of bodies that are being read at a time.
    pub max_reading_bytes: usize,
    /// Largest request head in bytes.
    pub max_header_bytes: usize,
    /// Most connections at once, over all threads.
    pub max_connections: usize,
    /// Rate of each tenant whose key names none.
    pub rate: Option<Rate>,
    /// Tenants tracked one by one.
    pub max_tenants: usize,
    /// Longest time from the first byte of a request's head to its last.
    pub header_timeout: Duration,
    /// Longest time to read a body.
    pub body_timeout: Duration,
    /// Longest time in which a client takes not one byte of its response.
    pub write_timeout: Duration,
    /// Longest time that a connection is kept without a request.
    pub idle_timeout: Duration,
}

/// Objectives by their names.
type ByName = HashMap<Arc<str>, Arc<Objective>>;

impl RawApi {
    /// Validates and converts.
    ///
    /// # Errors
    /// Every value that cannot be used.
    pub fn check(&self) -> Result<ApiConfig, Problems> {
        let mut problems = Problems::default();
        let by_name = self.objectives(&mut problems);
        let default = find(&by_name, "default_objective", &self.default_objective, &mut problems);
        let tiers = self.tiers(&by_name, &mut problems);
        let keys = self.keys(&by_name, &mut problems);
        let cors_origins = self.cors_origins(&mut problems);
        let limits = self.limits.check(&mut problems);
        let Some(default) = default else { return Err(problems) };
        let objectives = Objectives::new(by_name, tiers, default);
        problems.none_or(ApiConfig { objectives, keys, cors_origins, limits })
    }

    fn cors_origins(&self, problems: &mut Problems) -> Vec<HeaderValue> {
        let mut check = |(index, origin): (usize, &String)| {
            let sane = is_origin(origin);
            let why = "must be * or an origin as browsers write it: https://app.example";
            problems.require(sane, &format!("cors_origins[{index}]"), why);
            HeaderValue::from_str(origin).ok()
        };
        self.cors_origins.iter().enumerate().filter_map(&mut check).collect()
    }

    /// One that cannot be used is among them all the same: naming it is no further problem.
    fn objectives(&self, problems: &mut Problems) -> ByName {
        let checked = self.objectives.iter().map(|(name, raw)| raw.check(name, problems));
        checked.map(|objective| (objective.name.clone(), Arc::new(objective))).collect()
    }

    fn tiers(&self, by_name: &ByName, problems: &mut Problems) -> HashMap<String, Arc<Objective>> {
        let tiers = self.service_tiers.iter().filter_map(|(tier, name)| {
            let key = format!("service_tiers.{tier}");
            Some((tier.clone(), find(by_name, &key, name, problems)?))
        });
        tiers.collect()
    }

    fn keys(&self, by_name: &ByName, problems: &mut Problems) -> KeyRing {
        let mut keys: Vec<Key> = Vec::new();
        for (index, raw) in self.keys.iter().enumerate() {
            let path = format!("keys[{index}]");
            let Some(key) = raw.check(&path, by_name, problems) else { continue };
            let new = keys.iter().all(|other| other.digest != key.digest);
            problems.require(new, &format!("{path}.sha256"), "is listed twice; take one out");
            keys.push(key);
        }
        KeyRing::new(keys)
    }
}

impl RawObjective {
    fn check(&self, name: &str, problems: &mut Problems) -> Objective {
        let path = format!("objectives.{name}");
        // The name becomes a header's value and a metric's label.
        let sane = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        problems.require(sane, &path, "the name must be visible ASCII without spaces");
        let mut milliseconds = |name: &str, value: Option<f64>| {
            let time = value.and_then(super::objective::slo_from_ms);
            let sane = time.is_some() || value.is_none();
            problems.require(sane, &format!("{path}.{name}"), "must be a positive number");
            time
        };
        let (ttft, tpot) =
            (milliseconds("ttft_ms", self.ttft_ms), milliseconds("tpot_ms", self.tpot_ms));
        Objective { name: Arc::from(name), band: Band(self.band), slo: Slo { ttft, tpot } }
    }
}

impl RawKey {
    /// `None` when nothing could be told by it.
    fn check(&self, path: &str, by_name: &ByName, problems: &mut Problems) -> Option<Key> {
        let env = self.key_env.as_deref();
        let written =
            Written { sha256: &self.sha256, env, env_key: "key_env", may_be_digest: true };
        let digest = written.digest(path, problems);
        let tenant = format!("{path}.tenant");
        problems.require(!self.tenant.is_empty(), &tenant, "must not be empty");
        let named = self.objective.as_ref();
        let objective =
            named.and_then(|name| find(by_name, &format!("{path}.objective"), name, problems));
        Some(Key {
            rate: rate(path, self.requests_per_minute, self.burst, problems),
            digest: digest?,
            tenant: Arc::from(self.tenant.as_str()),
            objective,
            max_band: self.max_band.map(Band),
            trust_headers: self.trust_headers,
            allow_priority: self.allow_priority,
        })
    }
}

impl RawLimits {
    fn check(&self, problems: &mut Problems) -> Limits {
        // 8 KiB is the smallest buffer that the HTTP server works with.
        for (name, value, least) in [
            ("max_body_bytes", self.max_body_bytes, 1),
            ("max_header_bytes", self.max_header_bytes, 8192),
            ("max_connections", self.max_connections, 1),
            ("max_tenants", self.max_tenants, 1),
        ] {
            let why = format!("must be at least {least}");
            problems.require(value >= least, &format!("limits.{name}"), &why);
        }
        for (name, value_ms) in [
            ("header_timeout_ms", self.header_timeout_ms),
            ("body_timeout_ms", self.body_timeout_ms),
            ("write_timeout_ms", self.write_timeout_ms),
            ("idle_timeout_ms", self.idle_timeout_ms),
        ] {
            let sane = (1..=MOST_MS).contains(&value_ms);
            let why = format!("must be 1 to {MOST_MS}");
            problems.require(sane, &format!("limits.{name}"), &why);
        }
        let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        Limits {
            max_body_bytes: size(self.max_body_bytes),
            max_reading_bytes: size(self.max_reading_bytes.max(self.max_body_bytes)),
            max_header_bytes: size(self.max_header_bytes),
            max_connections: size(self.max_connections),
            rate: rate("limits", self.requests_per_minute, self.burst, problems),
            max_tenants: size(self.max_tenants),
            header_timeout: Duration::from_millis(self.header_timeout_ms),
            body_timeout: Duration::from_millis(self.body_timeout_ms),
            write_timeout: Duration::from_millis(self.write_timeout_ms),
            idle_timeout: Duration::from_millis(self.idle_timeout_ms),
        }
    }
}

/// A day: longer than any connection lives, short enough that no sum of times overflows.
const MOST_MS: u64 = 86_400_000;

/// At one request per minute, the nanoseconds in which such a burst comes back still fit 64 bits.
const MOST_BURST: u32 = 1_000_000;

fn find(
    by_name: &ByName,
    key: &str,
    name: &str,
    problems: &mut Problems,
) -> Option<Arc<Objective>> {
    let found = by_name.get(name).cloned();
    if found.is_none() {
        let instead = one_of(name, by_name.keys().map(|name| &**name));
        problems.add(key, format!("{name:?} is not among the objectives; {instead}"));
    }
    found
}

fn rate(
    path: &str,
    per_minute: Option<u32>,
    burst: Option<u32>,
    problems: &mut Problems,
) -> Option<Rate> {
    let key = |name| format!("{path}.{name}");
    for (name, value) in [("burst", burst), ("requests_per_minute", per_minute)] {
        problems.require(value != Some(0), &key(name), "must be at least 1");
    }
    let few = burst.is_none_or(|burst| burst <= MOST_BURST);
    problems.require(few, &key("burst"), &format!("must be at most {MOST_BURST}"));
    let has_effect = burst.is_none() || per_minute.is_some();
    problems.require(has_effect, &key("burst"), "has no effect without requests_per_minute");
    let per_minute = NonZeroU32::new(per_minute?)?;
    let all = per_minute.min(NonZeroU32::new(MOST_BURST).unwrap_or(per_minute));
    Some(Rate { per_minute, burst: burst.and_then(NonZeroU32::new).unwrap_or(all) })
}

#[cfg(test)]
mod tests;
