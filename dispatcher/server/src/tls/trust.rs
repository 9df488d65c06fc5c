//! Which servers are believed: pods at `https://`, and the admin side that the command line calls.

use std::{fmt, io, path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::SingleCertAndKey,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{
    config::RawPodsTls,
    files::Kept,
    line::Line,
    pem::{self, Wrong},
    provider,
};
use crate::config::Problems;

/// Which servers are believed, and what they are shown.
pub struct Trust {
    raw: RawPodsTls,
    pub(super) kept: Kept<ClientConfig>,
}

/// A server that is spoken to by TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secure {
    pub(super) trust: Arc<Trust>,
    /// What its certificate is for.
    name: ServerName<'static>,
}

impl Trust {
    /// The trust that is written at `key`.
    pub fn check(key: &str, raw: &RawPodsTls, problems: &mut Problems) -> Option<Arc<Self>> {
        match Self::new(raw.clone(), key.to_owned()) {
            Ok(trust) => Some(Arc::new(trust)),
            Err(Wrong { key: name, why }) => {
                problems.add(&format!("{key}.{name}"), why);
                None
            }
        }
    }

    /// The same; `of` is what it is in the log.
    ///
    /// # Errors
    /// What cannot be used.
    pub fn new(raw: RawPodsTls, of: String) -> Result<Self, Wrong> {
        for (one, other, key) in
            [(&raw.certificate, &raw.key, "key"), (&raw.key, &raw.certificate, "certificate")]
        {
            if one.is_some() && other.is_none() {
                return Err(Wrong::new(key, "missing; a certificate and its key go together"));
            }
        }
        if let Some(name) = &raw.server_name {
            server_name(name).map_err(|why| Wrong::new("server_name", why))?;
        }
        let files = [&raw.ca, &raw.certificate, &raw.key];
        let files = files.into_iter().flatten().map(PathBuf::from).collect();
        let written = raw.clone();
        let kept = Kept::new(of, files, Box::new(move || client(&written)))?;
        Ok(Self { raw, kept })
    }

    /// A server at this host.
    ///
    /// # Errors
    /// When no certificate can be for that name.
    pub fn at(self: &Arc<Self>, host: &str) -> Result<Secure, String> {
        let name = server_name(self.raw.server_name.as_deref().unwrap_or(host))?;
        Ok(Secure { trust: self.clone(), name })
    }
}

/// Trusts are told apart by what is written: their files change beneath them.
impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl Eq for Trust {}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trust").field(&self.raw).finish()
    }
}

impl Secure {
    /// Seals a connection to the server, which has proved who it is when this returns.
    ///
    /// # Errors
    /// When it has not, or the connection is lost.
    pub async fn greet(&self, stream: TcpStream) -> io::Result<Line> {
        let connector = TlsConnector::from(self.trust.kept.get());
        let stream = Box::pin(connector.connect(self.name.clone(), stream)).await?;
        Ok(Line::sealed(stream.into()))
    }
}

/// A connection as it came, or sealed.
///
/// # Errors
/// As [`Secure::greet`].
pub async fn greet(stream: TcpStream, secure: Option<&Secure>) -> io::Result<Line> {
    match secure {
        Some(secure) => secure.greet(stream).await,
        None => Ok(Line::from(stream)),
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.strip_suffix('.').unwrap_or(host).trim_matches(['[', ']']);
    let name = ServerName::try_from(bare.to_owned());
    name.map_err(|_| format!("{host:?} is no name that a certificate can be for"))
}

fn client(raw: &RawPodsTls) -> Result<ClientConfig, Wrong> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| Wrong::new("ca", error.to_string()))?;
    let belief = Arc::new(Belief::of(raw)?);
    let config = config.dangerous().with_custom_certificate_verifier(belief);
    let mut config = match (&raw.certificate, &raw.key) {
        (Some(certificate), Some(key)) => {
            let certified = pem::certified(certificate.as_ref(), key.as_ref())?;
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
        _ => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The authorities, and what else they were told by: none where they are this machine's.
fn roots(raw: &RawPodsTls) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Wrong> {
    if let Some(file) = &raw.ca {
        return pem::authorities("ca", file.as_ref());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Wrong::new("ca", "this machine has no authorities of its own; name a file"));
    }
    Ok((roots, vec![]))
}

/// Who is believed: whoever has a certificate of an authority, or one that is listed beside them itself, for who has made a
/// certificate for itself is its own authority, which as a server's would be refused.
#[derive(Debug)]
struct Belief {
    /// `None`: whoever answers is believed.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    listed: Vec<CertificateDer<'static>>,
}

impl Belief {
    fn of(raw: &RawPodsTls) -> Result<Self, Wrong> {
        if !raw.verify {
            return Ok(Self { authorities: None, listed: vec![] });
        }
        let (roots, listed) = roots(raw)?;
        let authorities =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let authorities = authorities.map_err(|error| Wrong::new("ca", error.to_string()))?;
        Ok(Self { authorities: Some(authorities), listed })
    }
}

impl ServerCertVerifier for Belief {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        if !self.listed.contains(shown) {
            return authorities.verify_server_cert(shown, between, name, ocsp, now);
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        let (from, until) = pem::validity(shown).ok_or(CertificateError::BadEncoding)?;
        match now.as_secs() {
            now if now < from => Err(CertificateError::NotValidYet.into()),
            now if now > until => Err(CertificateError::Expired.into()),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = provider().signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
