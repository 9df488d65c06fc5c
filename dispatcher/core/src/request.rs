//! A request as the scheduler knows it: a few facts, never its text.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Time, prefix::Turn};

/// For how long a request without a TTFT objective may wait.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Names a request inside one dispatcher; given by the caller, never reused.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Priority class. A higher band goes first; below zero is sheddable.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Band(pub i8);

impl Band {
    /// Whether a request of this band may be refused to keep others inside their objectives.
    pub const fn sheddable(self) -> bool {
        self.0 < 0
    }
}

/// Latency objectives of a request. TTFT counts from arrival, never from dispatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slo {
    /// Objective for the time to the first token.
    pub ttft: Option<Duration>,
    /// Objective for the mean time per output token after the first.
    pub tpot: Option<Duration>,
}

impl Slo {
    /// Whether nothing is promised.
    pub const fn is_empty(&self) -> bool {
        self.ttft.is_none() && self.tpot.is_none()
    }
}

/// Size of a prompt, as far as it is known on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptSize {
    /// Bytes of text; tokens follow from the ratio that the pool has learned.
    Bytes(u32),
    /// Exact tokens.
    Tokens(u32),
}

/// One OpenAI call: the facts read from it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// When its last byte was read; the clock of its objectives starts here.
    pub arrived: Time,
    /// Size of the prompt, over all its sequences.
    pub prompt: PromptSize,
    /// The client's bound on output tokens per sequence; `Some(0)` for embeddings.
    pub max_output_tokens: Option<u32>,
    /// Sequences that decode: prompts x n. At least one.
    pub sequences: u32,
    /// Its objectives.
    pub slo: Slo,
    /// Its priority class.
    pub band: Band,
    /// Who sent it, when known. Output lengths are learned per tenant.
    pub tenant: Option<Arc<str>>,
    /// Bytes held while it waits, for the bound on queued bytes.
    pub body_bytes: u32,
    /// Chained hashes of the prompt's blocks of [`crate::SchedulerConfig::named_tokens`], first block first; see
    /// [`crate::prefix`].
    pub blocks: Arc<[u64]>,
    /// What the prompt is to the turns of a conversation.
    pub turn: Turn,
    /// Whether the response is streamed, so that TTFT can be measured.
    pub streamed: bool,
    /// When the wait is over that its client allows; [`Time::NEVER`] when it set no bound. It only shortens
    /// [`crate::Bounds::max_wait`].
    pub expires: Time,
    /// Whether it is rather refused than made to wait.
    pub immediate: bool,
    /// Whether its client asked for the pool's second policy. Counts only where there is one.
    pub by_header: bool,
    /// Whether its prompt was computed elsewhere: the pod that it goes to loads it, and computes the last token of it alone.
    pub prefilled: bool,
    /// The LoRA adapter that it asks for; `None`: the model as it is.
    pub adapter: Option<Arc<str>>,
    /// What its client calls it (`x-request-id`), by which people look it up; empty when nobody does.
    pub name: Arc<str>,
}

impl Request {
    /// A streamed request of one sequence in band 0, without objectives.
    pub fn new(id: RequestId, arrived: Time, prompt: PromptSize) -> Self {
        Self {
            id,
            arrived,
            prompt,
            max_output_tokens: None,
            sequences: 1,
            slo: Slo::default(),
            band: Band(0),
            tenant: None,
            body_bytes: 0,
            blocks: Arc::from([]),
            turn: Turn::default(),
            streamed: true,
            expires: Time::NEVER,
            immediate: false,
            by_header: false,
            prefilled: false,
            adapter: None,
            name: Arc::default(),
        }
    }

    /// When the first token is due, if the request has a TTFT objective.
    pub fn deadline(&self) -> Option<Time> {
        self.slo.ttft.map(|ttft| self.arrived.plus(ttft))
    }

    /// For how long it may wait before it is urgent: its TTFT objective, or [`PATIENCE`] without one. A longer objective makes it
    /// no less urgent than none would: the wait of any request is bounded.
    pub fn may_wait(&self) -> Duration {
        self.slo.ttft.unwrap_or(PATIENCE).min(PATIENCE)
    }

    /// When the wait that its client allows is over, if it set one.
    pub fn expiry(&self) -> Option<Time> {
        Some(self.expires).filter(|expires| *expires < Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_to_the_first_token_makes_a_request_no_less_urgent_than_none() {
        let may_wait = |ttft_s: Option<u64>| {
            let mut request = Request::new(RequestId(0), Time::ZERO, PromptSize::Tokens(100));
            request.slo.ttft = ttft_s.map(Duration::from_secs);
            request.may_wait()
        };
        assert_eq!(may_wait(Some(86_400)), may_wait(None));
        assert_eq!(may_wait(Some(2)), Duration::from_secs(2));
    }
}
