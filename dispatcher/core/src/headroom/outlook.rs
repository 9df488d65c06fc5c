//! What sending a request to a pod would do, by the step-time model.
//!
//! Cheap arithmetic on the ledger: it prunes pods before any model is asked, and its TTFT and TPOT
//! are the priors that the learned ratios multiply.

use weir_schema::{StepTime, prefill_pairs};

use crate::{
    PodId,
    fleet::{Others, PodState, Together},
    headroom::start::{Prefill, Start, steps_before_first_token, whole_up},
};

/// Largest share of a pod's time that is given to other requests' prefills.
const MOST_PREFILL_SHARE: f64 = 0.9;

/// What a request asks of a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Prompt tokens, over all sequences.
    pub input_tokens: f64,
    /// Output tokens expected per sequence.
    pub output_tokens: f64,
    /// Sequences that decode.
    pub sequences: f64,
}

/// A request on a pod, looked at before it is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// The pod.
    pub pod: PodId,
    /// Whether nothing of ours is on it, nor on what steps together with it.
    pub empty: bool,
    /// Prompt tokens the pod would have to compute.
    pub uncached_tokens: f64,
    /// Uncached tokens pending there before it.
    pub backlog_tokens: f64,
    /// Those of them that are thought to be still to compute.
    pub ahead_tokens: f64,
    /// Prompts pending there before it.
    pub pending: usize,
    /// Step time once what is pending decodes, in milliseconds.
    pub step_ms: f64,
    /// What of it a token takes, in milliseconds.
    pub pace_ms: f64,
    /// The same once the newcomer decodes too, in milliseconds.
    pub pace_with_ms: f64,
    /// Time that a token to come is thought to take there, in milliseconds: that pace, and what prompts take meanwhile.
    pub token_ms: f64,
    /// The pace of steps with a chunk full of prompt tokens, in milliseconds.
    pub full_pace_ms: f64,
    /// Time by which the prefills delay the residents, in milliseconds.
    pub stall_ms: f64,
    /// The newcomer's part of that, in milliseconds.
    pub own_stall_ms: f64,
    /// Sequences that decode there once what is pending does.
    pub decodes: f64,
    /// TTFT from dispatch, in milliseconds.
    pub ttft_ms: f64,
    /// What it is compared by with others that have as much of the prompt, in milliseconds: that, or where others step together with it
    /// what it would be by the pod's own work, and what the newcomer holds up all of them.
    pub tie_ms: f64,
    /// Cost of one prompt token there, in milliseconds.
    pub per_prefill_ms: f64,
    /// What a request pays there outside the steps, in milliseconds.
    pub api_ms: f64,
    /// Whether it is looked at as if nothing stepped together with it, which nothing may.
    pub is_apart: bool,
    /// The pod's place in the pool's order.
    pub place: usize,
}

/// What an outlook needs of a pod, whoever asks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ground {
    /// Tokens that what decodes there holds in the KV cache.
    kv_tokens: f64,
    /// What decides when a first token would come.
    pub start: Start,
}

impl Ground {
    /// Of a pod, beside what other pools have there.
    pub fn of(pod: &PodState, steps: &StepTime, others: Others) -> Self {
        let ledger = &pod.ledger;
        let decodes = ledger.decodes_to_come() + others.sequences;
        let kv_tokens = ledger.kv_tokens() + others.kv_tokens;
        let [backlog_tokens, backlog_pairs] = ledger.ahead();
        let start = Start {
            chunk: (f64::from(pod.class.chunk_tokens) - decodes).max(1.0),
            step_ms: steps.step_ms(decodes, kv_tokens, 0.0),
            backlog_tokens,
            backlog_pairs,
            decodes,
        };
        Self { kv_tokens, start }
    }
}

impl Outlook {
    /// Looks at `demand` on a pod that has `cached_share` of its prompt, beside what other pools have
    /// there. Tokens to come take `slower` times as long as steps.
    pub fn of(
        pod: &PodState,
        steps: &StepTime,
        demand: Demand,
        cached_share: f64,
        others: Others,
        slower: f64,
    ) -> Self {
        let (ground, ledger) = (Ground::of(pod, steps, others), &pod.ledger);
        let Ground { kv_tokens, start } = ground;
        let Start { chunk, step_ms, backlog_tokens: ahead_tokens, decodes, .. } = start;
        let prompt = Prefill::of(demand.input_tokens, cached_share);
        let uncached_tokens = prompt.tokens;
        // The dearest chunk of the newcomer is its last one.
        let last = chunk.min(uncached_tokens);
        let last_pairs = prefill_pairs(last, (demand.input_tokens - last).max(0.0));
        let kv_with = kv_tokens + demand.input_tokens;
        let full_step_ms = steps.step_ms(decodes, kv_tokens, chunk);
        let full_step_ms = full_step_ms + steps.prefill_ms(0.0, last_pairs);
        let pace_with_ms = steps.pace_ms(decodes + demand.sequences, kv_with);
        let ttft_ms = start.ttft_ms(steps, prompt);
        Self {
            pod: pod.spec.id,
            empty: ledger.is_empty(),
            uncached_tokens,
            backlog_tokens: ledger.pending_tokens(),
            ahead_tokens,
            pending: ledger.pending().len(),
            step_ms,
            pace_ms: step_ms * steps.steps_per_token,
            pace_with_ms,
            token_ms: slower * pace_with_ms,
            full_pace_ms: full_step_ms * steps.steps_per_token,
            stall_ms: start.stall_ms(steps, prompt),
            own_stall_ms: steps.prefill_ms(prompt.tokens, prompt.pairs),
            decodes,
            ttft_ms,
            tie_ms: ttft_ms,
            per_prefill_ms: steps.per_prefill_ms,
            api_ms: steps.api_ms,
            is_apart: true,
            place: 0,
        }
    }

    /// The same of a pod that steps together with others: no step is over before theirs is, and a prompt holds up all of them.
    #[must_use]
    pub fn among(
        self,
        together: &Together,
        steps: &StepTime,
        prompt: Prefill,
        chunk_tokens: u32,
    ) -> Self {
        let chunk = (f64::from(chunk_tokens) - self.decodes).max(1.0);
        let chunks = whole_up((self.ahead_tokens + prompt.tokens) / chunk);
        let step_ms = self.step_ms.max(together.step_ms);
        let longer_ms = (step_ms - self.step_ms) * steps_before_first_token(chunks)
            + together.longer_ms(steps, prompt, [chunks, chunk]);
        let least_ms = together.step_ms * steps.steps_per_token;
        let pace_with_ms = self.pace_with_ms.max(least_ms);
        let slower = if self.pace_with_ms > 0.0 { self.token_ms / self.pace_with_ms } else { 1.0 };
        let stall_ms = together.stall_ms(steps, prompt);
        let own_stall_ms = stall_ms - together.stall_ms(steps, Prefill::default());
        Self {
            empty: self.empty && together.empty,
            step_ms,
            pace_ms: step_ms * steps.steps_per_token,
            pace_with_ms,
            token_ms: slower * pace_with_ms,
            full_pace_ms: self.full_pace_ms.max(least_ms),
            stall_ms,
            own_stall_ms,
            ttft_ms: self.ttft_ms + longer_ms,
            tie_ms: self.tie_ms + own_stall_ms,
            is_apart: false,
            ..self
        }
    }

    /// TPOT with the rate of prefills as it is, in milliseconds. Only what is predicted needs it, and the
    /// rate costs more than all the rest of an outlook.
    pub fn tpot_ms(&self, prefill_rate: f64) -> f64 {
        self.pace_with_ms * slower(prefill_rate * self.per_prefill_ms / 1000.0)
    }
}

/// How many times as long steps take on a pod of whose time prompts take that share.
pub fn slower(prefill_share: f64) -> f64 {
    1.0 / (1.0 - prefill_share.min(MOST_PREFILL_SHARE))
}

/// Time per token of a request that is alone on a pod, in milliseconds: no pace is better.
pub fn alone_ms(steps: &StepTime, demand: &Demand) -> f64 {
    steps.pace_ms(demand.sequences, demand.input_tokens)
}

/// TTFT of a prompt on an idle pod that has a share of it cached, in milliseconds: nothing can be faster.
pub fn best_ttft_ms(
    steps: &StepTime,
    chunk_tokens: u32,
    input_tokens: f64,
    cached_share: f64,
) -> f64 {
    let Prefill { tokens, pairs } = Prefill::of(input_tokens, cached_share);
    let chunks = whole_up(tokens / f64::from(chunk_tokens.max(1)));
    steps.base_ms * chunks + steps.prefill_ms(tokens, pairs) + steps.api_ms
}
