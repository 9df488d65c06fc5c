//! Several dispatchers in front of one pool, as replicas behind a gateway stand there: each gets its share of the requests,
//! decides for itself, and hears of what the others send to pods only by scrapes.
//!
//! This is the plumbing of a question and no policy. [`Several`] owns the dispatchers and hands every event of a simulation on
//! to those that it concerns: what happens to a request to the one that has it, pods and scrapes to all, ticks to those that
//! wait. Steps of a pod show in the chunks of streams, and a dispatcher relays only its own: a `View` shows it those of the
//! time in which it has a stream there. One dispatcher alone is told exactly what it would be told without all this.

use std::collections::HashMap;

use weir_core::{Action, Event, PodId, Progress, Pulse, RequestId, Snapshot, Time};

use super::{Dispatcher, LoraScrape, SimRequest};

/// Dispatchers among whom requests are spread one after the other. Without any, nothing is served.
pub struct Several {
    each: Vec<Part>,
    /// Requests on pods, from their dispatch to their end.
    flights: HashMap<RequestId, Flight>,
}

/// A dispatcher and what it sees of pods.
struct Part {
    dispatcher: Box<dyn Dispatcher>,
    views: HashMap<PodId, View>,
}

/// A request on a pod.
struct Flight {
    pod: PodId,
    /// Whether its first token was relayed, so that it counts among the streams there.
    begun: bool,
}

/// What the streams of one dispatcher show of a pod.
#[derive(Default)]
struct View {
    /// Those that have begun and are not over.
    streams: u32,
    /// Whether there was any since it last looked.
    shows: bool,
    /// Steps that they showed.
    pulse: Pulse,
    /// Steps that the pod had made when it last looked.
    made: u64,
}

impl View {
    fn begin(&mut self) {
        self.streams += 1;
        self.shows = true;
    }

    fn end(&mut self) {
        self.streams = self.streams.saturating_sub(1);
    }

    /// What is seen of a pod with this pulse. A stream that was there for a part of the time since the last look shows all of
    /// its steps: there are hardly more than one between two looks, which are a [`weir_core::TICK`] apart.
    fn look(&mut self, pod: Pulse) -> Pulse {
        if self.shows {
            self.pulse.steps += pod.steps.saturating_sub(self.made);
            self.pulse.last_step_at = pod.last_step_at;
        }
        (self.shows, self.made) = (self.streams > 0, pod.steps);
        self.pulse
    }
}

impl Part {
    fn view(&mut self, pod: PodId) -> &mut View {
        self.views.entry(pod).or_default()
    }
}

/// Which of so many dispatchers has a request. Ids are places in the list of requests.
fn holder(id: RequestId, count: usize) -> usize {
    (id.0 % count.max(1) as u64) as usize
}

/// The same event once more, if it is one that all dispatchers are told of.
fn copied(event: &Event) -> Option<Event> {
    match event {
        Event::PodUp(spec) => Some(Event::PodUp(spec.clone())),
        Event::Scraped(pod, scrape) => Some(Event::Scraped(*pod, *scrape)),
        // Nobody leaves, no pod fails and nobody operates in a simulation.
        _ => None,
    }
}

impl Several {
    /// These, in the order in which requests go to them.
    pub fn new(dispatchers: Vec<Box<dyn Dispatcher>>) -> Self {
        let part = |dispatcher| Part { dispatcher, views: HashMap::new() };
        Self { each: dispatchers.into_iter().map(part).collect(), flights: HashMap::new() }
    }

    fn tell_holder(&mut self, now: Time, id: RequestId, event: Event, actions: &mut Vec<Action>) {
        self.tell(now, holder(id, self.each.len()), event, actions);
    }

    fn tell_all(&mut self, now: Time, event: &Event, actions: &mut Vec<Action>) {
        for place in 0..self.each.len() {
            let Some(event) = copied(event) else { return };
            self.tell(now, place, event, actions);
        }
    }

    /// Time passes only for those that wait, as each one's own timer has it.
    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        for place in 0..self.each.len() {
            if self.each.get(place).is_some_and(|part| part.dispatcher.waiting() > 0) {
                self.tell(now, place, Event::Tick, actions);
            }
        }
    }

    fn progress(&mut self, now: Time, progress: &Progress, actions: &mut Vec<Action>) {
        for place in 0..self.each.len() {
            if let Some(seen) = self.seen_by(place, progress) {
                self.tell(now, place, Event::Progress(seen), actions);
            }
        }
    }

    /// How far a dispatcher's own streams have come, and what they show of pods.
    fn seen_by(&mut self, place: usize, progress: &Progress) -> Option<Progress> {
        let count = self.each.len();
        let part = self.each.get_mut(place)?;
        let own = progress.events.iter().filter(|(id, _)| holder(*id, count) == place);
        let pulses =
            progress.pulses.iter().map(|(pod, pulse)| (*pod, part.view(*pod).look(*pulse)));
        Some(Progress { events: own.copied().collect(), pulses: pulses.collect() })
    }

    fn tell(&mut self, now: Time, place: usize, event: Event, actions: &mut Vec<Action>) {
        let Some(part) = self.each.get_mut(place) else { return };
        let before = actions.len();
        part.dispatcher.handle(now, event, actions);
        for action in actions.iter().skip(before) {
            if let Action::Dispatch(dispatch) = action {
                let flight = Flight { pod: dispatch.pod, begun: false };
                self.flights.insert(dispatch.id, flight);
            }
        }
    }

    fn begun(&mut self, id: RequestId) {
        let place = holder(id, self.each.len());
        let (Some(flight), Some(part)) = (self.flights.get_mut(&id), self.each.get_mut(place))
        else {
            return;
        };
        flight.begun = true;
        part.view(flight.pod).begin();
    }

    /// Only a stream that has begun is one less: one that no engine took, and a response that is not streamed, never was one.
    fn over(&mut self, id: RequestId) {
        let place = holder(id, self.each.len());
        let Some(flight) = self.flights.remove(&id).filter(|flight| flight.begun) else { return };
        if let Some(part) = self.each.get_mut(place) {
            part.view(flight.pod).end();
        }
    }
}

impl Dispatcher for Several {
    /// All of them know of all requests: who knows the traffic before it comes knows it of the whole pool.
    fn foresee(&mut self, requests: &[SimRequest]) {
        self.each.iter_mut().for_each(|part| part.dispatcher.foresee(requests));
    }

    fn adapters(&mut self, pod: PodId, scrape: &LoraScrape) {
        self.each.iter_mut().for_each(|part| part.dispatcher.adapters(pod, scrape));
    }

    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrive(ref request) => self.tell_holder(now, request.id, event, actions),
            Event::FirstToken(id) => {
                self.begun(id);
                self.tell_holder(now, id, event, actions);
            }
            Event::End(end) => {
                self.over(end.id);
                self.tell_holder(now, end.id, event, actions);
            }
            Event::Progress(progress) => self.progress(now, &progress, actions),
            Event::Tick => self.tick(now, actions),
            for_all => self.tell_all(now, &for_all, actions),
        }
    }

    fn waiting(&self) -> usize {
        self.each.iter().map(|part| part.dispatcher.waiting()).sum()
    }

    /// None: each of them sees its own requests, and no one is the pool's.
    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}

#[cfg(test)]
mod tests;
