//! How a request ended: exactly one of ok, refused and failed.

use serde::Serialize;

/// The outcome of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Answered with 200 and streamed to its `[DONE]`.
    Ok,
    /// Answered with 429.
    Refused {
        /// The header `x-llm-d-request-dropped-reason`; empty when there was none.
        reason: String,
    },
    /// Anything else.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "failure", rename_all = "snake_case")]
pub enum Failure {
    /// No connection, or it broke before an answer.
    Connection {
        /// What the transport said.
        detail: String,
    },
    /// A status that is neither 200 nor 429.
    Status {
        /// That status.
        status: u16,
    },
    /// An error event inside the stream.
    InBand {
        /// The error's `code`.
        code: String,
    },
    /// The stream ended, or broke, without `[DONE]`.
    Truncated,
    /// Not over when the plan's timeout was.
    Timeout,
}

impl Failure {
    /// A short name to count it by.
    pub fn name(&self) -> String {
        match self {
            Self::Connection { .. } => "connection".to_owned(),
            Self::Status { status } => format!("status {status}"),
            Self::InBand { code } => format!("in-band {code}"),
            Self::Truncated => "truncated".to_owned(),
            Self::Timeout => "timeout".to_owned(),
        }
    }
}

/// One request as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Its number in the plan, from 0.
    pub index: usize,
    /// Index of its class.
    pub class: usize,
    /// When it was due, in seconds from the start.
    pub at_s: f64,
    /// How much later than that it was sent, in milliseconds.
    pub lag_ms: f64,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// From sending to the first token, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// Mean time per token after the first, in milliseconds; `None` below two tokens.
    pub tpot_ms: Option<f64>,
    /// From sending to the end, in milliseconds.
    pub e2e_ms: f64,
    /// Prompt tokens as planned.
    pub input_tokens: u32,
    /// Output tokens: from `usage`, else as counted in the stream.
    pub output_tokens: u32,
    /// Whether it was served and met both objectives of its class.
    pub attained: bool,
}
