//! What an event of a stream holds: learned from streams that end, and told to what runs.

use crate::{
    End,
    scheduler::{Scheduler, flight::Flight},
};

impl Scheduler {
    /// A stream that was counted both ways says what an event holds.
    pub(super) fn learn_per_event(&mut self, flight: &Flight, end: &End) {
        let class = self.pods.get(&flight.pod).map(|pod| pod.spec.class);
        if let Some((class, tokens)) = class.zip(end.output_tokens) {
            self.per_event.streamed(class, flight.sequences, end.events, tokens);
            self.raise(class);
        }
    }

    /// What runs on pods of a class is counted by as many tokens per event as are known now, where they are more: a stream that was sent
    /// before anything was known would look late until its end. No count falls.
    fn raise(&mut self, class: u16) {
        let Some(per_event) = self.per_event.rise(class) else { return };
        for flight in self.flights.values_mut() {
            if self.pods.get(&flight.pod).is_some_and(|pod| pod.spec.class == class) {
                flight.tokens_per_event = flight.tokens_per_event.max(per_event);
            }
        }
    }
}
