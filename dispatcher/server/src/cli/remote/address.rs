//! What `--admin` says: `host:port`, or a URL with a path in front of the API.

use std::fmt;

use http::uri::Authority;

use super::Failure;

/// The port of the admin listener when the address names none.
const DEFAULT_PORT: u16 = 8081;

/// Where the admin side listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Host, without the brackets of an IPv6 address.
    pub(super) host: String,
    /// Port.
    pub(super) port: u16,
    /// Whether it is spoken to by TLS.
    pub(super) sealed: bool,
    /// What stands before `/api/v1`; empty, or starts with a slash and does not end with one.
    pub(super) prefix: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Usage(format!("--admin {text}: {why}"));
        const FORM: &str = "must be HOST:PORT, http://HOST:PORT or https://HOST:PORT";
        let (sealed, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(wrong(FORM)),
        };
        let uri: http::Uri = format!("http://{rest}").parse().map_err(|_| wrong(FORM))?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() || uri.query().is_some() || rest.contains('@') {
            return Err(wrong(FORM));
        }
        let names_port = uri.authority().map(Authority::as_str) != uri.host();
        let port = match uri.port_u16() {
            Some(port) => port,
            None if names_port => return Err(wrong("the port must be a number up to 65535")),
            None => DEFAULT_PORT,
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            sealed,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The value of the header `host`. The admin side compares it, so it is exact.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.sealed { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.prefix)
    }
}
