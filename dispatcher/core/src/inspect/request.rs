//! One request: where it is, how every pod looks to it, what was decided; and one that does not exist.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::WaitingView;
use crate::{Band, Phase, Reason, RequestId, RequestView, Slo};

/// Why a pod does not get a request.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Against {
    /// The pod is out of the question.
    Out(Out),
    /// The pod could serve it, but not now.
    Reason(Reason),
}

/// Why a pod is out of the question for a request.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Out {
    /// Its breaker is open.
    PodBroken,
    /// An operator has cordoned it.
    PodCordoned,
    /// An operator drains it.
    PodDraining,
    /// The request could not be delivered to it.
    FailedBefore,
    /// It says itself that it takes no more for now.
    PodFull,
    /// It runs as many other LoRA adapters as it may.
    AdaptersFull,
    /// Its KV cache does not hold the prompt; that of another pod does.
    PromptTooLong,
    /// The request is late, and as many pods as may are at work on long prompts of late ones.
    LeftToOthers,
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
            Out::FailedBefore => "the request could not be delivered to it".to_owned(),
            Out::PodFull => "it says that it takes no more for now".to_owned(),
            Out::AdaptersFull => "it runs as many other LoRA adapters as it may".to_owned(),
            Out::PromptTooLong => {
                "its KV cache does not hold the prompt, and that of another pod does".to_owned()
            }
            Out::LeftToOthers => {
                "it is left to those that can be in time, for enough pods compute long prompts of late requests".to_owned()
            }
            Out::Claimed { by } => format!("{} comes first and waits for it", called(by)),
        }
    }
}

/// A pod as seen by one request.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Its name.
    pub pod: Arc<str>,
    /// Whether it takes requests.
    pub phase: Phase,
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
    /// Longest delay that the request may cause by now; `None`: nothing bounds it.
    pub stall_budget_ms: Option<f64>,
    /// The request that goes first and waits for this pod.
    pub claimed_by: Option<RequestId>,
}

/// Where a request is.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, Serialize)]
pub struct AlternativeView {
    /// Its name.
    pub pod: Arc<str>,
    /// What stood against it; `None`: another one was better.
    pub verdict: Option<Reason>,
    /// Time from arrival to the first token there: by the step-time model under policy `weir`, by the prediction under others.
    pub ttft_ms: f64,
    /// Prompt tokens it would have had to compute.
    pub uncached_tokens: u32,
    /// Whether it is kept for long prompts.
    pub kept: bool,
}

/// A decision.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// The LoRA adapter that it would ask for.
    pub adapter: Option<Arc<str>>,
}

/// What would be done.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// How long it would wait, in milliseconds, as far as its band's queue tells; `None` when it would be refused,
    /// and while that cannot be said: nothing waits in its band, or nothing leaves it because it is paused or no
    /// pod is ready.
    pub predicted_wait_ms: Option<f64>,
    /// Every pod as it would see it.
    pub pods: Vec<Look>,
}
