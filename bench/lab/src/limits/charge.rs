//! The least that engines charge for work: a linear lower bound of the step's cost, and the time that nothing can beat.
//!
//! A step takes `a + f(tokens) + d * context + e * pairs` with `f` the hinge ([`weir_engine::step_ms`]). Whatever a step
//! carries, it takes at least `token_ms` for each of its tokens, with `token_ms` the least of `(a + f(T)) / T` over the tokens
//! `T` that a step may have: so much time of a pod is gone for each token, however well it is batched. Context and pairs
//! add up exactly, so they are charged as they are.

use weir_engine::{EngineConfig, Hardware};

use super::work::Work;

/// The least that one kind of engine charges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Charge {
    /// Milliseconds of a pod per token of a step, its share of the base included.
    pub(super) token_ms: f64,
    /// Milliseconds per token of context that a decode reads.
    pub(super) context_ms: f64,
    /// Milliseconds per pair of a prompt's token and one before it.
    pub(super) pair_ms: f64,
    /// Milliseconds before the scheduler sees a request.
    pub(super) api_ms: f64,
    /// Milliseconds of a step without tokens.
    base_ms: f64,
    /// Milliseconds per token below and above the hinge.
    below_ms: f64,
    above_ms: f64,
    /// Tokens up to the hinge, and in a step.
    hinge: f64,
    chunk: f64,
    /// Tokens that its KV cache can hold.
    kv_tokens: f64,
}

impl Charge {
    /// Of an engine whose steps may all be shorter by `discount`, 1 for none.
    pub(super) fn of(engine: &EngineConfig, discount: f64) -> Self {
        let Hardware { a_ms, b_us, c_us, d_ns, e_ns, m0, .. } = engine.charged();
        let mut charge = Self {
            token_ms: 0.0,
            context_ms: d_ns * 1e-6 * discount,
            pair_ms: e_ns * 1e-6 * discount,
            api_ms: engine.api_cost_ms,
            base_ms: a_ms * discount,
            below_ms: c_us * 1e-3 * discount,
            above_ms: b_us * 1e-3 * discount,
            hinge: f64::from(m0),
            chunk: f64::from(engine.max_num_batched_tokens.max(1)),
            kv_tokens: f64::from(engine.num_blocks.saturating_sub(1))
                * f64::from(engine.block_size),
        };
        // On either side of the hinge the ratio is monotone, and below it it falls: the least is at one of two places.
        let per_token = |tokens: f64| (charge.base_ms + charge.tokens_ms(tokens)) / tokens;
        let at_hinge = per_token(charge.hinge.clamp(1.0, charge.chunk));
        charge.token_ms = at_hinge.min(per_token(charge.chunk));
        charge
    }

    fn tokens_ms(&self, tokens: f64) -> f64 {
        self.below_ms * tokens.min(self.hinge) + self.above_ms * (tokens - self.hinge).max(0.0)
    }

    /// Whether it can serve a request of that work at all.
    pub(super) fn takes(&self, work: &Work) -> bool {
        work.prompt_tokens + work.output_tokens <= self.kv_tokens
    }

    /// Milliseconds of a pod that a prompt costs.
    pub(super) fn prefill_ms(&self, work: &Work) -> f64 {
        self.token_ms * work.fresh_tokens + self.pair_ms * work.pairs
    }

    /// Milliseconds of a pod that a whole request costs.
    pub(super) fn total_ms(&self, work: &Work) -> f64 {
        let decodes = self.token_ms * work.decodes() + self.context_ms * work.context_tokens();
        self.prefill_ms(work) + decodes
    }

    /// From arrival to the first token on an idle pod that has everything cached that can be.
    ///
    /// The steps hold at least the fresh tokens, in chunks; with `m` of them the cost is `m * a` and the tokens', of which
    /// `m * hinge` can be below the hinge. That is linear in `m` on both sides of `tokens / hinge`, so the least is at one of
    /// the numbers tried.
    pub(super) fn first_token_ms(&self, work: &Work) -> f64 {
        let tokens = work.fresh_tokens;
        let least = (tokens / self.chunk).ceil().max(1.0);
        let steps_ms = |steps: f64| {
            let above = (tokens - steps * self.hinge).max(0.0);
            let dearer_ms = (self.above_ms - self.below_ms).max(0.0);
            steps * self.base_ms + self.below_ms.min(self.above_ms) * tokens + dearer_ms * above
        };
        let folds = tokens / self.hinge.max(1.0);
        let tried = [least, folds.floor().max(least), folds.ceil().max(least)];
        let best_ms = tried.map(steps_ms).into_iter().fold(f64::INFINITY, f64::min);
        self.api_ms + best_ms + self.pair_ms * work.pairs
    }

    /// A decode of a request alone on a pod, without its context.
    fn lone_step_ms(&self) -> f64 {
        self.base_ms + self.tokens_ms(1.0)
    }

    /// From the first token to the last on a pod that serves nobody else.
    pub(super) fn decode_ms(&self, work: &Work) -> f64 {
        work.decodes() * self.lone_step_ms() + self.context_ms * work.context_tokens()
    }

    /// From the mean moment at which a prompt is worked on to its first token, at least.
    ///
    /// A request has one row in a step, and its row's work `v` is no more than the step takes, so its work goes on at most
    /// at the pace of time: half of its work lies before the mean. The last of its steps takes `a + g * v` at least, with `g` what
    /// tokens cost at least as a share of [`Self::token_ms`], and what was done before it lies wholly before it; over any split
    /// of the work between the last step and the earlier ones this is at least `(a + g * v) / 2`.
    pub(super) fn prompt_tail_ms(&self, work: &Work) -> f64 {
        let work_ms = self.prefill_ms(work);
        let share = (self.below_ms.min(self.above_ms) / self.token_ms.max(1e-12)).min(1.0);
        0.5 * work_ms.max(self.base_ms + share * work_ms)
    }

    /// From the mean moment at which a request is worked on to its last token, at least: each decode is a step of its own
    /// behind the ones before it.
    pub(super) fn whole_tail_ms(&self, work: &Work) -> f64 {
        let prompt_ms = self.prefill_ms(work);
        let (mut behind_ms, mut sum, mut done_ms) = (0.0, 0.0, 0.0);
        for context in work.contexts().rev() {
            let own_ms = self.token_ms + self.context_ms * context;
            let step_ms = self.lone_step_ms() + self.context_ms * context;
            sum += own_ms * (behind_ms + 0.5 * step_ms);
            behind_ms += step_ms;
            done_ms += own_ms;
        }
        sum += prompt_ms * (behind_ms + self.prompt_tail_ms(work));
        sum / (prompt_ms + done_ms).max(1e-12)
    }
}

/// All pods of a pool as one server that does anything at once.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// What the work is counted in: the first pod's charge, without what some pod does for nothing.
    pub(super) unit: Charge,
    /// Milliseconds of that work done per millisecond, by all pods together.
    pub(super) speed: f64,
    /// The kinds of engines: no request is faster than on the best of them.
    kinds: Vec<Charge>,
}

impl Server {
    /// `None` for a pool without pods.
    pub(super) fn of(engines: &[&EngineConfig], discount: f64) -> Option<Self> {
        let charges: Vec<Charge> =
            engines.iter().map(|engine| Charge::of(engine, discount)).collect();
        let mut unit = *charges.first()?;
        let parts: [fn(&mut Charge) -> &mut f64; 3] = [
            |charge| &mut charge.token_ms,
            |charge| &mut charge.context_ms,
            |charge| &mut charge.pair_ms,
        ];
        for part in parts {
            if charges.iter().any(|charge| *part(&mut { *charge }) <= 0.0) {
                *part(&mut unit) = 0.0;
            }
        }
        // A pod is as fast as the part of the work that it does best.
        let faster = |charge: &Charge| {
            let ratios = parts.map(|part| *part(&mut { unit }) / part(&mut { *charge }).max(1e-12));
            ratios.into_iter().fold(0.0, f64::max)
        };
        let speed = charges.iter().map(faster).sum();
        let mut kinds = charges.clone();
        kinds.dedup();
        Some(Self { unit, speed, kinds })
    }

    /// The least of something over the kinds of pods that can serve a request; `None` when none can.
    pub(super) fn least(&self, work: &Work, of: fn(&Charge, &Work) -> f64) -> Option<f64> {
        let able = self.kinds.iter().filter(|charge| charge.takes(work));
        able.map(|charge| of(charge, work)).reduce(f64::min)
    }

    /// Milliseconds before any scheduler sees a request.
    pub(super) fn api_ms(&self) -> f64 {
        self.kinds.iter().map(|charge| charge.api_ms).fold(f64::INFINITY, f64::min)
    }
}
