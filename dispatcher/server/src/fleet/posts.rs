//! Who is watched where: the watcher of each address, and what the configuration asks for now.
//!
//! A pod of which nothing has changed goes on as it is, its ledger with it. One that is no longer asked
//! for leaves at once and its streams end by themselves. One whose name, class or pools have changed
//! leaves and joins anew, for it is another pod to the scheduler.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinHandle;

use super::{
    config::{DnsConfig, Members, ScrapeConfig, Seat},
    dns,
    roster::{Place, Roster},
    watch,
};

/// Who sits at an address: the number of the pool, and the seat it has there.
type Sitters = Vec<(usize, Seat)>;

/// A watcher, and what it watches.
struct Post<T> {
    what: T,
    task: JoinHandle<()>,
}

impl<T> Post<T> {
    /// Ends the watch. What it held has left when this returns.
    async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// All watchers of the process.
pub(super) struct Posts {
    rosters: Vec<Roster>,
    scrape: ScrapeConfig,
    addresses: BTreeMap<String, Post<Sitters>>,
    /// By pool.
    dns: BTreeMap<usize, Post<DnsConfig>>,
}

impl Posts {
    pub(super) fn new(rosters: Vec<Roster>, scrape: ScrapeConfig) -> Self {
        Self { rosters, scrape, addresses: BTreeMap::new(), dns: BTreeMap::new() }
    }

    /// Watches pods that have joined already.
    pub(super) fn man(&mut self, joined: Vec<(usize, Place)>) {
        let mut by_address: BTreeMap<String, Vec<(usize, Place)>> = BTreeMap::new();
        for (pool, place) in joined {
            by_address.entry(place.seat.authority.clone()).or_default().push((pool, place));
        }
        for (address, places) in by_address {
            let what = places.iter().map(|(pool, place)| (*pool, place.seat.clone())).collect();
            let places = places.into_iter().map(|(_, place)| place).collect();
            let task = tokio::spawn(watch::watch(places, self.scrape));
            self.addresses.insert(address, Post { what, task });
        }
    }

    /// Asks DNS for the pods of a pool.
    pub(super) fn ask(&mut self, pool: usize, what: DnsConfig) {
        let Some(roster) = self.rosters.get(pool) else { return };
        let task = tokio::spawn(dns::discover(roster.clone(), what.clone(), self.scrape));
        self.dns.insert(pool, Post { what, task });
    }

    /// Does what the configuration asks for; `members` are those of each pool.
    pub(super) async fn follow(&mut self, members: &[Members]) {
        let mut wanted: BTreeMap<String, Sitters> = BTreeMap::new();
        for (pool, members) in members.iter().enumerate() {
            for seat in &members.seats {
                let sitters = wanted.entry(seat.authority.clone()).or_default();
                sitters.push((pool, seat.clone()));
            }
        }
        let known: BTreeSet<String> = self.addresses.keys().cloned().collect();
        for address in known {
            let stays = self.addresses.get(&address).map(|post| &post.what) == wanted.get(&address);
            if stays {
                wanted.remove(&address);
            } else if let Some(post) = self.addresses.remove(&address) {
                post.end().await;
            }
        }
        let seats = wanted.into_values().flatten();
        let joined = seats
            .filter_map(|(pool, seat)| Some((pool, Place::take(self.rosters.get(pool)?, seat))));
        let joined = joined.collect();
        self.man(joined);
        self.follow_dns(members).await;
    }

    async fn follow_dns(&mut self, members: &[Members]) {
        for (pool, members) in members.iter().enumerate() {
            if self.dns.get(&pool).map(|post| &post.what) == members.dns.as_ref() {
                continue;
            }
            if let Some(post) = self.dns.remove(&pool) {
                post.end().await;
            }
            if let Some(dns) = members.dns.clone() {
                self.ask(pool, dns);
            }
        }
    }

    /// Ends every watch.
    pub(super) async fn dismiss(self) {
        for post in self.addresses.into_values() {
            post.end().await;
        }
        for post in self.dns.into_values() {
            post.end().await;
        }
    }
}
