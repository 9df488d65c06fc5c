//! What the scheduler shows of itself: plain data, cheap to make, safe to publish. No prompt text.
//!
//! Its size is bounded by lanes and pods, not by what waits or runs: of each pod's requests the
//! [`REQUESTS_SHOWN`] with the tightest objectives are in it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_schema::Status;

use crate::{Band, Need, Phase, Policy, RefusalReason, RequestId, Rules, explain::Reason};

/// Requests shown of each pod: what a person can read, and a hundred pods are still a short answer.
pub const REQUESTS_SHOWN: usize = 32;

/// A pool at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Model the pool serves.
    pub model: String,
    /// The preset that decides, or that the rules started from.
    pub policy: Policy,
    /// What decides, with every part written out.
    pub rules: Rules,
    /// What decides on requests that ask for the second policy by header; `None` when there is none.
    pub rules_by_header: Option<Rules>,
    /// Lanes with something in them, top band first.
    pub lanes: Vec<LaneView>,
    /// Every known pod.
    pub pods: Vec<PodView>,
    /// Requests waiting, demoted ones included.
    pub waiting: usize,
    /// Their body bytes.
    pub waiting_bytes: u64,
    /// Requests waiting that can no longer meet their TTFT objective.
    pub late: usize,
    /// Age of the oldest waiting request, in milliseconds.
    pub oldest_wait_ms: f64,
    /// Predicted time until what waits now and is not paused is dispatched, in milliseconds; `None` while all
    /// of it is paused or no pod is ready.
    pub drain_ms: Option<f64>,
    /// Share of its TTFT objective that a request had waited when it left the queue, the mean of some 64.
    pub spent_share: f64,
    /// The stall for which pods are kept while long prompts come, in milliseconds; 0 when none came lately.
    pub kept_for_ms: f64,
    /// How many pods what comes needs.
    #[serde(default)]
    pub need: Need,
    /// Requests dispatched and not over.
    pub in_flight: usize,
    /// Counters since the start.
    pub counters: Counters,
    /// The predictor's own account.
    pub predictor: Status,
    /// Tokens per byte of prompt, as learned from `usage`.
    pub tokens_per_byte: f64,
}

/// One lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaneView {
    /// The pattern's name.
    pub pattern: String,
    /// Its band.
    pub band: Band,
    /// Requests in it.
    pub depth: usize,
    /// Age of its head, in milliseconds.
    pub head_wait_ms: f64,
    /// Its head.
    pub head: RequestId,
    /// Why its head waits.
    pub reason: Reason,
}

/// One pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodView {
    /// Its name for people.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Whether it takes requests.
    pub phase: Phase,
    /// Requests decoding there, by the ledger.
    pub residents: usize,
    /// Prompts there without a first token, by the ledger.
    pub pending: usize,
    /// Their uncached tokens.
    pub pending_tokens: u64,
    /// Tokens of context its residents hold, by the ledger.
    pub kv_tokens: u64,
    /// Share of KV blocks in use at the last scrape.
    pub kv_usage: f32,
    /// Tokens that its KV cache holds, as it says, or else as its class has it.
    #[serde(default)]
    pub kv_capacity_tokens: u64,
    /// Tokens of prompts that it has cached when it is full, likewise; 0 where it finds none again.
    #[serde(default)]
    pub prefix_capacity_tokens: u64,
    /// Requests running at the last scrape.
    pub running: u32,
    /// Requests waiting inside the engine at the last scrape.
    pub queued: u32,
    /// Of both, those that other pools sent there, as far as a fresh scrape tells; 0 when the pod is
    /// in this pool only.
    pub elsewhere: u32,
    /// Age of the last scrape, in milliseconds; `None` before the first.
    pub scrape_age_ms: Option<f64>,
    /// Step time now, in milliseconds.
    pub step_ms: f64,
    /// Tokens that come with an event after a stream's first, on pods of its class.
    pub tokens_per_event: f64,
    /// Tokens that a resident gets by a step, on pods of its class.
    pub tokens_per_step: f64,
    /// Smallest TPOT objective among its residents, in milliseconds.
    pub tightest_tpot_ms: Option<f64>,
    /// Longest stall that a request which has just come may cause, in milliseconds; `None` when nothing bounds it.
    pub stall_budget_ms: Option<f64>,
    /// Requests it has been given.
    pub dispatched: u64,
    /// Tokens of their prompts.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Those that it was believed to have cached.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Share of what is believed cached there that it finds; 1 while nothing speaks against it.
    #[serde(default = "all")]
    pub cache_found: f64,
    /// LoRA adapters that it runs, in the order of their names.
    #[serde(default)]
    pub adapters: Vec<AdapterView>,
    /// Most of them that it runs at once; `None` while nothing is known to bound them.
    #[serde(default)]
    pub max_loras: Option<u32>,
    /// Requests with which it is thought to take no more, for it said so (503); `None` once that is over.
    #[serde(default)]
    pub full_with: Option<u32>,
    /// What is in flight there, the tightest TPOT objective first and those without one last; at most
    /// [`REQUESTS_SHOWN`].
    #[serde(default)]
    pub requests: Vec<RequestView>,
}

/// A LoRA adapter on a pod.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterView {
    /// Its name.
    pub name: Arc<str>,
    /// Its requests there.
    pub requests: u32,
    /// Whether it gives way to another one there: nothing more goes there for it.
    pub gives_way: bool,
}

/// One request on a pod: what was promised, what was predicted, and what it has come to so far.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestView {
    /// Which request.
    pub id: RequestId,
    /// What its client calls it.
    #[serde(default)]
    pub request_id: Arc<str>,
    /// Its band.
    pub band: Band,
    /// The LoRA adapter that it asks for.
    #[serde(default)]
    pub adapter: Option<Arc<str>>,
    /// Whether its first token was seen, or is assumed for a response that is not streamed.
    pub decoding: bool,
    /// Whether its tokens are seen.
    pub streamed: bool,
    /// Its objective for the time from arrival to the first token, in milliseconds.
    pub ttft_slo_ms: Option<f64>,
    /// Its TPOT objective, in milliseconds.
    pub tpot_slo_ms: Option<f64>,
    /// Time from arrival to dispatch, in milliseconds; counts against the TTFT objective.
    pub wait_ms: f64,
    /// Predicted median time from dispatch to the first token, in milliseconds.
    pub predicted_ttft_ms: f32,
    /// Predicted median TPOT, in milliseconds.
    pub predicted_tpot_ms: f32,
    /// Time from dispatch to the first token, in milliseconds; until it is seen, the time so far.
    /// `None` for a response that is not streamed.
    pub ttft_ms: Option<f64>,
    /// Mean time per output token so far, in milliseconds; needs two tokens that were seen.
    pub tpot_ms: Option<f64>,
    /// Tokens seen so far, over all sequences.
    pub tokens: u32,
}

/// Counters since the start. Every accepted request ends in exactly one of `completed`, `failed`,
/// `client_gone`, `cancelled`, `refused` and `handed_over`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that ran already when they came from another dispatcher.
    #[serde(default)]
    pub adopted: u64,
    /// Requests that wait or run on in another dispatcher's books.
    #[serde(default)]
    pub handed_over: u64,
    /// Dispatches, attempts after the first included.
    pub dispatched: u64,
    /// Requests put back because nothing of them reached the pod.
    pub requeued: u64,
    /// Responses that completed.
    pub completed: u64,
    /// Requests that a pod failed after they were sent.
    pub failed: u64,
    /// Requests whose client left after dispatch.
    pub client_gone: u64,
    /// Requests whose client left while they waited.
    pub cancelled: u64,
    /// Requests moved behind those that can still make it.
    pub demoted: u64,
    /// Requests that started cold so that a prompt which several share is on a further pod.
    #[serde(default)]
    pub spread: u64,
    /// LoRA adapters that gave way to another one on a pod.
    #[serde(default)]
    pub adapter_turns: u64,
    /// Requests put back because the pod said that it takes no more for now; of those above.
    #[serde(default)]
    pub turned_away: u64,
    /// Refusals by reason.
    pub refused: Vec<(RefusalReason, u64)>,
    /// Events that named a request or pod the scheduler does not know.
    pub ignored: u64,
}

const fn all() -> f64 {
    1.0
}
