//! `GET /overview`: every pool in a few figures.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole dispatcher.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Overview {
    /// Of the dispatcher.
    pub(crate) version: String,
    /// Since its start.
    pub(crate) uptime_s: f64,
    /// Whether it was asked to stop.
    pub(crate) draining: bool,
    /// One per model.
    pub(crate) pools: Vec<PoolOverview>,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PoolOverview {
    /// Its model.
    pub(crate) pool: String,
    /// Where the dispatcher is that decides, if that is another one.
    pub(crate) decided_by: Option<String>,
    /// By which policy.
    pub(crate) policy: String,
    /// Requests without a pod.
    pub(crate) waiting: u64,
    /// Requests with one.
    pub(crate) in_flight: u64,
    /// Waiting requests past their objective.
    pub(crate) late: u64,
    /// Age of the oldest waiting request.
    pub(crate) oldest_wait_ms: Option<f64>,
    /// Predicted time until what waits is dispatched.
    pub(crate) drain_ms: Option<f64>,
    /// Whether the pool is paused.
    pub(crate) paused: bool,
    /// Everything that an operator holds.
    pub(crate) held: Vec<String>,
    /// Pods that take requests.
    pub(crate) pods_ready: u64,
    /// All pods.
    pub(crate) pods: u64,
    /// How many what comes needs.
    pub(crate) need: Option<Need>,
    /// Version of the model that predicts.
    pub(crate) model_version: Option<u64>,
    /// How many met their objective, by band.
    pub(crate) attainment: Vec<Attainment>,
    /// Refusals since the start, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
}

/// How many pods a pool needs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Need {
    /// For what may not be shed.
    pub(crate) pods: u64,
}

/// How many met their objective lately.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Attainment {
    /// The band.
    pub(crate) band: i64,
    /// Name of its objective.
    pub(crate) objective: Option<String>,
    /// Length of the window.
    pub(crate) window_s: Option<f64>,
    /// Requests that ended, or were refused.
    pub(crate) sent: u64,
    /// Those that met it.
    pub(crate) attained: u64,
    /// Those that were refused.
    pub(crate) refused: u64,
}

impl Attainment {
    /// The share of what was sent; not known while nothing was.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.sent > 0).then(|| self.attained as f64 / self.sent as f64)
    }

    /// The objective's name, or the band's number.
    pub(crate) fn name(&self) -> String {
        self.objective.clone().unwrap_or_else(|| format!("band {}", self.band))
    }
}
