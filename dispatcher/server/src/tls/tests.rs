//! Listeners and trusts against each other, with certificates of authorities made for each test.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{FilesTally, Identity, Line, RawPodsTls, RawTls, Secure, Trust};
use crate::{accept::Listening, config::Problems};

static LISTENING: Listening = Listening::named("test");

/// An authority and a folder for what it signs.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { folder: TempDir::new().unwrap(), issuer }
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    fn write(&self, file: &str, text: &str) -> String {
        // Another file in its place, as a mounted secret is renewed: also within one tick of the file system's clock.
        let new = PathBuf::from(self.path("new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(file)).unwrap();
        self.path(file)
    }

    fn ca(&self) -> String {
        self.write("ca.pem", &self.issuer.pem())
    }

    /// Signs a certificate for a name that ends in that year. In files of one name, written anew.
    fn certify(&self, name: &str, year: i32) -> RawTls {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        RawTls {
            certificate: self.write("own.pem", &signed.pem()),
            key: self.write("own.key", &key.serialize_pem()),
            client_ca: None,
        }
    }

    /// A listener that proves to be of that name.
    pub(crate) fn identity(&self, name: &str) -> Arc<Identity> {
        identity(&self.certify(name, 2100))
    }

    /// A client of such a listener.
    pub(crate) fn client(&self, name: &str) -> Client {
        Client(secure(self.trusts(), name))
    }

    /// Trusts this authority.
    fn trusts(&self) -> RawPodsTls {
        RawPodsTls { ca: Some(self.ca()), ..RawPodsTls::default() }
    }
}

/// A client that trusts who proves to be of one name.
pub(crate) struct Client(pub(crate) Secure);

impl Client {
    pub(crate) async fn to(&self, address: SocketAddr) -> std::io::Result<Line> {
        self.0.greet(TcpStream::connect(address).await?).await
    }
}

fn identity(raw: &RawTls) -> Arc<Identity> {
    let mut problems = Problems::default();
    let identity = Identity::check("tls", Some(raw), &LISTENING, &mut problems);
    assert_eq!(problems, Problems::default());
    identity.unwrap()
}

fn secure(raw: RawPodsTls, host: &str) -> Secure {
    Arc::new(Trust::new(raw, "test".to_owned()).unwrap()).at(host).unwrap()
}

/// Answers everybody with what they say, until their end.
async fn echo(identity: Arc<Identity>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut line = identity.greet(listener.accept().await.unwrap().0);
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = line.read(&mut bytes).await {
                    line.write_all(&bytes[..count]).await.unwrap();
                    line.flush().await.unwrap();
                }
                line.shutdown().await
            });
        }
    });
    address
}

async fn ask(address: SocketAddr, secure: &Secure) -> std::io::Result<Line> {
    let mut line = secure.greet(TcpStream::connect(address).await?).await?;
    line.write_all(b"weir").await?;
    line.flush().await?;
    let mut said = [0; 4];
    line.read_exact(&mut said).await?;
    assert_eq!(&said, b"weir");
    Ok(line)
}

async fn refusal(address: SocketAddr, secure: &Secure) -> String {
    ask(address, secure).await.unwrap_err().to_string()
}

#[tokio::test]
async fn who_proves_to_be_the_one_that_is_named_is_believed_and_nobody_else() {
    let (authority, other) = (Authority::new(), Authority::new());
    let address = echo(identity(&authority.certify("pod-0", 2100))).await;
    let mut line = ask(address, &secure(authority.trusts(), "pod-0.")).await.unwrap();
    let large = vec![7; 3 << 20];
    let (mut reads, mut writes) = tokio::io::split(&mut line);
    let mut back = vec![0; large.len()];
    let (wrote, read) = tokio::join!(
        async {
            writes.write_all(&large).await?;
            writes.flush().await
        },
        reads.read_exact(&mut back)
    );
    wrote.unwrap();
    read.unwrap();
    assert!(back == large);

    let said = refusal(address, &secure(authority.trusts(), "pod-1")).await;
    assert!(said.contains("not valid for name"), "{said}");
    let said = refusal(address, &secure(other.trusts(), "pod-0")).await;
    assert!(said.contains("invalid peer certificate"), "{said}");
    let named = RawPodsTls { server_name: Some("pod-0".to_owned()), ..authority.trusts() };
    ask(address, &secure(named, "10.0.0.1")).await.unwrap();
    let anybody = RawPodsTls { verify: false, ..other.trusts() };
    ask(address, &secure(anybody, "whoever")).await.unwrap();
}

#[tokio::test]
async fn a_certificate_that_its_owner_made_is_believed_where_it_is_listed() {
    let folder = Authority::new();
    let own = |file: &str, years: std::ops::Range<i32>| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["pod-0".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let certificate = folder.write(file, &params.self_signed(&key).unwrap().pem());
        let key = folder.write(&format!("{file}.key"), &key.serialize_pem());
        RawTls { certificate, key, client_ca: None }
    };
    let listed = |raw: &RawTls, name: &str| {
        let ca = Some(raw.certificate.clone());
        secure(RawPodsTls { ca, ..RawPodsTls::default() }, name)
    };
    let pod = own("own.pem", 2020..2100);
    let address = echo(identity(&pod)).await;
    ask(address, &listed(&pod, "pod-0")).await.unwrap();
    let said = refusal(address, &listed(&pod, "pod-1")).await;
    assert!(said.contains("not valid for name"), "{said}");
    // One like it, which another has made.
    let said = refusal(address, &listed(&own("other.pem", 2020..2100), "pod-0")).await;
    assert!(said.contains("invalid peer certificate"), "{said}");
    for (years, want) in [(2020..2021, "Expired"), (2090..2100, "NotValidYet")] {
        let pod = own("old.pem", years);
        let said = refusal(echo(identity(&pod)).await, &listed(&pod, "pod-0")).await;
        assert!(said.contains(want), "{said}");
    }
}

#[tokio::test]
async fn where_a_certificate_is_asked_for_nobody_comes_in_without_one() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let raw = RawTls { client_ca: Some(clients.ca()), ..authority.certify("weir", 2100) };
    let address = echo(identity(&raw)).await;
    let failed = LISTENING.handshakes_failed();
    ask(address, &secure(authority.trusts(), "weir")).await.unwrap_err();
    let begun = Instant::now();
    while LISTENING.handshakes_failed() == failed {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
    let RawTls { certificate, key, .. } = clients.certify("gateway", 2100);
    let shown = RawPodsTls { certificate: Some(certificate), key: Some(key), ..authority.trusts() };
    ask(address, &secure(shown, "weir")).await.unwrap();
}

#[tokio::test]
async fn files_are_read_anew_and_those_that_cannot_be_used_change_nothing() {
    let (authority, later) = (Authority::new(), Authority::new());
    let raw = authority.certify("weir", 2090);
    let own = identity(&raw);
    let told = |own: &Identity| {
        let FilesTally { renewed, refused, failing } = own.tally();
        (renewed.load(Relaxed), refused.load(Relaxed), failing.load(Relaxed))
    };
    let year = |expiry: Option<u64>| 1970 + expiry.unwrap() / 31_556_952;
    assert_eq!(year(own.expiry()), 2090);
    let address = echo(own.clone()).await;
    let trust = secure(authority.trusts(), "weir");
    let mut open = ask(address, &trust).await.unwrap();

    // The new certificate stands there, and its key does not yet.
    let before = fs::read_to_string(&raw.key).unwrap();
    authority.certify("weir", 2095);
    let after = fs::read_to_string(&raw.key).unwrap();
    authority.write("own.key", &before);
    own.kept.get_now();
    assert_eq!((year(own.expiry()), told(&own)), (2090, (0, 1, true)));
    authority.write("own.key", &after);
    own.kept.get_now();
    assert_eq!((year(own.expiry()), told(&own)), (2095, (1, 1, false)));
    own.kept.get_now();
    assert_eq!(told(&own), (1, 1, false), "nothing has changed since");
    ask(address, &trust).await.unwrap();

    // Another authority on both sides, while a connection of before stays open.
    fs::copy(later.certify("weir", 2099).certificate, &raw.certificate).unwrap();
    fs::copy(later.path("own.key"), &raw.key).unwrap();
    own.kept.get_now();
    assert!(refusal(address, &trust).await.contains("invalid peer certificate"));
    authority.write("ca.pem", &later.issuer.pem());
    trust.trust.kept.get_now();
    ask(address, &trust).await.unwrap();
    open.write_all(b"on").await.unwrap();
    open.flush().await.unwrap();
    assert_eq!(open.read_u16().await.unwrap(), u16::from_be_bytes(*b"on"));
}

#[test]
fn what_cannot_be_used_is_named_with_its_key() {
    let authority = Authority::new();
    let own = authority.certify("weir", 2100);
    let (text, none) = (authority.write("text", "no certificate"), authority.path("none"));
    let with = |certificate: &str, key: &str, client_ca: Option<&str>| {
        let raw = RawTls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            client_ca: client_ca.map(str::to_owned),
        };
        let mut problems = Problems::default();
        let identity = Identity::check("tls", Some(&raw), &LISTENING, &mut problems);
        assert_eq!(identity.is_none(), problems != Problems::default());
        problems.to_string()
    };
    let of_before = Authority::new();
    let noted = identity(&of_before.certify("weir", 2020)).note("tls").unwrap();
    assert_eq!(noted, "tls.certificate: has ended; clients that verify it refuse it");
    assert_eq!(identity(&own).note("tls"), None);
    let (certificate, key) = (&*own.certificate, &*own.key);
    let other = authority.write("other.key", &KeyPair::generate().unwrap().serialize_pem());
    for (said, want) in [
        (with(certificate, key, None), String::new()),
        (with("", key, None), "tls.certificate: missing; name a file in PEM".to_owned()),
        (with(certificate, "", None), "tls.key: missing; name a file in PEM".to_owned()),
        (
            with(&none, key, None),
            format!("tls.certificate: cannot read {none}: No such file or directory (os error 2)"),
        ),
        (with(&text, key, None), format!("tls.certificate: {text} holds no certificate in PEM")),
        (with(certificate, &text, None), format!("tls.key: {text} holds no private key in PEM")),
        (
            with(certificate, &other, None),
            format!("tls.key: {other}: keys may not be consistent: KeyMismatch"),
        ),
        (
            with(certificate, key, Some(&text)),
            format!("tls.client_ca: {text} holds no certificate in PEM"),
        ),
    ] {
        assert_eq!(said, want);
    }
    let wrong = |raw| Trust::new(raw, String::new()).map(|_| ()).unwrap_err().to_string();
    let half = RawPodsTls { certificate: Some(own.certificate.clone()), ..RawPodsTls::default() };
    assert_eq!(wrong(half), "key: missing; a certificate and its key go together");
    let half = RawPodsTls { key: Some(own.key.clone()), ..RawPodsTls::default() };
    assert_eq!(wrong(half), "certificate: missing; a certificate and its key go together");
    let named = RawPodsTls { server_name: Some("a b".to_owned()), ..RawPodsTls::default() };
    assert_eq!(wrong(named), "server_name: \"a b\" is no name that a certificate can be for");
}

async fn pair() -> (Line, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, pods) = tokio::join!(TcpStream::connect(address), listener.accept());
    (ours.unwrap().into(), pods.unwrap().0)
}

fn until_it_is_not_quiet(line: &mut Line) {
    let begun = Instant::now();
    while line.is_quiet() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

/// Without the runtime's having looked at the socket since.
#[tokio::test]
async fn a_connection_that_was_closed_or_spoken_on_is_not_quiet() {
    let (mut ours, pods) = pair().await;
    assert!(ours.is_quiet());
    drop(pods);
    until_it_is_not_quiet(&mut ours);

    let (mut ours, pods) = pair().await;
    pods.try_write(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
    until_it_is_not_quiet(&mut ours);
}

#[tokio::test]
async fn a_sealed_connection_is_quiet_until_it_is_closed_or_something_is_unread() {
    let authority = Authority::new();
    let address = echo(identity(&authority.certify("pod", 2100))).await;
    let secure = secure(authority.trusts(), "pod");
    let mut line = ask(address, &secure).await.unwrap();
    assert!(line.is_quiet(), "what came with the handshake was read before the first answer");
    line.write_all(b"ab").await.unwrap();
    line.flush().await.unwrap();
    line.read_u8().await.unwrap();
    assert!(!line.is_quiet(), "a byte is left that was read from the socket already");
    line.read_u8().await.unwrap();
    assert!(line.is_quiet());
    line.shutdown().await.unwrap();
    // The other side answers in kind, and is not read.
    let begun = Instant::now();
    while line.is_quiet() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn who_only_looks_or_speaks_in_the_clear_gets_nothing_and_the_next_one_is_served() {
    let authority = Authority::new();
    let own = identity(&authority.certify("weir", 2100));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (came, mut line) = tokio::join!(TcpStream::connect(address), async {
        let mut line = own.greet(listener.accept().await.unwrap().0);
        // What is written before a handshake waits for it, and there is nothing to flush.
        line.flush().await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), line.write_u8(1)).await.is_err());
        line
    });
    drop(came);
    assert_eq!(line.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    assert_eq!(line.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::NotConnected);
    line.shutdown().await.unwrap();
    assert!(line.socket().is_none());

    let (heard, error) = tokio::join!(
        async {
            let mut clear = TcpStream::connect(address).await.unwrap();
            clear.write_all(b"GET / HTTP/1.1\r\nhost: weir\r\n\r\n").await.unwrap();
            let mut heard = Vec::new();
            let _ = clear.read_to_end(&mut heard).await;
            heard
        },
        async { own.greet(listener.accept().await.unwrap().0).read_u8().await }
    );
    error.unwrap_err();
    assert!(heard.len() < 16, "an alert at most: {heard:?}");
}
