//! `GET /decisions`: what was decided lately, and what lost.

use serde::Deserialize;

use super::{Called, Why};

/// The last decisions, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Decisions {
    /// The decisions.
    pub(crate) decisions: Vec<Decision>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Decision {
    /// How long ago.
    pub(crate) at_ms: Option<f64>,
    /// The dispatcher's number of the request.
    pub(crate) id: u64,
    /// The id that its client knows.
    pub(crate) request_id: String,
    /// The model.
    pub(crate) pool: String,
    /// `dispatch`, `refuse`, `demote`, `cancel` or `requeue`.
    pub(crate) kind: String,
    /// Where it went.
    pub(crate) pod: Option<String>,
    /// Why.
    pub(crate) reason: Why,
    /// Why it had waited until then.
    pub(crate) waited_for: Why,
    /// Time that it had waited.
    pub(crate) wait_ms: Option<f64>,
    /// Predicted TTFT.
    pub(crate) ttft_ms: Option<f64>,
    /// Predicted pace.
    pub(crate) tpot_ms: Option<f64>,
    /// Its band.
    pub(crate) band: i64,
    /// The best of what was not chosen.
    pub(crate) alternatives: Vec<Alternative>,
}

impl Decision {
    /// Which request it is about.
    pub(crate) fn called(&self) -> Called {
        Called { number: self.id, name: self.request_id.clone() }
    }

    /// Why, and what it had waited for.
    pub(crate) fn why(&self) -> String {
        match (self.reason.is_empty(), self.waited_for.is_empty()) {
            (_, true) => self.reason.to_string(),
            (true, false) => format!("waited for {}", self.waited_for),
            (false, false) => format!("{}, waited for {}", self.reason, self.waited_for),
        }
    }
}

/// A pod that was not chosen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Alternative {
    /// The pod.
    pub(crate) pod: String,
    /// Why not; empty when it was only not the best.
    pub(crate) verdict: Why,
    /// Predicted TTFT there.
    pub(crate) ttft_ms: Option<f64>,
    /// Prompt tokens that it would have computed.
    pub(crate) uncached_tokens: Option<f64>,
    /// Whether it is kept for long prompts.
    pub(crate) kept: bool,
}

impl Alternative {
    /// In a few words.
    pub(crate) fn words(&self) -> String {
        let ttft = crate::cli::output::figures::time(self.ttft_ms);
        let Self { pod, verdict, kept, .. } = self;
        match (verdict.is_empty(), kept) {
            (true, false) => format!("{pod} ttft {ttft}"),
            (true, true) => format!("{pod} ttft {ttft} kept_for_long_prompts"),
            (false, _) => format!("{pod} ttft {ttft} {}", verdict.name),
        }
    }
}
