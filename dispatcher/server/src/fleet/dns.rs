//! Finds a pool's pods by asking DNS for a name that has one address per pod.
//!
//! The last good answer stays in force while the question fails or comes back empty: a name server
//! that is down must not take a pool down with it, and a pod that is really gone shows by its scrapes.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    sync::watch::Receiver,
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    config::{DnsConfig, ScrapeConfig, Seat},
    roster::{Place, Places, Roster},
    watch::watch,
};

/// Keeps the pool's pods equal to what DNS answers, until it is dropped. What is asked may change; a pod that is in the answers
/// before and after goes on as it is, unless it is of another class now.
pub async fn discover(roster: Roster, mut asked: Receiver<DnsConfig>, scrape: ScrapeConfig) {
    let mut found = Found::default();
    let mut dns = asked.borrow_and_update().clone();
    let mut pace = pace_of(&dns);
    loop {
        tokio::select! {
            _ = pace.tick() => {}
            Ok(()) = asked.changed() => {
                dns = asked.borrow_and_update().clone();
                found.are_of(&dns);
                pace = pace_of(&dns);
                continue;
            }
        }
        let answer = tokio::net::lookup_host((dns.host.as_str(), dns.port)).await;
        match found.differs(answer.map(Iterator::collect)) {
            Ok(change) => found.apply(&change, &roster, &dns, scrape),
            Err(error) => tracing::warn!(host = dns.host, %error, "pods cannot be looked up"),
        }
    }
}

fn pace_of(dns: &DnsConfig) -> Interval {
    let mut pace = interval(dns.every);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// The pods of the last good answer, each with its watcher.
#[derive(Default)]
struct Found(BTreeMap<SocketAddr, Watcher>);

/// Ends the watch with the entry.
struct Watcher {
    places: Places,
    task: JoinHandle<()>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Change {
    joined: Vec<SocketAddr>,
    left: Vec<SocketAddr>,
}

impl Found {
    fn differs(&self, answer: io::Result<Vec<SocketAddr>>) -> io::Result<Change> {
        let mut answer = answer?;
        if answer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no address"));
        }
        answer.sort_unstable();
        answer.dedup();
        let left = self.0.keys().filter(|at| answer.binary_search(at).is_err()).copied().collect();
        answer.retain(|at| !self.0.contains_key(at));
        Ok(Change { joined: answer, left })
    }

    /// What is asked has changed: pods of another class have to join anew.
    fn are_of(&mut self, dns: &DnsConfig) {
        self.0.retain(|_, watcher| {
            let mut places = watcher.places.lock();
            places.iter_mut().for_each(|place| place.seat.shared = dns.shared);
            places.iter().all(|place| place.seat.class == dns.class)
        });
    }

    fn apply(&mut self, change: &Change, roster: &Roster, dns: &DnsConfig, scrape: ScrapeConfig) {
        for at in &change.left {
            tracing::info!(pod = %at, "pod is gone from dns");
            self.0.remove(at);
        }
        for at in &change.joined {
            tracing::info!(pod = %at, "pod found by dns");
            let authority = at.to_string();
            let name = Arc::from(authority.as_str());
            let seat = Seat { name, authority, class: dns.class, shared: dns.shared };
            let places = Arc::new(Mutex::new(vec![Place::take(roster, seat)]));
            let task = tokio::spawn(watch(places.clone(), scrape));
            self.0.insert(*at, Watcher { places, task });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn found(pods: &[&str]) -> Found {
        let watcher = || Watcher { places: Places::default(), task: tokio::spawn(async {}) };
        Found(pods.iter().map(|pod| (at(pod), watcher())).collect())
    }

    #[tokio::test]
    async fn only_what_changed_joins_or_leaves() {
        let found = found(&["10.0.0.1:80", "10.0.0.2:80"]);
        let answer = vec![at("10.0.0.3:80"), at("10.0.0.2:80"), at("10.0.0.2:80")];
        let want = Change { joined: vec![at("10.0.0.3:80")], left: vec![at("10.0.0.1:80")] };
        assert_eq!(found.differs(Ok(answer)).unwrap(), want);
    }

    #[tokio::test]
    async fn a_failed_or_empty_answer_changes_nothing() {
        let found = found(&["10.0.0.1:80"]);
        assert!(found.differs(Err(io::Error::other("server failure"))).is_err());
        assert!(found.differs(Ok(vec![])).is_err());
    }
}
