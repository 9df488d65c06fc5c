//! The data API's part of the configuration: [`RawApi`] as it is written, [`ApiConfig`] as it is
//! used.
//!
//! The file's top level holds the fields of [`RawApi`] beside those of other modules, so whoever
//! composes the file builds a [`RawApi`] and calls [`RawApi::check`] once. Every refusal names the
//! key by its path in the file.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::{Band, Slo};

use super::{
    auth::{Key, KeyRing},
    limit::Rate,
    objective::{Objective, Objectives},
};

/// A value in the configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct BadValue {
    /// Path of the key, for example `objectives.batch.ttft_ms`.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

impl BadValue {
    fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }
}

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
    /// Bounds on what a client may send and for how long.
    pub limits: RawLimits,
}

/// A class of service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawObjective {
    /// Priority; a higher band goes first, below 0 is sheddable.
    pub band: i8,
    /// Objective for the time from arrival to the first token, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// Objective for the mean time per output token, in milliseconds.
    pub tpot_ms: Option<f64>,
}

/// An accepted key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawKey {
    /// SHA-256 of the key, in hexadecimal. The key itself is never stored.
    pub sha256: String,
    /// Who holds the key.
    pub tenant: String,
    /// The objective of requests under this key that ask for none.
    pub objective: Option<String>,
    /// The highest band that requests under this key get.
    pub max_band: Option<i8>,
    /// Whether objective, SLO and tenant headers under this key count.
    pub trust_headers: bool,
    /// Whether a `priority` in the body of requests under this key goes on to the pod. Otherwise, and
    /// always when there are no keys, it is taken out.
    pub allow_priority: bool,
    /// Requests per minute of each of its tenants; absent: as in `limits`.
    pub requests_per_minute: Option<u32>,
    /// Requests that may come at once; absent: as many as per minute.
    pub burst: Option<u32>,
}

/// Bounds on what a client may send and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawLimits {
    /// Largest request body in bytes.
    pub max_body_bytes: u32,
    /// Largest request head in bytes. It holds at most 100 headers.
    pub max_header_bytes: u32,
    /// Most connections at once; further ones wait to be accepted.
    pub max_connections: u32,
    /// Requests per minute of each tenant; absent: no limit. Requests without a tenant share one.
    pub requests_per_minute: Option<u32>,
    /// Requests that may come at once; absent: as many as per minute.
    pub burst: Option<u32>,
    /// Tenants whose rate is tracked one by one; tenants beyond share one rate.
    pub max_tenants: u32,
    /// Longest time from the first byte of a request's head to its last, in milliseconds.
    pub header_timeout_ms: u64,
    /// Longest time to read a body, in milliseconds.
    pub body_timeout_ms: u64,
    /// Longest time in which a client takes not one byte of its response, in milliseconds.
    pub write_timeout_ms: u64,
    /// Longest time that a connection is kept without a request, in milliseconds. Keep it above the
    /// idle timeout of the gateway in front.
    pub idle_timeout_ms: u64,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            max_body_bytes: 32 << 20,
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
    /// Bounds on what a client may send and for how long.
    pub limits: Limits,
}

/// Bounds on what a client may send and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body in bytes.
    pub max_body_bytes: usize,
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

impl RawApi {
    /// Validates and converts.
    ///
    /// # Errors
    /// Names the first key whose value cannot be used.
    pub fn check(&self) -> Result<ApiConfig, BadValue> {
        let objectives = self.objectives()?;
        let keys = self.keys(&objectives)?;
        Ok(ApiConfig { objectives, keys, limits: self.limits.check()? })
    }

    fn objectives(&self) -> Result<Objectives, BadValue> {
        let mut by_name = HashMap::new();
        for (name, raw) in &self.objectives {
            let objective = Arc::new(raw.check(name)?);
            by_name.insert(objective.name.clone(), objective);
        }
        let find = |key: String, name: &String| {
            by_name.get(name.as_str()).cloned().ok_or_else(|| not_configured(key, name))
        };
        let default = find("default_objective".to_owned(), &self.default_objective)?;
        let tiers = self
            .service_tiers
            .iter()
            .map(|(tier, name)| Ok((tier.clone(), find(format!("service_tiers.{tier}"), name)?)));
        let tiers = tiers.collect::<Result<HashMap<_, _>, BadValue>>()?;
        Ok(Objectives::new(by_name, tiers, default))
    }

    fn keys(&self, objectives: &Objectives) -> Result<KeyRing, BadValue> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, raw) in self.keys.iter().enumerate() {
            let path = format!("keys[{index}]");
            let key = raw.check(&path, objectives)?;
            if keys.iter().any(|other| other.digest == key.digest) {
                return Err(BadValue::new(format!("{path}.sha256"), "listed twice"));
            }
            keys.push(key);
        }
        Ok(KeyRing::new(keys))
    }
}

impl RawObjective {
    fn check(&self, name: &str) -> Result<Objective, BadValue> {
        let path = format!("objectives.{name}");
        // The name becomes a header's value and a metric's label.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadValue::new(path, "the name must be visible ASCII without spaces"));
        }
        let slo = Slo {
            ttft: milliseconds(&path, "ttft_ms", self.ttft_ms)?,
            tpot: milliseconds(&path, "tpot_ms", self.tpot_ms)?,
        };
        Ok(Objective { name: Arc::from(name), band: Band(self.band), slo })
    }
}

impl RawKey {
    fn check(&self, path: &str, objectives: &Objectives) -> Result<Key, BadValue> {
        let digest = digest(&self.sha256).ok_or_else(|| {
            BadValue::new(format!("{path}.sha256"), "must be 64 hexadecimal digits")
        })?;
        if self.tenant.is_empty() {
            return Err(BadValue::new(format!("{path}.tenant"), "must not be empty"));
        }
        let objective = self.objective.as_ref().map(|name| {
            let unknown = || not_configured(format!("{path}.objective"), name);
            objectives.named(name).cloned().ok_or_else(unknown)
        });
        Ok(Key {
            digest,
            tenant: Arc::from(self.tenant.as_str()),
            objective: objective.transpose()?,
            max_band: self.max_band.map(Band),
            trust_headers: self.trust_headers,
            allow_priority: self.allow_priority,
            rate: rate(path, self.requests_per_minute, self.burst)?,
        })
    }
}

impl RawLimits {
    fn check(&self) -> Result<Limits, BadValue> {
        // 8 KiB is the smallest buffer that the HTTP server works with.
        let size = |name, value: u32, least: u32| {
            if value < least {
                return Err(BadValue::new(
                    format!("limits.{name}"),
                    format!("must be at least {least}"),
                ));
            }
            Ok(usize::try_from(value).unwrap_or(usize::MAX))
        };
        let time = |name, value_ms: u64| {
            if !(1..=MOST_MS).contains(&value_ms) {
                return Err(BadValue::new(
                    format!("limits.{name}"),
                    format!("must be 1 to {MOST_MS}"),
                ));
            }
            Ok(Duration::from_millis(value_ms))
        };
        Ok(Limits {
            max_body_bytes: size("max_body_bytes", self.max_body_bytes, 1)?,
            max_header_bytes: size("max_header_bytes", self.max_header_bytes, 8192)?,
            max_connections: size("max_connections", self.max_connections, 1)?,
            rate: rate("limits", self.requests_per_minute, self.burst)?,
            max_tenants: size("max_tenants", self.max_tenants, 1)?,
            header_timeout: time("header_timeout_ms", self.header_timeout_ms)?,
            body_timeout: time("body_timeout_ms", self.body_timeout_ms)?,
            write_timeout: time("write_timeout_ms", self.write_timeout_ms)?,
            idle_timeout: time("idle_timeout_ms", self.idle_timeout_ms)?,
        })
    }
}

/// A day: longer than any connection lives, short enough that no sum of times overflows.
const MOST_MS: u64 = 86_400_000;

/// At one request per minute, the nanoseconds in which such a burst comes back still fit 64 bits.
const MOST_BURST: u32 = 1_000_000;

fn not_configured(key: String, name: &str) -> BadValue {
    BadValue::new(key, format!("{name:?} is not among the objectives"))
}

fn milliseconds(path: &str, name: &str, value: Option<f64>) -> Result<Option<Duration>, BadValue> {
    let Some(value_ms) = value else { return Ok(None) };
    let wrong = || BadValue::new(format!("{path}.{name}"), "must be a positive number");
    super::objective::slo_from_ms(value_ms).map(Some).ok_or_else(wrong)
}

fn rate(path: &str, per_minute: Option<u32>, burst: Option<u32>) -> Result<Option<Rate>, BadValue> {
    let positive = |name, value: Option<u32>| {
        let wrong = || BadValue::new(format!("{path}.{name}"), "must be at least 1");
        value.map(|value| NonZeroU32::new(value).ok_or_else(wrong)).transpose()
    };
    let burst = positive("burst", burst)?;
    if burst.is_some_and(|burst| burst.get() > MOST_BURST) {
        return Err(BadValue::new(
            format!("{path}.burst"),
            format!("must be at most {MOST_BURST}"),
        ));
    }
    match positive("requests_per_minute", per_minute)? {
        Some(per_minute) => {
            let all = per_minute.min(NonZeroU32::new(MOST_BURST).unwrap_or(per_minute));
            Ok(Some(Rate { per_minute, burst: burst.unwrap_or(all) }))
        }
        None if burst.is_some() => {
            let why = "has no effect without requests_per_minute";
            Err(BadValue::new(format!("{path}.burst"), why))
        }
        None => Ok(None),
    }
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? << 4 | low?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests;
