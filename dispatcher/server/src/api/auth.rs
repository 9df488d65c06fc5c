//! Who may call: keys, known by their SHA-256 only.
//!
//! Keys are random strings of high entropy, for which a fast hash is right. With no keys configured
//! everybody is let in: then a gateway in front has authenticated. Otherwise a request needs
//! `Authorization: Bearer <key>`, or `x-api-key: <key>` as the clients of Anthropic's API send it. The key is never logged
//! and never forwarded.

use std::sync::Arc;

use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use weir_core::Band;

use super::{limit::Rate, objective::Objective};

/// Where the clients of Anthropic's API put their key.
pub const API_KEY: &str = "x-api-key";

/// An accepted key.
#[derive(Clone, Debug)]
pub struct Key {
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// Who holds it.
    pub tenant: Arc<str>,
    /// The objective of its requests that ask for none.
    pub objective: Option<Arc<Objective>>,
    /// The highest band its requests get.
    pub max_band: Option<Band>,
    /// Whether objective, SLO and tenant headers count.
    pub trust_headers: bool,
    /// Whether a `priority` in the body of its requests goes on to the pod.
    pub allow_priority: bool,
    /// Rate of each of its tenants; `None`: the default rate.
    pub rate: Option<Rate>,
}

/// The key is absent or not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key is missing or not accepted; send it as Authorization: Bearer <key>, or as x-api-key"
)]
pub struct InvalidKey;

/// The accepted keys.
#[derive(Clone, Debug, Default)]
pub struct KeyRing(Vec<Key>);

impl KeyRing {
    /// A ring of these keys; none lets everybody in.
    pub fn new(keys: Vec<Key>) -> Self {
        Self(keys)
    }

    /// Whether everybody is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// The key of a request; `None` when there are no keys.
    ///
    /// # Errors
    /// When there are keys and the request has none of them.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Option<&Key>, InvalidKey> {
        if self.is_empty() {
            return Ok(None);
        }
        let shown: [u8; 32] = Sha256::digest(shown(headers).ok_or(InvalidKey)?).into();
        // Every key is compared, and each in constant time, so that the time tells nothing.
        let mut found = None;
        for key in &self.0 {
            if key.digest.ct_eq(&shown).into() {
                found = Some(key);
            }
        }
        found.map(Some).ok_or(InvalidKey)
    }
}

/// The key that a request shows: that of `Authorization`, where it is there.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    match headers.contains_key(AUTHORIZATION) {
        true => bearer(headers),
        false => headers.get(API_KEY).map(|key| key.as_bytes().trim_ascii()),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keys: &[&str]) -> KeyRing {
        let key = |(index, key): (usize, &&str)| Key {
            digest: Sha256::digest(key).into(),
            tenant: Arc::from(format!("tenant-{index}")),
            objective: None,
            max_band: None,
            trust_headers: false,
            allow_priority: false,
            rate: None,
        };
        KeyRing::new(keys.iter().enumerate().map(key).collect())
    }

    fn sending(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn without_keys_everybody_is_let_in() {
        assert!(ring(&[]).admit(&HeaderMap::new()).unwrap().is_none());
        assert!(ring(&[]).admit(&sending("Bearer whatever")).unwrap().is_none());
    }

    #[test]
    fn each_key_names_its_tenant() {
        let ring = ring(&["sk-one", "sk-two"]);
        for (value, tenant) in [
            ("Bearer sk-one", "tenant-0"),
            ("bearer sk-two", "tenant-1"),
            ("BEARER  sk-two", "tenant-1"),
        ] {
            assert_eq!(&*ring.admit(&sending(value)).unwrap().unwrap().tenant, tenant);
        }
    }

    #[test]
    fn a_missing_wrong_or_malformed_key_is_refused() {
        let ring = ring(&["sk-one"]);
        assert_eq!(ring.admit(&HeaderMap::new()).unwrap_err(), InvalidKey);
        for value in
            ["", "Bearer", "Bearer ", "Bearer sk-on", "Bearer sk-one2", "Basic sk-one", "sk-one"]
        {
            assert!(ring.admit(&sending(value)).is_err(), "{value:?}");
        }
    }

    #[test]
    fn the_header_of_the_messages_api_counts_where_there_is_no_other() {
        let ring = ring(&["sk-one", "sk-two"]);
        let with = |mut headers: HeaderMap, key: &str| {
            headers.insert(API_KEY, key.parse().unwrap());
            ring.admit(&headers).map(|key| key.unwrap().tenant.to_string())
        };
        assert_eq!(with(HeaderMap::new(), " sk-two").unwrap(), "tenant-1");
        assert_eq!(with(HeaderMap::new(), ""), Err(InvalidKey));
        assert_eq!(with(sending("Bearer sk-one"), "sk-two").unwrap(), "tenant-0");
        assert_eq!(with(sending("Basic sk-one"), "sk-two"), Err(InvalidKey));
    }
}
