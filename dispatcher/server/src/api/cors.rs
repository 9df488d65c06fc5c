//! Which web pages may call: a browser asks first whether a page of another origin may (a preflight), and shows it no answer that does
//! not say so.
//!
//! Off where no origins are configured: then nothing is looked up, what a pod says of origins passes, and a preflight is a call with a
//! method that is not served. Otherwise what a pod says is replaced. No page may send cookies along, for nothing here knows any.

use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

/// Any origin.
pub const ANY: &str = "*";
/// Seconds for which a browser does not ask again: the most that one of them keeps to.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("7200");

/// The origins whose pages may call.
#[derive(Clone, Debug)]
pub struct Cors(Vec<HeaderValue>);

impl Cors {
    /// Those of these origins; `None`: there are none.
    pub fn of(origins: &[HeaderValue]) -> Option<Self> {
        (!origins.is_empty()).then(|| Self(origins.to_vec()))
    }

    /// The origin of a call from a page that may call.
    pub fn origin(&self, headers: &HeaderMap) -> Option<Box<HeaderValue>> {
        let origin = headers.get(ORIGIN)?;
        let may = self.0.iter().any(|one| one == ANY || one == origin);
        // Not a piece of the connection's buffer.
        HeaderValue::from_bytes(origin.as_bytes()).ok().filter(|_| may).map(Box::new)
    }

    /// Whether a browser asks whether a page of such an origin may call.
    pub fn is_preflight(&self, method: &Method, headers: &HeaderMap) -> bool {
        method == Method::OPTIONS
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
            && self.origin(headers).is_some()
    }
}

/// The answer to that, beside what [`show`] adds to every answer.
pub fn preflight<B: Default>(headers: &HeaderMap) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let says = response.headers_mut();
    says.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
    says.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    says.append(VARY, HeaderValue::from_static("access-control-request-headers"));
    if let Some(asked) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        says.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

/// Lets the pages of this origin read an answer, and no others, whatever the pod says of them.
pub fn show(headers: &mut HeaderMap, origin: Option<Box<HeaderValue>>) {
    headers.append(VARY, HeaderValue::from_static("origin"));
    headers.remove(ACCESS_CONTROL_ALLOW_ORIGIN);
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, *origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANY));
    }
}

/// Whether this is an origin as browsers write it.
pub fn is_origin(origin: &str) -> bool {
    let host = origin.split_once("://").map(|(_, host)| host);
    let plain = |host: &str| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#@*".contains(&byte))
            && !host.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    origin == ANY || host.is_some_and(plain)
}
