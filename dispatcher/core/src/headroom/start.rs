//! When a prompt's first token would come, by the step-time model, and what a request costs all together: on one pod, and on
//! many at once.
//!
//! It is the first question of every decision and asked of every pod. So what it takes of the pods lies side by side, a row for each
//! number, and the arithmetic is what every processor does on several of them at a time: no calls, no branches.

use std::ops::Range;

use weir_schema::{StepTime, prefill_pairs};

use crate::headroom::Demand;

/// Steps between arrival at an engine and the step that starts the prefill: half of the running
/// one, and one that is scheduled ahead (asynchronous scheduling).
const STEPS_BEFORE_PREFILL: f64 = 1.5;

/// Added to a count from 0 to half of it, it leaves no room for a fraction.
const NO_FRACTION: f64 = (1_u64 << 52) as f64;

/// Steps until the first token of a prompt comes that is computed in so many.
pub fn steps_before_first_token(chunks: f64) -> f64 {
    STEPS_BEFORE_PREFILL + chunks
}

/// What of a prompt is to be computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Tokens.
    pub tokens: f64,
    /// Pairs of them and a token before each.
    pub pairs: f64,
}

impl Prefill {
    /// Of a prompt where a share of it is cached.
    pub fn of(input_tokens: f64, cached_share: f64) -> Self {
        let tokens = uncached(input_tokens, cached_share);
        Self { tokens, pairs: prefill_pairs(tokens, (input_tokens - tokens).max(0.0)) }
    }
}

/// What of a pod decides when a first token would come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Start {
    /// Prompt tokens that a step has room for beside what decodes.
    pub chunk: f64,
    /// Step time, in milliseconds.
    pub step_ms: f64,
    /// Uncached tokens pending that are thought to be still to compute.
    pub backlog_tokens: f64,
    /// Pairs of them and a token before each.
    pub backlog_pairs: f64,
    /// Sequences that decode there once what is pending does.
    pub decodes: f64,
}

impl Start {
    /// TTFT of a prompt from dispatch, in milliseconds.
    pub fn ttft_ms(&self, steps: &StepTime, prompt: Prefill) -> f64 {
        let work = self.backlog_tokens + prompt.tokens;
        let prefill_ms = whole_up(work / self.chunk) * self.step_ms + self.stall_ms(steps, prompt);
        STEPS_BEFORE_PREFILL * self.step_ms + prefill_ms + steps.api_ms
    }

    /// How long a prompt takes there from its first chunk on if nothing is before it, and how long it waits for that, in milliseconds.
    pub fn takes_ms(&self, steps: &StepTime, prompt: Prefill) -> [f64; 2] {
        let chunks = whole_up(prompt.tokens / self.chunk);
        let takes_ms = chunks * self.step_ms + steps.prefill_ms(prompt.tokens, prompt.pairs);
        [takes_ms, STEPS_BEFORE_PREFILL * self.step_ms + steps.api_ms]
    }

    /// Time by which the prefills delay the residents, in milliseconds.
    pub fn stall_ms(&self, steps: &StepTime, prompt: Prefill) -> f64 {
        steps.prefill_ms(self.backlog_tokens + prompt.tokens, self.backlog_pairs + prompt.pairs)
    }

    /// About what a request that is promised nothing costs all together there (`decide::delay`), in milliseconds: without
    /// the prompts that will come between its tokens.
    fn delay_ms(
        &self,
        steps: &StepTime,
        prompt: Prefill,
        demand: &Demand,
        cold_weight: f64,
    ) -> f64 {
        let Demand { input_tokens, output_tokens, sequences } = *demand;
        let longer_ms = steps.per_decode_ms * sequences + steps.per_kv_ms * input_tokens;
        let steps_ms = output_tokens * (self.step_ms + longer_ms * (1.0 + self.decodes));
        let tokens_ms = steps_ms * steps.steps_per_token;
        let stalled_ms = steps.prefill_ms(prompt.tokens, prompt.pairs) * (1.0 + self.decodes);
        self.ttft_ms(steps, prompt) + tokens_ms + cold_weight * stalled_ms
    }
}

/// What is asked of every pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Question {
    /// The TTFT, in milliseconds.
    Ttft,
    /// About the time that all requests together lose, in milliseconds, where a computed prompt counts so many times.
    Delay {
        /// How many times.
        cold_weight: f64,
    },
}

/// The [`Start`]s of many pods, by their places: a row for each of its numbers, in their order.
#[derive(Debug, Default)]
pub struct Starts([Vec<f64>; 5]);

impl Starts {
    /// Makes room for so many.
    pub fn resize(&mut self, pods: usize) {
        self.0.iter_mut().for_each(|row| row.resize(pods, 0.0));
    }

    /// Sequences that decode on each once what is pending does.
    pub fn decodes(&self) -> &[f64] {
        let [.., decodes] = &self.0;
        decodes
    }

    /// Notes that of one.
    pub fn set(&mut self, place: usize, start: &Start) {
        let Start { chunk, step_ms, backlog_tokens, backlog_pairs, decodes } = *start;
        let numbers = [chunk, step_ms, backlog_tokens, backlog_pairs, decodes];
        for (known, number) in self.0.iter_mut().zip(numbers) {
            if let Some(known) = known.get_mut(place) {
                *known = number;
            }
        }
    }

    /// What is asked of some pods of one class for a request, of each of which a share of its prompt is cached.
    pub fn answer(
        &self,
        places: Range<usize>,
        steps: &StepTime,
        (question, demand): (Question, &Demand),
        cached_shares: &[f64],
        answers_ms: &mut [f32],
    ) {
        // Asked before the loop, which has no branch then.
        match question {
            Question::Ttft => self.each(places, cached_shares, answers_ms, |start, share| {
                start.ttft_ms(steps, Prefill::of(demand.input_tokens, share))
            }),
            Question::Delay { cold_weight } => {
                self.each(places, cached_shares, answers_ms, |start, share| {
                    let prompt = Prefill::of(demand.input_tokens, share);
                    start.delay_ms(steps, prompt, demand, cold_weight)
                });
            }
        }
    }

    #[inline(always)]
    fn each(
        &self,
        places: Range<usize>,
        cached_shares: &[f64],
        answers_ms: &mut [f32],
        answer: impl Fn(Start, f64) -> f64,
    ) {
        let rows = self.0.each_ref().map(|row| row.get(places.clone()).unwrap_or_default());
        let [chunk, step_ms, backlog_tokens, backlog_pairs, decodes] = rows.map(|row| row.iter());
        let pods = chunk.zip(step_ms).zip(backlog_tokens.zip(backlog_pairs)).zip(decodes);
        for ((answer_ms, share), pod) in answers_ms.iter_mut().zip(cached_shares).zip(pods) {
            let (((&chunk, &step_ms), (&backlog_tokens, &backlog_pairs)), &decodes) = pod;
            let start = Start { chunk, step_ms, backlog_tokens, backlog_pairs, decodes };
            *answer_ms = answer(start, *share) as f32;
        }
    }
}

/// The largest whole number that is not above a count.
pub fn whole(count: f64) -> f64 {
    let near = (count + NO_FRACTION) - NO_FRACTION;
    if near > count { near - 1.0 } else { near }
}

/// The smallest whole number that is not below a count.
pub fn whole_up(count: f64) -> f64 {
    let near = (count + NO_FRACTION) - NO_FRACTION;
    if near < count { near + 1.0 } else { near }
}

/// A whole number from 0 to below 2^32, above 32 bits of zeros.
pub fn above_32_bits(whole: f64) -> u64 {
    (whole + NO_FRACTION).to_bits() << 32
}

/// Prompt tokens left to compute when a share is cached; an engine always computes at least one.
pub fn uncached(input_tokens: f64, cached_share: f64) -> f64 {
    (input_tokens * (1.0 - cached_share)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_below_and_above() {
        let counts = [0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 1023.999, 1024.0, 2e9, 1e15 + 0.5];
        for count in counts {
            assert_eq!((whole(count), whole_up(count)), (count.floor(), count.ceil()), "{count}");
            let next = count.next_up();
            assert_eq!((whole(next), whole_up(next)), (next.floor(), next.ceil()), "{next}");
        }
    }

    #[test]
    fn a_whole_number_fits_above_32_bits() {
        for whole in [0, 1, 1023, 2_000_000_000, u32::MAX] {
            assert_eq!(above_32_bits(f64::from(whole)), u64::from(whole) << 32);
        }
    }

    #[test]
    fn many_at_once_are_what_each_one_is() {
        let steps = StepTime {
            base_ms: 6.1,
            per_decode_ms: 0.03,
            per_kv_ms: 1.7e-5,
            per_prefill_ms: 0.027,
            per_pair_ms: 1.3e-6,
            api_ms: 2.5,
            steps_per_token: 0.4,
        };
        let pod = |place: usize| Start {
            chunk: 8192.0 - place as f64,
            step_ms: 7.3 + 0.01 * place as f64,
            backlog_tokens: 517.0 * (place % 7) as f64,
            backlog_pairs: 1e5 * (place % 5) as f64,
            decodes: (place % 11) as f64,
        };
        let (mut starts, shares) = (Starts::default(), [0.0, 0.3, 0.999, 0.0, 0.51, 1.0, 0.0]);
        starts.resize(40);
        (0..40).for_each(|place| starts.set(place, &pod(place)));
        for input_tokens in [1.0, 700.0, 8192.0, 120_000.0] {
            let demand = Demand { input_tokens, output_tokens: 200.0, sequences: 1.0 };
            let (mut ttfts_ms, mut delays_ms) = ([0.0; 7], [0.0; 7]);
            let delay = Question::Delay { cold_weight: 16.0 };
            starts.answer(20..27, &steps, (Question::Ttft, &demand), &shares, &mut ttfts_ms);
            starts.answer(20..27, &steps, (delay, &demand), &shares, &mut delays_ms);
            let answers = ttfts_ms.into_iter().zip(delays_ms);
            for ((place, share), (ttft_ms, delay_ms)) in (20..).zip(shares).zip(answers) {
                let prompt = Prefill::of(input_tokens, share);
                assert_eq!(ttft_ms, pod(place).ttft_ms(&steps, prompt) as f32);
                assert_eq!(delay_ms, pod(place).delay_ms(&steps, prompt, &demand, 16.0) as f32);
            }
        }
    }
}
