//! Who is watched where: the watcher of each address, and what the configuration asks for now.
//!
//! A pod of whose place in a pool nothing has changed goes on there as it is, its ledger with it, whatever becomes of it in
//! other pools. One that is no longer asked for leaves at once and its streams end by themselves. One whose name, class or TLS has
//! changed, or whom it steps together with, leaves and joins anew, for it is another pod to the scheduler.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{sync, task::JoinHandle};

use super::{
    config::{DnsConfig, Members, ScrapeConfig},
    dns,
    roster::{Place, Places, Roster, by_authority, reseat},
    watch,
};

/// A watcher, and what it watches: the last of it, for the watcher has the same.
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
    addresses: BTreeMap<String, Post<Places>>,
    /// By pool.
    dns: BTreeMap<usize, Post<sync::watch::Sender<DnsConfig>>>,
}

impl Posts {
    pub(super) fn new(rosters: Vec<Roster>, scrape: ScrapeConfig) -> Self {
        Self { rosters, scrape, addresses: BTreeMap::new(), dns: BTreeMap::new() }
    }

    /// Watches pods that have joined already.
    pub(super) fn man(&mut self, joined: Vec<Place>) {
        let mut by_address: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for place in joined {
            by_address.entry(place.seat.authority.clone()).or_default().push(place);
        }
        for (address, places) in by_address {
            let what = Arc::new(Mutex::new(places));
            let task = tokio::spawn(watch::watch(what.clone(), self.scrape));
            self.addresses.insert(address, Post { what, task });
        }
    }

    /// Asks DNS for the pods of a pool.
    pub(super) fn ask(&mut self, pool: usize, what: DnsConfig) {
        let Some(roster) = self.rosters.get(pool) else { return };
        let (what, asked) = sync::watch::channel(what);
        let task = tokio::spawn(dns::discover(roster.clone(), asked, self.scrape));
        self.dns.insert(pool, Post { what, task });
    }

    /// Does what the configuration asks for; `members` are those of each pool.
    pub(super) async fn follow(&mut self, members: &[Members]) {
        let sitters = self.rosters.iter().zip(members).flat_map(|(roster, members)| {
            members.seats.iter().map(|seat| (roster.clone(), seat.clone()))
        });
        let mut wanted = by_authority(sitters);
        let known: BTreeSet<String> = self.addresses.keys().cloned().collect();
        for address in known {
            if let Some(sitters) = wanted.remove(&address) {
                self.addresses.entry(address).and_modify(|post| reseat(&post.what, sitters));
            } else if let Some(post) = self.addresses.remove(&address) {
                post.end().await;
            }
        }
        let new = wanted.into_values().flatten();
        self.man(new.map(|(roster, seat)| Place::take(&roster, seat)).collect());
        self.follow_dns(members).await;
    }

    async fn follow_dns(&mut self, members: &[Members]) {
        for (pool, members) in members.iter().enumerate() {
            match (members.dns.clone(), self.dns.get(&pool)) {
                (Some(dns), Some(post)) => {
                    post.what.send_if_modified(|asked| {
                        *asked != dns && {
                            *asked = dns;
                            true
                        }
                    });
                }
                (Some(dns), None) => self.ask(pool, dns),
                (None, _) => {
                    if let Some(post) = self.dns.remove(&pool) {
                        post.end().await;
                    }
                }
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
