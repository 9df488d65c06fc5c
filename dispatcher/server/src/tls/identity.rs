//! Who a listener is, and who may call it.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::{
    ServerConfig,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::SingleCertAndKey,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::{
    config::RawTls,
    files::{FilesTally, Kept},
    line::Line,
    pem::{self, Wrong},
    provider,
};
use crate::{accept::Listening, config::Problems};

/// Sealed bytes that wait for a client beside those that HTTP keeps for it.
const UNSENT: usize = 16 << 10;

/// Who a listener is.
pub struct Identity {
    listening: &'static Listening,
    pub(super) kept: Kept<Made>,
}

/// What was made of the files.
pub(super) struct Made {
    config: Arc<ServerConfig>,
    expiry: Option<u64>,
}

impl Identity {
    /// The identity that is written at `key`, if one is.
    pub fn check(
        key: &str,
        raw: Option<&RawTls>,
        listening: &'static Listening,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        let raw = raw?;
        for (name, file) in [("certificate", &raw.certificate), ("key", &raw.key)] {
            let why = "missing; name a file in PEM";
            problems.require(!file.is_empty(), &format!("{key}.{name}"), why);
        }
        if raw.certificate.is_empty() || raw.key.is_empty() {
            return None;
        }
        match Self::new(raw.clone(), listening) {
            Ok(identity) => Some(Arc::new(identity)),
            Err(Wrong { key: name, why }) => {
                problems.add(&format!("{key}.{name}"), why);
                None
            }
        }
    }

    fn new(raw: RawTls, listening: &'static Listening) -> Result<Self, Wrong> {
        let files = [Some(&raw.certificate), Some(&raw.key), raw.client_ca.as_ref()];
        let files = files.into_iter().flatten().map(PathBuf::from).collect();
        let of = format!("listener {}", listening.name);
        let kept = Kept::new(of, files, Box::new(move || Made::of(&raw)))?;
        Ok(Self { listening, kept })
    }

    /// The line to a client that has come: one whose handshake is still to be, or in the clear where there is no identity.
    pub fn line(this: Option<&Self>, stream: TcpStream) -> Line {
        match this {
            Some(identity) => identity.greet(stream),
            None => Line::from(stream),
        }
    }

    pub(super) fn greet(&self, stream: TcpStream) -> Line {
        let acceptor = TlsAcceptor::from(self.kept.get().config.clone());
        let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(UNSENT)));
        Line::greeting(accept, self.listening)
    }

    /// What the listener is called.
    pub const fn listener(&self) -> &'static str {
        self.listening.name
    }

    /// When its certificate ends, in seconds of Unix time; `None` where it does not say.
    pub fn expiry(&self) -> Option<u64> {
        self.kept.get().expiry
    }

    /// That the certificate at `key` has ended.
    pub fn note(&self, key: &str) -> Option<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ended = self.expiry().is_some_and(|expiry| expiry <= now.as_secs());
        ended.then(|| format!("{key}.certificate: has ended; clients that verify it refuse it"))
    }

    /// How many handshakes of clients failed.
    pub fn handshakes_failed(&self) -> u64 {
        self.listening.handshakes_failed()
    }

    /// What became of changes of its files.
    pub const fn tally(&self) -> &FilesTally {
        self.kept.tally()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("listener", &self.listening.name).finish_non_exhaustive()
    }
}

impl Made {
    fn of(raw: &RawTls) -> Result<Self, Wrong> {
        let certified = pem::certified(raw.certificate.as_ref(), raw.key.as_ref())?;
        let validity = certified.end_entity_cert().ok().and_then(pem::validity);
        let expiry = validity.map(|(_, until)| until);
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Wrong::new("certificate", error.to_string()))?;
        let config = match &raw.client_ca {
            Some(file) => config.with_client_cert_verifier(verifier(file)?),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), expiry })
    }
}

fn verifier(file: &str) -> Result<Arc<dyn ClientCertVerifier>, Wrong> {
    let (roots, _) = pem::authorities("client_ca", file.as_ref())?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|error| Wrong::new("client_ca", format!("{file}: {error}")))
}
