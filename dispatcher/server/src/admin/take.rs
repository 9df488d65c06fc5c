//! What a call says, read strictly: a query or a body with an unknown, repeated or unreadable member
//! is refused in this side's own error shape, with the member's name where it is known.

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

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

/// The JSON body, whatever its content type says; an empty one is `{}`.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Sync, T: DeserializeOwned + Send> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let too_large = |_| Fault::TooLarge(BODY_BYTES);
        let bytes = to_bytes(request.into_body(), BODY_BYTES).await.map_err(too_large)?;
        let text: &[u8] = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes };
        // An array would fill the members in their order, which nobody means.
        let object = text.trim_ascii_start().first() == Some(&b'{');
        let read = object.then(|| serde_json::from_slice(text));
        let read = read.ok_or_else(|| "the body must be a JSON object".to_owned());
        let read = read.and_then(|read| read.map_err(|error| format!("the body: {error}")));
        read.map(Self).map_err(|message| Fault::Parameter { param: None, message })
    }
}
