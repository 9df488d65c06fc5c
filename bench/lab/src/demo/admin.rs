//! What Weir's admin side and the pods say of themselves, as far as the demo reads it.

use std::{collections::HashSet, net::SocketAddr};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weir_core::Counters;
use weir_schema::{ClassQuality, TargetQuality};

use crate::http_get::get;

/// The demo's pool at one moment, from `/snapshot`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolView {
    pub(super) snapshot: Board,
    pub(super) model: ModelView,
}

/// The part of `weir_core::Snapshot` that the demo reads.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Board {
    pub(super) waiting: usize,
    pub(super) waiting_bytes: u64,
    pub(super) in_flight: usize,
    pub(super) pods: Vec<LedgerView>,
    pub(super) counters: Counters,
    pub(super) predictor: Predictor,
}

/// What the ledger holds of a pod.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct LedgerView {
    residents: usize,
    pending: usize,
    pending_tokens: u64,
    kv_tokens: u64,
}

/// The part of `weir_schema::Status` that the demo reads.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Predictor {
    pub(super) model_version: u64,
    pub(super) ttft: TargetQuality,
    pub(super) tpot: TargetQuality,
    pub(super) classes: Vec<ClassQuality>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct ModelView {
    pub(super) versions: Vec<Version>,
}

/// One model version in service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Version {
    pub(super) version: u64,
    /// Requests that it decided.
    pub(super) served: u64,
    /// Mean absolute relative error of its median TTFT against what was measured, as a fraction.
    pub(super) mape_ttft: Option<f64>,
    /// The same for TPOT.
    pub(super) mape_tpot: Option<f64>,
    /// Measurements behind `mape_ttft`.
    #[serde(default)]
    pub(super) rows_ttft: u64,
}

#[derive(Deserialize)]
struct Overview {
    pools: Vec<PoolView>,
}

impl PoolView {
    /// Reads it.
    pub(super) async fn read(admin: SocketAddr) -> Result<Self> {
        Self::parse(&get(admin, "/snapshot").await?)
    }

    pub(super) fn parse(text: &str) -> Result<Self> {
        let overview: Overview =
            serde_json::from_str(text).context("/snapshot is not understood")?;
        overview.pools.into_iter().next().context("/snapshot has no pool")
    }

    /// Whether nothing waits, nothing runs, and the ledger is back at zero.
    pub(super) fn idle(&self) -> bool {
        let board = &self.snapshot;
        let empty = |pod: &LedgerView| {
            pod.residents == 0 && pod.pending == 0 && pod.pending_tokens == 0 && pod.kv_tokens == 0
        };
        board.waiting == 0
            && board.waiting_bytes == 0
            && board.in_flight == 0
            && board.pods.iter().all(empty)
    }

    /// Requests that arrived at Weir and neither ended nor are there any more.
    pub(super) fn unaccounted(&self) -> u64 {
        let counters = &self.snapshot.counters;
        let refused: u64 = counters.refused.iter().map(|(_, count)| count).sum();
        let ended = counters.completed
            + counters.failed
            + counters.client_gone
            + counters.cancelled
            + refused;
        let there = self.snapshot.waiting + self.snapshot.in_flight;
        counters.arrived.abs_diff(ended + there as u64)
    }
}

/// Samples that Weir wrote, from its metrics.
pub(super) async fn samples(admin: SocketAddr) -> Result<u64> {
    let text = get(admin, "/metrics").await?;
    let value = series(&text, "weir_samples_written_total");
    Ok(value.context("weir_samples_written_total is missing")? as u64)
}

/// The value of an unlabelled series in an exposition text.
pub(super) fn series(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[derive(Deserialize)]
struct Starts {
    duplicates: u64,
    ids: Vec<String>,
}

/// Requests that started twice, on one pod or on two.
pub(super) async fn double_starts(pods: &[SocketAddr]) -> Result<u64> {
    let (mut doubles, mut seen) = (0, HashSet::new());
    for pod in pods {
        let starts: Starts = serde_json::from_str(&get(*pod, "/sim/starts").await?)?;
        doubles += starts.duplicates;
        doubles += starts.ids.into_iter().filter(|id| !seen.insert(id.clone())).count() as u64;
    }
    Ok(doubles)
}
