//! Finds a pool's pods by asking DNS for a name that has one address per pod.
//!
//! The last good answer stays in force while the question fails or comes back empty: a name server
//! that is down must not take a pool down with it, and a pod that is really gone shows by its scrapes.

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use tokio::{
    task::JoinHandle,
    time::{MissedTickBehavior, interval},
};

use super::{
    config::{DnsConfig, ScrapeConfig, Seat},
    roster::{Place, Roster},
    watch::watch,
};

/// Keeps the pool's pods equal to what DNS answers, until it is dropped.
pub async fn discover(roster: Roster, dns: DnsConfig, scrape: ScrapeConfig) {
    let mut found = Found::default();
    let mut pace = interval(dns.every);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let answer = tokio::net::lookup_host((dns.host.as_str(), dns.port)).await;
        match found.differs(answer.map(Iterator::collect)) {
            Ok(change) => found.apply(&change, &roster, &dns, scrape),
            Err(error) => tracing::warn!(host = dns.host, %error, "pods cannot be looked up"),
        }
    }
}

/// The pods of the last good answer, each with its watcher.
#[derive(Default)]
struct Found(BTreeMap<SocketAddr, Watcher>);

/// Ends the watch with the entry.
struct Watcher(JoinHandle<()>);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
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
            let watching = tokio::spawn(watch(vec![Place::take(roster, seat)], scrape));
            self.0.insert(*at, Watcher(watching));
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
        Found(pods.iter().map(|pod| (at(pod), Watcher(tokio::spawn(async {})))).collect())
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
