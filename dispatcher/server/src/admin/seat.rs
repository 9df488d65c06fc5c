//! The operator's seat: what every admin call reads. One per process.
//!
//! A call looks at a pool's scheduler beside the admin thread, so that a walk over a hundred thousand
//! requests delays no probe; the hub sees to it that it delays no dispatch either.

use std::{net::SocketAddr, sync::Arc};

use weir_core::queue::LaneKey;

use super::{
    config::{AdminConfig, Rights},
    events::Broadcast,
    fault::Fault,
    history::History,
    settings::Settings,
};
use crate::{hub::Hub, telemetry::Watched};

/// What every admin call reads.
pub struct Seat {
    watched: Watched,
    rights: Rights,
    settings: Settings,
    /// Whether the listener is on a loopback address.
    local: bool,
    history: History,
    broadcast: Broadcast,
}

impl Seat {
    /// A seat at the listener `address`.
    pub fn new(
        watched: Watched,
        rights: Rights,
        settings: Settings,
        address: SocketAddr,
    ) -> Arc<Self> {
        Arc::new(Self {
            history: History::new(watched.hubs.len()),
            broadcast: Broadcast::default(),
            local: address.ip().is_loopback(),
            watched,
            rights,
            settings,
        })
    }

    /// Does work that may take a while beside the admin thread.
    ///
    /// # Errors
    /// What the work says, or that the process ends.
    pub async fn aside<T: Send + 'static>(
        self: Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let done = tokio::task::spawn_blocking(move || work(&self)).await;
        done.unwrap_or(Err(Fault::Closing))
    }

    /// Handles to the owners of state.
    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// Who may do what now.
    pub fn rights(&self) -> Arc<AdminConfig> {
        self.rights.load_full()
    }

    /// The configuration in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether the listener is on a loopback address.
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// The last five minutes.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What is sent to those who watch.
    pub fn broadcast(&self) -> &Broadcast {
        &self.broadcast
    }

    /// Every pool, or the one that is named.
    ///
    /// # Errors
    /// When there is no pool of that name.
    pub fn pools(&self, name: Option<&str>) -> Result<Vec<Pool<'_>>, Fault> {
        let all = self.watched.hubs.iter().enumerate();
        let all = all.map(|(index, hub)| Pool { index, hub });
        let Some(name) = name else { return Ok(all.collect()) };
        let named: Vec<_> = all.filter(|pool| pool.name() == name).collect();
        if named.is_empty() { Err(Fault::not_found("pool", name)) } else { Ok(named) }
    }

    /// Whether every pool, or the one that is named, is decided for here.
    ///
    /// # Errors
    /// When there is no pool of that name, and when another dispatcher decides.
    pub fn decides(&self, name: Option<&str>) -> Result<(), Fault> {
        self.pools(name)?.iter().try_for_each(Pool::decides)
    }

    /// How a pool is written down that was named or left out: by its name if that is clear.
    pub fn written<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        match (named, self.watched.hubs.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only.model(),
            (None, _) => "",
        }
    }

    /// The pool that is named, or the only one.
    ///
    /// # Errors
    /// When there is no pool of that name, or none is named and there are several.
    pub fn pool(&self, name: Option<&str>) -> Result<Pool<'_>, Fault> {
        let pools = self.pools(name)?;
        match pools.as_slice() {
            [only] => Ok(*only),
            _ => Err(several(&pools)),
        }
    }
}

/// A pool must be named, because there are these.
pub fn several(pools: &[Pool<'_>]) -> Fault {
    Fault::PoolRequired(pools.iter().map(Pool::name).collect::<Vec<_>>().join(", "))
}

/// One pool, as the admin side asks it.
#[derive(Clone, Copy)]
pub struct Pool<'a> {
    /// Its place among the pools.
    pub index: usize,
    /// Its hub.
    pub hub: &'a Arc<Hub>,
}

impl<'a> Pool<'a> {
    /// The model it serves.
    pub fn name(&self) -> &'a str {
        self.hub.model()
    }

    /// Whether it is decided for here.
    ///
    /// # Errors
    /// When another dispatcher decides.
    pub fn decides(&self) -> Result<(), Fault> {
        self.decided_by().map_or(Ok(()), |address| Err(Fault::DecidedElsewhere(address)))
    }

    /// Where the dispatcher is that decides for it, if that is another one.
    pub fn decided_by(&self) -> Option<String> {
        self.hub.lead().map(|lead| lead.address.clone())
    }

    /// The lane that a name means, whether or not it holds anything.
    ///
    /// # Errors
    /// When no lane of this pool can have that name.
    pub fn lane(&self, name: &str) -> Result<LaneKey, Fault> {
        self.hub.lane_called(name).ok_or_else(|| Fault::not_found("lane", name))
    }

    /// Version of the bundle that predicts; `None`: none does.
    pub fn model_version(&self) -> Option<u64> {
        Some(self.hub.predictor().model_version).filter(|version| *version > 0)
    }
}
