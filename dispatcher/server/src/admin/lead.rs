//! What is decided elsewhere is said with every answer of the API: of [several dispatchers](crate::replicas) one decides for all, and
//! the books of the others hold none of what waits and little of what is on pods. An empty list of theirs is no empty queue.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Uri},
    middleware::Next,
    response::Response,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use super::{fault::Fault, seat::Seat};

/// The pools that another dispatcher decides for, as `POOL=ADDRESS, ...`.
pub const DECIDED_BY: HeaderName = HeaderName::from_static("x-weir-decided-by");

/// What no pool's name may hold as it is: it would end the name, or the header.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b',').add(b'=');

/// The pool that a query names. Other members are read by whoever answers.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    pool: Option<String>,
}

/// Lets a call be answered, and says for which of the pools that it may be about another dispatcher decides.
pub(super) async fn tell(State(seat): State<Arc<Seat>>, request: Request, next: Next) -> Response {
    let pool = asked(request.uri());
    let mut response = next.run(request).await;
    let led = seat.aside(move |seat| Ok::<_, Fault>(led(seat, pool.as_deref()))).await;
    if let Some(led) = led.ok().flatten() {
        response.headers_mut().insert(DECIDED_BY, led);
    }
    response
}

fn asked(uri: &Uri) -> Option<String> {
    let asked = axum::extract::Query::<Asked>::try_from_uri(uri);
    asked.ok().and_then(|axum::extract::Query(asked)| asked.pool)
}

fn led(seat: &Seat, pool: Option<&str>) -> Option<HeaderValue> {
    // Of a pool that is not there nothing is decided.
    let pools = seat.pools(pool).unwrap_or_default();
    let of = |(name, address): (&str, String)| {
        format!("{}={address}", utf8_percent_encode(name, RESERVED))
    };
    let led = pools.iter().filter_map(|pool| Some((pool.name(), pool.decided_by()?)));
    let led: Vec<_> = led.map(of).collect();
    (!led.is_empty()).then(|| HeaderValue::try_from(led.join(", ")).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_read_beside_members_of_any_call() {
        let asked = |uri: &str| asked(&uri.parse().unwrap());
        assert_eq!(asked("/api/v1/requests?limit=many&pool=a%2Fb"), Some("a/b".to_owned()));
        assert_eq!(asked("/api/v1/requests?limit=3"), None);
        assert_eq!(asked("/api/v1/overview"), None);
    }
}
