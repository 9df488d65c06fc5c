//! Every way an admin call can fail, and what the caller is told: the one place that turns errors of
//! this side into HTTP. The shape is OpenAI's, as on the data API.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

/// Why an admin call is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Tokens are needed and none was sent.
    #[error("a token is needed; send it as Authorization: Bearer <token>")]
    MissingToken,
    /// The token is none of those configured.
    #[error("the token is not accepted")]
    InvalidToken,
    /// The token of this name may only look.
    #[error("this token may look and not change; its scope is read")]
    ReadOnly(Arc<str>),
    /// A change on a listener that others reach, without tokens.
    #[error("changes need a token here: set admin.tokens")]
    NoTokens,
    /// A change that another site's page sent.
    #[error("the change was sent by a page of another site; its Origin is not this Host")]
    OtherOrigin,
    /// A name that points here by somebody else's doing.
    #[error(
        "this listener answers to localhost and addresses only; configure admin.tokens for other names"
    )]
    OtherHost,
    /// There is no such path.
    #[error("unknown request URL; GET /api/v1/openapi.json lists what there is")]
    UnknownPath,
    /// The path exists, but not with this method.
    #[error("the method is not allowed here; the Allow header lists those that are")]
    WrongMethod,
    /// There is no such thing now.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// What was looked for.
        what: &'static str,
        /// By which name.
        name: String,
    },
    /// The bundle of this version was there and is not any more.
    #[error("the bundle of version {0} is not kept any more (trainer.keep_bundles)")]
    NotKept(u64),
    /// There are several pools and none was named.
    #[error("there are several pools; name one: {0}")]
    PoolRequired(String),
    /// A member of the query, the path or the body cannot be used.
    #[error("{message}")]
    Parameter {
        /// Which one, if it is known.
        param: Option<Cow<'static, str>>,
        /// What is wrong with it.
        message: String,
    },
    /// The state does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// Another dispatcher decides for the pool, so that a change here would change nothing and a guess mean nothing.
    #[error("the dispatcher at {0} decides for this pool; ask its admin side")]
    DecidedElsewhere(String),
    /// The body is larger than any sensible one.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// As many streams as there may be are open.
    #[error("{0} streams of events are open already")]
    TooManyStreams(usize),
    /// The process ends.
    #[error("the dispatcher is closing")]
    Closing,
    /// The configuration could not be taken.
    #[error("the configuration is not taken; the old one stays in force")]
    Problems(Vec<String>),
    /// The file cannot be used. Nobody asked to take it.
    #[error("the file cannot be used")]
    Unusable(Vec<String>),
}

/// The code of an answer that is an error, beside it.
#[derive(Clone, Copy, Debug)]
pub struct Verdict(pub &'static str);

/// What an error looks like.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error, in the shape of the OpenAI API.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// What is wrong, for people.
    pub message: String,
    /// Its kind.
    pub r#type: &'static str,
    /// The parameter it is about, if it is about one.
    #[schema(value_type = Option<String>)]
    pub param: Option<Cow<'static, str>>,
    /// What is wrong, for programs.
    pub code: &'static str,
    /// Every problem of a configuration that is not taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub problems: Vec<String>,
}

impl Fault {
    /// A member that cannot be used.
    pub fn parameter(param: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::Parameter { param: Some(param.into()), message: message.into() }
    }

    /// Nothing has this name.
    pub fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }

    /// The HTTP status and the code.
    pub fn verdict(&self) -> (StatusCode, &'static str) {
        match self {
            Self::MissingToken => (StatusCode::UNAUTHORIZED, "missing_token"),
            Self::InvalidToken => (StatusCode::UNAUTHORIZED, "invalid_token"),
            Self::ReadOnly(_) => (StatusCode::FORBIDDEN, "read_only"),
            Self::NoTokens => (StatusCode::FORBIDDEN, "no_tokens"),
            Self::OtherOrigin => (StatusCode::FORBIDDEN, "other_origin"),
            Self::OtherHost => (StatusCode::FORBIDDEN, "other_host"),
            Self::UnknownPath => (StatusCode::NOT_FOUND, "unknown_url"),
            Self::WrongMethod => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NotFound { .. } | Self::NotKept(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::PoolRequired(_) => (StatusCode::BAD_REQUEST, "pool_required"),
            Self::Parameter { .. } => (StatusCode::BAD_REQUEST, "invalid_parameter"),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::DecidedElsewhere(_) => (StatusCode::CONFLICT, "decided_elsewhere"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"),
            Self::TooManyStreams(_) => (StatusCode::SERVICE_UNAVAILABLE, "too_many_streams"),
            Self::Closing => (StatusCode::SERVICE_UNAVAILABLE, "closing"),
            Self::Problems(_) | Self::Unusable(_) => {
                (StatusCode::BAD_REQUEST, "invalid_configuration")
            }
        }
    }

    fn param(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Parameter { param, .. } => param.clone(),
            Self::PoolRequired(_) => Some("pool".into()),
            _ => None,
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let ((status, code), message) = (self.verdict(), self.to_string());
        let r#type = match status.as_u16() {
            401 | 403 => "permission_error",
            409 => "conflict_error",
            503 => "service_unavailable_error",
            _ => "invalid_request_error",
        };
        let param = self.param();
        let problems = match self {
            Self::Problems(problems) | Self::Unusable(problems) => problems,
            _ => vec![],
        };
        let error = ErrorDetail { message, r#type, param, code, problems };
        let mut response = (status, Json(ErrorBody { error })).into_response();
        response.extensions_mut().insert(Verdict(code));
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
