//! What a prompt holds up where some pods step together: its own pod, and what does so with it.

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{
    PodId, Pulse, RequestId, Time,
    headroom::{start::Prefill, stride::is_begun},
    scheduler::{Scheduler, flight::Flight},
};

impl Scheduler {
    /// A prompt is about to be sent.
    pub(super) fn hold_up(&mut self, now: Time, flight: &mut Flight, steps: &StepTime) {
        let prompt = flight.prefill();
        let ms = steps.prefill_ms(prompt.tokens, prompt.pairs);
        flight.held_up = self.share_held_up(flight.pod, prompt, ms, steps);
        let share = f64::from(flight.held_up);
        let pods = self.held_up_with(flight.pod);
        self.prefill_ms.add(now, share * ms * pods.len() as f64);
        for id in pods {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.held_up(now, share * prompt.tokens);
            }
        }
    }

    /// One that was sent is not computed any more, with so many tokens left, which take so long.
    pub(super) fn let_go_on(&mut self, now: Time, flight: &Flight, [tokens, ms]: [f64; 2]) {
        let share = f64::from(flight.held_up);
        let pods = self.held_up_with(flight.pod);
        self.prefill_ms.take_back(now, flight.sent, share * ms * pods.len() as f64);
        for id in pods {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.not_held_up(now, flight.sent, share * tokens);
            }
        }
    }

    /// One is computed: the steps that are observed took so much longer.
    pub(super) fn note_prefilled(&mut self, pod: PodId, id: RequestId, prefill: [f64; 2]) {
        let share = self.flights.get(&id).map_or(1.0, |flight| f64::from(flight.held_up));
        for id in self.held_up_with(pod) {
            if let Some(pod) = self.pods.get_mut(&id) {
                pod.stride.prefilled(prefill.map(|count| share * count));
            }
        }
    }

    /// Whether what steps together with a pod is at a prompt.
    pub(super) fn is_held_up(&self, pod: PodId, pulse: Pulse) -> bool {
        self.pods.peers(pod).any(|peer| is_begun(&peer.ledger, pulse))
    }

    /// A pod and what steps together with it.
    fn held_up_with(&self, pod: PodId) -> SmallVec<[PodId; 8]> {
        let peers = self.pods.peers(pod).map(|peer| peer.spec.id);
        std::iter::once(pod).chain(peers).collect()
    }

    /// Share of a prompt by which it holds up what steps together with its pod.
    fn share_held_up(&self, pod: PodId, prompt: Prefill, ms: f64, steps: &StepTime) -> f32 {
        let pod = self.pods.get(&pod);
        let Some(together) = pod.and_then(|pod| self.pods.together(pod, steps)) else { return 1.0 };
        let before_ms = together.stall_ms(steps, Prefill::default());
        let longer_ms = together.stall_ms(steps, prompt) - before_ms;
        if ms > 0.0 { (longer_ms / ms).clamp(0.0, 1.0) as f32 } else { 1.0 }
    }
}
