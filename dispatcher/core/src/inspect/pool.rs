//! Lanes, bands, pods, and the pool in a few numbers.

use std::sync::Arc;

use serde::Serialize;

use crate::{Band, Need, PodId, PodView, Policy, Reason, RefusalReason, RequestId};

/// A lane.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct QueueView {
    /// Its name; see [`crate::queue::key`].
    pub lane: Arc<str>,
    /// Its pattern in words.
    pub pattern: String,
    /// Its band.
    pub band: Band,
    /// Requests in it.
    pub depth: usize,
    /// Whether it holds what can no longer make it.
    pub late: bool,
    /// Whether an operator holds it.
    pub paused: bool,
    /// Age of its head, in milliseconds.
    pub head_wait_ms: f64,
    /// Predicted time until what waits in it is dispatched, in milliseconds; `None` while it is paused or no
    /// pod is ready.
    pub drain_ms: Option<f64>,
    /// Why its head waits.
    pub reason: Reason,
    /// Its head.
    pub head: RequestId,
    /// What the client of its head calls it.
    pub request_id: Arc<str>,
}

/// A band.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BandView {
    /// Which.
    pub band: Band,
    /// Requests waiting.
    pub depth: usize,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits is dispatched, in milliseconds; `None` while nothing of it can leave: there
    /// is nothing, all of it is paused, or no pod is ready.
    pub drain_ms: Option<f64>,
    /// Whether an operator holds all of it.
    pub paused: bool,
    /// What became of its requests since the start.
    pub tally: Tally,
}

/// What became of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Requests that ended, refused ones included. Those whose client left are not in it.
    pub sent: u64,
    /// Of them, whole responses inside their objectives.
    pub attained: u64,
    /// Of them, refused.
    pub refused: u64,
}

/// A pool in a few numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The preset that decides, or that the rules started from.
    pub policy: Policy,
    /// Requests waiting.
    pub waiting: usize,
    /// Their body bytes.
    pub waiting_bytes: u64,
    /// Requests waiting that can no longer meet their TTFT objective.
    pub late: usize,
    /// Age of the oldest waiting request, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits now and is not paused is dispatched, in milliseconds; `None` while all
    /// of it is paused or no pod is ready.
    pub drain_ms: Option<f64>,
    /// Requests dispatched and not over.
    pub in_flight: usize,
    /// What an operator holds: `pool`, bands as `b0`, lanes by their names.
    pub paused: Vec<String>,
    /// Pods known.
    pub pods: usize,
    /// Pods that take requests.
    pub pods_ready: usize,
    /// How many it needs.
    pub need: Need,
    /// Refusals by reason, since the start.
    pub refused: Vec<(RefusalReason, u64)>,
    /// What became of requests since the start.
    pub tally: Tally,
    /// The same by band.
    pub bands: Vec<(Band, Tally)>,
}

/// Mean absolute relative errors of what was predicted for a pod lately, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PodErrors {
    /// Of TTFT; `None` before any was measured.
    pub ttft: Option<f64>,
    /// Of TPOT; `None` before any was measured.
    pub tpot: Option<f64>,
    /// Responses behind them, forgotten ones included.
    pub count: u64,
}

/// A pod, looked at closely.
#[derive(Clone, Debug, Serialize)]
pub struct PodDetail {
    /// Its number.
    pub id: PodId,
    /// What the snapshot shows of it.
    #[serde(flatten)]
    pub view: PodView,
    /// How well it was predicted lately.
    pub errors: PodErrors,
    /// Sequences that the ledger knows more than the last scrape; negative: others are there. `None`
    /// without a fresh scrape.
    pub ledger_minus_scrape: Option<f64>,
    /// Predicted time until everything on it is over, in milliseconds; only while it takes nothing more.
    pub empty_in_ms: Option<f64>,
}
