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
//! - [`occupancy`]: what is on a pod, by its own word
//! - [`roster`]: lets pods join and leave a hub
//! - `posts`: the watcher of each address, kept as the configuration asks
//! - [`watch`]: one task per address: scrape, breakers, restarts
//! - [`connection`], [`gauges`]: the text of a scrape, and its meaning
//! - [`dns`]: pods found by name; [`family`]: which of their addresses count

pub mod breaker;
pub mod config;
pub mod connection;
pub mod cordon;
pub mod dns;
pub mod family;
pub mod gauges;
pub mod occupancy;
pub mod pod;
mod posts;
pub mod roster;
#[cfg(test)]
mod tests;
pub mod watch;

pub use breaker::{Breaker, Failing};
pub use cordon::{Ask, Cordon};
pub use pod::{Pod, PulseCell};
use tokio::sync::watch::Receiver;

use self::{
    config::{DnsConfig, Members, ScrapeConfig},
    posts::Posts,
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

/// Watches every pod until it is told to stop. `orders` are the members that each pool has to have from
/// then on; only the last of several counts.
pub async fn run(
    musters: Vec<Muster>,
    scrape: ScrapeConfig,
    mut orders: Receiver<Vec<Members>>,
    mut stop: Stop,
) {
    let rosters = musters.iter().map(|muster| muster.roster.clone()).collect();
    let mut posts = Posts::new(rosters, scrape);
    let mut all = Vec::new();
    for (pool, Muster { joined, dns, .. }) in musters.into_iter().enumerate() {
        all.extend(joined);
        if let Some(dns) = dns {
            posts.ask(pool, dns);
        }
    }
    posts.man(all);
    let follow = async {
        // Whoever gives orders is gone: those that were given stay in force.
        while orders.changed().await.is_ok() {
            let members = orders.borrow_and_update().clone();
            posts.follow(&members).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        () = follow => {}
        () = stop.requested() => {}
    }
    posts.dismiss().await;
}
