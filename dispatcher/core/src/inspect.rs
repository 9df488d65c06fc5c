//! What an operator sees of a pool when looking closer than the [`Snapshot`](crate::Snapshot): plain
//! data, made in bounded steps, without prompt text.
//!
//! Times are milliseconds. What is named `id` is the dispatcher's own number of a request, `request_id`
//! what its client calls it.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Band, PodId, PodView, Policy, Reason, RefusalReason, RequestId, RequestView, Slo, Time,
    queue::LaneKey,
};

/// A place in the order of arrivals; what comes behind it is the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Arrival of the request it stands at.
    pub arrived: Time,
    /// That request.
    pub id: RequestId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.arrived.as_micros(), self.id.0)
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (arrived, id) = text.split_once('.').ok_or(NoCursor)?;
        let number = |text: &str| text.parse().map_err(|_| NoCursor);
        Ok(Self { arrived: Time::from_micros(number(arrived)?), id: RequestId(number(id)?) })
    }
}

/// Which waiting requests are meant; all of them when nothing is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of a lane.
    pub lane: Option<LaneKey>,
    /// Those of a band.
    pub band: Option<Band>,
    /// Those of a tenant.
    pub tenant: Option<Arc<str>>,
    /// Those that can, or can no longer, make it.
    pub late: Option<bool>,
    /// Those that have waited at least so long.
    pub older_than: Option<Duration>,
}

/// Some of what waits, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Them.
    pub requests: Vec<WaitingView>,
    /// Where to go on; `None`: that was all.
    pub next: Option<Cursor>,
    /// Requests that were looked at for it.
    pub scanned: usize,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitingView {
    /// Its number.
    pub id: RequestId,
    /// What its client calls it.
    pub request_id: Arc<str>,
    /// Its lane.
    pub lane: Arc<str>,
    /// Its band.
    pub band: Band,
    /// Who sent it.
    pub tenant: Option<Arc<str>>,
    /// Time since its arrival.
    pub age_ms: f64,
    /// Time until its first token is due; negative once that has passed, `None` without an objective.
    pub deadline_ms: Option<f64>,
    /// That time less the best TTFT that any pod could give it; negative: it cannot be met.
    pub slack_ms: Option<f64>,
    /// Its objective for the time from arrival to the first token.
    pub ttft_slo_ms: Option<f64>,
    /// Its objective for the time per output token.
    pub tpot_slo_ms: Option<f64>,
    /// Input tokens, over all its sequences.
    pub input_tokens: u32,
    /// Output tokens predicted for each sequence.
    pub output_tokens: u32,
    /// Bytes of its body.
    pub body_bytes: u32,
    /// Whether it was put behind those that can still make it.
    pub late: bool,
    /// Why it waits.
    pub reason: Reason,
    /// Deliveries tried.
    pub attempts: u32,
    /// Whether its response is streamed.
    pub streamed: bool,
}

/// How many of some requests are how near to their objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Risk {
    /// More than a quarter of the objective is left as slack, or there is none to meet.
    pub ok: usize,
    /// Less is left.
    pub tight: usize,
    /// Nothing is left.
    pub late: usize,
}

/// What a walk counted of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Count {
    /// Requests.
    pub depth: usize,
    /// Their body bytes.
    pub bytes: u64,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
    /// How near they are to their objectives.
    pub risk: Risk,
}

/// Tenants counted apart; those beyond are counted together.
pub const TENANTS_COUNTED: usize = 1024;

/// Everything that waits, counted in a walk over it. What comes and goes meanwhile may be missed.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// By lane.
    pub lanes: BTreeMap<Arc<str>, Count>,
    /// By band.
    pub bands: BTreeMap<Band, Count>,
    /// By tenant, the first [`TENANTS_COUNTED`] that were met.
    pub tenants: BTreeMap<Arc<str>, Count>,
    /// Requests of the tenants beyond.
    pub other_tenants: Count,
    /// Requests whose tenant is not known.
    pub no_tenant: Count,
    /// Requests counted.
    pub counted: usize,
}

/// A lane.
#[derive(Clone, Debug, Serialize)]
pub struct QueueView {
    /// Its name; see [`crate::queue::key`].
    pub lane: Arc<str>,
    /// Its pattern in words.
    pub pattern: String,
    /// Its band.
    pub band: Band,
    /// Requests in it.
    pub depth: usize,
    /// Whether it holds what can no longer make it.
    pub late: bool,
    /// Whether an operator holds it.
    pub paused: bool,
    /// Age of its head, in milliseconds.
    pub head_wait_ms: f64,
    /// Predicted time until what waits in it is dispatched, in milliseconds; `None` while it is paused.
    pub drain_ms: Option<f64>,
    /// Why its head waits.
    pub reason: Reason,
    /// Its head.
    pub head: RequestId,
    /// What the client of its head calls it.
    pub request_id: Arc<str>,
}

/// A band.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BandView {
    /// Which.
    pub band: Band,
    /// Requests waiting.
    pub depth: usize,
    /// Age of the oldest, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits is dispatched, in milliseconds; `None` while it is paused.
    pub drain_ms: Option<f64>,
    /// Whether an operator holds all of it.
    pub paused: bool,
    /// What became of its requests since the start.
    pub tally: Tally,
}

/// What became of requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Requests that ended, refused ones included. Those whose client left are not in it.
    pub sent: u64,
    /// Of them, whole responses inside their objectives.
    pub attained: u64,
    /// Of them, refused.
    pub refused: u64,
}

/// A pool in a few numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The preset that decides, or that the rules started from.
    pub policy: Policy,
    /// Requests waiting.
    pub waiting: usize,
    /// Their body bytes.
    pub waiting_bytes: u64,
    /// Requests waiting that can no longer meet their TTFT objective.
    pub late: usize,
    /// Age of the oldest waiting request, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits now and is not paused is dispatched, in milliseconds.
    pub drain_ms: f64,
    /// Requests dispatched and not over.
    pub in_flight: usize,
    /// What an operator holds: `pool`, bands as `b0`, lanes by their names.
    pub paused: Vec<String>,
    /// Pods known.
    pub pods: usize,
    /// Pods that take requests.
    pub pods_ready: usize,
    /// Refusals by reason, since the start.
    pub refused: Vec<(RefusalReason, u64)>,
    /// What became of requests since the start.
    pub tally: Tally,
    /// The same by band.
    pub bands: Vec<(Band, Tally)>,
}

/// Why a pod does not get a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Against {
    /// The pod is out of the question.
    Out(Out),
    /// The pod could serve it, but not now.
    Reason(Reason),
}

/// Why a pod is out of the question for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Out {
    /// Its breaker is open.
    PodBroken,
    /// An operator has cordoned it.
    PodCordoned,
    /// An operator drains it.
    PodDraining,
    /// It only decodes.
    WrongRole,
    /// The request could not be delivered to it.
    FailedBefore,
    /// A request that goes first waits for it.
    Claimed {
        /// That request.
        by: RequestId,
    },
}

impl Against {
    /// It in a sentence without its full stop. `called` says what a request is called.
    pub fn text(self, called: impl Fn(RequestId) -> String) -> String {
        let out = match self {
            Self::Reason(reason) => return reason.here(called),
            Self::Out(out) => out,
        };
        match out {
            Out::PodBroken => "its breaker is open".to_owned(),
            Out::PodCordoned => "an operator has cordoned it".to_owned(),
            Out::PodDraining => "an operator drains it".to_owned(),
            Out::WrongRole => "it only decodes".to_owned(),
            Out::FailedBefore => "the request could not be delivered to it".to_owned(),
            Out::Claimed { by } => format!("{} comes first and waits for it", called(by)),
        }
    }
}

/// A pod as seen by one request.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Its name.
    pub pod: Arc<str>,
    /// Whether it takes requests.
    pub phase: crate::Phase,
    /// Whether the request fits there now.
    pub fits: bool,
    /// What stands against it.
    pub verdict: Option<Against>,
    /// That in a sentence.
    pub text: String,
    /// Predicted time from arrival to the first token.
    pub ttft_ms: f64,
    /// Predicted time per output token.
    pub tpot_ms: f64,
    /// TTFT objective less the predicted TTFT; negative: it would be missed.
    pub headroom_ms: Option<f64>,
    /// Prompt tokens it has cached.
    pub cached_tokens: u32,
    /// Prompt tokens it would have to compute.
    pub uncached_tokens: u32,
    /// Prompt tokens pending there before it.
    pub backlog_tokens: u32,
    /// Prompts pending there.
    pub pending: usize,
    /// Requests decoding there.
    pub residents: usize,
    /// Share of its KV cache in use with the request, 1 is full.
    pub kv_after: f64,
    /// Time by which the request would delay the residents.
    pub stall_ms: f64,
    /// Longest delay that the residents can bear; `None`: nothing bounds it.
    pub stall_budget_ms: Option<f64>,
    /// The request that goes first and waits for this pod.
    pub claimed_by: Option<RequestId>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In a lane.
    Waiting,
    /// On a pod.
    Running,
    /// It ended a moment ago.
    Recent,
}

/// Something that happened to a request.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// How long ago, in milliseconds; `None` when that was not kept.
    pub at_ms: Option<f64>,
    /// What.
    pub what: String,
}

/// Everything known of one request.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// Where it is.
    pub state: State,
    /// Its facts while it waits.
    pub waiting: Option<WaitingView>,
    /// What it does on its pod.
    pub running: Option<RequestView>,
    /// That pod.
    pub pod: Option<Arc<str>>,
    /// How it ended.
    pub ended: Option<EndedView>,
    /// The state in plain words, and what it waits for.
    pub explanation: String,
    /// Every pod as this request sees it, while it waits.
    pub pods: Vec<Look>,
    /// What happened to it, as far as it is remembered, oldest first.
    pub history: Vec<Moment>,
    /// The last decision on it that is remembered.
    pub decision: Option<DecisionView>,
}

/// A pod that lost.
#[derive(Clone, Debug, Serialize)]
pub struct AlternativeView {
    /// Its name.
    pub pod: Arc<str>,
    /// What stood against it; `None`: it fitted, and another one was better.
    pub verdict: Option<Reason>,
    /// Predicted time from arrival to the first token there.
    pub ttft_ms: f64,
    /// Prompt tokens it would have had to compute.
    pub uncached_tokens: u32,
}

/// A decision.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionView {
    /// Its number among all decisions of the pool.
    pub number: u64,
    /// How long ago it was taken.
    pub at_ms: f64,
    /// On which request.
    pub id: RequestId,
    /// What its client calls it.
    pub request_id: Arc<str>,
    /// Its band.
    pub band: Band,
    /// What was decided: dispatch, refuse, demote, cancel, requeue or move.
    pub kind: &'static str,
    /// Why, in a word.
    pub reason: &'static str,
    /// Why it had waited until then.
    pub waited_for: Option<Reason>,
    /// The pod it went to, or could not be delivered to.
    pub pod: Option<Arc<str>>,
    /// Time from its arrival to the decision.
    pub wait_ms: f64,
    /// Predicted time from arrival to the first token there.
    pub ttft_ms: Option<f64>,
    /// Predicted time per output token there.
    pub tpot_ms: Option<f64>,
    /// The best of the pods that lost.
    pub alternatives: Vec<AlternativeView>,
}

/// A request that is over.
#[derive(Clone, Debug, Serialize)]
pub struct EndedView {
    /// Its number among all that ended in the pool.
    pub number: u64,
    /// How long ago it ended.
    pub at_ms: f64,
    /// Its number.
    pub id: RequestId,
    /// What its client calls it.
    pub request_id: Arc<str>,
    /// Its band.
    pub band: Band,
    /// Who sent it.
    pub tenant: Option<Arc<str>>,
    /// How it ended: complete, `client_gone`, `pod_error`, `pod_failed`, `client_left`, or why it was refused.
    pub outcome: &'static str,
    /// Whether it was refused.
    pub refused: bool,
    /// Its objective for the time from arrival to the first token.
    pub ttft_slo_ms: Option<f64>,
    /// Its objective for the time per output token.
    pub tpot_slo_ms: Option<f64>,
    /// Input tokens; 0 when it was refused on arrival.
    pub input_tokens: u32,
    /// Output tokens.
    pub output_tokens: u32,
    /// Deliveries tried.
    pub attempts: u32,
    /// The pod it was on.
    pub pod: Option<Arc<str>>,
    /// Time from arrival to dispatch, or to its end.
    pub wait_ms: f64,
    /// Time from arrival to its end.
    pub total_ms: f64,
    /// Time from arrival to the first token, if it was seen.
    pub ttft_ms: Option<f64>,
    /// Mean time per output token, if it was measured.
    pub tpot_ms: Option<f64>,
    /// Predicted time from arrival to the first token.
    pub predicted_ttft_ms: Option<f64>,
    /// Predicted time per output token.
    pub predicted_tpot_ms: Option<f64>,
    /// Whether its client got a whole response inside its objectives.
    pub attained: bool,
}

/// A request that does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supposition {
    /// Prompt tokens.
    pub input_tokens: u32,
    /// The client's bound on output tokens.
    pub output_tokens: Option<u32>,
    /// Its objectives.
    pub slo: Slo,
    /// Its band.
    pub band: Band,
    /// Who would send it.
    pub tenant: Option<Arc<str>>,
}

/// What would be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Would {
    /// Send it to a pod at once.
    Dispatch,
    /// Let it wait.
    Wait,
    /// Refuse it.
    Refuse,
}

/// What would become of a request that does not exist.
#[derive(Clone, Debug, Serialize)]
pub struct Supposed {
    /// What would be done.
    pub would: Would,
    /// The pod it would go to.
    pub pod: Option<Arc<str>>,
    /// Why it would wait or be refused, in a word; `fits` when it would go.
    pub reason: &'static str,
    /// Why it would wait, with its figures.
    pub waits_for: Option<Reason>,
    /// That in plain words.
    pub explanation: String,
    /// The lane it would be in.
    pub lane: Arc<str>,
    /// Output tokens that would be predicted for it.
    pub output_tokens: u32,
    /// Requests waiting in its band and in those above.
    pub queue_ahead: usize,
    /// How long a newcomer to its band waits, in milliseconds.
    pub predicted_wait_ms: f64,
    /// Every pod as it would see it.
    pub pods: Vec<Look>,
}

/// Mean absolute relative errors of what was predicted for a pod lately, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PodErrors {
    /// Of TTFT; `None` before any was measured.
    pub ttft: Option<f64>,
    /// Of TPOT; `None` before any was measured.
    pub tpot: Option<f64>,
    /// Responses behind them, forgotten ones included.
    pub count: u64,
}

/// A pod, looked at closely.
#[derive(Clone, Debug, Serialize)]
pub struct PodDetail {
    /// Its number.
    pub id: PodId,
    /// What the snapshot shows of it.
    #[serde(flatten)]
    pub view: PodView,
    /// How well it was predicted lately.
    pub errors: PodErrors,
    /// Sequences that the ledger knows more than the last scrape; negative: others are there. `None`
    /// without a fresh scrape.
    pub ledger_minus_scrape: Option<f64>,
    /// Predicted time until everything on it is over, in milliseconds; only while it takes nothing more.
    pub empty_in_ms: Option<f64>,
}
