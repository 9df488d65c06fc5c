//! What a call says, read strictly: a query or a body with an unknown, repeated or unreadable member
//! is refused in this side's own error shape, with the member's name where it is known.

use std::collections::BTreeMap;

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::request::Parts,
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny},
};

use utoipa::ToSchema;

use super::fault::Fault;

/// Largest body of an admin call: a filter or a hypothetical request, never a prompt.
pub const BODY_BYTES: usize = 64 << 10;

/// The members of the query.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<S: Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Query<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let read = query.map(|axum::extract::Query(query)| Self(query));
        let why = |error: axum::extract::rejection::QueryRejection| misread(&error.body_text());
        std::future::ready(read.map_err(why)).await
    }
}

/// The one name in the path.
#[derive(Debug)]
pub struct Name(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(error) => Err(Fault::Parameter { param: None, message: error.body_text() }),
        }
    }
}

/// The JSON body, whatever its content type says. An empty one is refused: it would pause a whole pool.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Sync, T: DeserializeOwned + Send> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let too_large = |_| Fault::TooLarge(BODY_BYTES);
        let bytes = to_bytes(request.into_body(), BODY_BYTES).await.map_err(too_large)?;
        // An array would fill the members in their order, which nobody means.
        let object = bytes.trim_ascii_start().first() == Some(&b'{');
        if !object {
            let message = "the body must be a JSON object".to_owned();
            return Err(Fault::Parameter { param: None, message });
        }
        no_nulls(&bytes)?;
        let mut from = serde_json::Deserializer::from_slice(&bytes);
        let read = serde_path_to_error::deserialize(&mut from).map_err(|error| error.to_string());
        // What comes behind the object is read by nobody.
        let whole =
            read.and_then(|read| from.end().map(|()| read).map_err(|error| error.to_string()));
        whole.map(Self).map_err(|error| misread(&error))
    }
}

/// What is said where the path says the rest.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAsk {
    /// The pool; may be left out when one alone has what is named.
    #[serde(default)]
    pub pool: Option<String>,
}

/// Reads a whole number, written with a fraction of zero or without: JSON makes no difference.
///
/// # Errors
/// When it is none, or out of range.
pub fn whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(from: D) -> Result<T, D::Error> {
    let number = f64::deserialize(from)?;
    // Larger ones are not exact.
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    let whole = exact.then(|| T::try_from(number as i64).ok()).flatten();
    whole.ok_or_else(|| D::Error::custom(format!("{number} is no whole number in its range")))
}

/// The same for one that may be left out.
///
/// # Errors
/// As for [`whole`].
pub fn some_whole<'de, D: Deserializer<'de>, T: TryFrom<i64>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    whole(from).map(Some)
}

/// Refuses members that are `null`. A filter whose members were all meant to be there and are not would
/// find everything.
fn no_nulls(body: &[u8]) -> Result<(), Fault> {
    // What is no object at all is told by whoever reads it.
    let members = serde_json::from_slice::<BTreeMap<String, Option<IgnoredAny>>>(body);
    let members = members.unwrap_or_default();
    let null = members.into_iter().find(|(_, value)| value.is_none());
    null.map_or(Ok(()), |(name, _)| Err(Fault::parameter(name, "is null; leave it out")))
}

/// What could not be read, by the member that it is about and in words that need no knowledge of the
/// program. The readers name a member in front, or between backticks.
fn misread(error: &str) -> Fault {
    let error = error.strip_prefix("Failed to deserialize query string: ").unwrap_or(error);
    // Where in the text: a member's name says more.
    let error = error.rsplit_once(" at line ").map_or(error, |(error, _)| error);
    let called = |start: &str| error.strip_prefix(start)?.split('`').next();
    if let Some(name) = called("missing field `") {
        return Fault::parameter(name.to_owned(), "is missing");
    }
    // One that is not known has its name in front as well.
    let (path, why) = error.split_once(": ").filter(|(path, _)| is_name(path)).unzip();
    let why = why.unwrap_or(error);
    let quoted = |start: &str| why.strip_prefix(start)?.split('`').next();
    if let Some(name) = quoted("duplicate field `") {
        return Fault::parameter(name.to_owned(), "is given twice");
    }
    if let Some(name) = quoted("unknown field `") {
        let known = why.split_once(", expected ").map_or("none", |(_, known)| known);
        let known = known.strip_prefix("one of ").unwrap_or(known).replace('`', "");
        return Fault::parameter(name.to_owned(), format!("is not known here; known are {known}"));
    }
    match path {
        Some(path) => Fault::parameter(path.to_owned(), plain(why)),
        None => Fault::Parameter { param: None, message: format!("cannot be read: {error}") },
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A reader's complaint of one value.
fn plain(why: &str) -> String {
    if let Some((_, wanted)) = why.split_once(", expected ") {
        let wanted = match wanted {
            "f64" => "a number",
            "a boolean" => "true or false",
            other => other,
        };
        return format!("must be {wanted}");
    }
    let number = ["invalid digit", "invalid float", "cannot parse"];
    if number.iter().any(|start| why.starts_with(start)) {
        return "must be a number".to_owned();
    }
    if why.starts_with("number too") {
        return "is too large or too small".to_owned();
    }
    if why.starts_with("provided string was not") {
        return "must be true or false".to_owned();
    }
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Ask {
        #[serde(deserialize_with = "whole")]
        least: i8,
        #[serde(default, deserialize_with = "some_whole")]
        most: Option<u32>,
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        let ask = |text: &str| serde_json::from_str::<Ask>(text).map_err(|error| error.to_string());
        assert_eq!(ask(r#"{"least": -3.0}"#), Ok(Ask { least: -3, most: None }));
        let both = Ok(Ask { least: 127, most: Some(u32::MAX) });
        assert_eq!(ask(r#"{"least": 127, "most": 4294967295}"#), both);
        for bad in ["0.5", "128", "-129", "1e300", "\"1\"", "null"] {
            assert!(ask(&format!(r#"{{"least": {bad}}}"#)).is_err(), "{bad}");
        }
        assert!(ask(r#"{"least": 0, "most": -1}"#).is_err());
    }
    #[test]
    fn a_member_is_left_out_and_never_null() {
        assert_eq!(no_nulls(br#"{"lane": "b0/late", "most": 0, "deep": [null]}"#), Ok(()));
        assert_eq!(no_nulls(b"[1]"), Ok(()), "that it is no object is said elsewhere");
        let told = no_nulls(br#"{"lane": null, "dry_run": true}"#);
        assert_eq!(told, Err(Fault::parameter("lane", "is null; leave it out")));
    }

    /// As [`Query`] and [`Body`] read it.
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "it is read and not used")]
    struct Members {
        #[serde(deserialize_with = "whole")]
        band: i8,
        limit: Option<usize>,
        late: Option<bool>,
        ttft_ms: Option<f64>,
        pool: Option<String>,
    }

    #[tokio::test]
    async fn a_query_that_cannot_be_read_names_its_member_and_says_what_it_must_be() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "it is read and not used")]
        struct Asked {
            limit: Option<usize>,
            band: Option<i8>,
            late: Option<bool>,
            ttft_ms: Option<f64>,
        }
        for (query, param, message) in [
            ("limit=abc", "limit", "must be a number"),
            ("limit=", "limit", "must be a number"),
            ("limit=-1", "limit", "must be a number"),
            ("ttft_ms=fast", "ttft_ms", "must be a number"),
            ("band=300", "band", "is too large or too small"),
            ("late=perhaps", "late", "must be true or false"),
            ("limit=1&limit=2", "limit", "is given twice"),
            ("limits=1", "limits", "is not known here; known are limit, band, late, ttft_ms"),
        ] {
            let request = http::Request::get(format!("/x?{query}")).body(()).unwrap();
            let read = Query::<Asked>::from_request_parts(&mut request.into_parts().0, &()).await;
            assert_eq!(read.unwrap_err(), Fault::parameter(param, message), "{query}");
        }
    }

    #[tokio::test]
    async fn so_does_a_body() {
        let read = async |body: &'static str| {
            let request = Request::post("/x").body(body.into()).unwrap();
            Body::<Members>::from_request(request, &()).await.map(drop).unwrap_err()
        };
        for (body, param, message) in [
            ("{}", "band", "is missing"),
            (r#"{"band": "high"}"#, "band", "must be a number"),
            (r#"{"band": 300}"#, "band", "300 is no whole number in its range"),
            (r#"{"band": 1, "ttft_ms": "fast"}"#, "ttft_ms", "must be a number"),
            (r#"{"band": 1, "late": 1}"#, "late", "must be true or false"),
            (r#"{"band": 1, "pool": 7}"#, "pool", "must be a string"),
            (r#"{"band": 1, "band": 2}"#, "band", "is given twice"),
            (r#"{"band": 1, "limit": null}"#, "limit", "is null; leave it out"),
            (
                r#"{"bund": 1}"#,
                "bund",
                "is not known here; known are band, limit, late, ttft_ms, pool",
            ),
        ] {
            assert_eq!(read(body).await, Fault::parameter(param, message), "{body}");
        }
        for body in ["{", r#"{"band": 1} x"#] {
            let Fault::Parameter { param: None, message } = read(body).await else {
                panic!("{body}")
            };
            assert!(message.starts_with("cannot be read: "), "{message}");
        }
    }
}
