//! What a pool's scheduler is told: validated values, converted from the server's raw config.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    NeedConfig, PodClass, Profiles,
    decide::failover::Places,
    policy::{Filter, Policy, Rules},
    profile,
};

/// How often [`crate::Event::Tick`] is due while anything waits.
pub const TICK: Duration = Duration::from_millis(10);

/// Everything a [`crate::Scheduler`] is told.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// The model the pool serves.
    pub model: Arc<str>,
    /// The preset that decides.
    pub policy: Policy,
    /// What it says where parts of it were replaced; `None`: what the preset says.
    pub rules: Option<Rules>,
    /// The policy of requests that ask for it by header; `None`: they get that of all others.
    pub rules_by_header: Option<Rules>,
    /// Requests in flight that a pod of a class without a profile carries, for policies that count
    /// capacity.
    pub default_capacity: f64,
    /// Where pods stand, for policies that know failure domains.
    pub places: Places,
    /// Pod classes; a pod names one by index.
    pub classes: Vec<PodClass>,
    /// Measured capacities of the pod classes that have a profile.
    pub profiles: Profiles,
    /// Edges of the pattern's buckets.
    pub buckets: BucketEdges,
    /// Output-length history.
    pub length: LengthConfig,
    /// Bounds on what may wait.
    pub bounds: Bounds,
    /// Parameters of the pull loop.
    pub pull: PullConfig,
    /// What whoever sizes the pool asks of it.
    pub need: NeedConfig,
    /// Deliveries tried before a request is refused.
    pub max_attempts: u32,
    /// Tokens of each of [`crate::Request::blocks`]: how many of them a pod's cache holds follows from it.
    pub named_tokens: u32,
}

impl SchedulerConfig {
    /// The policy in force.
    pub fn rules(&self) -> Rules {
        self.rules.clone().unwrap_or_else(|| self.policy.rules())
    }

    /// Blocks of prompts, as requests name them, that so many tokens of prompts are.
    pub fn named_blocks(&self, tokens: u64) -> usize {
        usize::try_from(tokens / u64::from(self.named_tokens.max(1))).unwrap_or(usize::MAX)
    }

    /// Share of a pod of a class that a request of these sizes takes; `None` when the class cannot
    /// serve it inside its profile's objective.
    pub fn load(&self, class: u16, input_tokens: u32, output_tokens: u32) -> Option<f64> {
        let load = match self.profiles.cost(class, input_tokens, output_tokens) {
            None => profile::load(self.default_capacity),
            Some(cost) => cost.ok()?.load,
        };
        load.is_finite().then_some(load)
    }

    /// Whether a policy bounds pods by their profiled capacity, and none of these classes has any for a request of these sizes.
    pub fn is_infeasible(
        &self,
        rules: &Rules,
        classes: &[u16],
        (input_tokens, output_tokens): (u32, u32),
    ) -> bool {
        let is_bound = |filter: &Filter| matches!(filter, Filter::Capacity { .. });
        let serves = |class: &u16| self.load(*class, input_tokens, output_tokens).is_some();
        !classes.is_empty() && rules.filters.iter().any(is_bound) && !classes.iter().any(serves)
    }
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            model: Arc::from("default"),
            policy: Policy::default(),
            rules: None,
            rules_by_header: None,
            // Where a pod of the default class, at 20 to 40 ms per step, still keeps an interactive pace.
            default_capacity: 32.0,
            places: Places::new(),
            classes: vec![PodClass::default()],
            profiles: Profiles::default(),
            buckets: BucketEdges::default(),
            length: LengthConfig::default(),
            bounds: Bounds::default(),
            pull: PullConfig::default(),
            need: NeedConfig::default(),
            max_attempts: 3,
            named_tokens: 16,
        }
    }
}

/// Upper edges of the buckets of input and of predicted output tokens, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketEdges {
    /// Edges for input tokens.
    pub input: Vec<u32>,
    /// Edges for predicted output tokens.
    pub output: Vec<u32>,
}

impl Default for BucketEdges {
    /// Powers of two, the buckets of the pattern profiles in the field.
    fn default() -> Self {
        Self {
            input: (6..=17).map(|power| 1 << power).collect(),
            output: (4..=13).map(|power| 1 << power).collect(),
        }
    }
}

/// Output-length history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthConfig {
    /// Weight left of an observation after this many further ones in the same history.
    pub half_life: u32,
    /// Weight a history needs before a coarser one is no longer asked.
    pub enough: f32,
    /// Quantile taken as the predicted length of a request.
    pub quantile: f32,
    /// Expected output before anything was seen, bounded by the request's own maximum.
    pub cold_tokens: u32,
}

impl Default for LengthConfig {
    fn default() -> Self {
        Self { half_life: 500, enough: 20.0, quantile: 0.5, cold_tokens: 256 }
    }
}

/// Bounds on what may wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Most requests waiting in the pool.
    pub max_requests: usize,
    /// Most body bytes waiting in the pool.
    pub max_bytes: u64,
    /// Longest wait that may be predicted for a sheddable request when it arrives.
    pub max_predicted_wait: Duration,
    /// Longest time any request waits.
    pub max_wait: Duration,
    /// Longest time a request waits that is late, from its arrival.
    pub max_wait_late: Duration,
    /// Longest time a request waits while no pod is ready.
    pub max_wait_no_pods: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_requests: 100_000,
            max_bytes: 1 << 30,
            // As long as batch requests are mostly promised to wait for their first token.
            max_predicted_wait: Duration::from_secs(30),
            max_wait: Duration::from_secs(120),
            // Few clients wait for longer than that for a first token; llm-d's bound on any request in a queue.
            max_wait_late: Duration::from_secs(60),
            max_wait_no_pods: Duration::from_secs(15),
        }
    }
}

impl Bounds {
    /// Longest time that a request waits which is late, or with an objective for its first token that passes first.
    pub fn longest_wait(&self, late: bool, ttft: Option<Duration>) -> Duration {
        let objective = if late { Some(Duration::ZERO) } else { ttft };
        let bound = objective.map(|passes| passes.max(self.max_wait_late));
        bound.map_or(self.max_wait, |bound| bound.min(self.max_wait))
    }
}

/// What may pass a head that found no pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HeadRule {
    /// Claims for a request without objectives, and when one full engine step would break the tightest TPOT objective; else
    /// strict.
    #[default]
    Auto,
    /// Nothing passes.
    Strict,
    /// The head claims one pod; a much smaller head of no lower band may use another.
    Claims,
}

/// Parameters of the pull loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PullConfig {
    /// What may pass a head that found no pod.
    pub head_rule: HeadRule,
    /// Share of a TPOT objective that predictions may use.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub tpot_margin: f64,
    /// Tokens of a resident on which that margin is kept at most.
    pub margin_tokens: u32,
    /// Quantile of the remaining output from which is read how soon a resident may end.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub remaining_quantile: f64,
    /// Residents that a request which has just come, or is late, may cost their TPOT objective by the stall of its prefill, on
    /// average.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub risk_at_once: f64,
    /// The same when it has no time to spare any more. Between the two it grows with the square of the share of its spare time that
    /// the request has waited: of its TTFT objective, or a minute without one, less what its prompt takes on an idle pod while
    /// requests hardly wait (`order: head-start`).
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub risk_when_due: f64,
    /// Milliseconds that a prompt takes on an idle pod from which on it is long. While one came of late, within a minute or two,
    /// requests go to pods that could not bear half its stall, where such a pod is as warm, and leave the others to the next one.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 86_400_000)))]
    pub long_prompt_ms: f64,
    /// A full step longer than this share of the tightest TPOT objective that a pod can keep makes the chunk "big".
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub big_chunk_share: f64,
    /// Uncached tokens that may be pending on a pod with the newcomer, if that is of the top band and not late, and the chunk is not big.
    pub top_band_tokens: u32,
    /// Uncached tokens that may be pending on a pod with any other newcomer; twice as many with one without objectives while
    /// nobody in the pool has a TPOT objective.
    pub pending_tokens: u32,
    /// Milliseconds that what may be pending takes an engine, where that are more tokens than `pending_tokens`, up to
    /// `top_band_tokens`: what waits in an engine waits for a time, and a fast one computes more in it. Above 0, what a request
    /// pays outside the steps comes on top.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 60_000)))]
    pub pending_ms: f64,
    /// Uncached tokens of prompts that begin with the same step of an engine; a single one may have more, and, the longer they
    /// have waited, those of requests with objectives: up to what makes a step four times as long as it is without prompts,
    /// within four fifths of the tightest TPOT objective, or six times while nobody in the pool has one. An engine whose chunk
    /// is no larger bounds its steps itself.
    pub step_tokens: u32,
    /// A head may pass a blocked one when it needs at most this share of its uncached tokens.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub pass_share: f64,
    /// Share of their TTFT objectives that requests have waited when they leave the queue, in the mean, up to which a blocked head
    /// holds back those of its own band under the head rule `auto`; beyond it whoever of them fits may pass. One without any
    /// objective holds back its own band from the moment on when it is due by its size. 1 holds them back however long they wait.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub hold_share: f64,
    /// Share of its TTFT objective that a blocked head has waited when it holds lower bands back. Until then their requests go
    /// where they fit, as if it had not come. 0 holds them back at once: no request ever goes before one of a higher band that
    /// can still make it.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub bind_share: f64,
    /// Share of the pods, but at least one, that may compute long prompts of late requests at a time: the others are left to those
    /// that can be in time, if such a request came within the time that the prompt takes. Long is what takes `long_prompt_ms`. The
    /// share grows to that of `queue.max_wait_late_s` which the next of them has waited. 1 leaves nothing.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub late_share: f64,
    /// Uncached tokens a colder pod must cost more before a head waits for its warm pod.
    pub warm_gap_tokens: u32,
    /// Share of the TTFT objective that must be left after the colder pod's TTFT to wait. With less a head joins the prompts that are
    /// pending on the warm pod if it is in time behind them, waits on if it would still have three tenths of its objective to spare
    /// there, or else starts cold. Where less than a twentieth is left a cold start is not counted on, and a head waits for as long as
    /// the warm pod can be in time.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub warm_slack: f64,
    /// How many times its own time a computed prompt counts where a request has no objectives, and where one that many share is to be
    /// computed on a further pod: it displaces what others would find in the cache.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub cold_weight: f64,
    /// Share of the KV cache that may be filled.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub kv_limit: f64,
    /// Share of `kv_limit` that a request may fill on a pod that has one of a higher band, and one that is late on any pod
    /// that has others. The rest is left for those that come and have a claim to be in time. 1 leaves nothing.
    /// Of a late one that holds for ten seconds after any request that could be in time.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub yield_share: f64,
    /// Share of the expected growth of the newcomer counted against the KV cache.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub kv_growth: f64,
    /// Factor on the best possible TTFT when deciding that a deadline cannot be met.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100)))]
    pub hopeless_factor: f64,
    /// Scrapes older than this are not used; the ledger alone decides then. It is set with the other times of scraping.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub stale_after_ms: u64,
}

impl Default for PullConfig {
    fn default() -> Self {
        Self {
            head_rule: HeadRule::Auto,
            tpot_margin: 0.98,
            margin_tokens: 500,
            remaining_quantile: 0.1,
            risk_at_once: 0.02,
            risk_when_due: 0.5,
            long_prompt_ms: 1000.0,
            big_chunk_share: 0.9,
            top_band_tokens: 8192,
            pending_tokens: 2048,
            pending_ms: 100.0,
            step_tokens: 512,
            pass_share: 0.5,
            bind_share: 0.0,
            hold_share: 0.5,
            late_share: 0.5,
            warm_gap_tokens: 1024,
            warm_slack: 0.07,
            cold_weight: 16.0,
            kv_limit: 0.98,
            yield_share: 0.7,
            kv_growth: 0.3,
            hopeless_factor: 1.0,
            stale_after_ms: 2000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_holds_as_many_named_blocks_as_their_tokens_allow() {
        let of = |named_tokens| SchedulerConfig { named_tokens, ..SchedulerConfig::default() };
        assert_eq!([16, 32, 8].map(|tokens| of(tokens).named_blocks(16_016)), [1001, 500, 2002]);
        assert!(of(0).named_blocks(u64::MAX) > of(1 << 20).named_blocks(u64::MAX));
    }
}
