//! Responses that are not streamed: nothing is seen of them until their end, but they fill a pod like any
//! other, so the ledger moves them on by what is known.
//!
//! - **First token.** After the predicted time, corrected by what streams needed of theirs lately. Not
//!   before the prompts that were sent ahead of it, and at the latest when a prompt that was sent after
//!   it has its own: engines prefill in order.
//! - **Tokens.** At the pace of steps, by the step-time model.

use std::time::Duration;

use weir_schema::Prediction;

use crate::{Event, PodId, RequestId, TICK, Time, scheduler::Scheduler};

/// Weight of the newest stream in the correction: it looks back over some fifty.
const WEIGHT: f64 = 0.02;
/// Largest correction that one stream asks for, as a logarithm.
const MOST: f64 = 1.0;

/// How long streams needed to their first token lately, against what was predicted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    /// Recent mean of ln(measured / predicted).
    log: f64,
}

impl Lateness {
    /// Learns from a first token that was seen.
    pub(super) fn learn(&mut self, predicted: &Prediction, measured_ms: f64) {
        let log = (measured_ms / f64::from(predicted.ttft_ms.p50)).ln();
        if log.is_finite() {
            self.log += WEIGHT * (log.clamp(-MOST, MOST) - self.log);
        }
    }

    /// When the first token of a response that is not streamed is due, if it is sent at `sent`.
    pub(super) fn first_token(&self, sent: Time, predicted: &Prediction) -> Time {
        let ttft_s = f64::from(predicted.ttft_ms.p50) / 1000.0 * self.log.exp();
        // The prior of a step-time model gone mad may still be no time at all.
        sent.plus(Duration::try_from_secs_f64(ttft_s).unwrap_or_default())
    }
}

impl Scheduler {
    /// Brings the ledgers up to now before an event is judged by them: first tokens when one may be due,
    /// tokens at most once in [`TICK`]. Ticks alone would not do: they come only while something waits.
    pub(super) fn advance_unstreamed(&mut self, now: Time, event: &Event) {
        if self.unstreamed == 0 {
            return;
        }
        if self.thorough || now >= self.starts_at {
            self.start(now);
        }
        let late = now.since(self.advanced_at) >= TICK;
        let looks = matches!(event, Event::Arrive(_) | Event::Progress(_));
        if matches!(event, Event::Tick) || (looks && late) {
            self.advanced_at = now;
            self.move_on(now);
        }
    }

    /// Assumes the first tokens that are due.
    fn start(&mut self, now: Time) {
        let mut starts = Vec::new();
        self.starts_at = Time::NEVER;
        for state in self.pods.values() {
            let pod = state.spec.id;
            let pending = state.ledger.pending().iter();
            let due = pending.map_while(|one| Some((one.id, one.assumed_first_token?)));
            let mut due = due.peekable();
            starts.extend(
                std::iter::from_fn(|| due.next_if(|(_, at)| *at <= now))
                    .map(|(id, at)| (pod, id, at)),
            );
            self.starts_at = due.peek().map_or(self.starts_at, |(_, at)| self.starts_at.min(*at));
        }
        // At the moment that was assumed: the last event may be long ago.
        starts.into_iter().for_each(|(pod, id, at)| self.become_resident(at, pod, id));
    }

    /// The prompt that is computed next on a pod may be another: its first token may be the next that is due.
    pub(super) fn note_start(&mut self, pod: PodId) {
        let first = self.pods.get(&pod).and_then(|pod| pod.ledger.pending().first());
        if let Some(at) = first.and_then(|first| first.assumed_first_token) {
            self.starts_at = self.starts_at.min(at);
        }
    }

    /// The first token of a stream was seen: what was sent to its pod before it has one too.
    pub(super) fn start_before(&mut self, now: Time, pod: PodId, id: RequestId) {
        let Some(state) = self.pods.get(&pod) else { return };
        let pending = state.ledger.pending();
        let Some(before) = pending.iter().position(|one| one.id == id) else { return };
        let before = pending.iter().take(before);
        let hidden = before.filter(|one| one.assumed_first_token.is_some());
        let starts: Vec<RequestId> = hidden.map(|one| one.id).collect();
        starts.into_iter().for_each(|id| self.become_resident(now, pod, id));
    }

    fn move_on(&mut self, now: Time) {
        let mut moves = Vec::new();
        for state in self.pods.values() {
            let pod = state.spec.id;
            let steps = self.step_time(state.spec.class);
            let token_ms = steps.pace_ms(state.ledger.decodes(), state.ledger.kv_tokens()).max(1.0);
            let residents = state.ledger.residents().iter().enumerate();
            let hidden = residents.filter(|(_, one)| !one.streamed);
            moves.extend(hidden.filter_map(|(seat, one)| {
                let most = one.max_output_tokens.unwrap_or(u32::MAX);
                let generated = 1.0 + now.ms_since(one.first_token) / token_ms;
                let generated = (generated as u32).min(most);
                (generated > one.generated).then_some((pod, seat, generated))
            }));
        }
        // Nobody comes or goes meanwhile: each keeps its place.
        moves
            .into_iter()
            .for_each(|(pod, seat, generated)| self.advance_seat(pod, seat, generated));
    }
}
