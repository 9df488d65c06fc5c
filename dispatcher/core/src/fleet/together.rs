//! Engines of one server that step together, as those of a mixture of experts do: every step takes all of them as long as the one
//! that has most to do.
//!
//! So what decodes there has the pace of the slowest, and a prompt holds up everybody on all of them. But prompts that begin with the same
//! step do so together: the second one, on another engine, takes nobody anything as long as it is no longer than the first.

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{
    Time,
    fleet::{Others, PodState},
    headroom::{
        Ground,
        start::{Prefill, Start},
    },
};

/// The engines that step together with a pod, and what all of them have to do.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Whether nothing of ours is on the others.
    pub empty: bool,
    /// Time of a step without prompts, in milliseconds: that of the slowest of all.
    pub step_ms: f64,
    /// How much sooner the pod itself would be done with it, in milliseconds.
    spare_ms: f64,
    /// What the prompts that are being computed on any of them add to the step that runs, in milliseconds.
    begun_ms: f64,
    /// What those of the others add to the steps after it, in milliseconds.
    next_ms: f64,
    /// What the pod itself has for these.
    own: Prefill,
}

/// What one of them has to do.
struct Part {
    /// Time of its step without prompts, in milliseconds.
    step_ms: f64,
    /// What of its prompts is in the step that runs.
    begun: Prefill,
    /// What is left of them for those after it.
    next: Prefill,
}

impl Part {
    /// The step that runs ends after one was last seen to end, `last`; what was sent since begins after it.
    fn of(pod: &PodState, steps: &StepTime, last: Time) -> Self {
        let Start { step_ms, chunk, backlog_tokens: tokens, backlog_pairs: pairs, .. } =
            Ground::of(pod, steps, Others::default()).start;
        let sent = pod.ledger.pending().iter().rev().take_while(|prompt| prompt.since >= last);
        let sent_tokens: f64 = sent.map(|prompt| prompt.uncached_tokens).sum();
        let begun_tokens = (tokens - sent_tokens).clamp(0.0, chunk);
        let begun = if tokens > 0.0 { begun_tokens / tokens } else { 0.0 };
        let share = |share: f64| Prefill { tokens: share * tokens, pairs: share * pairs };
        Self { step_ms, begun: share(begun), next: share(1.0 - begun) }
    }
}

/// How much longer a step takes by prompts on a pod that is done with it so much sooner than another, in milliseconds.
fn longer_by_ms(steps: &StepTime, prompts: Prefill, spare_ms: f64) -> f64 {
    (steps.prefill_ms(prompts.tokens, prompts.pairs) - spare_ms).max(0.0)
}

impl Together {
    /// A pod among the others of its server.
    pub fn of<'a>(
        pod: &PodState,
        others: impl Iterator<Item = &'a PodState> + Clone,
        steps: &StepTime,
    ) -> Self {
        let pulses = others.clone().map(|other| other.pulse.last_step_at);
        let last = pulses.fold(pod.pulse.last_step_at, Time::max);
        let own = Part::of(pod, steps, last);
        let parts: SmallVec<[Part; 8]> =
            others.clone().map(|other| Part::of(other, steps, last)).collect();
        let step_ms = parts.iter().map(|part| part.step_ms).fold(own.step_ms, f64::max);
        let longest_ms = |of: &dyn Fn(&Part) -> Prefill| {
            let each =
                parts.iter().map(|part| longer_by_ms(steps, of(part), step_ms - part.step_ms));
            each.fold(0.0, f64::max)
        };
        let spare_ms = step_ms - own.step_ms;
        Self {
            empty: others.clone().all(|other| other.ledger.is_empty()),
            step_ms,
            spare_ms,
            begun_ms: longest_ms(&|part| part.begun).max(longer_by_ms(steps, own.begun, spare_ms)),
            next_ms: longest_ms(&|part| part.next),
            own: own.next,
        }
    }

    /// Time by which everybody there is held up by what they have to compute and so much more on this pod, in milliseconds.
    pub fn stall_ms(&self, steps: &StepTime, more: Prefill) -> f64 {
        self.begun_ms + self.next_ms.max(self.own_ms(steps, more))
    }

    /// How much longer than by its own work a prompt takes there that has so many chunks before its first token, of so many tokens each, in
    /// milliseconds.
    pub fn longer_ms(&self, steps: &StepTime, prompt: Prefill, [chunks, chunk]: [f64; 2]) -> f64 {
        let own_ms = self.own_ms(steps, prompt);
        // Of the prompts of others, as much as these steps have room for.
        let next_ms = self.next_ms.min(chunks * steps.prefill_ms(chunk, 0.0).max(0.0));
        (self.begun_ms + next_ms.max(own_ms) - own_ms - self.spare_ms).max(0.0)
    }

    fn own_ms(&self, steps: &StepTime, more: Prefill) -> f64 {
        let Prefill { tokens, pairs } = self.own;
        let all = Prefill { tokens: tokens + more.tokens, pairs: pairs + more.pairs };
        longer_by_ms(steps, all, self.spare_ms)
    }
}
