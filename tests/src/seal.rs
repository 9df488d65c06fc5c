//! TLS for who speaks in the clear: certificates of an authority of a scenario's own, and what stands between two that do
//! not speak alike. It passes bytes on and knows nothing of HTTP, and an end or a break on one side is one on the other.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority, with a folder for what it signs.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What stands between. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Between {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Default for Authority {
    /// A new one, which nobody else trusts.
    ///
    /// # Panics
    /// When there is no randomness or no folder.
    fn default() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no name is a good one");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a key can sign");
        Self { folder: TempDir::new().expect("a folder can be made"), issuer }
    }
}

impl Authority {
    /// Its own certificate, in a file.
    pub fn ca(&self) -> PathBuf {
        self.put("ca.pem", &self.issuer.pem())
    }

    /// Signs a certificate for a name, in files called `file`; those that are there are replaced whole, the key first.
    ///
    /// # Panics
    /// When that is no name.
    pub fn certify(&self, file: &str, name: &str) -> Certified {
        let key = KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a good name");
        let signed = params.signed_by(&key, &self.issuer).expect("a key can sign");
        let key = self.put(&format!("{file}.key"), &key.serialize_pem());
        Certified { certificate: self.put(&format!("{file}.pem"), &signed.pem()), key }
    }

    fn put(&self, file: &str, text: &str) -> PathBuf {
        let (new, place) = (self.folder.path().join("new"), self.folder.path().join(file));
        fs::write(&new, text).expect("a file can be written");
        fs::rename(new, &place).expect("a file can be replaced");
        place
    }

    /// Speaks TLS as `name` to its clients and goes on to `to` in the clear.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn seals(&self, to: SocketAddr, name: &str) -> Between {
        let Certified { certificate, key } = self.certify(&format!("as-{name}"), name);
        let chain = CertificateDer::pem_file_iter(certificate).expect("it was written");
        let chain = chain.collect::<Result<_, _>>().expect("it is PEM");
        let key = PrivateKeyDer::from_pem_file(key).expect("it is PEM");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let acceptor = TlsAcceptor::from(Arc::new(config.expect("a certificate with its key")));
        between(to, move |client, server| {
            let acceptor = acceptor.clone();
            async move { pass(acceptor.accept(client).await.ok(), Some(server)).await }
        })
        .await
    }

    /// Is spoken to in the clear, and goes on by TLS to who proves to be `name` at `to`; shows a certificate if it has one.
    ///
    /// # Panics
    /// When there is no free port.
    pub async fn unseals(&self, to: SocketAddr, name: &str, own: Option<&Certified>) -> Between {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("it is an authority's");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider is whole")
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some(Certified { certificate, key }) => {
                let own = CertificateDer::from_pem_file(certificate).expect("it is PEM");
                let key = PrivateKeyDer::from_pem_file(key).expect("it is PEM");
                config.with_client_auth_cert(vec![own], key).expect("a certificate with its key")
            }
        };
        let connector = TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from(name.to_owned()).expect("a good name");
        between(to, move |client, server| {
            let (connector, name) = (connector.clone(), name.clone());
            async move { pass(Some(client), connector.connect(name, server).await.ok()).await }
        })
        .await
    }

    /// A pool's `tls` that trusts it, for pods that are `name`.
    pub fn trusted(&self, name: &str) -> Value {
        json!({"ca": self.ca(), "server_name": name})
    }
}

impl Certified {
    /// A listener's `tls`.
    pub fn shown(&self) -> Value {
        json!({"certificate": self.certificate, "key": self.key})
    }
}

/// Passes on what both say until both have ended, or one is lost.
async fn pass<A, B>(one: Option<A>, other: Option<B>)
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    if let (Some(mut one), Some(mut other)) = (one, other) {
        // One that breaks shows at its end.
        let _ = copy_bidirectional(&mut one, &mut other).await;
    }
}

async fn between<J, F>(to: SocketAddr, join: J) -> Between
where
    J: Fn(TcpStream, TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let address = listener.local_addr().expect("a listener has an address");
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            if let Ok(server) = TcpStream::connect(to).await {
                connections.spawn(join(client, server));
            }
        }
    });
    Between { address, task }
}
