//! The pods: which there are, whether they answer, and what their gauges say.
//!
//! [`run`] is the body of the fleet's own thread: a busy data plane does not delay a scrape, nor a
//! slow scrape the data plane. Nothing here is needed for a request to be served: without scrapes the
//! scheduler decides by its own ledger.
//!
//! # Layout
//! - [`config`]: what is written and what it becomes
//! - [`pod`]: one pod, shared with the hub and the relays
//! - [`breaker`]: takes a failing pod out and back; [`cordon`]: so does an operator
//! - [`roster`]: lets pods join and leave a hub
//! - [`watch`]: one task per address: scrape, breakers, restarts
//! - [`connection`], [`gauges`]: the text of a scrape, and its meaning
//! - [`dns`]: pods found by name

pub mod breaker;
pub mod config;
pub mod connection;
pub mod cordon;
pub mod dns;
pub mod gauges;
pub mod pod;
pub mod roster;
#[cfg(test)]
mod tests;
pub mod watch;

use std::collections::BTreeMap;

use tokio::task::JoinSet;

pub use breaker::Breaker;
pub use cordon::{Ask, Cordon};
pub use pod::{Pod, PulseCell};

use self::{
    config::{DnsConfig, Members, ScrapeConfig},
    roster::{Place, Roster},
};
use crate::worker::Stop;

/// A pool's pods before the fleet runs: the static ones have joined already, so that the data plane
/// never sees a pool without the pods of its configuration.
pub struct Muster {
    roster: Roster,
    joined: Vec<Place>,
    dns: Option<DnsConfig>,
}

impl Muster {
    /// Lets the static pods join.
    pub fn new(roster: Roster, members: Members) -> Self {
        let joined = members.seats.into_iter().map(|seat| Place::take(&roster, seat)).collect();
        Self { roster, joined, dns: members.dns }
    }
}

/// Watches every pod until it is told to stop.
pub async fn run(musters: Vec<Muster>, scrape: ScrapeConfig, mut stop: Stop) {
    let mut tasks = JoinSet::new();
    let mut by_address: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for Muster { roster, joined, dns } in musters {
        for place in joined {
            by_address.entry(place.seat.authority.clone()).or_default().push(place);
        }
        if let Some(dns) = dns {
            tasks.spawn(dns::discover(roster, dns, scrape));
        }
    }
    for places in by_address.into_values() {
        tasks.spawn(watch::watch(places, scrape));
    }
    stop.requested().await;
    tasks.shutdown().await;
}
