//! What requests ask of an engine, in sums that any step-time model can be put to.

use std::ops::{Add, Mul};

use serde::{Deserialize, Serialize};
use weir_schema::{StepTime, prefill_pairs};

use crate::{PodClass, Role, headroom::start};

/// Least share of a step that is taken to be left beside what an empty one takes: a pace that no pod can keep is not asked for.
const LEAST_LEFT: f64 = 0.1;

/// What requests ask of an engine: sums, so that those of several add up, and so do those of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Output tokens, over all sequences.
    pub decodes: f64,
    /// Tokens of context that each of them attends to, summed.
    pub kv_token_steps: f64,
    /// Those of them that are no other request's.
    pub own_token_steps: f64,
    /// Prompt tokens to compute.
    pub prefill_tokens: f64,
    /// Pairs of such a token and one before it.
    pub prefill_pairs: f64,
}

impl Work {
    /// Of one request: prompt tokens over all sequences and output tokens of each, and the share of the prompt that is cached.
    pub fn of([input_tokens, output_tokens]: [f64; 2], cached_share: f64, sequences: f64) -> Self {
        let prefill_tokens = start::uncached(input_tokens, cached_share);
        let grown = output_tokens * sequences / 2.0;
        Self {
            decodes: output_tokens * sequences,
            kv_token_steps: output_tokens * (input_tokens + grown),
            own_token_steps: output_tokens * (prefill_tokens + grown),
            prefill_tokens,
            prefill_pairs: prefill_pairs(prefill_tokens, input_tokens - prefill_tokens),
        }
    }

    /// Of one whose prompt another pod has computed: all of it is loaded, and nobody else's.
    pub fn loaded(sizes: [f64; 2], sequences: f64) -> Self {
        let cold = Self::of(sizes, 0.0, sequences);
        Self { prefill_tokens: 1.0, prefill_pairs: cold.prefill_tokens, ..cold }
    }

    /// Whether requests can ask for it.
    pub fn is_sound(&self) -> bool {
        let Self { decodes, kv_token_steps, own_token_steps, prefill_tokens, prefill_pairs } = self;
        let sums = [decodes, kv_token_steps, own_token_steps, prefill_tokens, prefill_pairs];
        sums.into_iter().all(|sum| sum.is_finite() && *sum >= 0.0)
    }

    /// Each of its sums times that of another.
    pub fn times(self, factors: Self) -> Self {
        self.zip(factors, |one, factor| one * factor)
    }

    /// Each of its sums over that of another; 1 where the other has none.
    pub fn over(self, other: Self) -> Self {
        self.zip(other, |one, other| if other > 0.0 { one / other } else { 1.0 })
    }

    fn zip(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            decodes: of(self.decodes, other.decodes),
            kv_token_steps: of(self.kv_token_steps, other.kv_token_steps),
            own_token_steps: of(self.own_token_steps, other.own_token_steps),
            prefill_tokens: of(self.prefill_tokens, other.prefill_tokens),
            prefill_pairs: of(self.prefill_pairs, other.prefill_pairs),
        }
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |one, other| one + other)
    }
}

impl Mul<f64> for Work {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        self.zip(self, |one, _| one * factor)
    }
}

/// What one pod can do.
#[derive(Clone, Copy, Debug)]
pub struct Capacity<'a> {
    /// Its class.
    pub class: &'a PodClass,
    /// Its step times.
    pub steps: &'a StepTime,
    /// Tokens that its cache holds.
    pub kv_tokens: f64,
}

impl Capacity<'_> {
    /// How many such pods so much work in a second takes, if it came evenly and every token took `tpot_ms`.
    ///
    /// Steps take that long then, less where one brings several tokens, and what an empty step takes of it is lost: the rest of a second
    /// goes to tokens and prompts. Whoever answers meanwhile is on the pod, as one of its sequences and with its tokens in the cache.
    pub fn pods(&self, per_second: &Work, tpot_ms: f64) -> f64 {
        let Self { class, steps, kv_tokens } = *self;
        let prompts_ms = steps.prefill_ms(per_second.prefill_tokens, per_second.prefill_pairs);
        // Nobody's tokens wait for a step there.
        if class.role == Role::Prefill {
            return prompts_ms / 1e3;
        }
        let tokens_ms =
            steps.per_decode_ms * per_second.decodes + steps.per_kv_ms * per_second.kv_token_steps;
        let left = (1.0 - steps.base_ms * steps.steps_per_token / tpot_ms).max(LEAST_LEFT);
        let busy = (prompts_ms + tokens_ms * steps.steps_per_token) / (1e3 * left);
        let at_once = tpot_ms / 1e3;
        let sequences = per_second.decodes * at_once / f64::from(class.max_sequences.max(1));
        let cache = per_second.own_token_steps * at_once / kv_tokens.max(1.0);
        busy.max(sequences).max(cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: StepTime = StepTime {
        base_ms: 10.0,
        per_decode_ms: 0.1,
        per_kv_ms: 1e-5,
        per_prefill_ms: 0.05,
        per_pair_ms: 0.0,
        api_ms: 0.0,
        steps_per_token: 1.0,
    };

    fn pods(work: Work, tpot_ms: f64, class: &PodClass, kv_tokens: f64) -> f64 {
        Capacity { class, steps: &STEPS, kv_tokens }.pods(&work, tpot_ms)
    }

    #[test]
    fn a_pod_at_the_pace_asked_for_is_one_pod() {
        // 100 sequences of 1,000 tokens take steps of 10 + 10 + 1 ms, and 580 prompt tokens 29: 50 ms for 100 tokens.
        let step =
            Work { decodes: 100.0, kv_token_steps: 1e5, prefill_tokens: 580.0, ..Work::default() };
        let class = PodClass::default();
        assert!((pods(step * 20.0, 50.0, &class, 1e9) - 1.0).abs() < 1e-9);
        assert!((pods(step * 60.0, 50.0, &class, 1e9) - 3.0).abs() < 1e-9, "in proportion");
        let slower = pods(step * 20.0, 100.0, &class, 1e9);
        assert!((slower - 0.8 / 0.9).abs() < 1e-9, "who has more time loses less by empty steps");
    }

    #[test]
    fn what_fills_first_counts() {
        let class = PodClass { max_sequences: 50, ..PodClass::default() };
        let work = Work::of([1000.0, 100.0], 0.5, 1.0);
        assert_eq!((work.prefill_tokens, work.own_token_steps), (500.0, 55_000.0));
        let busy = pods(work, 50.0, &PodClass::default(), 1e9);
        // Ten a second, each there for five seconds.
        assert!((pods(work * 10.0, 50.0, &class, 1e9) - 1.0).abs() < 1e-9);
        assert!((pods(work * 10.0, 50.0, &PodClass::default(), 27_500.0) - 1.0).abs() < 1e-9);
        assert!(busy * 10.0 < 1.0);
    }

    #[test]
    fn a_pod_that_prefills_has_all_of_its_time_for_that() {
        let class = PodClass { role: Role::Prefill, max_sequences: 1, ..PodClass::default() };
        let work = Work::of([1000.0, 1.0], 0.0, 1.0);
        assert!((pods(work * 20.0, 50.0, &class, 1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_pace_that_no_pod_keeps_takes_no_endless_number() {
        let class = PodClass::default();
        let work = Work { decodes: 1000.0, ..Work::default() };
        assert!((pods(work, 5.0, &class, 1e9) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn sequences_share_a_prompt_of_theirs() {
        let four = Work::of([400.0, 10.0], 0.0, 4.0);
        assert_eq!((four.decodes, four.kv_token_steps), (40.0, 10.0 * (400.0 + 20.0)));
    }
}
