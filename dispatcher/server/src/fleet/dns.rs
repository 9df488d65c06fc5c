//! Finds a pool's pods by asking DNS for a name that has one address per pod.
//!
//! The last good answer stays in force while the question fails or comes back empty: a name server
//! that is down must not take a pool down with it, and a pod that is really gone shows by its scrapes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    sync::watch::Receiver,
    task::JoinHandle,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    config::{DnsConfig, ScrapeConfig, Seat},
    family::{Chosen, choose},
    roster::{Place, Places, Roster, by_authority, reseat},
    watch::watch,
};

/// Keeps the pool's pods equal to what DNS answers, until it is dropped. What is asked may change; a pod that is in the answers
/// before and after goes on as it is, and joins anew at once if it is of another class now, or spoken to otherwise.
pub async fn discover(roster: Roster, mut asked: Receiver<DnsConfig>, scrape: ScrapeConfig) {
    let mut found = Found::default();
    let mut dns = asked.borrow_and_update().clone();
    let mut pace = pace_of(&dns);
    loop {
        tokio::select! {
            _ = pace.tick() => {}
            Ok(()) = asked.changed() => {
                dns = asked.borrow_and_update().clone();
                found.leave_out(&dns);
                found.are_of(&roster, &dns, scrape);
                pace = pace_of(&dns);
                continue;
            }
        }
        let answer = tokio::net::lookup_host((dns.host.as_str(), dns.port)).await;
        match found.differs(answer.map(Iterator::collect), &dns) {
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

/// The pods of the last good answer, and what of it was left out, which is said once.
#[derive(Default)]
struct Found {
    /// Each with its watchers, by host and port: one, or where each engine has a port as many.
    pods: BTreeMap<SocketAddr, Watchers>,
    /// Those that the configuration lists.
    listed: BTreeSet<SocketAddr>,
    /// Whether there are addresses of another family than the one that counts.
    unasked: bool,
}

type Watchers = BTreeMap<String, Watcher>;

/// Ends the watch with the entry.
struct Watcher {
    places: Places,
    task: JoinHandle<()>,
}

impl Watcher {
    fn begin(sitters: Vec<(Roster, Seat)>, scrape: ScrapeConfig) -> Self {
        let places = sitters.into_iter().map(|(roster, seat)| Place::take(&roster, seat)).collect();
        let places = Arc::new(Mutex::new(places));
        let task = tokio::spawn(watch(places.clone(), scrape));
        Self { places, task }
    }
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
    fn differs(
        &mut self,
        answer: io::Result<Vec<SocketAddr>>,
        dns: &DnsConfig,
    ) -> io::Result<Change> {
        let Chosen { mut addresses, unasked } = choose(answer?, dns.family);
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no address that counts"));
        }
        self.say_unasked(unasked, dns);
        self.leave_out_listed(&mut addresses, dns);
        let gone = |at: &&SocketAddr| addresses.binary_search(at).is_err();
        let left = self.pods.keys().filter(gone).copied().collect();
        addresses.retain(|at| !self.pods.contains_key(at));
        Ok(Change { joined: addresses, left })
    }

    fn say_unasked(&mut self, unasked: usize, dns: &DnsConfig) {
        if unasked > 0 && !self.unasked {
            tracing::warn!(
                host = dns.host,
                left_out = unasked,
                "name has IPv4 and IPv6 addresses, of which the IPv4 ones count; say dns.family"
            );
        }
        self.unasked = unasked > 0;
    }

    /// A pod is in a pool once: where it is listed.
    fn leave_out_listed(&mut self, addresses: &mut Vec<SocketAddr>, dns: &DnsConfig) {
        let listed: BTreeSet<_> =
            addresses.iter().filter(|at| dns.is_listed(**at)).copied().collect();
        for at in listed.difference(&self.listed) {
            tracing::warn!(pod = %at, host = dns.host, "pod found by dns is listed in pods too; it counts once, as listed");
        }
        addresses.retain(|at| !listed.contains(at));
        self.listed = listed;
    }

    /// Those that are listed now leave.
    fn leave_out(&mut self, dns: &DnsConfig) {
        self.pods.retain(|at, _| !dns.is_listed(*at));
    }

    /// What is asked has changed: pods of another class, or that are spoken to otherwise, join anew.
    fn are_of(&mut self, roster: &Roster, dns: &DnsConfig, scrape: ScrapeConfig) {
        for (at, watchers) in &mut self.pods {
            settle(watchers, roster, dns.seats(*at), scrape);
        }
    }

    fn apply(&mut self, change: &Change, roster: &Roster, dns: &DnsConfig, scrape: ScrapeConfig) {
        for at in &change.left {
            tracing::info!(pod = %at, "pod is gone from dns");
            self.pods.remove(at);
        }
        for at in &change.joined {
            tracing::info!(pod = %at, "pod found by dns");
            settle(self.pods.entry(*at).or_default(), roster, dns.seats(*at), scrape);
        }
    }
}

/// Has these seats watched, and no others.
fn settle(
    watchers: &mut Watchers,
    roster: &Roster,
    seats: impl Iterator<Item = Seat>,
    scrape: ScrapeConfig,
) {
    let mut wanted = by_authority(seats.map(|seat| (roster.clone(), seat)));
    watchers.retain(|authority, watcher| {
        let sitters = wanted.remove(authority);
        sitters.map(|sitters| reseat(&watcher.places, sitters)).is_some()
    });
    let begin = |(authority, sitters)| (authority, Watcher::begin(sitters, scrape));
    watchers.extend(wanted.into_iter().map(begin));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::config::RawClass;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn found(pods: &[&str]) -> Found {
        let watcher = || Watcher { places: Places::default(), task: tokio::spawn(async {}) };
        let watchers = |pod: &str| Watchers::from([(pod.to_owned(), watcher())]);
        Found {
            pods: pods.iter().map(|pod| (at(pod), watchers(pod))).collect(),
            ..Found::default()
        }
    }

    fn asked(listed: &[&str]) -> DnsConfig {
        DnsConfig {
            host: "pods".to_owned(),
            port: 80,
            secure: None,
            class: 0,
            engines: RawClass::default().engines(),
            family: None,
            listed: listed.iter().map(|pod| at(pod)).collect(),
            shared: false,
            every: Duration::from_secs(5),
        }
    }

    #[tokio::test]
    async fn only_what_changed_joins_or_leaves() {
        let mut found = found(&["10.0.0.1:80", "10.0.0.2:80"]);
        let answer = vec![at("10.0.0.3:80"), at("10.0.0.2:80"), at("10.0.0.2:80")];
        let want = Change { joined: vec![at("10.0.0.3:80")], left: vec![at("10.0.0.1:80")] };
        assert_eq!(found.differs(Ok(answer), &asked(&[])).unwrap(), want);
    }

    #[tokio::test]
    async fn a_failed_or_empty_answer_changes_nothing() {
        let mut found = found(&["10.0.0.1:80"]);
        let failed = Err(io::Error::other("server failure"));
        assert!(found.differs(failed, &asked(&[])).is_err());
        assert!(found.differs(Ok(vec![]), &asked(&[])).is_err());
    }

    #[tokio::test]
    async fn a_pod_that_is_listed_is_not_found_again() {
        let mut found = found(&["10.0.0.1:80"]);
        let answer = || Ok(vec![at("10.0.0.1:80"), at("10.0.0.2:80")]);
        let dns = asked(&["10.0.0.1:80"]);
        let want = Change { joined: vec![at("10.0.0.2:80")], left: vec![at("10.0.0.1:80")] };
        assert_eq!(found.differs(answer(), &dns).unwrap(), want);
        found.leave_out(&dns);
        assert!(found.pods.is_empty(), "without a question");
        let all = asked(&["10.0.0.1:80", "10.0.0.2:80"]);
        let want = Change { joined: vec![], left: vec![] };
        assert_eq!(found.differs(answer(), &all).unwrap(), want, "an answer all the same");
    }
}
