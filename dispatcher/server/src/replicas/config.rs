//! The replicas' part of the configuration: [`RawReplicas`] as it is written, [`ReplicasConfig`] as it is used.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Problems, secret::Written};

/// Other dispatchers in front of the same pods. The one that started first decides for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawReplicas {
    /// Address at which the others ask this one. Keep it from clients. Absent: this dispatcher decides for itself alone.
    pub listen: Option<String>,
    /// The others, as host:port. A name may have several addresses, this dispatcher's own among them.
    pub others: Vec<String>,
    /// Variable of the environment that holds a secret which all of them share.
    pub secret_env: Option<String>,
}

/// What the replicas' thread is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicasConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whom it calls, as host and port.
    pub others: Vec<(String, u16)>,
    /// SHA-256 of the secret; of nothing where there is none.
    pub secret: [u8; 32],
}

impl RawReplicas {
    /// Validates and converts; `None` when there are no others.
    pub fn check(&self, problems: &mut Problems) -> Option<ReplicasConfig> {
        let Some(listen) = &self.listen else {
            let alone = self.others.is_empty() && self.secret_env.is_none();
            problems.require(alone, "replicas.listen", "missing; the others ask at it");
            return None;
        };
        let address = listen.parse().ok();
        if address.is_none() {
            let why = format!("{listen:?} is no address; write for example 127.0.0.1:8082");
            problems.add("replicas.listen", why);
        }
        let why =
            "name the other dispatchers; a name that has the addresses of all of them will do";
        problems.require(!self.others.is_empty(), "replicas.others", why);
        let others = self.others.iter().enumerate();
        let others = others.filter_map(|(at, text)| other(at, text, problems)).collect();
        let secret = self.secret(problems)?;
        Some(ReplicasConfig { listen: address?, others, secret })
    }

    fn secret(&self, problems: &mut Problems) -> Option<[u8; 32]> {
        let Some(env) = self.secret_env.as_deref() else { return Some([0; 32]) };
        let written =
            Written { sha256: "", env: Some(env), env_key: "secret_env", may_be_digest: false };
        written.digest("replicas", problems)
    }

    /// What is noteworthy about it.
    pub fn note(&self) -> Option<String> {
        let address: SocketAddr = self.listen.as_ref()?.parse().ok()?;
        let open = self.secret_env.is_none() && !address.ip().is_loopback();
        open.then(|| {
            format!(
                "replicas.listen: {address} is reachable from elsewhere and there is no secret_env: \
                 whoever reaches it can take room on pods"
            )
        })
    }
}

fn other(at: usize, text: &str, problems: &mut Problems) -> Option<(String, u16)> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let other = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    if other.is_none() {
        let why = format!("{text:?} is no host:port; write for example weir-replicas:8082");
        problems.add(&format!("replicas.others[{at}]"), why);
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &RawReplicas) -> Result<Option<ReplicasConfig>, String> {
        let mut problems = Problems::default();
        let config = raw.check(&mut problems);
        problems.none_or(config).map_err(|problems| problems.to_string())
    }

    fn raw(listen: Option<&str>, others: &[&str]) -> RawReplicas {
        let others = others.iter().map(|other| (*other).to_owned()).collect();
        RawReplicas { listen: listen.map(str::to_owned), others, secret_env: None }
    }

    #[test]
    fn a_dispatcher_is_alone_unless_it_says_where_others_are() {
        assert_eq!(check(&RawReplicas::default()), Ok(None));
        let config = check(&raw(Some("127.0.0.1:8082"), &["weir-1:8082", "[::1]:9"])).unwrap();
        let config = config.unwrap();
        assert_eq!(config.others, [("weir-1".to_owned(), 8082), ("[::1]".to_owned(), 9)]);
    }

    #[test]
    fn what_is_missing_or_unreadable_is_named() {
        for (raw, key) in [
            (raw(None, &["weir-1:8082"]), "replicas.listen"),
            (raw(Some("here"), &["weir-1:8082"]), "replicas.listen"),
            (raw(Some("127.0.0.1:8082"), &[]), "replicas.others"),
            (raw(Some("127.0.0.1:8082"), &["weir-1"]), "replicas.others[0]"),
            (raw(Some("127.0.0.1:8082"), &[":8082"]), "replicas.others[0]"),
        ] {
            let problems = check(&raw).unwrap_err();
            assert!(problems.contains(key), "{key}: {problems}");
        }
    }

    #[test]
    fn a_port_that_others_reach_without_a_secret_is_worth_a_note() {
        assert_eq!(raw(Some("127.0.0.1:8082"), &["a:1"]).note(), None);
        assert!(raw(Some("0.0.0.0:8082"), &["a:1"]).note().is_some());
    }
}
