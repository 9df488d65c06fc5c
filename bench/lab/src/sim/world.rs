//! The loop: whatever is due next happens, until every request has its outcome.
//!
//! [`fleet`] is of pods that come and go meanwhile; without one they are those of the start to the end.

mod fleet;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use weir_core::{
    Action, Dispatch, End, EndKind, Event, PodId, PodSpec, Progress, Request, RequestId, TICK, Time,
};
use weir_engine::SeqId;
use weir_schema::Sample;

use super::{
    AdapterNames, Dispatcher, Outcome, Run, Served, SimPod, SimRequest,
    pod::{Deed, Finish, Pod},
};
use fleet::Fleet;
pub use fleet::{Growth, SCALE_EVERY, Scaled, Scaler, View, drive_scaled};

/// Serves `requests`, which are in the order of their arrivals, and returns what became of them.
pub fn drive(
    pods: &[SimPod],
    scrape_every: Duration,
    dispatcher: Box<dyn Dispatcher>,
    requests: &[SimRequest],
) -> Run {
    let mut world = World::new(pods, scrape_every, dispatcher, requests);
    world.run(&mut |_, _| true);
    world.end()
}

/// The same for as long as `goes_on` says so of each request, by its place, and its outcome; `None` once it did not.
pub fn drive_while(
    pods: &[SimPod],
    scrape_every: Duration,
    dispatcher: Box<dyn Dispatcher>,
    requests: &[SimRequest],
    mut goes_on: impl FnMut(usize, &Outcome) -> bool,
) -> Option<Run> {
    let mut world = World::new(pods, scrape_every, dispatcher, requests);
    world.run(&mut goes_on).then(|| world.end())
}

/// A time without requests from which on scrapes are left out: after it nothing that a dispatcher remembers is new.
const ASLEEP: Duration = Duration::from_secs(60);
/// How long before a request the pods are scraped again.
const AWAKE: Duration = Duration::from_secs(1);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Engine(usize),
    Arrival,
    Scrape,
    Tick,
    PodUp,
    Scale,
}

struct World<'a> {
    now: Time,
    dispatcher: Box<dyn Dispatcher>,
    /// The servers.
    pods: Vec<Pod>,
    /// Which of them a pod is, by its id, and which engine of several.
    doors: Vec<(usize, Option<u16>)>,
    names: Arc<AdapterNames>,
    /// How they come and go, where they do.
    fleet: Option<Fleet<'a>>,
    requests: &'a [SimRequest],
    /// How many of them have not arrived.
    to_come: usize,
    all_streamed: bool,
    /// Those that will arrive, the next one on top.
    coming: BinaryHeap<Reverse<(Time, usize)>>,
    /// Those that arrive when another is over, by that one.
    turns: Vec<Vec<usize>>,
    flights: Vec<Option<Flight>>,
    /// Prompts that are computed and kept for the pod that answers, with the pod that has them.
    kept: Vec<Option<(usize, SeqId)>>,
    arrived: Vec<Time>,
    outcomes: Vec<Option<Outcome>>,
    /// Places of those that have one, in that order.
    over: Vec<usize>,
    samples: Vec<Sample>,
    scrape_every: Duration,
    scraped_at: Time,
    ticked_at: Time,
    swept_at: Time,
    /// Kept for their memory.
    deeds: Vec<Deed>,
    actions: Vec<Action>,
}

/// A request on a pod.
struct Flight {
    dispatch: Dispatch,
    sent: Time,
    first_token: Option<Time>,
}

impl<'a> World<'a> {
    fn new(
        pods: &[SimPod],
        scrape_every: Duration,
        mut dispatcher: Box<dyn Dispatcher>,
        requests: &'a [SimRequest],
    ) -> Self {
        dispatcher.foresee(requests);
        let count = requests.len();
        let mut world = Self {
            now: Time::ZERO,
            dispatcher,
            pods: Vec::new(),
            doors: Vec::new(),
            names: Arc::new(AdapterNames::of(requests)),
            fleet: None,
            requests,
            to_come: count,
            all_streamed: requests.iter().all(|one| one.request.streamed),
            coming: BinaryHeap::new(),
            turns: vec![Vec::new(); count],
            flights: (0..count).map(|_| None).collect(),
            kept: vec![None; count],
            arrived: requests.iter().map(|one| one.request.arrived).collect(),
            outcomes: vec![None; count],
            over: Vec::with_capacity(count),
            samples: Vec::new(),
            scrape_every,
            scraped_at: Time::ZERO,
            ticked_at: Time::ZERO,
            swept_at: Time::ZERO,
            deeds: Vec::new(),
            actions: Vec::new(),
        };
        for (place, one) in requests.iter().enumerate() {
            match one.after.and_then(|before| world.turns.get_mut(before)) {
                Some(turns) => turns.push(place),
                None => world.coming.push(Reverse((one.request.arrived, place))),
            }
        }
        let of_one_server =
            |one: &SimPod, next: &SimPod| one.server.is_some() && one.server == next.server;
        for server in pods.chunk_by(of_one_server) {
            match server {
                [pod] if pod.server.is_none() => world.open(pod),
                engines => world.open_apart(engines),
            }
        }
        world
    }

    /// A pod joins. Its number is one that no pod had before.
    fn open(&mut self, pod: &SimPod) {
        self.pods.push(Pod::new(pod, None, &self.names, self.all_streamed));
        self.enter(pod, None);
    }

    /// A server joins, each of whose engines is a pod.
    fn open_apart(&mut self, engines: &[SimPod]) {
        let Some(first) = engines.first() else { return };
        let count = u16::try_from(engines.len()).unwrap_or(u16::MAX);
        self.pods.push(Pod::new(first, Some(count), &self.names, self.all_streamed));
        (0..count).zip(engines).for_each(|(rank, pod)| self.enter(pod, Some(rank)));
    }

    /// The dispatcher is told of a pod: the last server, or an engine of it.
    fn enter(&mut self, pod: &SimPod, rank: Option<u16>) {
        let id = self.doors.len() as u32;
        self.doors.push((self.pods.len() - 1, rank));
        let name = Arc::from(format!("pod-{id}"));
        let group = pod.group.map(|number| format!("group-{number}").into());
        self.tell(Event::PodUp(PodSpec { id: PodId(id), name, class: pod.class, group }));
    }

    /// The pods that are there, by their ids.
    fn there(&self) -> impl Iterator<Item = (PodId, &Pod, Option<u16>)> {
        let doors = (0..).map(PodId).zip(&self.doors);
        let pods = doors.filter_map(|(id, (pod, rank))| Some((id, self.pods.get(*pod)?, *rank)));
        pods.filter(|(_, pod, _)| !pod.is_gone())
    }

    /// Lets everything happen; false if `goes_on` said no.
    fn run(&mut self, goes_on: &mut dyn FnMut(usize, &Outcome) -> bool) -> bool {
        let mut told = 0;
        while self.over.len() < self.requests.len() {
            match self.next() {
                Some((at, due)) => {
                    self.now = self.now.max(at);
                    self.happen(due);
                }
                // What is not over when nothing is due any more never will be.
                None => {
                    (0..self.requests.len()).for_each(|one| self.is_over(one, Outcome::Rejected))
                }
            }
            for place in self.over.iter().skip(told) {
                let outcome = self.outcomes.get(*place).and_then(Option::as_ref);
                if !outcome.is_none_or(|outcome| goes_on(*place, outcome)) {
                    return false;
                }
            }
            told = self.over.len();
        }
        true
    }

    fn end(self) -> Run {
        let end = self.dispatcher.snapshot(self.now);
        let outcomes = self.outcomes.into_iter().flatten().collect();
        let engines = self.pods.iter().map(Pod::metrics).collect();
        Run { outcomes, samples: self.samples, end, engines, ended: self.now }
    }

    /// What is due next, and when. Nothing when nothing runs, waits or comes.
    fn next(&mut self) -> Option<(Time, Due)> {
        let engines = self.pods.iter().enumerate();
        let engines = engines.filter_map(|(pod, state)| Some((state.next()?, Due::Engine(pod))));
        let arrival = self.coming.peek().map(|Reverse((at, _))| (*at, Due::Arrival));
        let waits = self.dispatcher.waiting() > 0;
        let tick = waits.then(|| (self.ticked_at.plus(TICK), Due::Tick));
        let busy = engines.chain(tick).min();
        if let (None, Some((at, _))) = (busy, arrival) {
            self.sleep_until(at);
        }
        let soonest = busy.into_iter().chain(arrival).min()?;
        let soonest = soonest.min((self.scraped_at.plus(self.scrape_every), Due::Scrape));
        let fleet = self.fleet.as_ref().and_then(|fleet| fleet.next(self.to_come > 0));
        Some(fleet.map_or(soonest, |fleet| soonest.min(fleet)))
    }

    /// Leaves out the scrapes of a long time in which nobody is there, but for the last ones: they all say the same.
    fn sleep_until(&mut self, at: Time) {
        let every_us = self.scrape_every.as_micros() as u64;
        let idle = at.since(self.scraped_at);
        if idle < ASLEEP || every_us == 0 {
            return;
        }
        let left_out = (idle - AWAKE).as_micros() as u64 / every_us;
        self.scraped_at = Time::from_micros(self.scraped_at.as_micros() + left_out * every_us);
    }

    fn happen(&mut self, due: Due) {
        // Who only looks at the pods does not change when the dispatcher does.
        if due != Due::Scale {
            self.sweep();
        }
        match due {
            Due::Engine(pod) => self.engine(pod),
            Due::Arrival => {
                if let Some(Reverse((at, place))) = self.coming.pop() {
                    self.arrive(at, place);
                }
            }
            Due::Scrape => self.scrape(),
            Due::Tick => self.tell(Event::Tick),
            Due::PodUp => self.pod_up(),
            Due::Scale => self.scale(),
        }
        if due == Due::Tick {
            self.ticked_at = self.now;
        }
    }

    fn arrive(&mut self, at: Time, place: usize) {
        let Some(one) = self.requests.get(place) else { return };
        // The dispatcher's timer sleeps while nothing waits and starts with the first that does.
        if self.dispatcher.waiting() == 0 {
            self.ticked_at = self.now;
        }
        if let Some(arrived) = self.arrived.get_mut(place) {
            *arrived = at;
        }
        self.to_come = self.to_come.saturating_sub(1);
        self.tell(Event::Arrive(Box::new(Request { arrived: at, ..one.request.clone() })));
    }

    fn scrape(&mut self) {
        self.scraped_at = self.now;
        let of = |(id, pod, rank): (PodId, &Pod, Option<u16>)| {
            (id, pod.adapters(rank), pod.scrape(rank))
        };
        let scrapes: Vec<_> = self.there().map(of).collect();
        for (id, adapters, scrape) in scrapes {
            if let Some(adapters) = &adapters {
                self.dispatcher.adapters(id, adapters);
            }
            self.tell(Event::Scraped(id, scrape));
        }
    }

    fn engine(&mut self, pod_number: usize) {
        let mut deeds = std::mem::take(&mut self.deeds);
        if let Some(pod) = self.pods.get_mut(pod_number) {
            pod.advance(self.now, &mut deeds);
        }
        for deed in deeds.drain(..) {
            match deed {
                Deed::Started { place } => self.started(place),
                Deed::Finished { place, finish } => self.finished(place, finish),
                Deed::Prefilled { place, sequence } => self.prefilled(pod_number, place, sequence),
            }
        }
        self.deeds = deeds;
        self.close_if_done(pod_number);
    }

    /// A prompt is computed: what is left of its request comes to whoever gives it a pod that answers.
    fn prefilled(&mut self, pod: usize, place: usize, sequence: SeqId) {
        if let Some(free) = self.kept.get_mut(place) {
            *free = Some((pod, sequence));
        }
        self.flights.get_mut(place).map(Option::take);
        self.tell(Event::FirstToken(RequestId(place as u64)));
        let Some(one) = self.requests.get(place) else { return };
        let arrived = self.arrived.get(place).copied().unwrap_or_default();
        let half = Request { arrived, ..one.request.clone() }.decode_half();
        self.tell(Event::Arrive(Box::new(half)));
    }

    /// The prompt of a request is loaded where it is answered, or nobody will.
    fn let_go(&mut self, place: usize) {
        let kept = self.kept.get_mut(place).and_then(Option::take);
        let Some((pod, sequence)) = kept else { return };
        if let Some(pod) = self.pods.get_mut(pod) {
            pod.release(self.now, sequence);
        }
    }

    fn started(&mut self, place: usize) {
        self.let_go(place);
        let Some(flight) = self.flights.get_mut(place).and_then(Option::as_mut) else { return };
        flight.first_token = Some(self.now);
        if self.streamed(place) {
            self.tell(Event::FirstToken(RequestId(place as u64)));
        }
    }

    fn finished(&mut self, place: usize, finish: Finish) {
        let (streamed, now) = (self.streamed(place), self.now);
        let Some(flight) = self.flights.get_mut(place).and_then(Option::take) else { return };
        let arrived = self.arrived.get(place).copied().unwrap_or_default();
        self.is_over(place, Outcome::Served(flight.served(streamed, arrived, now, finish)));
        let prompt_tokens = self.requests.get(place).map(|one| one.input_tokens);
        self.tell(Event::End(End {
            id: RequestId(place as u64),
            kind: EndKind::Complete,
            output_tokens: Some(finish.output_tokens),
            events: if streamed { finish.output_tokens } else { 0 },
            prompt_tokens,
            last_token_at: streamed.then_some(now),
        }));
    }

    /// Books an outcome, and lets the turns come that waited for it.
    fn is_over(&mut self, place: usize, outcome: Outcome) {
        let Some(known) = self.outcomes.get_mut(place).filter(|known| known.is_none()) else {
            return;
        };
        *known = Some(outcome);
        self.over.push(place);
        self.let_go(place);
        for next in self.turns.get_mut(place).map(std::mem::take).unwrap_or_default() {
            let planned = self.arrived.get(next).copied().unwrap_or_default();
            self.coming.push(Reverse((planned.max(self.now), next)));
        }
    }

    /// Tells the dispatcher how far streams and pods have come, at most once in [`TICK`].
    fn sweep(&mut self) {
        if self.now.since(self.swept_at) < TICK {
            return;
        }
        self.swept_at = self.now;
        let mut progress = Progress::default();
        self.pods.iter_mut().for_each(|pod| pod.sweep(&mut progress.events));
        progress.pulses = self.there().map(|(id, pod, rank)| (id, pod.pulse(rank))).collect();
        self.tell(Event::Progress(progress));
    }

    fn tell(&mut self, event: Event) {
        let mut next = Some(event);
        let mut rejected = Vec::new();
        let mut actions = std::mem::take(&mut self.actions);
        while let Some(event) = next {
            self.dispatcher.handle(self.now, event, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Dispatch(dispatch) => rejected.extend(self.dispatch(dispatch)),
                    Action::Refuse(refusal) => {
                        self.is_over(refusal.id.0 as usize, Outcome::Refused(refusal.reason));
                    }
                    Action::Sample(mut sample) => {
                        sample.at_unix_ms = self.now.as_micros() / 1000;
                        self.samples.push(*sample);
                    }
                }
            }
            next = rejected.pop();
        }
        self.actions = actions;
    }

    /// Sends a request to its pod. Returns its end when the engine does not take it.
    fn dispatch(&mut self, dispatch: Dispatch) -> Option<Event> {
        let place = dispatch.id.0 as usize;
        let asked = self.requests.get(place)?;
        let prefilled = self.kept.get(place).is_some_and(Option::is_some);
        let (pod, rank) = *self.doors.get(dispatch.pod.0 as usize)?;
        let pod = self.pods.get_mut(pod)?;
        if pod.submit((self.now, rank), place, asked, prefilled).is_err() {
            let (id, kind) = (dispatch.id, EndKind::PodError);
            self.is_over(place, Outcome::Rejected);
            return Some(Event::End(End {
                id,
                kind,
                output_tokens: None,
                events: 0,
                prompt_tokens: None,
                last_token_at: None,
            }));
        }
        let flight = Flight { dispatch, sent: self.now, first_token: None };
        if let Some(free) = self.flights.get_mut(place) {
            *free = Some(flight);
        }
        None
    }

    fn streamed(&self, place: usize) -> bool {
        self.requests.get(place).is_some_and(|one| one.request.streamed)
    }
}

impl Flight {
    fn served(&self, streamed: bool, arrived: Time, ended: Time, finish: Finish) -> Served {
        let first = self.first_token.unwrap_or(ended);
        let gaps = finish.output_tokens.saturating_sub(1);
        Served {
            pod: self.dispatch.pod,
            streamed,
            predicted: self.dispatch.prediction,
            arrived,
            wait_ms: self.dispatch.waited.as_secs_f64() * 1000.0,
            ttft_ms: first.ms_since(self.sent),
            tpot_ms: (gaps > 0).then(|| ended.ms_since(first) / f64::from(gaps)),
            e2e_ms: ended.ms_since(arrived),
            output_tokens: finish.output_tokens,
            cached_tokens: finish.cached_tokens,
            preemptions: finish.preemptions,
        }
    }
}
