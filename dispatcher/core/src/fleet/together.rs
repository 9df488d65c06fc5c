//! Engines that step together, as those of a mixture of experts do: every step takes all of them as long as the one
//! that has most to do.
//!
//! So what decodes there has the pace of the slowest, and a prompt holds up everybody on all of them. But prompts that begin with the same
//! step do so together: the second one, on another engine, takes nobody anything as long as it is no longer than the first.

use weir_schema::StepTime;

use crate::{
    Time,
    fleet::{Others, PodState},
    headroom::{
        Ground,
        start::{Prefill, Start},
    },
};

/// Engines that step together, and what each has to do.
#[derive(Debug)]
pub struct Whole {
    /// The step times by which it is told.
    pub steps: StepTime,
    parts: Vec<Part>,
    /// Time of a step without prompts, in milliseconds: that of the slowest.
    step_ms: f64,
    /// What prompts add to the step that runs, in milliseconds.
    begun_ms: f64,
    /// The most that an engine's prompts add to the steps after it, and what those of the next one do, in milliseconds.
    next_ms: [f64; 2],
    /// Engines that have something of ours.
    busy: usize,
}

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
#[derive(Debug)]
struct Part {
    /// Nothing of ours.
    empty: bool,
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
        let empty = pod.ledger.is_empty();
        Self { empty, step_ms, begun: share(begun), next: share(1.0 - begun) }
    }
}

/// How much longer a step takes by prompts on a pod that is done with it so much sooner than another, in milliseconds.
fn longer_by_ms(steps: &StepTime, prompts: Prefill, spare_ms: f64) -> f64 {
    (steps.prefill_ms(prompts.tokens, prompts.pairs) - spare_ms).max(0.0)
}

impl Whole {
    /// Of these engines.
    pub fn of<'a>(pods: impl Iterator<Item = &'a PodState> + Clone, steps: &StepTime) -> Self {
        let last = pods.clone().map(|pod| pod.pulse.last_step_at).fold(Time::ZERO, Time::max);
        let parts: Vec<Part> = pods.map(|pod| Part::of(pod, steps, last)).collect();
        let step_ms = parts.iter().map(|part| part.step_ms).fold(0.0, f64::max);
        let longer_ms = |part: &Part, prompts| longer_by_ms(steps, prompts, step_ms - part.step_ms);
        let begun_ms = parts.iter().map(|part| longer_ms(part, part.begun)).fold(0.0, f64::max);
        let mut next_ms = [0.0; 2];
        for part in &parts {
            let [most, second] = next_ms;
            let ms = longer_ms(part, part.next);
            next_ms = if ms > most { [ms, most] } else { [most, ms.max(second)] };
        }
        let busy = parts.iter().filter(|part| !part.empty).count();
        Self { steps: *steps, parts, step_ms, begun_ms, next_ms, busy }
    }

    /// One of them, by its order, among the others.
    pub fn around(&self, one: usize) -> Option<Together> {
        let own = self.parts.get(one)?;
        let spare_ms = self.step_ms - own.step_ms;
        let [most, second] = self.next_ms;
        let own_ms = longer_by_ms(&self.steps, own.next, spare_ms);
        Some(Together {
            empty: self.busy == usize::from(!own.empty),
            step_ms: self.step_ms,
            spare_ms,
            begun_ms: self.begun_ms,
            next_ms: if own_ms < most { most } else { second },
            own: own.next,
        })
    }
}

impl Together {
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
