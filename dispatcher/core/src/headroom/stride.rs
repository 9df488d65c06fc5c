//! A pod's steps as seen in its streams: the observations from which step times are learned.
//!
//! Between two looks the meter adds up what the pod did: steps that ended, events that were
//! streamed, prompts that produced their first token. A stride is cut off when it holds enough steps
//! and thrown away when the pod was idle in between, for then its time says nothing.
//!
//! A prompt counts where its first token comes. So a stride that ends while one is half computed waits for it: else its time would be
//! put down to one stride and its tokens to the next. And one begins with a step that is seen to end: the last one before may be the
//! one after which the pod stood idle.
//!
//! Steps are those that the pod's pulse shows, of all streams together. Several engines behind one port (data parallel) step each for
//! itself, and the pulse shows the steps of all of them, run together where they fall into one moment. There a step is what brings a
//! resident its next event: as many have ended as events came to each, on average.

use std::time::Duration;

use weir_schema::Stride;

use crate::{Pulse, Time, ledger::Ledger};

/// Steps that make a stride.
const STEPS: f64 = 8.0;
/// Steps after which it waits for no prompt: on some pods one is always half computed.
const MOST_STEPS: f64 = 64.0;
/// A stride that takes longer was interrupted.
const TOO_LONG: Duration = Duration::from_secs(30);
/// Weight of the newest stride in the mean gap.
const GAP_WEIGHT: f64 = 0.3;

#[derive(Clone, Copy, Debug)]
struct Open {
    began: Pulse,
    events: f64,
    prefill_tokens: f64,
    prefill_pairs: f64,
    kv_at_start: f64,
    /// When the ledger was last looked at.
    looked_at: Time,
    /// Time that sequences were decoding there, added up over them, in milliseconds.
    decoding_ms: f64,
    since: Time,
}

impl Open {
    /// Sequences that were decoding there, on average.
    fn decodes(&self) -> f64 {
        self.decoding_ms / self.looked_at.ms_since(self.since)
    }
}

/// A stride that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What it was, with the events that were streamed in place of its decoding sequences.
    pub stride: Stride,
    /// Those, as the ledger had them.
    pub decode_steps: f64,
}

/// Whether a pod's next prompt is being computed.
pub fn is_begun(ledger: &Ledger, pulse: Pulse) -> bool {
    ledger.pending().first().is_some_and(|prompt| prompt.since < pulse.last_step_at)
}

/// Adds up one pod's steps.
#[derive(Clone, Copy, Debug, Default)]
pub struct StrideMeter {
    open: Option<Open>,
    /// Steps at the last look without an open stride, since the pod was idle.
    idle_steps: Option<u64>,
    gap_ms: Option<f64>,
}

impl StrideMeter {
    /// Events were streamed.
    pub fn streamed(&mut self, events: f64) {
        if let Some(open) = &mut self.open {
            open.events += events;
        }
    }

    /// A prompt with so many uncached tokens, and pairs of them, produced its first token.
    pub fn prefilled(&mut self, [tokens, pairs]: [f64; 2]) {
        if let Some(open) = &mut self.open {
            open.prefill_tokens += tokens;
            open.prefill_pairs += pairs;
        }
    }

    /// The pod has nothing of ours any more: time that passes now says nothing.
    pub fn idle(&mut self) {
        (self.open, self.idle_steps) = (None, None);
    }

    /// Mean gap between steps, lately, in milliseconds.
    pub const fn gap_ms(&self) -> Option<f64> {
        self.gap_ms
    }

    /// The pod's streams moved. Returns a stride when one is complete. Steps are counted by the events of
    /// streams where they are those of several engines, else by the pulse. `held_up`: what steps together with it is at a prompt.
    pub fn pulse(
        &mut self,
        pulse: Pulse,
        ledger: &Ledger,
        class: u16,
        [by_events, held_up]: [bool; 2],
        now: Time,
    ) -> Option<Seen> {
        let kv = ledger.kv_tokens();
        let fresh = Open {
            began: pulse,
            events: 0.0,
            prefill_tokens: 0.0,
            prefill_pairs: 0.0,
            kv_at_start: kv,
            decoding_ms: 0.0,
            looked_at: now,
            since: now,
        };
        let Some(open) = &mut self.open else {
            let before = self.idle_steps.replace(pulse.steps);
            let ended = before.is_some_and(|before| before < pulse.steps);
            self.open = ended.then_some(fresh);
            return None;
        };
        open.decoding_ms += ledger.decodes() * now.ms_since(open.looked_at);
        open.looked_at = now;
        let (open, decodes) = (*open, open.decodes());
        let shown = pulse.steps.saturating_sub(open.began.steps) as f64;
        let steps = if by_events { open.events / decodes } else { shown };
        if now.since(open.began.last_step_at) > TOO_LONG {
            self.open = Some(fresh);
            return None;
        }
        let half_computed = steps < MOST_STEPS && (held_up || is_begun(ledger, pulse));
        // Where nothing decodes no step is seen.
        if !steps.is_finite() || steps < STEPS || half_computed {
            return None;
        }
        self.open = Some(fresh);
        let busy_ms = pulse.last_step_at.ms_since(open.began.last_step_at);
        let gap_ms = busy_ms / steps;
        self.gap_ms = Some(self.gap_ms.map_or(gap_ms, |mean| mean + GAP_WEIGHT * (gap_ms - mean)));
        let stride = Stride {
            pod_class: class,
            steps,
            busy_ms,
            decode_steps: open.events,
            kv_token_steps: f64::midpoint(open.kv_at_start, kv) * steps,
            prefill_tokens: open.prefill_tokens,
            prefill_pairs: open.prefill_pairs,
        };
        Some(Seen { stride, decode_steps: decodes * steps })
    }
}
