//! Who may look and who may change: tokens with a scope, known by their SHA-256 only, and the check
//! that a change was not sent by another site's page.
//!
//! With tokens every call needs one but the probes, the page's own files (which hold no data) and,
//! unless the configuration says otherwise, `/metrics`. Without tokens everybody may look, and changes
//! are open on a loopback address only.
//!
//! A page of another site can make a browser send requests to this listener, or let its own name point
//! at it (DNS rebinding). Against the first a change whose `Origin` is not this listener is refused;
//! against the second a listener on a loopback address without tokens answers only to `localhost` and
//! to addresses, but for the probes and the page's files. With tokens neither helps: the browser does not have
//! the token for that site.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use axum::{
    extract::{ConnectInfo, FromRequestParts, Request, State},
    http::{
        HeaderMap, HeaderName, Method, Uri,
        header::{AUTHORIZATION, HOST, ORIGIN},
        request::Parts,
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::{audit, config::Scope, fault::Fault, seat::Seat};

/// A token.
#[derive(Clone, Debug)]
pub struct Token {
    /// Who holds it.
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// What it allows.
    pub scope: Scope,
}

/// The accepted tokens.
#[derive(Clone, Debug, Default)]
pub struct TokenRing(Vec<Token>);

impl TokenRing {
    /// A ring of these tokens.
    pub fn new(tokens: Vec<Token>) -> Self {
        Self(tokens)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose token a call shows, if it allows that much.
    fn admit(&self, headers: &HeaderMap, scope: Scope) -> Result<Arc<str>, Fault> {
        let token = self.shown(headers)?;
        let who = token.name.clone();
        if token.scope >= scope { Ok(who) } else { Err(Fault::ReadOnly(who)) }
    }

    /// The token that a call shows.
    fn shown(&self, headers: &HeaderMap) -> Result<&Token, Fault> {
        let shown: [u8; 32] = Sha256::digest(bearer(headers).ok_or(Fault::MissingToken)?).into();
        // Every token is compared, and each in constant time, so that the time tells nothing.
        let mut found = None;
        for token in &self.0 {
            if token.digest.ct_eq(&shown).into() {
                found = Some(token);
            }
        }
        found.ok_or(Fault::InvalidToken)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// Who made a call, for the audit lines.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The token's name; `anybody` where no token is needed.
    pub who: Arc<str>,
    /// Where the call came from.
    pub from: Option<SocketAddr>,
    /// Whether an audit line says what came of the call.
    written: Arc<AtomicBool>,
}

impl Caller {
    fn of(who: Arc<str>, request: &Request) -> Self {
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        Self { who, from: from.map(|ConnectInfo(from)| *from), written: Arc::default() }
    }

    /// Notes that there is an audit line.
    pub(super) fn note_written(&self) {
        self.written.store(true, Relaxed);
    }

    fn is_written(&self) -> bool {
        self.written.load(Relaxed)
    }

    /// Whoever was refused, by name where the token is known.
    fn refused(fault: &Fault, request: &Request) -> Self {
        let who = if let Fault::ReadOnly(who) = fault { who.clone() } else { Arc::from("unknown") };
        Self::of(who, request)
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        // Only a route outside the guard has none.
        std::future::ready(parts.extensions.get::<Self>().cloned().ok_or(Fault::MissingToken)).await
    }
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Scope(Scope),
}

/// Only `/api/v1/explain` is asked by POST and changes nothing. `open_metrics`: whether they need no token where
/// everything else does.
fn need(method: &Method, uri: &Uri, open_metrics: bool) -> Need {
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    match uri.path() {
        "/livez" | "/readyz" | "/" => Need::Nothing,
        "/metrics" if open_metrics => Need::Nothing,
        path if looks && path.starts_with("/assets/") => Need::Nothing,
        "/api/v1/explain" => Need::Scope(Scope::Read),
        _ => Need::Scope(if looks { Scope::Read } else { Scope::Write }),
    }
}

/// Lets a call through that may pass.
pub(super) async fn guard(
    State(seat): State<Arc<Seat>>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&seat, &request) {
        Ok(who) => {
            let caller = Caller::of(who, &request);
            request.extensions_mut().insert(caller.clone());
            let changes = need(request.method(), request.uri(), true) == Need::Scope(Scope::Write);
            let uri = changes.then(|| request.uri().clone());
            let response = next.run(request).await;
            if let Some(uri) = uri.filter(|_| !caller.is_written()) {
                audit::unread(&seat, &caller, uri.path(), &response);
            }
            response
        }
        Err(fault) => {
            if need(request.method(), request.uri(), true) == Need::Scope(Scope::Write) {
                let caller = Caller::refused(&fault, &request);
                audit::denied(&seat, &caller, request.uri().path(), &fault);
            }
            fault.into_response()
        }
    }
}

fn admit(seat: &Seat, request: &Request) -> Result<Arc<str>, Fault> {
    let (headers, config) = (request.headers(), seat.rights());
    let anybody = || Arc::from("anybody");
    let open_metrics = config.open_metrics && !config.tokens.is_empty();
    let scope = match need(request.method(), request.uri(), open_metrics) {
        Need::Nothing => return Ok(anybody()),
        Need::Scope(scope) => scope,
    };
    if scope == Scope::Write && !same_site(headers) {
        return Err(Fault::OtherOrigin);
    }
    if !config.tokens.is_empty() {
        return config.tokens.admit(headers, scope);
    }
    match (scope, seat.is_local()) {
        (Scope::Write, false) => Err(Fault::NoTokens),
        (_, true) if !is_local_name(headers) => Err(Fault::OtherHost),
        _ => Ok(anybody()),
    }
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a browser says that the call is from this listener's own page, or no browser says anything.
fn same_site(headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("-"));
    let foreign = text(&FETCH_SITE).is_some_and(|site| matches!(site, "cross-site" | "same-site"));
    let origin = text(&ORIGIN).is_none_or(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_some() && authority == text(&HOST)
    });
    origin && !foreign
}

/// Whether the call was addressed to `localhost` or to an address, which no foreign name can be.
fn is_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let host = host.to_str().unwrap_or("-");
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    {
        return true;
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_localhost_and_addresses_are_local_names() {
        let local = |host: &str| is_local_name(&headers(&[(HOST, host)]));
        for host in
            ["localhost", "LOCALHOST:8081", "127.0.0.1", "127.0.0.1:8081", "[::1]:8081", "[::1]"]
        {
            assert!(local(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
        ] {
            assert!(!local(host), "{host}");
        }
    }

    #[test]
    fn whoever_may_only_look_is_refused_by_name() {
        let digest = Sha256::digest("t").into();
        let bob = Token { name: "bob".into(), digest, scope: Scope::Read };
        let ring = TokenRing::new(vec![bob]);
        let refused = |token: &str| {
            let fault = ring.admit(&headers(&[(AUTHORIZATION, token)]), Scope::Write).unwrap_err();
            Caller::refused(&fault, &Request::default()).who
        };
        assert_eq!((&*refused("Bearer t"), &*refused("Bearer x")), ("bob", "unknown"));
    }

    #[test]
    fn a_change_comes_from_this_site_or_from_no_site() {
        let host = (HOST, "127.0.0.1:8081");
        let from = |origin: &str| same_site(&headers(&[host.clone(), (ORIGIN, origin)]));
        assert!(same_site(&headers(std::slice::from_ref(&host))));
        assert!(from("http://127.0.0.1:8081"));
        for origin in ["http://evil.example", "http://127.0.0.1:9999", "null", ""] {
            assert!(!from(origin), "{origin:?}");
        }
        assert!(!same_site(&headers(&[host, (FETCH_SITE, "cross-site")])));
    }

    #[test]
    fn everything_but_probes_and_the_page_needs_a_scope() {
        let need = |method: Method, path: &str| need(&method, &path.parse().unwrap(), true);
        for path in ["/livez", "/readyz", "/", "/assets/app.js", "/metrics"] {
            assert_eq!(need(Method::GET, path), Need::Nothing, "{path}");
        }
        for path in ["/snapshot", "/api/v1/overview", "/api/v1/openapi.json", "/anything"] {
            assert_eq!(need(Method::GET, path), Need::Scope(Scope::Read), "{path}");
        }
        assert_eq!(need(Method::POST, "/api/v1/explain"), Need::Scope(Scope::Read));
        for path in ["/api/v1/queues/pause", "/api/v1/config/reload", "/assets/app.js"] {
            assert_eq!(need(Method::POST, path), Need::Scope(Scope::Write), "{path}");
        }
    }
}
