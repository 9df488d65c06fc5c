//! Where a pod is: an address, or one of the engines that a server has.

use std::sync::Arc;

use super::class::StepsTogether;
use crate::tls::Secure;

/// A pod that is configured, or that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its name for people.
    pub name: Arc<str>,
    /// The name of the server that it is an engine of; its own where it is the whole of it.
    pub server: Arc<str>,
    /// Its host and port.
    pub authority: String,
    /// Which of the engines there it is; `None`: all of them.
    pub rank: Option<u16>,
    /// Those that step together with it; `None`: nobody.
    pub group: Option<Arc<str>>,
    /// How it is spoken to by TLS; `None`: in the clear.
    pub secure: Option<Secure>,
    /// Index of its class.
    pub class: u16,
    /// Whether it is in several pools.
    pub shared: bool,
}

/// The engines of the servers of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// How many each has.
    pub count: u16,
    /// Whether each of them has a port of its own, from that of the server on.
    pub multi_port: bool,
    /// Who steps together.
    pub together: StepsTogether,
}

impl Engines {
    /// The ports of a server that listens on this one.
    pub fn ports(self, first: u16) -> impl Iterator<Item = u16> {
        let more = if self.multi_port { self.count.saturating_sub(1) } else { 0 };
        (0..=more).map_while(move |ports| first.checked_add(ports))
    }
}

impl Seat {
    /// The whole of a server.
    pub fn of(name: Arc<str>, authority: String, secure: Option<Secure>, class: u16) -> Self {
        let (rank, group, shared) = (None, None, false);
        Self { server: name.clone(), name, authority, rank, group, secure, class, shared }
    }

    /// What its pod is known by to other processes.
    pub fn address(&self) -> String {
        self.rank.map_or_else(|| self.authority.clone(), |rank| engine(&self.authority, rank))
    }

    /// Whether it is one of several engines of a server.
    pub fn is_engine(&self) -> bool {
        self.server != self.name
    }

    /// One for each engine of the server that this is; itself where that has one. What it steps together with may be a unit. Engines
    /// above the last port there is are left out.
    pub fn engines(self, of: Engines, unit: Option<&str>) -> impl Iterator<Item = Self> + use<> {
        let group = match of.together {
            StepsTogether::None => None,
            StepsTogether::Server => (of.count > 1).then(|| Arc::from(self.authority.as_str())),
            // An authority has no space.
            StepsTogether::Unit => unit.map(|unit| Arc::from(format!("unit {unit}"))),
            StepsTogether::Pool => Some(Arc::from("pool")),
        };
        let whole = Self { group, ..self };
        (0..of.count.max(1)).map_while(move |number| {
            let whole = whole.clone();
            if of.count <= 1 {
                return Some(whole);
            }
            let name = Arc::from(engine(&whole.name, number));
            if of.multi_port {
                return Some(Self { authority: above(&whole.authority, number)?, name, ..whole });
            }
            Some(Self { rank: Some(number), name, ..whole })
        })
    }
}

/// What an engine of a server is called.
fn engine(server: &str, number: u16) -> String {
    format!("{server}@{number}")
}

/// The same host, so many ports above.
fn above(authority: &str, ports: u16) -> Option<String> {
    let (host, port) = authority.rsplit_once(':')?;
    let port = port.parse::<u16>().ok()?.checked_add(ports)?;
    Some(format!("{host}:{port}"))
}
