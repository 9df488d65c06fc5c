//! What the fleet is told: classes, pods, discovery and scraping, as written and as validated.

mod scrape;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_core::{PodClass, Role};
use weir_schema::profile::Percentile;

pub use scrape::{RawScrape, ScrapeConfig};

use super::family::Family;
use crate::{
    config::{Problems, choice, raw::RawPool, required, suggest::one_of},
    learn::profile::{RawProfile, percentile_schema},
    tls::{RawPodsTls, Secure, Trust},
};

/// More engines than any server has behind one port.
const MOST_ENGINES: u16 = 1024;

/// Pods of one GPU type and one engine configuration, which cost alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["name"]))]
pub struct RawClass {
    /// Name, in samples and metrics.
    pub name: String,
    /// Most tokens the engine puts into one step (vLLM: max_num_batched_tokens).
    #[schemars(range(min = 1))]
    pub chunk_tokens: u32,
    /// Most sequences the engine runs at once (vLLM: max_num_seqs). A pod that is seen to run fewer, while prompts wait there beside others
    /// that decode, is given no more.
    #[schemars(range(min = 1))]
    pub max_sequences: u32,
    /// KV blocks of a pod, until a scrape tells.
    #[schemars(range(min = 1))]
    pub kv_blocks: u32,
    /// Tokens per KV block, until a scrape tells.
    #[schemars(range(min = 1))]
    pub block_tokens: u32,
    /// Whether its pods find what is left of prompts again (vLLM: enable_prefix_caching), until a scrape tells.
    pub prefix_caching: bool,
    /// Tokens of prompts that each of its pods keeps outside of the KV cache, in the memory of its host or on a disk (vLLM: kv_offloading_size; LMCache), from where they are loaded and not computed again.
    pub offload_tokens: u64,
    /// Engines behind each address (vLLM: data_parallel_size; under hybrid load balancing data_parallel_size_local). Of more than one each is a pod
    /// of its own, `NAME@0` and so on, that requests reach by `X-data-parallel-rank`; everything else here is of one engine.
    #[schemars(range(min = 1, max = 1024))]
    pub data_parallel_size: u16,
    /// Whether the engines of one address step together, as those of a mixture of experts do; else, as those of other models, each for
    /// itself. Nothing comes of it where there is one.
    pub steps_together: bool,
    /// What its pods do: both, prefill or decode. A model learns by it; whose prompts they compute is said at `pools[].prefill`.
    #[schemars(schema_with = "role_schema")]
    pub role: Role,
    /// Its profile files: of AIBrix, of Llumnix, or a list of both.
    pub profile: Option<RawProfile>,
    /// Which of a Llumnix profile's statistics counts: mean, p50, p95 or p99.
    #[schemars(schema_with = "percentile_schema")]
    pub profile_percentile: Percentile,
}

fn role_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    choice(&["both", "prefill", "decode"])
}

impl Default for RawClass {
    fn default() -> Self {
        let class = PodClass::default();
        Self {
            name: String::new(),
            chunk_tokens: class.chunk_tokens,
            max_sequences: class.max_sequences,
            kv_blocks: class.kv_blocks,
            block_tokens: class.block_tokens,
            prefix_caching: class.prefix_caching,
            offload_tokens: class.offload_tokens,
            data_parallel_size: class.data_parallel_size,
            steps_together: class.steps_together,
            role: class.role,
            profile: None,
            profile_percentile: Percentile::default(),
        }
    }
}

impl RawClass {
    /// The validated class.
    pub fn check(&self, key: &str, problems: &mut Problems) -> PodClass {
        problems.require(
            !self.name.is_empty(),
            &format!("{key}.name"),
            "missing; give the class a name",
        );
        let positive = [
            ("chunk_tokens", self.chunk_tokens),
            ("max_sequences", self.max_sequences),
            ("kv_blocks", self.kv_blocks),
            ("block_tokens", self.block_tokens),
        ];
        for (name, value) in positive {
            problems.require(value > 0, &format!("{key}.{name}"), "must be at least 1");
        }
        let sane = (1..=MOST_ENGINES).contains(&self.data_parallel_size);
        problems.require(sane, &format!("{key}.data_parallel_size"), "must be from 1 to 1024");
        PodClass {
            name: Arc::from(self.name.as_str()),
            chunk_tokens: self.chunk_tokens,
            max_sequences: self.max_sequences,
            kv_blocks: self.kv_blocks,
            block_tokens: self.block_tokens,
            prefix_caching: self.prefix_caching,
            offload_tokens: self.offload_tokens,
            role: self.role,
            data_parallel_size: self.data_parallel_size.clamp(1, MOST_ENGINES),
            steps_together: self.steps_together,
        }
    }
}

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
    /// The group that it stands and falls with, such as the ranks of one engine.
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

/// A pod that is configured, or that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its name for people.
    pub name: Arc<str>,
    /// Its host and port.
    pub authority: String,
    /// Which of the engines there it is; `None`: all of them.
    pub rank: Option<u16>,
    /// How it is spoken to by TLS; `None`: in the clear.
    pub secure: Option<Secure>,
    /// Index of its class.
    pub class: u16,
    /// Whether it is in several pools.
    pub shared: bool,
}

impl Seat {
    /// What its pod is known by to other processes.
    pub fn address(&self) -> String {
        self.named(&self.authority)
    }

    /// The name of the server that it is an engine of; its own where it is all of them.
    pub fn server(&self) -> &str {
        server(&self.name, self.rank)
    }

    /// A name, and after an `@` the rank where it has one.
    fn named(&self, name: &str) -> String {
        self.rank.map_or_else(|| name.to_owned(), |rank| format!("{name}@{rank}"))
    }

    /// One for each of so many engines at its address; itself where that is one.
    pub fn ranks(&self, engines: u16) -> impl Iterator<Item = Self> {
        (0..engines.max(1)).map(move |rank| {
            let seat = Self { rank: (engines > 1).then_some(rank), ..self.clone() };
            Self { name: Arc::from(seat.named(&self.name)), ..seat }
        })
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
    /// Engines behind each address.
    pub engines: u16,
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
    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Members {
    /// The validated members of the pool at `key`.
    pub fn check(key: &str, pool: &RawPool, classes: &[PodClass], problems: &mut Problems) -> Self {
        let (pods, dns) = (&pool.pods, pool.dns.as_ref());
        let trust = Self::trust(key, pool, problems);
        let some = !pods.is_empty() || dns.is_some();
        problems.require(some, &format!("{key}.pods"), "name at least one pod, or set dns");
        let (mut listed, mut seats): (Vec<Seat>, Vec<Seat>) = Default::default();
        for (index, pod) in pods.iter().enumerate() {
            let key = format!("{key}.pods[{index}]");
            let Some(seat) = pod.check(&key, trust.as_ref(), classes, problems) else { continue };
            let engines: Vec<Seat> = seat.ranks(engines_of(classes, seat.class)).collect();
            let others = || listed.iter().chain(&seats);
            let new = |seat: &Seat| others().all(|other| other.name != seat.name);
            let new = new(&seat) && engines.iter().all(new);
            problems.require(
                new,
                &format!("{key}.name"),
                "is the name of another pod too; give each its own",
            );
            let new = listed.iter().all(|other| other.authority != seat.authority);
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
                dns.shared = shared(&dns.address());
            }
        }
    }

    /// Each once, whatever number of engines is there.
    fn addresses(&self) -> BTreeSet<String> {
        let seats = self.seats.iter().map(|seat| seat.authority.clone());
        seats.chain(self.dns.as_ref().map(DnsConfig::address)).collect()
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
        classes: &[PodClass],
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
        Some(Seat { name, authority, rank: None, secure, class, shared: false })
    }
}

impl RawDns {
    fn check(
        &self,
        key: &str,
        trust: Option<&Arc<Trust>>,
        classes: &[PodClass],
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
        DnsConfig {
            host: self.host.clone(),
            port: self.port,
            secure,
            class,
            engines: engines_of(classes, class),
            family: self.family,
            listed: BTreeSet::new(),
            shared: false,
            every: Duration::from_secs(self.every_s),
        }
    }
}

/// What the server is called of which an engine of a rank is called so.
pub fn server(name: &str, rank: Option<u16>) -> &str {
    let server = name.rsplit_once('@').filter(|_| rank.is_some());
    server.map_or(name, |(server, _)| server)
}

/// Engines behind each address of a class.
fn engines_of(classes: &[PodClass], class: u16) -> u16 {
    classes.get(usize::from(class)).map_or(1, |class| class.data_parallel_size)
}

fn class_index(
    key: &str,
    name: Option<&str>,
    classes: &[PodClass],
    problems: &mut Problems,
) -> u16 {
    let Some(name) = name else { return 0 };
    let index = classes.iter().position(|class| &*class.name == name);
    let index = index.and_then(|index| u16::try_from(index).ok());
    if index.is_none() {
        let instead = one_of(name, classes.iter().map(|class| &*class.name));
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
