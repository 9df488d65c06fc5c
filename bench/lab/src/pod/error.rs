//! Errors as vLLM answers them.

use http::StatusCode;
use weir_engine::Rejected;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0}")]
    BadRequest(String),
    #[error("The model `{0}` does not exist.")]
    UnknownModel(String),
    #[error("Not Found")]
    NotFound,
    #[error("Method Not Allowed")]
    MethodNotAllowed,
    #[error(
        "This model's maximum context length is {limit} tokens. However, you requested {asked} tokens ({prompt} in the \
         messages, {output} in the completion). Please reduce the length of the messages or completion."
    )]
    TooLong { limit: u32, asked: u64, prompt: u32, output: u32 },
    #[error(
        "data-parallel rank {rank} is out of range: there are {ranks}, the first of which is 0"
    )]
    NoSuchRank { rank: i64, ranks: usize },
    #[error("{0}")]
    Overloaded(String),
    #[error("The server had an error while processing your request.")]
    Injected(u16),
}

impl Refusal {
    /// The HTTP status.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) | Self::TooLong { .. } | Self::NoSuchRank { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::UnknownModel(_) | Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Overloaded(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Injected(status) => {
                StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// The body that the Messages API has.
    pub(super) fn json_of_messages(&self) -> String {
        let error =
            serde_json::json!({"type": "invalid_request_error", "message": self.to_string()});
        serde_json::json!({"type": "error", "error": error}).to_string()
    }

    /// The body.
    pub(super) fn json(&self) -> String {
        let status = self.status();
        let kind = match status {
            StatusCode::NOT_FOUND => "NotFoundError",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
            StatusCode::INTERNAL_SERVER_ERROR => "InternalServerError",
            _ => "BadRequestError",
        };
        let param = matches!(self, Self::UnknownModel(_)).then_some("model");
        let error = serde_json::json!({
            "message": self.to_string(), "type": kind, "param": param, "code": status.as_u16(),
        });
        serde_json::json!({ "error": error }).to_string()
    }
}

impl From<Rejected> for Refusal {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::QueuedRequests { .. } | Rejected::QueuedTokens { .. } => {
                Self::Overloaded(rejected.to_string())
            }
            Rejected::TooLongForCache { .. }
            | Rejected::TooLongForStep { .. }
            | Rejected::NoSuchRank { .. } => Self::BadRequest(rejected.to_string()),
        }
    }
}
