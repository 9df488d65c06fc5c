//! What the fleet is told: classes, pods, discovery and scraping, as written and as validated.

mod class;
mod scrape;
mod seat;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use class::{RawClass, StepsTogether};
pub use scrape::{RawScrape, ScrapeConfig};
pub use seat::{Engines, Seat};

use super::family::Family;
use crate::{
    config::{Problems, raw::RawPool, required, suggest::one_of},
    tls::{RawPodsTls, Secure, Trust},
};

const NO_PORTS: &str = "has no port for each of its engines: the last one there is is 65535";

/// A pod at a fixed address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["url"]))]
pub struct RawPod {
    /// Name, in metrics and answers; its host and port when left out.
    pub name: Option<String>,
    /// Where it listens: http://host:port, or https://host:port (`tls`).
    pub url: String,
    /// Its class; the first one when left out.
    pub class: Option<String>,
    /// The machine it runs on, for policies that know failure domains.
    pub node: Option<String>,
    /// The group that it stands and falls with, such as the nodes of one server; it steps with them where its class says so.
    pub unit: Option<String>,
}

/// Pods found by asking DNS for a name with one address per pod, such as a headless service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["host"]))]
pub struct RawDns {
    /// The name to ask for.
    pub host: String,
    /// The port on which every pod listens.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Whether they are spoken to by TLS (`tls`): each shows a certificate for `host`.
    pub https: bool,
    /// Their class; the first one when left out.
    pub class: Option<String>,
    /// Which of its addresses are pods: any, ipv4 or ipv6. Left out: where there are both, the IPv4 ones alone.
    #[schemars(schema_with = "family_schema")]
    pub family: Option<Family>,
    /// Seconds between two questions.
    #[schemars(range(min = 1, max = 3600))]
    pub every_s: u64,
}

fn family_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["string", "null"], "enum": ["any", "ipv4", "ipv6", null] })
}

impl Default for RawDns {
    fn default() -> Self {
        let host = String::new();
        Self { host, port: 8000, https: false, class: None, family: None, every_s: 5 }
    }
}

/// Where a pool's pods come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Pods at fixed addresses.
    pub seats: Vec<Seat>,
    /// Pods found by asking DNS.
    pub dns: Option<DnsConfig>,
}

/// A DNS name with one address per pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// The name to ask for.
    pub host: String,
    /// The port on which every pod listens.
    pub port: u16,
    /// How they are spoken to by TLS; `None`: in the clear.
    pub secure: Option<Secure>,
    /// Index of their class.
    pub class: u16,
    /// The engines of each.
    pub engines: Engines,
    /// Which of its addresses are pods.
    pub family: Option<Family>,
    /// Addresses that the configuration lists as pods of this pool, which are not found again.
    pub listed: BTreeSet<SocketAddr>,
    /// Whether several pools find their pods by this name.
    pub shared: bool,
    /// Time between two questions.
    pub every: Duration,
}

impl DnsConfig {
    /// The seats of a server that was found at an address.
    pub fn seats(&self, at: SocketAddr) -> impl Iterator<Item = Seat> {
        let authority = at.to_string();
        let name = Arc::from(authority.as_str());
        let whole = Seat::of(name, authority, self.secure.clone(), self.class);
        Seat { shared: self.shared, ..whole }.engines(self.engines, None)
    }

    /// Whether any port of a server that was found at an address is that of a pod which the configuration lists.
    pub fn is_listed(&self, at: SocketAddr) -> bool {
        self.engines
            .ports(at.port())
            .any(|port| self.listed.contains(&SocketAddr::new(at.ip(), port)))
    }

    /// The name, with each port.
    fn addresses(&self) -> impl Iterator<Item = String> {
        self.engines.ports(self.port).map(|port| format!("{}:{port}", self.host))
    }
}

impl Members {
    /// The validated members of the pool at `key`.
    pub fn check(key: &str, pool: &RawPool, classes: &[RawClass], problems: &mut Problems) -> Self {
        let (pods, dns) = (&pool.pods, pool.dns.as_ref());
        let trust = Self::trust(key, pool, problems);
        let some = !pods.is_empty() || dns.is_some();
        problems.require(some, &format!("{key}.pods"), "name at least one pod, or set dns");
        let (mut listed, mut seats): (Vec<Seat>, Vec<Seat>) = Default::default();
        for (index, pod) in pods.iter().enumerate() {
            let key = format!("{key}.pods[{index}]");
            let Some(seat) = pod.check(&key, trust.as_ref(), classes, problems) else { continue };
            let engines =
                pod.engines(&key, seat.clone(), engines_of(classes, seat.class), problems);
            let others = || listed.iter().chain(&seats);
            let new = |seat: &Seat| others().all(|other| other.name != seat.name);
            let new = new(&seat) && engines.iter().all(new);
            problems.require(
                new,
                &format!("{key}.name"),
                "is the name of another pod too; give each its own",
            );
            let new = |seat: &Seat| seats.iter().all(|other| other.authority != seat.authority);
            let new = engines.iter().all(new);
            problems.require(
                new,
                &format!("{key}.url"),
                "is the address of another pod too; list each once",
            );
            listed.push(seat);
            seats.extend(engines);
        }
        let dns = dns.map(|dns| DnsConfig {
            listed: seats.iter().filter_map(|seat| seat.authority.parse().ok()).collect(),
            ..dns.check(&format!("{key}.dns"), trust.as_ref(), classes, problems)
        });
        Self { seats, dns }
    }

    /// Whom a pool's pods at `https://` have to prove to be, if there may be any.
    fn trust(key: &str, pool: &RawPool, problems: &mut Problems) -> Option<Arc<Trust>> {
        let sealed = pool.pods.iter().any(RawPod::is_sealed)
            || pool.dns.as_ref().is_some_and(|dns| dns.https);
        let key = format!("{key}.tls");
        match &pool.tls {
            Some(raw) => {
                let why = "is for pods at https://, of which there are none";
                problems.require(sealed, &key, why);
                Trust::check(&key, raw, problems)
            }
            None if sealed => Trust::check(&key, &RawPodsTls::default(), problems),
            None => None,
        }
    }

    /// Notes which pods are in several pools: those whose address, or whose DNS name and port, are in
    /// the members of more than one. That a pod found by DNS is also listed by its address elsewhere
    /// is not seen.
    pub fn note_shared<'a>(pools: impl Iterator<Item = &'a mut Self>) {
        let mut pools: Vec<&mut Self> = pools.collect();
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        let addresses = pools.iter().flat_map(|pool| pool.addresses());
        addresses.for_each(|address| *uses.entry(address).or_default() += 1);
        let shared = |address: &String| uses.get(address).is_some_and(|uses| *uses > 1);
        for pool in &mut pools {
            pool.seats.iter_mut().for_each(|seat| seat.shared = shared(&seat.authority));
            if let Some(dns) = &mut pool.dns {
                let is_shared = dns.addresses().any(|address| shared(&address));
                dns.shared = is_shared;
            }
        }
    }

    /// Each once, whatever number of engines is there.
    fn addresses(&self) -> BTreeSet<String> {
        let seats = self.seats.iter().map(|seat| seat.authority.clone());
        seats.chain(self.dns.iter().flat_map(DnsConfig::addresses)).collect()
    }
}

impl RawPod {
    /// Whether it is spoken to by TLS.
    fn is_sealed(&self) -> bool {
        authority(&self.url).is_ok_and(|(_, sealed)| sealed)
    }

    /// It is spoken to in the clear.
    pub fn clear(&mut self) {
        if let Ok((authority, true)) = authority(&self.url) {
            self.url = format!("http://{authority}");
        }
    }

    /// Its name for people: the configured one, or its host and port.
    pub fn shown_name(&self) -> String {
        let own = || authority(&self.url).ok().map(|(authority, _)| authority);
        self.name.clone().or_else(own).unwrap_or_default()
    }

    /// `None` also where what its pool says of TLS cannot be used.
    fn check(
        &self,
        key: &str,
        trust: Option<&Arc<Trust>>,
        classes: &[RawClass],
        problems: &mut Problems,
    ) -> Option<Seat> {
        let class = class_index(key, self.class.as_deref(), classes, problems);
        problems.require(
            self.name.as_deref() != Some(""),
            &format!("{key}.name"),
            "must not be empty; leave it out to have the host and port",
        );
        let mut wrong = |why: &str| {
            problems.add(&format!("{key}.url"), format!("{:?}: {why}", self.url));
        };
        let (authority, sealed) = authority(&self.url).inspect_err(|why| wrong(why)).ok()?;
        let secure = if sealed {
            let host = authority.rsplit_once(':').map_or("", |(host, _)| host);
            Some(trust?.at(host).inspect_err(|why| wrong(why)).ok()?)
        } else {
            None
        };
        let name = Arc::from(self.shown_name());
        Some(Seat::of(name, authority, secure, class))
    }

    /// Those of a server.
    fn engines(&self, key: &str, whole: Seat, of: Engines, problems: &mut Problems) -> Vec<Seat> {
        let engines: Vec<Seat> = whole.engines(of, self.unit.as_deref()).collect();
        let all = engines.len() == usize::from(of.count);
        problems.require(all, &format!("{key}.url"), NO_PORTS);
        let has_group = of.together != StepsTogether::Unit || self.unit.is_some();
        let why = "missing; pods of its class step together with those of their unit";
        problems.require(has_group, &format!("{key}.unit"), why);
        engines
    }
}

impl RawDns {
    fn check(
        &self,
        key: &str,
        trust: Option<&Arc<Trust>>,
        classes: &[RawClass],
        problems: &mut Problems,
    ) -> DnsConfig {
        let host = format!("{key}.host");
        problems.require(!self.host.is_empty(), &host, "missing; write the name to ask for");
        if !self.host.is_empty() && !is_host(&self.host) {
            let why = "is no host; write its name alone, without http://, and its port at port";
            problems.add(&host, format!("{:?} {why}", self.host));
        }
        problems.require(self.port > 0, &format!("{key}.port"), "must not be 0");
        let sane = (1..=3600).contains(&self.every_s);
        problems.require(sane, &format!("{key}.every_s"), "must be from 1 to 3600");
        let trust = trust.filter(|_| self.https && is_host(&self.host));
        let secure = trust.and_then(|trust| {
            let wrong = |why: &String| problems.add(&host, why.clone());
            trust.at(&self.host).inspect_err(wrong).ok()
        });
        let class = class_index(key, self.class.as_deref(), classes, problems);
        let engines = engines_of(classes, class);
        let all = engines.ports(self.port).count() == engines.ports(0).count();
        problems.require(all, &format!("{key}.port"), NO_PORTS);
        let has_group = engines.together != StepsTogether::Unit;
        let why = "finds pods of no unit, with which those of their class step together; list them in pods, or have all of a pool step together";
        problems.require(has_group, key, why);
        DnsConfig {
            host: self.host.clone(),
            port: self.port,
            secure,
            class,
            engines,
            family: self.family,
            listed: BTreeSet::new(),
            shared: false,
            every: Duration::from_secs(self.every_s),
        }
    }
}

fn engines_of(classes: &[RawClass], class: u16) -> Engines {
    classes.get(usize::from(class)).map_or_else(|| RawClass::default().engines(), RawClass::engines)
}

fn class_index(
    key: &str,
    name: Option<&str>,
    classes: &[RawClass],
    problems: &mut Problems,
) -> u16 {
    let Some(name) = name else { return 0 };
    let index = classes.iter().position(|class| class.name == name);
    let index = index.and_then(|index| u16::try_from(index).ok());
    if index.is_none() {
        let instead = one_of(name, classes.iter().map(|class| class.name.as_str()));
        problems.add(&format!("{key}.class"), format!("{name:?} is not one of classes; {instead}"));
    }
    index.unwrap_or_default()
}

/// Whether a text can be looked up: labels between dots, or an address.
fn is_host(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let label = |label: &str| !label.is_empty() && label.bytes().all(plain);
    // A dot at the end keeps the resolver from completing the name.
    let name = text.strip_suffix('.').unwrap_or(text);
    name.split('.').all(label) || text.parse::<Ipv6Addr>().is_ok()
}

/// The host and port of a pod's URL, and whether it asks for TLS.
fn authority(url: &str) -> Result<(String, bool), &'static str> {
    let uri: http::Uri = url.parse().map_err(|_| "is no URL; write http://host:port")?;
    let (sealed, usual) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err("must begin with http:// or https://"),
    };
    if uri.path() != "/" || uri.query().is_some() {
        return Err("must end after the port; Weir adds the paths");
    }
    let authority = uri.authority().ok_or("has no host")?;
    if authority.as_str().contains('@') {
        return Err("must not hold a user name");
    }
    let host = authority.host();
    if host.is_empty() {
        return Err("has no host");
    }
    // The parser takes whatever follows the colon.
    let port = match authority.as_str().strip_prefix(host) {
        Some("") => Some(usual),
        Some(rest) => rest.strip_prefix(':').and_then(port),
        None => None,
    };
    let port = port.ok_or("must have a port from 1 to 65535 after its colon, or no colon")?;
    Ok((format!("{host}:{port}"), sealed))
}

fn port(digits: &str) -> Option<u16> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port > 0)
}

#[cfg(test)]
mod tests;
