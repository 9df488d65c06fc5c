//! What an event of a stream holds: learned from streams that end and from pods that count, and told to what runs.

use crate::{
    End, PodId, Scrape,
    scheduler::{Scheduler, flight::Flight},
};

/// A pod's gauges may differ from its ledger by one request in so many: with large batches one is always on its way, and what it
/// adds is less than what means nothing.
const ON_THEIR_WAY: f64 = 32.0;

impl Scheduler {
    /// A stream that was counted both ways says what an event holds.
    pub(super) fn learn_per_event(&mut self, flight: &Flight, end: &End) {
        let class = self.pods.get(&flight.pod).map(|pod| pod.spec.class);
        if let Some((class, tokens)) = class.zip(end.output_tokens) {
            self.per_event.streamed(class, flight.sequences, end.events, tokens);
            self.raise(class);
        }
    }

    /// A pod says how many tokens it has generated. What it runs has to be streams of this ledger, or they say nothing of events.
    pub(super) fn note_generated(&mut self, id: PodId, scrape: &Scrape) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        let own = pod.ledger.decodes_to_come();
        let seen = f64::from(scrape.running) + f64::from(scrape.waiting);
        let alone = !scrape.shared && (seen - own).abs() * ON_THEIR_WAY <= own;
        let generated = scrape
            .generated
            .filter(|_| alone && (self.unstreamed == 0 || pod.ledger.is_streamed()));
        let Some(generated) = generated else { return pod.meter.give_up() };
        let class = pod.spec.class;
        if let Some(per_event) = pod.meter.scraped(generated, own as u32) {
            self.per_event.counted(class, per_event);
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
