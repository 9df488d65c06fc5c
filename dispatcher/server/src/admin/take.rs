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
        let why = |error: axum::extract::rejection::QueryRejection| Fault::Parameter {
            param: None,
            message: error.body_text(),
        };
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
        let read = object.then(|| serde_json::from_slice(&bytes));
        let read = read.ok_or_else(|| "the body must be a JSON object".to_owned());
        let read = no_nulls(&bytes).and(read);
        let read = read.and_then(|read| read.map_err(|error| format!("the body: {error}")));
        read.map(Self).map_err(|message| Fault::Parameter { param: None, message })
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
fn no_nulls(body: &[u8]) -> Result<(), String> {
    // What is no object at all is told by whoever reads it.
    let members = serde_json::from_slice::<BTreeMap<String, Option<IgnoredAny>>>(body);
    let members = members.unwrap_or_default();
    let null = members.into_iter().find(|(_, value)| value.is_none());
    null.map_or(Ok(()), |(name, _)| Err(format!("the body: {name} is null; leave it out")))
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
        let told = no_nulls(br#"{"lane": null, "dry_run": true}"#).unwrap_err();
        assert!(told.contains("lane is null"), "{told}");
    }
}
