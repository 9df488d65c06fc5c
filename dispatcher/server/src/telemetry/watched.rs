//! Everything that the admin side looks at: handles to the owners of state, and nothing it could
//! change.

use std::sync::Arc;

use serde::Serialize;
use weir_core::{Phase, Snapshot};

use super::{Metrics, spans::SpanTally};
use crate::{
    api::room::Room,
    clock::Clock,
    config::ConfigTally,
    hub::Hub,
    learn::{
        Shelf, Versions, reload::ReloadTally, spool::SpoolTally, trainer::TrainerTally,
        versions::VersionView,
    },
    replicas::Circle,
    shutdown::{Life, Stage},
    state::StateTally,
    tls::Identity,
};

/// Handles to the owners of state.
#[derive(Clone)]
pub struct Watched {
    /// One per pool.
    pub hubs: Vec<Arc<Hub>>,
    /// The dispatchers of each pool, in the same order; none where this one is alone.
    pub circles: Vec<Arc<Circle>>,
    /// What the data plane counts.
    pub metrics: Arc<Metrics>,
    /// How the model versions do.
    pub versions: Arc<Versions>,
    /// What became of the state.
    pub state: Arc<StateTally>,
    /// What the spool came to.
    pub spool: Arc<SpoolTally>,
    /// What became of the bundles.
    pub reload: Arc<ReloadTally>,
    /// The bundles themselves.
    pub shelf: Arc<Shelf>,
    /// What became of the configuration.
    pub config: Arc<ConfigTally>,
    /// What the trainer's process came to.
    pub trainer: Arc<TrainerTally>,
    /// What became of spans.
    pub spans: Arc<SpanTally>,
    /// Who those listeners are that speak TLS.
    pub identities: Vec<Arc<Identity>>,
    /// Who is connected to the API.
    pub room: Arc<Room>,
    /// Where the process is in its life.
    pub life: Life,
    /// Counts from the start.
    pub clock: Clock,
}

/// The whole dispatcher at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// One per model.
    pub pools: Vec<PoolOverview>,
    /// Whether the dispatcher was asked to stop.
    pub draining: bool,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
}

/// A pool at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct PoolOverview {
    /// What its scheduler shows.
    pub snapshot: Snapshot,
    /// What serves its predictions.
    pub model: ModelOverview,
}

/// What serves a pool's predictions.
#[derive(Clone, Debug, Serialize)]
pub struct ModelOverview {
    /// Version of the bundle that was handed over last; 0 is none.
    pub loaded: u64,
    /// Why the newest bundle is not loaded, if so.
    pub reason: Option<String>,
    /// The versions that were in service, oldest first.
    pub versions: Vec<VersionView>,
}

/// Why no request should be sent to this dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// It was asked to stop.
    #[error("draining")]
    Draining,
    /// No pool has a pod that takes requests.
    #[error("no pod is ready")]
    NoPods,
}

impl Watched {
    /// Whether it goes on accepting, with pods that take requests or without: then what comes is held.
    ///
    /// # Errors
    /// When it was asked to stop.
    pub fn stays(&self) -> Result<(), NotReady> {
        if self.life.stage() > Stage::Serving { Err(NotReady::Draining) } else { Ok(()) }
    }

    /// Whether requests should be sent here.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.stays()?;
        let ready = |hub: &Arc<Hub>| hub.pods().iter().any(|pod| pod.phase() == Phase::Ready);
        if self.hubs.iter().any(ready) { Ok(()) } else { Err(NotReady::NoPods) }
    }

    /// The whole dispatcher at this moment.
    pub fn overview(&self) -> Overview {
        Overview {
            pools: self.hubs.iter().map(|hub| self.pool(hub)).collect(),
            draining: self.life.stage() > Stage::Serving,
            uptime_s: self.uptime_s(),
        }
    }

    /// Time since the start, in seconds.
    pub fn uptime_s(&self) -> f64 {
        self.clock.up().as_secs_f64()
    }

    fn pool(&self, hub: &Arc<Hub>) -> PoolOverview {
        let model = ModelOverview {
            loaded: self.reload.version.load(std::sync::atomic::Ordering::Relaxed),
            reason: self.reload.reason.lock().clone(),
            versions: self.versions.of(hub.model()),
        };
        PoolOverview { snapshot: hub.snapshot(), model }
    }
}
