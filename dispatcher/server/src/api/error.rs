//! Every way a call can fail before its response, and what the client is told: the one place that
//! turns errors into HTTP.
//!
//! The shape is OpenAI's, or Anthropic's on the paths of its API. 429 says that there was work to do but no room, 503 that there was nobody
//! to do it: a gateway's outlier detection counts the latter only. `Retry-After` never exceeds a
//! minute, because one public client sleeps as long as it is told and another then gives up.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;
use serde::Serialize;
use weir_core::{Refusal, RefusalReason};

use super::{
    auth::InvalidKey,
    limit::{RateExceeded, Standing},
    objective::{BadSlo, BadTerms, MissingSlo},
    peek::Unreadable,
    wait::BadWait,
};
use crate::upstream::{Dialect, Fault};

/// Why a call is not served.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// There is no such path.
    #[error("unknown request URL; see GET /v1/models and the documentation for what is served")]
    NoSuchPath,
    /// The path exists, but not with this method.
    #[error("the method is not allowed here; use {0}")]
    WrongMethod(&'static str),
    /// The key is missing or wrong.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The tenant's rate is used up.
    #[error(transparent)]
    RateExceeded(#[from] RateExceeded),
    /// What came is no request, or one with a head that is too large.
    #[error("{}", misread_message(.0))]
    Misread(StatusCode),
    /// It does not say once for whom it is.
    #[error("a request needs exactly one Host header")]
    Hosts,
    /// The body is compressed.
    #[error(
        "the body must not be encoded; send it without Content-Encoding, and with no Transfer-Encoding but chunked"
    )]
    Encoded,
    /// The body is larger than allowed.
    #[error("the body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The largest allowed.
        max_bytes: usize,
    },
    /// Other large bodies are being read.
    #[error("too many large bodies are being received at the moment")]
    NoRoom,
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    Late,
    /// The body broke off, or its framing is invalid.
    #[error("the body could not be read")]
    Broken,
    /// The body does not say what is needed.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// No pool serves the model.
    #[error("the model {0:?} does not exist")]
    UnknownModel(String),
    /// An SLO header cannot be understood.
    #[error(transparent)]
    BadSlo(#[from] BadSlo),
    /// A header about the wait cannot be understood.
    #[error(transparent)]
    BadWait(#[from] BadWait),
    /// The model's policy requires a latency objective.
    #[error(transparent)]
    MissingSlo(#[from] MissingSlo),
    /// The scheduler refused it.
    #[error("{}", refusal_message(.0.reason))]
    Refused(Refusal),
    /// The pod was lost after it had taken the request.
    #[error("the model server was lost after it had taken the request")]
    PodLost,
    /// The pod did not answer in time.
    #[error("the model server did not answer in time")]
    PodSilent,
    /// This server ends before the pod has answered.
    #[error("{}", refusal_message(RefusalReason::Closing))]
    Closing,
}

impl From<BadTerms> for ApiError {
    fn from(terms: BadTerms) -> Self {
        match terms {
            BadTerms::BadSlo(slo) => slo.into(),
            BadTerms::MissingSlo(missing) => missing.into(),
        }
    }
}

/// The dropped-reason header, with the values of llm-d.
const DROPPED_REASON: HeaderName = HeaderName::from_static("x-llm-d-request-dropped-reason");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

const INVALID: &str = "invalid_request_error";
const RATE: &str = "rate_limit_error";
const UNAVAILABLE: &str = "service_unavailable_error";
const SERVER: &str = "server_error";

/// What the client is told beside the message.
struct Verdict {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<&'static str>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    /// What Anthropic's clients know an error by.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
    error: Body<'a>,
}

#[derive(Serialize)]
struct Body<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

impl ApiError {
    /// The error for a fault.
    pub fn of_fault(fault: &Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => Self::Refused(*refusal),
            Fault::PodLost { .. } => Self::PodLost,
            Fault::Timeout { .. } => Self::PodSilent,
            Fault::Closing { .. } => Self::Closing,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.verdict().status
    }

    /// What it is called in the answer.
    pub fn code(&self) -> &'static str {
        self.verdict().code
    }

    /// The outcome, as metrics name it.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::RateExceeded(_) | Self::Refused(_) | Self::NoRoom => "refused",
            Self::PodLost | Self::PodSilent | Self::Closing => "failed",
            _ => "bad_request",
        }
    }

    /// The answer. `jitter`, from 0 to 1, spreads the return of clients that were refused together.
    pub fn response(&self, jitter: f64, dialect: Dialect) -> Response<Full<Bytes>> {
        let Verdict { status, kind, code, param } = self.verdict();
        let message = self.to_string();
        let (of, kind) = match dialect {
            Dialect::Messages => (Some("error"), kind_of_messages(status)),
            Dialect::Completions | Dialect::Other => (None, kind),
        };
        let error = Body { message: &message, kind, param, code };
        // Strings always serialise; an empty body would still have the status.
        let body = serde_json::to_vec(&Envelope { of, error }).unwrap_or_default();
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.add_headers(headers, jitter);
        response
    }

    fn verdict(&self) -> Verdict {
        let (status, kind, code, param) = match self {
            Self::NoSuchPath => (StatusCode::NOT_FOUND, INVALID, "unknown_url", None),
            Self::WrongMethod(_) => {
                (StatusCode::METHOD_NOT_ALLOWED, INVALID, "method_not_allowed", None)
            }
            Self::Misread(status) => (*status, INVALID, misread_code(*status), None),
            Self::Hosts => {
                (StatusCode::BAD_REQUEST, INVALID, misread_code(StatusCode::BAD_REQUEST), None)
            }
            Self::InvalidKey(_) => (StatusCode::UNAUTHORIZED, INVALID, "invalid_api_key", None),
            Self::RateExceeded(_) => {
                (StatusCode::TOO_MANY_REQUESTS, RATE, "rate_limit_exceeded", None)
            }
            Self::Encoded => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, INVALID, "unsupported_encoding", None)
            }
            Self::TooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, INVALID, "request_too_large", None)
            }
            Self::NoRoom => {
                (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, "server_is_overloaded", None)
            }
            Self::Late => (StatusCode::REQUEST_TIMEOUT, INVALID, "request_timeout", None),
            Self::Broken => (StatusCode::BAD_REQUEST, INVALID, "invalid_body", None),
            Self::Unreadable(Unreadable::Json(_)) => {
                (StatusCode::BAD_REQUEST, INVALID, "invalid_json", None)
            }
            Self::Unreadable(Unreadable::Form | Unreadable::Twice(_)) => {
                (StatusCode::BAD_REQUEST, INVALID, "invalid_form", None)
            }
            Self::Unreadable(Unreadable::NoModel | Unreadable::OddModel) => {
                (StatusCode::BAD_REQUEST, INVALID, "missing_required_parameter", Some("model"))
            }
            Self::UnknownModel(_) => {
                (StatusCode::NOT_FOUND, INVALID, "model_not_found", Some("model"))
            }
            Self::BadSlo(BadSlo(header)) | Self::BadWait(BadWait { header, .. }) => {
                (StatusCode::BAD_REQUEST, INVALID, "invalid_header", Some(*header))
            }
            Self::MissingSlo(_) => (
                StatusCode::BAD_REQUEST,
                INVALID,
                "missing_required_parameter",
                Some(MissingSlo::PARAM),
            ),
            Self::Refused(refusal) => refused(refusal.reason),
            Self::PodLost => (StatusCode::BAD_GATEWAY, SERVER, "upstream_lost", None),
            Self::PodSilent => (StatusCode::GATEWAY_TIMEOUT, SERVER, "upstream_timeout", None),
            Self::Closing => refused(RefusalReason::Closing),
        };
        Verdict { status, kind, code, param }
    }

    fn add_headers(&self, headers: &mut HeaderMap, jitter: f64) {
        match self {
            Self::WrongMethod(allowed) => {
                headers.insert(ALLOW, HeaderValue::from_static(allowed));
            }
            Self::InvalidKey(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::RateExceeded(exceeded) => {
                add_standing(headers, exceeded.standing);
                add_retry_after(headers, exceeded.retry_after, jitter);
            }
            Self::NoRoom => add_retry_after(headers, Duration::from_secs(1), jitter),
            Self::Closing => {
                let reason = HeaderValue::from_static(dropped_reason(RefusalReason::Closing));
                headers.insert(DROPPED_REASON, reason);
            }
            Self::Refused(refusal) => {
                let reason = HeaderValue::from_static(dropped_reason(refusal.reason));
                headers.insert(DROPPED_REASON, reason);
                add_retry_after(headers, refusal.retry_after, jitter);
                // What was dropped for others is not to come back for them.
                if refusal.band.sheddable() || refusal.reason == RefusalReason::Cancelled {
                    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
                }
            }
            _ => {}
        }
    }
}

/// The type of an error as Anthropic's API has it.
fn kind_of_messages(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => RATE,
        503 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => INVALID,
    }
}

/// Adds where the tenant stands with its rate.
pub fn add_standing(headers: &mut HeaderMap, standing: Standing) {
    let limit = HeaderName::from_static("x-ratelimit-limit-requests");
    headers.insert(limit, HeaderValue::from(standing.limit));
    let remaining = HeaderName::from_static("x-ratelimit-remaining-requests");
    headers.insert(remaining, HeaderValue::from(standing.remaining));
    let reset = format!("{}ms", standing.reset.as_millis());
    if let Ok(reset) = HeaderValue::try_from(reset) {
        headers.insert(HeaderName::from_static("x-ratelimit-reset-requests"), reset);
    }
}

/// Longest time that a client is asked to wait.
const LONGEST: Duration = Duration::from_secs(60);
/// Shortest: a queue that drains in a millisecond is no reason to be asked a thousand times a second.
const SHORTEST: Duration = Duration::from_millis(100);

/// Adds when to come back: up to a quarter later than predicted.
fn add_retry_after(headers: &mut HeaderMap, predicted: Duration, jitter: f64) {
    let spread = predicted.min(LONGEST).mul_f64(1.0 + 0.25 * jitter.clamp(0.0, 1.0));
    let wait = spread.clamp(SHORTEST, LONGEST);
    headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_micros().div_ceil(1_000_000) as u64));
    headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait.as_micros().div_ceil(1000) as u64));
}

fn refused(
    reason: RefusalReason,
) -> (StatusCode, &'static str, &'static str, Option<&'static str>) {
    use RefusalReason::{
        Cancelled, Closing, Hopeless, Immediate, MaxWait, NoPods, PredictedWait, QueueBytes,
        QueueFull, Ttl, Undeliverable,
    };
    match reason {
        QueueFull | QueueBytes | PredictedWait | Hopeless | MaxWait | Ttl | Immediate => {
            (StatusCode::TOO_MANY_REQUESTS, RATE, "slow_down", None)
        }
        NoPods | Undeliverable | Closing => {
            (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, "server_is_overloaded", None)
        }
        Cancelled => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, "cancelled_by_operator", None),
    }
}

fn misread_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::URI_TOO_LONG => "uri_too_long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "headers_too_large",
        _ => "invalid_http",
    }
}

fn misread_message(status: &StatusCode) -> &'static str {
    match *status {
        StatusCode::URI_TOO_LONG => "the URL is too long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "the URL and the headers are longer than this server takes, or the headers more than 100"
        }
        _ => "what was sent is no HTTP/1.1 request",
    }
}

const fn dropped_reason(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::QueueFull
        | RefusalReason::QueueBytes
        | RefusalReason::PredictedWait
        | RefusalReason::Hopeless
        | RefusalReason::Immediate => "rejected-saturated",
        RefusalReason::MaxWait | RefusalReason::Ttl => "rejected-ttl-expired",
        RefusalReason::NoPods | RefusalReason::Undeliverable => "rejected-no-endpoints",
        RefusalReason::Closing => "rejected-shutting-down",
        RefusalReason::Cancelled => "rejected-cancelled",
    }
}

const fn refusal_message(reason: RefusalReason) -> &'static str {
    match reason {
        RefusalReason::QueueFull | RefusalReason::QueueBytes => "the queue of this model is full",
        RefusalReason::PredictedWait => "the wait for this model would be too long",
        RefusalReason::Hopeless => "the latency objective can no longer be met",
        RefusalReason::MaxWait => "the request waited as long as a request may",
        RefusalReason::Ttl => "the request waited as long as it was allowed to",
        RefusalReason::Immediate => "no server of this model can take the request at once",
        RefusalReason::NoPods => "no server of this model is ready",
        RefusalReason::Undeliverable => "no server of this model could be reached",
        RefusalReason::Closing => "this server is shutting down",
        RefusalReason::Cancelled => "an operator cancelled the request",
    }
}

#[cfg(test)]
mod tests;
