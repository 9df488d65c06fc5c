//! `GET /queues`: lanes, bands and tenants.

use serde::Deserialize;

use super::Why;

/// What waits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Queues {
    /// By lane.
    pub(crate) queues: Vec<Lane>,
    /// By band.
    pub(crate) bands: Vec<BandRow>,
    /// By tenant.
    pub(crate) tenants: Vec<TenantRow>,
}

/// One lane.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Lane {
    /// The model.
    pub(crate) pool: String,
    /// Its key.
    pub(crate) lane: String,
    /// What its requests look like.
    pub(crate) pattern: String,
    /// Its band.
    pub(crate) band: i64,
    /// Requests in it.
    pub(crate) depth: u64,
    /// Their body bytes.
    pub(crate) bytes: Option<f64>,
    /// Age of its head.
    pub(crate) head_wait_ms: Option<f64>,
    /// Predicted time until it is empty.
    pub(crate) drain_ms: Option<f64>,
    /// Whether it only holds.
    pub(crate) paused: bool,
    /// Why its head waits.
    pub(crate) reason: Why,
    /// The id that its head's client knows.
    pub(crate) request_id: String,
    /// How its requests stand against their objectives.
    pub(crate) risk: Risk,
}

/// Requests by the share of their objective that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Risk {
    /// More than a quarter.
    pub(crate) ok: u64,
    /// Less.
    pub(crate) tight: u64,
    /// None.
    pub(crate) late: u64,
}

/// One band.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct BandRow {
    /// The model.
    pub(crate) pool: String,
    /// The band.
    pub(crate) band: i64,
    /// Requests in it.
    pub(crate) depth: u64,
    /// Their body bytes.
    pub(crate) bytes: Option<f64>,
    /// Age of the oldest.
    pub(crate) oldest_wait_ms: Option<f64>,
    /// Predicted time until it is empty.
    pub(crate) drain_ms: Option<f64>,
    /// Whether it only holds.
    pub(crate) paused: bool,
    /// How its requests stand.
    pub(crate) risk: Risk,
}

/// One tenant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct TenantRow {
    /// The model.
    pub(crate) pool: String,
    /// The tenant.
    pub(crate) tenant: String,
    /// Its waiting requests.
    pub(crate) depth: u64,
    /// Their body bytes.
    pub(crate) bytes: Option<f64>,
    /// Age of the oldest.
    pub(crate) oldest_wait_ms: Option<f64>,
}
