//! TLS on the listeners and on the way to pods.
//!
//! Who speaks it is said by the configuration, per listener and per pod. A connection is a [`Line`] to everybody above it, in the
//! clear or sealed, so that patience, places and HTTP are the same for both.
//!
//! # Promises
//! - Certificates, keys and authorities are read anew within seconds of a change of their files, for connections that come
//!   then; those that are open go on. Files that cannot be used change nothing: what was read before them stays in force, which is
//!   said in the log and, for listeners, in metrics.
//! - A handshake is a part of reading: a client that never ends it has the place and the patience of one that asks nothing.
//! - What a pod sends is believed only behind a certificate for the name by which it is configured, unless the pool says otherwise.
//!
//! # Layout
//! - [`config`]: what is written
//! - `files`: what is made of files, made anew when they change; `pem`: what is in them
//! - [`identity`]: who a listener is; [`trust`]: which pods are believed
//! - [`mod@line`]: a connection

pub mod config;
mod files;
pub mod identity;
pub mod line;
mod pem;
pub mod trust;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use self::{
    config::{RawPodsTls, RawTls},
    files::FilesTally,
    identity::Identity,
    line::Line,
    trust::{Secure, Trust},
};

/// What all connections calculate with.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}

#[cfg(test)]
pub(crate) mod tests;
