//! What happens to the scheduler, and what it wants done.
//!
//! The scheduler performs nothing: it books its decision first and returns it as an [`Action`]. If an
//! action cannot be performed, the caller says so with another event.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use weir_schema::{Prediction, Sample};

use crate::{
    Band, Control, Learned, Phase, PodId, PodSpec, Pulse, Request, RequestId, SchedulerConfig,
    Scrape, Slo, Time, per_event, prefix::Cached,
};

/// Everything that can happen. The time is passed beside it.
#[derive(Debug)]
pub enum Event {
    /// A request wants to be served. It gets exactly one [`Action::Dispatch`] or
    /// [`Action::Refuse`], unless it is cancelled first.
    Arrive(Box<Request>),
    /// The client of a request that was not dispatched has left.
    Cancel(RequestId),
    /// Nothing of the request reached the pod: it goes back to its lane at its original rank, and
    /// never again to that pod. After the configured attempts it is refused.
    Undelivered(RequestId),
    /// Whoever is to send the request has no way to the pod: the same, and no attempt.
    Declined(RequestId),
    /// The pod took nothing of the request and says that it takes no more for now: it goes back to its lane at its original rank, and the pod
    /// is given others as it has fewer or time passes. Only of a pod that has nothing else to do is it an attempt.
    TurnedAway(RequestId),
    /// The first token of a streamed response was relayed.
    FirstToken(RequestId),
    /// How far streams and pods have come; sent in batches, never per chunk.
    Progress(Progress),
    /// A dispatched request is over and the pod holds nothing of it any more.
    End(End),
    /// Gauges were scraped from a pod.
    Scraped(PodId, Scrape),
    /// A pod joined, or its class changed. A pod that is known already is updated.
    PodUp(PodSpec),
    /// The same of one that is in a phase from the first: one that takes no requests is given none.
    PodUpAs(PodSpec, Phase),
    /// Whether a pod takes new requests.
    PodPhase(PodId, Phase),
    /// A pod is gone. What it had in flight ends by [`Event::End`] or [`Event::Undelivered`] as
    /// usual.
    PodDown(PodId),
    /// Time passed. Send one at least every [`crate::TICK`] while anything waits.
    Tick,
    /// Whoever owns the scheduler did not run for a while, until now: what was measured meanwhile is its own standing still. Nothing is
    /// learned of the times of what was under way.
    StoodStill,
    /// Another configuration counts from now on. What waits keeps its place and what runs its room; the
    /// model's name stays.
    Reconfigure(Box<SchedulerConfig>),
    /// The dispatcher is closing: everything that waits is refused, and so is every arrival.
    Close,
    /// An operator changes something.
    Control(Control),
    /// What the scheduler of another dispatcher has come to know of the same pods, for one that may have to decide next. It decides
    /// nothing by itself.
    Told(Lesson),
    /// A request that runs on a pod is in this scheduler's ledger from now on, where it was in another dispatcher's. It ends as if it had
    /// been given out here.
    Adopt(Box<Running>),
}

/// A request on its pod, as one scheduler hands it to another.
#[derive(Clone, Debug)]
pub struct Running {
    /// The request.
    pub request: Box<Request>,
    /// Where it runs.
    pub pod: PodId,
    /// When it was sent there.
    pub sent: Time,
    /// Prompt tokens that the pod had to compute.
    pub uncached_tokens: f64,
    /// When its first token was relayed, if it was.
    pub first_token: Option<Time>,
    /// Events with some of the answer so far.
    pub events: u32,
    /// What was predicted for it there.
    pub prediction: Prediction,
    /// Tokens that come there with an event after a sequence's first, as was known at the decision.
    pub tokens_per_event: f64,
}

/// What a scheduler comes to know by what it decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Lesson {
    /// A prompt went to a pod: its blocks are cached there from then on.
    Sent(PodId, Arc<[u64]>),
    /// A response was whole.
    Answered(Answered),
    /// What a pod has cached, all of it older than what is known here.
    Cached(PodId, Cached),
    /// Everything that was learned of the pool.
    Learned(Box<Learned>),
}

/// What a whole response says of others to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Who asked for it.
    pub tenant: Option<Arc<str>>,
    /// Tokens of the prompt, as they were estimated.
    pub input_tokens: u32,
    /// Tokens of the answer per sequence, where that is known.
    pub output_tokens: Option<u32>,
    /// Bytes of the prompt and the tokens that the pod counted, where both are known.
    pub prompt: Option<(u32, u32)>,
}

/// Progress of streams and pods since the last batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events with some of the answer so far, in total, for requests whose count changed.
    pub events: Vec<(RequestId, u32)>,
    /// Pulses of pods that moved.
    pub pulses: Vec<(PodId, Pulse)>,
}

/// The end of a dispatched request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Which request.
    pub id: RequestId,
    /// How it ended.
    pub kind: EndKind,
    /// Output tokens from `usage`, when the pod said so.
    pub output_tokens: Option<u32>,
    /// Events with some of the answer, for streams; they stand in for the tokens of a response without `usage`.
    pub events: u32,
    /// Prompt tokens from `usage`; teaches the ratio of bytes to tokens.
    pub prompt_tokens: Option<u32>,
    /// When the last token was relayed, for streams.
    pub last_token_at: Option<Time>,
}

/// How a dispatched request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndKind {
    /// The response is complete.
    Complete,
    /// The client left.
    ClientGone,
    /// The pod answered with an error of its own, which was passed on.
    PodError,
    /// The pod failed: connection lost, timeout, or silence after the request was sent.
    PodFailed,
    /// The pod answered that the request is wrong (4xx), which was passed on. It says nothing of how the pool serves.
    BadRequest,
}

/// What the caller has to do.
#[derive(Debug)]
pub enum Action {
    /// Send the request to the pod. The ledger is debited already.
    Dispatch(Dispatch),
    /// Answer the client with an error.
    Refuse(Refusal),
    /// Write a sample to the spool. `at_unix_ms` is left to the caller.
    Sample(Box<Sample>),
}

/// A decision to dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    /// Which request.
    pub id: RequestId,
    /// To which pod.
    pub pod: PodId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// When it arrived.
    pub arrived: Time,
    /// Time since then.
    pub waited: Duration,
    /// Its objectives.
    pub slo: Slo,
    /// Sequences that decode, at least one.
    pub sequences: u32,
    /// Prompt tokens that the pod has to compute.
    pub uncached_tokens: f64,
    /// What was predicted for it there.
    pub prediction: Prediction,
    /// Tokens that come there with an event after a sequence's first, as was known at the decision.
    pub tokens_per_event: f64,
}

impl Dispatch {
    /// Tokens that came in so many events of its response.
    pub fn tokens(&self, events: u32) -> u32 {
        per_event::tokens(events, self.sequences, self.tokens_per_event)
    }
}

/// A decision not to serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    /// Which request.
    pub id: RequestId,
    /// Its band.
    pub band: Band,
    /// Why.
    pub reason: RefusalReason,
    /// Time since arrival.
    pub waited: Duration,
    /// When coming back is predicted to help. For the `Retry-After` header.
    pub retry_after: Duration,
}

/// Why a request was refused. The names are the values of the metric's `reason` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The queue's bound on requests is reached.
    QueueFull,
    /// The queue's bound on bytes is reached.
    QueueBytes,
    /// A sheddable request would wait longer than its bound, or was turned away as the more likely the fuller the pods are.
    PredictedWait,
    /// A request can no longer meet its objective, and is sheddable or of a policy that serves nothing late.
    Hopeless,
    /// It waited as long as any request may.
    MaxWait,
    /// It waited as long as its client allowed.
    Ttl,
    /// It was not to wait, and no pod took it at once.
    Immediate,
    /// No pod has been ready for as long as the request may wait for one.
    NoPods,
    /// Every attempt to deliver it failed.
    Undeliverable,
    /// The dispatcher is closing.
    Closing,
    /// An operator said so.
    Cancelled,
}

impl RefusalReason {
    /// Every reason, for metrics that must exist before they count.
    pub const ALL: [Self; 11] = [
        Self::QueueFull,
        Self::QueueBytes,
        Self::PredictedWait,
        Self::Hopeless,
        Self::MaxWait,
        Self::Ttl,
        Self::Immediate,
        Self::NoPods,
        Self::Undeliverable,
        Self::Closing,
        Self::Cancelled,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::QueueBytes => "queue_bytes",
            Self::PredictedWait => "predicted_wait",
            Self::Hopeless => "hopeless",
            Self::MaxWait => "max_wait",
            Self::Ttl => "ttl",
            Self::Immediate => "immediate",
            Self::NoPods => "no_pods",
            Self::Undeliverable => "undeliverable",
            Self::Closing => "closing",
            Self::Cancelled => "cancelled_by_operator",
        }
    }

    /// The reason in a sentence without its full stop.
    pub const fn text(self) -> &'static str {
        match self {
            Self::QueueFull => "as many requests wait in the pool as may",
            Self::QueueBytes => "the bodies that wait in the pool are as large as they may be",
            Self::PredictedWait => {
                "it is sheddable, and would wait longer than it may or was turned away by chance"
            }
            Self::Hopeless => {
                "it can no longer meet its objective, and is sheddable or of a policy that serves nothing late"
            }
            Self::MaxWait => "it waited as long as it may",
            Self::Ttl => "it waited as long as its client allowed",
            Self::Immediate => "it was not to wait, and no pod took it at once",
            Self::NoPods => "no pod has been ready for as long as it may wait for one",
            Self::Undeliverable => "every attempt to deliver it failed",
            Self::Closing => "the dispatcher is closing",
            Self::Cancelled => "an operator cancelled it",
        }
    }
}
