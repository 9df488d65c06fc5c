//! What is in files of certificates and keys.

use std::{fmt, path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};
use x509_cert::{Certificate, der::Decode as _, time::Validity};

use super::provider;

/// What is wrong, and with which key of the configuration, below that of its `tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// `certificate`, `key`, `ca` or the like.
    pub key: &'static str,
    /// Why it cannot be used.
    pub why: String,
}

impl Wrong {
    pub(super) fn new(key: &'static str, why: impl Into<String>) -> Self {
        Self { key, why: why.into() }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// A certificate with those behind it and its key, which fits.
pub(super) fn certified(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, Wrong> {
    let chain = certificates("certificate", certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| Wrong::new("key", unread(key, &error, "private key")))?;
    let certified = CertifiedKey::from_der(chain, private, &provider())
        .map_err(|error| Wrong::new("key", format!("{}: {error}", key.display())))?;
    Ok(Arc::new(certified))
}

/// The authorities in a file, and the certificates that they were told by.
pub(super) fn authorities(
    name: &'static str,
    file: &Path,
) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Wrong> {
    let mut roots = RootCertStore::empty();
    let listed = certificates(name, file)?;
    for certificate in &listed {
        roots
            .add(certificate.clone())
            .map_err(|error| Wrong::new(name, format!("{}: {error}", file.display())))?;
    }
    Ok((roots, listed))
}

fn certificates(name: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Wrong> {
    let wrong = |error: pem::Error| Wrong::new(name, unread(file, &error, "certificate"));
    let found =
        CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(wrong)?;
    if found.is_empty() {
        return Err(wrong(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn unread(file: &Path, error: &pem::Error, what: &str) -> String {
    let file = file.display();
    match error {
        pem::Error::Io(error) => format!("cannot read {file}: {error}"),
        pem::Error::NoItemsFound => format!("{file} holds no {what} in PEM"),
        error => format!("{file} is no PEM: {error}"),
    }
}

/// From when on and until when a certificate counts, in seconds of Unix time; `None` where that cannot be read.
pub(super) fn validity(certificate: &CertificateDer<'_>) -> Option<(u64, u64)> {
    let Validity { not_before, not_after } =
        Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    Some((not_before.to_unix_duration().as_secs(), not_after.to_unix_duration().as_secs()))
}
