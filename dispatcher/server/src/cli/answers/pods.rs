//! `GET /pods`, `GET /pods/{name}`.

use serde::Deserialize;

use crate::cli::output::figures::many;

/// Every pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pods {
    /// The pods.
    pub(crate) pods: Vec<Pod>,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    /// The model.
    pub(crate) pool: String,
    /// Its name.
    pub(crate) pod: String,
    /// Where it listens.
    pub(crate) address: String,
    /// Its class.
    pub(crate) class: String,
    /// `ready`, `broken`, `cordoned`, `draining`, `drained` or `leaving`.
    pub(crate) phase: String,
    /// The breaker.
    pub(crate) breaker: Option<Breaker>,
    /// Requests decoding there, by the ledger.
    pub(crate) residents: u64,
    /// Prompts there without a first token, by the ledger.
    pub(crate) pending: u64,
    /// Their uncached tokens.
    pub(crate) pending_tokens: Option<f64>,
    /// Tokens of context, by the ledger.
    pub(crate) kv_tokens: Option<f64>,
    /// Share of KV blocks in use, by the last scrape.
    pub(crate) kv_usage: Option<f64>,
    /// Tokens that its KV cache holds.
    pub(crate) kv_capacity_tokens: Option<f64>,
    /// Tokens of prompts that it has cached when it is full.
    pub(crate) prefix_capacity_tokens: Option<f64>,
    /// Requests running, by the last scrape.
    pub(crate) running: u64,
    /// Requests waiting in the engine, by the last scrape.
    pub(crate) queued: u64,
    /// Of both, those of other pools.
    pub(crate) elsewhere: u64,
    /// Age of the last scrape.
    pub(crate) scrape_age_ms: Option<f64>,
    /// Step time now.
    pub(crate) step_ms: Option<f64>,
    /// Smallest TPOT objective among its residents.
    pub(crate) tightest_tpot_ms: Option<f64>,
    /// Longest stall that a request which has just come may cause.
    pub(crate) stall_budget_ms: Option<f64>,
    /// Requests that it was given.
    pub(crate) dispatched: u64,
    /// Tokens of their prompts.
    pub(crate) prompt_tokens: Option<f64>,
    /// Those that it was believed to have cached.
    pub(crate) cached_tokens: Option<f64>,
    /// Share of what is believed cached there that it finds.
    pub(crate) cache_found: Option<f64>,
    /// LoRA adapters that run there.
    pub(crate) adapters: Vec<Adapter>,
    /// Most of them at once.
    pub(crate) max_loras: Option<u64>,
    /// Requests with which it says that it takes no more.
    pub(crate) full_with: Option<u64>,
    /// Mean relative error of TTFT, lately.
    pub(crate) error_ttft: Option<f64>,
    /// Mean relative error of TPOT, lately.
    pub(crate) error_tpot: Option<f64>,
    /// Sequences by the ledger less those by the last scrape.
    pub(crate) ledger_minus_scrape: Option<f64>,
    /// Progress of a drain.
    pub(crate) drain: Option<Drain>,
    /// What is in flight there.
    pub(crate) requests: Vec<PodRequest>,
}

/// A LoRA adapter on a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Adapter {
    /// Its name.
    pub(crate) name: String,
    /// Its requests there.
    pub(crate) requests: u64,
    /// Whether nothing more goes there for it.
    pub(crate) gives_way: bool,
}

impl Pod {
    /// The share of the tightest pace that is left; not known while nobody there has one.
    pub(crate) fn pace_left(&self) -> Option<f64> {
        let (step, tightest) = (self.step_ms?, self.tightest_tpot_ms?);
        (tightest > 0.0).then(|| 1.0 - step / tightest)
    }

    /// Requests of this pool that it holds.
    pub(crate) const fn held(&self) -> u64 {
        self.residents + self.pending
    }

    /// Whether nothing is left on it that a drain waits for.
    pub(crate) fn is_drained(&self) -> bool {
        self.phase == "drained"
    }

    /// What a drain waits for.
    pub(crate) fn awaited(&self) -> String {
        let left = self.left();
        match self.drain.as_ref().and_then(|drain| drain.others) {
            Some(others) if left == 0 => {
                format!("{others} on it that this dispatcher did not send")
            }
            None if left == 0 => "0 left, its next scrape tells whether more is on it".to_owned(),
            _ => format!("{left} left"),
        }
    }

    /// Requests that a drain waits for.
    pub(crate) fn left(&self) -> u64 {
        self.drain.as_ref().map_or_else(|| self.held(), |drain| drain.left)
    }
}

/// The breaker of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Breaker {
    /// Whether it keeps requests away.
    pub(crate) open: bool,
    /// Failures in a row.
    pub(crate) failures: u64,
    /// What failed last.
    pub(crate) reason: Option<String>,
}

impl Breaker {
    /// In a few words; empty when there is nothing to say.
    pub(crate) fn words(&self) -> String {
        let state = if self.open { "open" } else { "closed" };
        match (&self.reason, self.failures) {
            (None, 0) if !self.open => String::new(),
            (Some(reason), failures) => {
                format!("{state}, {}: {reason}", many(failures, "failure"))
            }
            (None, failures) => format!("{state}, {}", many(failures, "failure")),
        }
    }
}

/// How far a drain is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Drain {
    /// Since it began.
    pub(crate) since_ms: Option<f64>,
    /// Requests left.
    pub(crate) left: u64,
    /// Requests there that the pool does not know of.
    pub(crate) others: Option<u64>,
    /// Predicted time to its end.
    pub(crate) expected_ms: Option<f64>,
}

/// A request on a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodRequest {
    /// The dispatcher's number.
    pub(crate) id: u64,
    /// The id that its client knows.
    pub(crate) request_id: String,
    /// Its pod, where that is not said around it.
    pub(crate) pod: Option<String>,
    /// Its band.
    pub(crate) band: i64,
    /// Whether its first token was seen.
    pub(crate) decoding: bool,
    /// Its objective for the first token.
    pub(crate) ttft_slo_ms: Option<f64>,
    /// Its objective for the pace.
    pub(crate) tpot_slo_ms: Option<f64>,
    /// Time that it waited.
    pub(crate) wait_ms: Option<f64>,
    /// Predicted TTFT from dispatch.
    pub(crate) predicted_ttft_ms: Option<f64>,
    /// Predicted pace.
    pub(crate) predicted_tpot_ms: Option<f64>,
    /// TTFT from dispatch, or the time so far.
    pub(crate) ttft_ms: Option<f64>,
    /// Pace so far.
    pub(crate) tpot_ms: Option<f64>,
    /// Tokens seen.
    pub(crate) tokens: u64,
}
