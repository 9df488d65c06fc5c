//! What comes of dispatched requests: first tokens, further ones, and how many are still to come.

use crate::{
    PodId, PullConfig, RequestId, Time,
    fleet::PodState,
    ledger::{Come, Ledger},
    length::LengthHistory,
    scheduler::Scheduler,
};

/// The remaining length is estimated anew after this much growth of what was streamed.
const ESTIMATE_GROWTH: f64 = 1.19;

impl Scheduler {
    /// The first token of a response was relayed.
    pub(super) fn first_token(&mut self, now: Time, id: RequestId) {
        let Some(flight) = self.flights.get_mut(&id).filter(|one| one.first_token.is_none()) else {
            self.counters.ignored += 1;
            return;
        };
        flight.first_token = Some(now);
        flight.events = flight.events.max(1);
        let pod = flight.pod;
        if flight.sent >= self.stood_still_until {
            self.lateness.learn(&flight.prediction, now.ms_since(flight.sent));
            if let Some(first) = flight.first_token_of(self.pods.get(&pod), now) {
                self.predictor.observe_first_token(&first);
            }
        }
        self.start_before(now, pod, id);
        self.become_resident(now, pod, id);
        self.try_again(now, pod);
    }

    pub(super) fn become_resident(&mut self, now: Time, pod: PodId, id: RequestId) {
        let together = self.pods.step_together();
        let Some(state) = self.pods.get_mut(&pod) else { return };
        let Some((prefill, seat)) = state.ledger.first_token(id, now, &self.config.pull) else {
            return;
        };
        let resident = state.ledger.residents().get(seat);
        let (sequences, input_tokens) =
            resident.map_or((1, 0), |one| (one.sequences, one.input_tokens));
        state.looked_up.begun(f64::from(input_tokens), prefill[0]);
        estimate(&mut state.ledger, seat, &self.length, &self.config.pull);
        state.meter.began(sequences);
        if together {
            self.note_prefilled(pod, id, prefill);
        } else {
            state.stride.prefilled(prefill);
        }
        self.note_start(pod);
    }

    /// Streams have come to so many events in total.
    pub(super) fn streamed(&mut self, now: Time, streams: Vec<(RequestId, u32)>) {
        let mut moved = std::mem::take(&mut self.scratch.moved);
        let mut order = std::mem::take(&mut self.scratch.order);
        moved.clear();
        order.clear();
        for (id, events) in streams {
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let fresh = flight.come_to(events);
            order.push(u64::from(flight.pod.0) << 32 | moved.len() as u64);
            moved.push((flight.pod, (id, flight.seat), [flight.generated(), fresh]));
            if flight.first_token.is_none() {
                self.first_token(now, id);
            }
        }
        // One pod after the other, that what they need of it is in the processor's cache.
        order.sort_unstable();
        for place in &order {
            let Some((pod, one, come)) = moved.get(*place as u32 as usize) else { continue };
            let seat = self.advance(*pod, *one, *come);
            if let Some(seat) = seat.filter(|seat| *seat != one.1)
                && let Some(flight) = self.flights.get_mut(&one.0)
            {
                flight.seat = seat;
            }
        }
        self.scratch.order = order;
        self.scratch.moved = moved;
    }

    /// A resident, last seen in a place, has come to so many tokens per sequence, with so many new events. Returns where it is.
    pub(super) fn advance(
        &mut self,
        pod: PodId,
        resident: (RequestId, usize),
        [generated, fresh]: [u32; 2],
    ) -> Option<usize> {
        let pod = self.pods.get_mut(&pod)?;
        let come = pod.ledger.progress(resident, generated, &self.config.pull);
        pod.meter.came(fresh);
        note_progress(pod, come, f64::from(fresh), &self.length, &self.config.pull);
        come.map(|come| come.seat)
    }

    /// The same of the one in a place among a pod's residents, whose events are not seen.
    pub(super) fn advance_seat(&mut self, pod: PodId, seat: usize, generated: u32) {
        let Some(pod) = self.pods.get_mut(&pod) else { return };
        let come = pod.ledger.progress_of(seat, generated, &self.config.pull);
        let tokens = come.map_or(0.0, |come| f64::from(come.tokens));
        let events = tokens / self.per_event.tokens_per_event(pod.spec.class);
        note_progress(pod, come, events, &self.length, &self.config.pull);
    }
}

/// A resident has come further, if it is there.
fn note_progress(
    pod: &mut PodState,
    come: Option<Come>,
    events: f64,
    length: &LengthHistory,
    config: &PullConfig,
) {
    let Some(come) = come else { return };
    if come.is_due {
        estimate(&mut pod.ledger, come.seat, length, config);
    }
    pod.stride.streamed(events);
}

/// Estimates anew how many tokens a resident still has to come.
pub(super) fn estimate(
    ledger: &mut Ledger,
    seat: usize,
    length: &LengthHistory,
    config: &PullConfig,
) {
    let Some(resident) = ledger.residents().get(seat) else { return };
    let remaining = length.remaining(
        resident.tenant.as_ref(),
        resident.input_tokens,
        resident.max_output_tokens,
        resident.generated,
        config.remaining_quantile as f32,
    );
    let next = (f64::from(resident.generated) * ESTIMATE_GROWTH).ceil();
    let estimate_at = (next as u32).max(resident.generated.saturating_add(1));
    ledger.expect(seat, f64::from(remaining.max(1)), estimate_at, config);
}
