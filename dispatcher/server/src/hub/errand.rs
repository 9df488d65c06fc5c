//! What dispatchers of one pool tell each other, as values; how they travel is for [`crate::replicas`].
//!
//! Numbers of pods are another in every process, so they go by host and port. Clocks differ, so times are told as ages, and what is
//! on the way is younger by as long as that takes.

use std::{ops::Range, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use weir_core::{
    Answered, Band, Dispatch, End, EndKind, Learned, PodId, PromptSize, Refusal, RefusalReason,
    Request, RequestId, Running, Slo, Time,
    prefix::{Cached, Turn, as_bytes},
};
use weir_schema::Prediction;

use super::held::Held;
use crate::fleet::Failing;

/// Tells the times apart that a request is asked for: a verdict is that of one of them, and another one may have decided in between.
pub type Ask = u32;

/// Something told to the dispatcher that decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Errand {
    /// A request arrived: it is to be decided.
    Admit(Box<Facts>),
    /// A request that runs already is in the decider's ledger from now on.
    Adopt(Box<Onward>),
    /// One that was in its ledger is in another one's.
    Part(RequestId),
    /// Its pod has nothing of a request: it is to be decided again.
    Retry(Box<Facts>, Missed),
    /// The pod that a request was given is not known there, or not reached: it is to be decided again.
    Decline(RequestId, Ask),
    /// It is asked for no more, for its client has left or another one decides: a verdict that is on its way is nobody's.
    Cancel(RequestId),
    /// The first token of its response was relayed.
    FirstToken(RequestId),
    /// How far streams and pods have come.
    Progress(Strides),
    /// It is over.
    End(Ended),
    /// It did not go well on its pod, whose breaker counts that.
    HoldAgainst(Charge),
    /// What an operator holds, where that is newer than what the decider does.
    Hold(Held),
    /// From now on it goes by what is decided there: it is to be told what is known there, now and as that changes.
    Teach,
}

/// Why a pod has nothing of a request that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missed {
    /// It was not reached, or has failed.
    Unreached,
    /// It says that it takes no more for now.
    Full,
}

/// The first number of requests that another dispatcher asked for: far from those that come in here.
const GUESTS: u64 = 1 << 48;

/// Numbers of the requests that one call asks for. Each call has room for 2^32, below the 2^53 up to which every reader of JSON counts.
#[derive(Clone, Debug)]
pub struct Numbers {
    taken: Range<u64>,
    end: u64,
}

impl Numbers {
    /// Those of a call.
    pub fn of_call(call: u64) -> Self {
        let first = GUESTS + ((call % (1 << 16)) << 32);
        Self::new(first..first + (1 << 32))
    }

    /// These.
    pub fn new(all: Range<u64>) -> Self {
        Self { taken: all.start..all.start, end: all.end }
    }

    /// The next one. `None` once all are used: the one after it is another call's.
    pub fn take(&mut self) -> Option<RequestId> {
        let next = self.taken.end;
        (next < self.end).then(|| {
            self.taken.end += 1;
            RequestId(next)
        })
    }

    /// Those that were taken.
    pub fn taken(&self) -> &Range<u64> {
        &self.taken
    }
}

/// Whether a request came by another dispatcher, which then knows more of it than this one.
pub(super) const fn is_guest(id: RequestId) -> bool {
    id.0 >= GUESTS
}

/// That a request did not go well on a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// Host and port of the pod.
    pub pod: String,
    /// In which way.
    pub failing: Failing,
}

/// A request as another dispatcher is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Request`")]
pub struct Facts {
    pub id: RequestId,
    pub ask: Ask,
    pub age: Duration,
    pub prompt: PromptSize,
    pub max_output_tokens: Option<u32>,
    pub sequences: u32,
    pub slo: Slo,
    pub band: Band,
    pub tenant: Option<Arc<str>>,
    pub body_bytes: u32,
    #[serde(with = "as_bytes")]
    pub blocks: Arc<[u64]>,
    pub turn: Turn,
    pub streamed: bool,
    pub expires_in: Option<Duration>,
    pub immediate: bool,
    pub by_header: bool,
    pub prefilled: bool,
    pub adapter: Option<Arc<str>>,
    pub name: Arc<str>,
}

impl Facts {
    pub(crate) fn of(request: &Request, ask: Ask, now: Time) -> Self {
        Self {
            id: request.id,
            ask,
            age: now.since(request.arrived),
            prompt: request.prompt,
            max_output_tokens: request.max_output_tokens,
            sequences: request.sequences,
            slo: request.slo,
            band: request.band,
            tenant: request.tenant.clone(),
            body_bytes: request.body_bytes,
            blocks: request.blocks.clone(),
            turn: request.turn,
            streamed: request.streamed,
            expires_in: request.expiry().map(|expires| expires.since(now)),
            immediate: request.immediate,
            by_header: request.by_header,
            prefilled: request.prefilled,
            adapter: request.adapter.clone(),
            name: request.name.clone(),
        }
    }

    /// The request, under the name that it has here.
    pub fn request(self, id: RequestId, now: Time) -> Request {
        Request {
            id,
            arrived: before(now, self.age),
            prompt: self.prompt,
            max_output_tokens: self.max_output_tokens,
            sequences: self.sequences.max(1),
            slo: self.slo,
            band: self.band,
            tenant: self.tenant,
            body_bytes: self.body_bytes,
            blocks: self.blocks,
            turn: self.turn,
            streamed: self.streamed,
            expires: self.expires_in.map_or(Time::NEVER, |left| now.plus(left)),
            immediate: self.immediate,
            by_header: self.by_header,
            prefilled: self.prefilled,
            adapter: self.adapter,
            name: self.name,
        }
    }
}

/// A request that runs on a pod, as another dispatcher is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Running`")]
pub struct Onward {
    /// Without the names of its prompt's blocks: all know where it went.
    pub facts: Facts,
    /// Host and port of the pod.
    pub pod: String,
    pub age: Duration,
    pub uncached_tokens: f64,
    pub first_token_age: Option<Duration>,
    pub events: u32,
    pub prediction: Prediction,
    pub tokens_per_event: f64,
}

impl Onward {
    pub(super) fn of(running: &Running, pod: String, now: Time) -> Self {
        Self {
            facts: Facts { blocks: Arc::default(), ..Facts::of(&running.request, 0, now) },
            pod,
            age: now.since(running.sent),
            uncached_tokens: running.uncached_tokens,
            first_token_age: running.first_token.map(|at| now.since(at)),
            events: running.events,
            prediction: running.prediction,
            tokens_per_event: running.tokens_per_event,
        }
    }

    /// The request on its pod, under the names that both have here.
    pub(super) fn running(self, id: RequestId, pod: PodId, now: Time) -> Running {
        Running {
            request: Box::new(self.facts.request(id, now)),
            pod,
            sent: before(now, self.age),
            uncached_tokens: self.uncached_tokens,
            first_token: self.first_token_age.map(|age| before(now, age)),
            events: self.events,
            prediction: self.prediction,
            tokens_per_event: self.tokens_per_event,
        }
    }
}

/// That long ago, or the start of the process where it was not there yet.
pub fn before(now: Time, age: Duration) -> Time {
    let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Time::from_micros(now.as_micros().saturating_sub(age_us))
}

/// How far streams and pods have come since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strides {
    /// Events with some of the answer so far, in total.
    pub events: Vec<(RequestId, u32)>,
    /// Steps of pods that these streams have shown.
    pub steps: Vec<Steps>,
}

/// Steps of a pod since they were told of last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Its host and port.
    pub pod: String,
    /// How many ended.
    pub count: u64,
    /// How long ago the last one did.
    pub age: Duration,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which.
    pub id: RequestId,
    /// How it ended.
    pub kind: EndKind,
    /// Output tokens from `usage`.
    pub output_tokens: Option<u32>,
    /// Prompt tokens from `usage`.
    pub prompt_tokens: Option<u32>,
    /// Events with some of the answer, in total.
    pub events: u32,
    /// How long ago the last token was relayed.
    pub last_token_age: Option<Duration>,
}

impl Ended {
    pub(super) fn of(end: End, now: Time) -> Self {
        Self {
            id: end.id,
            kind: end.kind,
            output_tokens: end.output_tokens,
            prompt_tokens: end.prompt_tokens,
            events: end.events,
            last_token_age: end.last_token_at.map(|at| now.since(at)),
        }
    }
}

/// What the dispatcher that decides has come to know: for those who may decide next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Lore {
    /// It sent a prompt to a pod.
    Sent {
        /// Host and port of the pod.
        pod: String,
        /// Names of the prompt's blocks.
        #[serde(with = "as_bytes")]
        blocks: Arc<[u64]>,
    },
    /// A response was whole.
    Answered(Answered),
    /// What a pod had cached before anything that was told of it since.
    Cached {
        /// Host and port of the pod.
        pod: String,
        /// What is cached there, or some of it: then the youngest is told first.
        cached: Cached,
    },
    /// Everything that was learned of the pool.
    Learned(Box<Learned>),
}

/// Something heard from the dispatcher that decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// A request may go to a pod.
    Give(Given),
    /// It is refused.
    Refuse(Refused),
}

/// A pod for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Dispatch`")]
pub struct Given {
    pub id: RequestId,
    pub ask: Ask,
    /// Host and port of the pod: its number is another one in every process.
    pub pod: String,
    pub attempt: u32,
    pub uncached_tokens: f64,
    pub prediction: Prediction,
    pub tokens_per_event: f64,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Refusal`")]
pub struct Refused {
    pub id: RequestId,
    pub ask: Ask,
    pub reason: RefusalReason,
    pub retry_after: Duration,
}

impl Given {
    pub(super) fn dispatch(&self, request: &Request, pod: PodId, now: Time) -> Dispatch {
        Dispatch {
            id: self.id,
            pod,
            attempt: self.attempt,
            arrived: request.arrived,
            waited: now.since(request.arrived),
            slo: request.slo,
            sequences: request.sequences,
            uncached_tokens: self.uncached_tokens,
            prediction: self.prediction,
            tokens_per_event: self.tokens_per_event,
        }
    }
}

impl Refused {
    pub(super) fn of(self, request: &Request, now: Time) -> Refusal {
        let (id, band, waited) = (self.id, request.band, now.since(request.arrived));
        Refusal { id, band, reason: self.reason, waited, retry_after: self.retry_after }
    }
}
