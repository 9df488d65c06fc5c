//! `GET /requests`, `GET /requests/{id}`: what waits, one by one, and why.

use std::fmt::{self, Display, Formatter};

use serde::Deserialize;

use super::{PodRequest, Why};
use crate::cli::remote::path::Path;

/// A page of waiting requests, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Requests {
    /// The page.
    pub(crate) requests: Vec<Waiting>,
    /// Where the next page begins.
    pub(crate) next: Option<serde_json::Value>,
}

impl Requests {
    /// The cursor of the next page.
    pub(crate) fn cursor(&self) -> Option<String> {
        match self.next.as_ref()? {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// Which request is meant: by the dispatcher's number, which it shares with none, and with the name that its
/// client knows, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Called {
    /// The dispatcher's number.
    pub(crate) number: u64,
    /// The id that its client knows.
    pub(crate) name: String,
}

impl Called {
    /// Its path in the API.
    pub(crate) fn path(&self) -> Path {
        Path::new("/requests").number(self.number)
    }
}

impl Display for Called {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "number {}", self.number),
            name => write!(f, "{name} (number {})", self.number),
        }
    }
}

/// A waiting request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Waiting {
    /// The dispatcher's number.
    pub(crate) id: u64,
    /// The id that its client knows.
    pub(crate) request_id: String,
    /// The model.
    pub(crate) pool: String,
    /// Its lane.
    pub(crate) lane: String,
    /// Its band.
    pub(crate) band: i64,
    /// Whose it is.
    pub(crate) tenant: Option<String>,
    /// Since its arrival.
    pub(crate) age_ms: Option<f64>,
    /// Time left to its objective; negative when it is past.
    pub(crate) deadline_ms: Option<f64>,
    /// The same, less the predicted TTFT.
    pub(crate) slack_ms: Option<f64>,
    /// Its objective for the first token.
    pub(crate) ttft_slo_ms: Option<f64>,
    /// Its objective for the pace.
    pub(crate) tpot_slo_ms: Option<f64>,
    /// Prompt tokens.
    pub(crate) input_tokens: Option<f64>,
    /// Predicted output tokens.
    pub(crate) output_tokens: Option<f64>,
    /// Body bytes.
    pub(crate) body_bytes: Option<f64>,
    /// Whether its objective is lost.
    pub(crate) late: bool,
    /// Why it waits.
    pub(crate) reason: Why,
    /// Times it was sent to a pod.
    pub(crate) attempts: u64,
    /// Whether its response is streamed.
    pub(crate) streamed: bool,
}

impl Waiting {
    /// Which request it is.
    pub(crate) fn called(&self) -> Called {
        Called { number: self.id, name: self.request_id.clone() }
    }
}

/// One request, wherever it is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    /// `waiting`, `running` or `recent`.
    pub(crate) state: String,
    /// What is known of it.
    #[serde(flatten)]
    pub(crate) waiting: Waiting,
    /// Why it is where it is, in words.
    pub(crate) explanation: String,
    /// Every pod, as it sees it.
    pub(crate) pods: Vec<Look>,
    /// What happened to it.
    pub(crate) history: Vec<Happened>,
    /// How it was decided.
    pub(crate) decision: Option<super::Decision>,
    /// How it does on its pod.
    pub(crate) running: Option<PodRequest>,
    /// The pod that it is or was on.
    pub(crate) pod: Option<String>,
    /// How it ended.
    pub(crate) outcome: String,
    /// Whether its objectives were met when it ended.
    pub(crate) attained: bool,
    /// From arrival to its end.
    pub(crate) total_ms: Option<f64>,
    /// From arrival to its first token, once it has ended.
    pub(crate) ttft_ms: Option<f64>,
    /// Its pace, once it has ended.
    pub(crate) tpot_ms: Option<f64>,
}

/// Something that happened to a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Happened {
    /// How long ago.
    pub(crate) at_ms: Option<f64>,
    /// What.
    pub(crate) what: String,
}

/// One pod as a request sees it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Look {
    /// The pod.
    pub(crate) pod: String,
    /// Whether it takes requests.
    pub(crate) phase: String,
    /// Whether the request may go there now.
    pub(crate) fits: bool,
    /// Why not.
    pub(crate) verdict: Why,
    /// That in a sentence.
    pub(crate) text: String,
    /// Predicted TTFT there, from arrival.
    pub(crate) ttft_ms: Option<f64>,
    /// Predicted pace there.
    pub(crate) tpot_ms: Option<f64>,
    /// Objective less predicted TTFT.
    pub(crate) headroom_ms: Option<f64>,
    /// Prompt tokens that it has.
    pub(crate) cached_tokens: Option<f64>,
    /// Prompt tokens that it would compute.
    pub(crate) uncached_tokens: Option<f64>,
    /// Prompt tokens before it.
    pub(crate) backlog_tokens: Option<f64>,
    /// Prompts there without a first token.
    pub(crate) pending: u64,
    /// Requests decoding there.
    pub(crate) residents: u64,
    /// Share of its KV cache in use with this request.
    pub(crate) kv_after: Option<f64>,
    /// Stall that the prompt would bring its residents.
    pub(crate) stall_ms: Option<f64>,
    /// Stall that they can bear.
    pub(crate) stall_budget_ms: Option<f64>,
    /// The request that it is kept for.
    pub(crate) claimed_by: Option<serde_json::Value>,
}
