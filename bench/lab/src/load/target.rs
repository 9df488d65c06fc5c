//! Where a load goes: the server's address, its name, and how it is spoken to.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use http::HeaderValue;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A server to send to.
#[derive(Clone)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    /// What requests call it.
    pub(super) host: String,
    /// What it is told in `Authorization`.
    pub(super) key: Option<HeaderValue>,
    seal: Option<Seal>,
}

/// How a server is spoken to by TLS.
#[derive(Clone)]
pub(super) struct Seal {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl From<SocketAddr> for Target {
    /// A server that is spoken to in the clear.
    fn from(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), key: None, seal: None }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = self.seal.is_some();
        f.debug_struct("Target").field("host", &self.host).field("sealed", &sealed).finish()
    }
}

impl Target {
    /// The server at `http://host:port` or `https://host:port`, with or without the `/v1` that clients of OpenAI's interface are
    /// given. Who is at `https://` is believed behind a certificate of an authority in `ca`, or of one that this machine trusts.
    ///
    /// # Errors
    /// When that is no such address, or no certificate can be verified.
    pub(super) fn parse(target: &str, ca: Option<&Path>) -> Result<Self> {
        let (sealed, rest) = match target.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => anyhow::bail!("--target must start with http:// or https://"),
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(
            ["", "v1"].contains(&path.trim_end_matches('/')),
            "--target {target:?}: a target is an address without a path: {}",
            target.trim_end_matches(path)
        );
        ensure!(sealed || ca.is_none(), "--ca is for a target at https://");
        let port = if sealed { 443 } else { 80 };
        let place = if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        let mut found =
            place.to_socket_addrs().with_context(|| format!("cannot resolve {place:?}"))?;
        let address = found.next().with_context(|| format!("{place:?} has no address"))?;
        let bare = place.rsplit_once(':').map_or(host, |(bare, _)| bare);
        let seal = sealed.then(|| Seal::of(bare.trim_matches(['[', ']']), ca)).transpose()?;
        Ok(Self { address, host: host.to_owned(), key: None, seal })
    }

    /// The same, told this key.
    ///
    /// # Errors
    /// When no header can hold it.
    pub(super) fn with_key(mut self, key: &str) -> Result<Self> {
        let mut key = HeaderValue::from_str(&format!("Bearer {key}"))
            .map_err(|_| anyhow::anyhow!("the key is no text that a header can hold"))?;
        key.set_sensitive(true);
        self.key = Some(key);
        Ok(self)
    }

    pub(super) const fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }
}

impl Seal {
    fn of(host: &str, ca: Option<&Path>) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.with_context(|| format!("{host:?} is no name for a certificate"))?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities(ca)?)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Seals a connection to the server, which has proved who it is when this returns.
    pub(super) async fn greet(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

/// The authorities in a file, or of this machine.
fn authorities(ca: Option<&Path>) -> Result<RootCertStore> {
    let found = match ca {
        Some(file) => CertificateDer::pem_file_iter(file)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| anyhow::anyhow!("--ca {}: {error:?}", file.display()))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    ensure!(!roots.is_empty(), "no certificates of authorities; name a file with --ca");
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> Result<Target> {
        Target::parse(target, None)
    }

    #[test]
    fn a_target_is_resolved_once() {
        let at = |target: &str| parse(target).unwrap().address.to_string();
        assert_eq!(at("http://127.0.0.1:8080/"), "127.0.0.1:8080");
        assert_eq!(at("http://127.0.0.1"), "127.0.0.1:80");
        for wrong in ["127.0.0.1:1", "ftp://127.0.0.1:1", "http://127.0.0.1:x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_target_by_tls_needs_somebody_to_trust() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let said = |target: &str| {
            let parsed = Target::parse(target, Some(&file));
            format!("{:#}", parsed.map(drop).unwrap_err())
        };
        assert!(said("https://127.0.0.1").starts_with("--ca "), "{}", said("https://127.0.0.1"));
        std::fs::write(&file, "no certificate").unwrap();
        assert!(said("https://127.0.0.1").contains("no certificates of authorities"));
        assert_eq!(said("http://127.0.0.1"), "--ca is for a target at https://");
    }

    #[test]
    fn a_base_url_is_a_target_too_and_no_other_path_is() {
        for path in ["/v1", "/v1/"] {
            let target = parse(&format!("http://127.0.0.1:8080{path}")).unwrap();
            assert_eq!((target.address.port(), &*target.host), (8080, "127.0.0.1:8080"));
        }
        for path in ["/v1/chat/completions", "/v2", "/v1x", "//x"] {
            let error = parse(&format!("http://127.0.0.1:8080{path}")).unwrap_err().to_string();
            assert!(error.contains("without a path: http://127.0.0.1:8080"), "{error}");
        }
    }
}
