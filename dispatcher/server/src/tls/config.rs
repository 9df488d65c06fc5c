//! TLS as it is written in the configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::required;

/// Who a listener is, and who may call it. The files are read anew when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = required(&["certificate", "key"]))]
pub struct RawTls {
    /// File with its certificate and those between it and the authority, PEM.
    pub certificate: String,
    /// File with the certificate's private key, PEM.
    pub key: String,
    /// File with authorities, PEM: whoever calls must have a certificate of one of them. Absent: nobody needs one.
    pub client_ca: Option<String>,
}

/// How a pool's pods at `https://` are spoken to. The files are read anew when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawPodsTls {
    /// File with the authorities that their certificates are of, PEM; absent: those of this machine.
    pub ca: Option<String>,
    /// File with the certificate that Weir shows them, PEM; absent: none.
    pub certificate: Option<String>,
    /// File with that certificate's private key, PEM.
    pub key: Option<String>,
    /// The name that their certificates are for; absent: the host of a pod's `url`, or the name that DNS is asked for.
    pub server_name: Option<String>,
    /// Whether certificates are verified. Without that whoever answers at a pod's address is believed.
    pub verify: bool,
}

impl Default for RawPodsTls {
    fn default() -> Self {
        Self { ca: None, certificate: None, key: None, server_name: None, verify: true }
    }
}
