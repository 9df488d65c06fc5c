//! A plain map of request to state, moved only by the events sent and the actions returned.
//!
//! It decides nothing. What an action must not do (dispatch what is in flight, to a pod that takes
//! nothing, refuse without cause) is asserted where the action is taken in.

mod moves;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::{Gate, Phase, PodId, PromptSize, Request, RequestId, SchedulerConfig, Time};

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// In a lane.
    Waiting,
    /// On a pod.
    On(Stay),
    /// It had its one outcome.
    Over,
}

/// A request on a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    pub pod: PodId,
    /// Whether the pod has been known ever since the dispatch: if not, no ledger holds it.
    pub booked: bool,
    /// Whether its first token was reported.
    pub seen: bool,
    /// Whether it decodes.
    pub resident: bool,
    /// Tokens per sequence.
    pub generated: u32,
    /// When its first token is assumed, if it is not streamed.
    pub assumed: Time,
    /// Its number among all dispatches: a pod prefills in this order.
    pub number: u64,
    pub sent: Time,
    pub predicted_ttft_ms: f32,
}

/// What became of a request so far.
#[derive(Clone, Debug)]
pub struct Tale {
    pub request: Request,
    pub state: State,
    pub attempts: u32,
    /// Pods it could not be delivered to and that have not recovered since.
    pub excluded: BTreeSet<PodId>,
    /// When it could not be delivered last.
    pub failed_at: Time,
}

impl Tale {
    pub const fn stay(&self) -> Option<&Stay> {
        match &self.state {
            State::On(stay) => Some(stay),
            _ => None,
        }
    }

    pub fn waits(&self) -> bool {
        self.state == State::Waiting
    }
}

/// Whether a pod takes requests.
fn is_open(seen: &Seen) -> bool {
    seen.phase == Phase::Ready
}

/// A pod as its events describe it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub phase: Phase,
    pub dispatched: u64,
    class_blocks: u64,
    told_blocks: Option<u64>,
    told_size: Option<u64>,
    told_tokens: Option<u64>,
}

impl Seen {
    /// Tokens that its KV cache holds.
    pub fn kv_tokens(&self) -> u64 {
        match (self.told_tokens, self.told_blocks, self.told_size) {
            (Some(tokens), ..) => tokens,
            (None, blocks, size) => blocks.unwrap_or(self.class_blocks) * size.unwrap_or(16),
        }
    }
}

/// Outcomes counted, in the order of [`weir_core::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub arrived: u64,
    pub dispatched: u64,
    pub requeued: u64,
    pub completed: u64,
    pub failed: u64,
    pub client_gone: u64,
    pub cancelled: u64,
    pub refused: u64,
}

/// The whole model.
#[derive(Debug)]
pub struct Naive {
    pub config: SchedulerConfig,
    pub tales: BTreeMap<RequestId, Tale>,
    pub pods: BTreeMap<PodId, Seen>,
    pub tally: Tally,
    pub closing: bool,
    /// What an operator holds.
    pub gates: BTreeSet<Gate>,
    /// What the event at hand cancels.
    pub cancelling: BTreeSet<RequestId>,
    /// Since when no pod is ready; from the start, when none ever was.
    pub no_pod_since: Option<Time>,
    /// Since when the largest cache of all is not that of an open pod.
    pub largest_out_since: Option<Time>,
    samples_due: u32,
    /// Recent mean of ln(measured / predicted) TTFT of streams.
    late: f64,
    /// Nothing is learned of what was sent before.
    stood_still_until: Time,
}

impl Naive {
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            tales: BTreeMap::new(),
            pods: BTreeMap::new(),
            tally: Tally::default(),
            closing: false,
            gates: BTreeSet::new(),
            cancelling: BTreeSet::new(),
            no_pod_since: Some(Time::ZERO),
            largest_out_since: None,
            samples_due: 0,
            late: 0.0,
            stood_still_until: Time::ZERO,
        }
    }

    /// Everything that waits.
    pub fn waiting(&self) -> impl Iterator<Item = &Tale> {
        self.tales.values().filter(|tale| tale.waits())
    }

    /// Everything that is dispatched and not over.
    pub fn flying(&self) -> impl Iterator<Item = (&Tale, &Stay)> {
        self.tales.values().filter_map(|tale| Some((tale, tale.stay()?)))
    }

    /// What the ledger of a pod must hold.
    pub fn booked(&self, pod: PodId) -> impl Iterator<Item = (&Tale, &Stay)> {
        self.flying().filter(move |(_, stay)| stay.booked && stay.pod == pod)
    }

    /// Whether a pod takes a request, whatever it would cost.
    pub fn may_use(&self, tale: &Tale, pod: PodId) -> bool {
        self.is_open_to(tale, pod) && self.holds(tale, pod) != Some(false)
    }

    /// The same, where a naive eye can tell: it does not see for whom the slots of adapters are kept.
    pub fn surely_may_use(&self, tale: &Tale, pod: PodId) -> bool {
        let needs_slot = tale.request.adapter.is_some() && self.config.rules().gated();
        !needs_slot && self.is_open_to(tale, pod) && self.holds(tale, pod) == Some(true)
    }

    fn is_open_to(&self, tale: &Tale, pod: PodId) -> bool {
        self.pods.get(&pod).is_some_and(is_open) && !tale.excluded.contains(&pod)
    }

    /// Whether no cache holds a prompt: it goes at once, in whatever order, to an engine that refuses it.
    pub fn is_endless(&self, tale: &Tale) -> bool {
        let (open, _) = self.largest();
        let long =
            matches!(tale.request.prompt, PromptSize::Tokens(tokens) if u64::from(tokens) > open);
        long && self.is_outsized(tale) == Some(false)
    }

    /// What the largest cache of an open pod holds, and that of any.
    fn largest(&self) -> (u64, u64) {
        let open = self.pods.values().filter(|seen| is_open(seen)).map(Seen::kv_tokens).max();
        let all = self.pods.values().map(Seen::kv_tokens).max();
        (open.unwrap_or_default(), all.unwrap_or_default())
    }

    /// Whether a prompt is too long for every open pod, of which there is one, and not for one that is out.
    pub fn is_outsized(&self, tale: &Tale) -> Option<bool> {
        let (open, all) = self.largest();
        match tale.request.prompt {
            _ if open == 0 || open == all => Some(false),
            PromptSize::Tokens(tokens) => Some((open + 1..=all).contains(&u64::from(tokens))),
            PromptSize::Bytes(bytes) if u64::from(bytes) <= open => Some(false),
            PromptSize::Bytes(_) => None,
        }
    }

    /// How long one that may be such a one has been.
    pub fn outsized_for(&self, now: Time, tale: &Tale) -> Option<Duration> {
        let since = self.largest_out_since.filter(|_| self.is_outsized(tale) != Some(false))?;
        Some(now.since(since.max(tale.request.arrived)))
    }

    /// Whether a pod's cache holds a prompt, or no other's holds more. Bytes are more than no and at most as many tokens.
    fn holds(&self, tale: &Tale, pod: PodId) -> Option<bool> {
        if self.is_outsized(tale)? {
            return Some(false);
        }
        let kv_tokens = self.pods.get(&pod).map_or(0, Seen::kv_tokens);
        let most = self.pods.values().filter(|seen| is_open(seen)).map(Seen::kv_tokens).max();
        if most.is_none_or(|most| kv_tokens >= most) {
            return Some(true);
        }
        match tale.request.prompt {
            PromptSize::Tokens(tokens) => Some(u64::from(tokens) <= kv_tokens),
            PromptSize::Bytes(bytes) if u64::from(bytes) <= kv_tokens => Some(true),
            PromptSize::Bytes(_) => None,
        }
    }
}
