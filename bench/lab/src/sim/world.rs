//! The loop: whatever is due next happens, until every request has its outcome.

use std::{collections::HashMap, sync::Arc};

use weir_core::{
    Action, Dispatch, End, EndKind, Event, PodId, PodSpec, Progress, Request, RequestId, Scheduler,
    TICK, Time,
};
use weir_engine::Engine;
use weir_schema::{Predict, Sample};

use super::{
    Outcome, Run, Served, SimConfig, SimRequest,
    pod::{Deed, Pod},
};

/// Serves `requests`, which are in the order of their arrivals, and returns what became of them.
pub fn run(config: SimConfig, predictor: Box<dyn Predict>, requests: &[SimRequest]) -> Run {
    let mut world = World::new(config, predictor, requests);
    while world.outcomes.len() < requests.len() {
        let Some((at, due)) = world.next() else { break };
        world.now = world.now.max(at);
        world.happen(due);
    }
    let end = world.scheduler.snapshot(world.now);
    // What is not over when nothing is due any more never will be.
    let outcome = |one: &SimRequest| world.outcomes.get(&one.request.id).copied();
    let outcomes = requests.iter().map(|one| outcome(one).unwrap_or(Outcome::Rejected)).collect();
    Run { outcomes, samples: world.samples, end }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Engine(usize),
    Arrival,
    Scrape,
    Tick,
}

struct World<'a> {
    now: Time,
    scheduler: Scheduler,
    pods: Vec<Pod>,
    /// Those that have not arrived.
    coming: std::slice::Iter<'a, SimRequest>,
    known: HashMap<RequestId, &'a SimRequest>,
    flights: HashMap<RequestId, Flight>,
    outcomes: HashMap<RequestId, Outcome>,
    samples: Vec<Sample>,
    scrape_every: std::time::Duration,
    scraped_at: Time,
    ticked_at: Time,
    swept_at: Time,
}

/// A request on a pod.
struct Flight {
    dispatch: Dispatch,
    sent: Time,
    first_token: Option<Time>,
    last_token: Time,
    tokens: u32,
    /// Tokens that the scheduler was told of.
    swept: u32,
}

impl<'a> World<'a> {
    fn new(config: SimConfig, predictor: Box<dyn Predict>, requests: &'a [SimRequest]) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            scheduler: Scheduler::new(config.scheduler, predictor),
            pods: Vec::new(),
            coming: requests.iter(),
            known: requests.iter().map(|one| (one.request.id, one)).collect(),
            flights: HashMap::new(),
            outcomes: HashMap::new(),
            samples: Vec::new(),
            scrape_every: config.scrape_every,
            scraped_at: Time::ZERO,
            ticked_at: Time::ZERO,
            swept_at: Time::ZERO,
        };
        for (id, pod) in (0..).zip(config.pods) {
            world.pods.push(Pod::new(Engine::new(pod.engine)));
            let name = Arc::from(format!("pod-{id}"));
            world.tell(Event::PodUp(PodSpec { id: PodId(id), name, class: pod.class }));
        }
        world
    }

    /// What is due next, and when. Nothing when nothing runs, waits or comes.
    fn next(&self) -> Option<(Time, Due)> {
        let engines = self.pods.iter().enumerate();
        let engines = engines.filter_map(|(pod, state)| Some((state.next()?, Due::Engine(pod))));
        let arrival = self.coming.as_slice().first();
        let arrival = arrival.map(|one| (one.request.arrived, Due::Arrival));
        let waits = self.scheduler.waiting() > 0;
        let tick = waits.then(|| (self.ticked_at.plus(TICK), Due::Tick));
        let soonest = engines.chain(arrival).chain(tick).min()?;
        Some(soonest.min((self.scraped_at.plus(self.scrape_every), Due::Scrape)))
    }

    fn happen(&mut self, due: Due) {
        self.sweep();
        match due {
            Due::Engine(pod) => self.engine(pod),
            Due::Arrival => {
                if let Some(one) = self.coming.next() {
                    self.arrive(&one.request);
                }
            }
            Due::Scrape => {
                self.scraped_at = self.now;
                let scrapes: Vec<_> = self.pods.iter().map(Pod::scrape).collect();
                for (id, scrape) in (0..).zip(scrapes) {
                    self.tell(Event::Scraped(PodId(id), scrape));
                }
            }
            Due::Tick => self.tell(Event::Tick),
        }
        if due == Due::Tick {
            self.ticked_at = self.now;
        }
    }

    fn arrive(&mut self, request: &Request) {
        // The dispatcher's timer sleeps while nothing waits and starts with the first that does.
        if self.scheduler.waiting() == 0 {
            self.ticked_at = self.now;
        }
        self.tell(Event::Arrive(Box::new(request.clone())));
    }

    fn engine(&mut self, pod: usize) {
        let mut deeds = Vec::new();
        if let Some(pod) = self.pods.get_mut(pod) {
            pod.advance(self.now, &mut deeds);
        }
        for deed in deeds {
            match deed {
                Deed::Token { id, index } => self.token(pod, id, index),
                Deed::Finished { id, output_tokens } => self.finished(id, output_tokens),
            }
        }
    }

    fn token(&mut self, pod: usize, id: RequestId, index: u32) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        (flight.tokens, flight.last_token) = (index, self.now);
        let first = flight.first_token.is_none();
        flight.first_token = flight.first_token.or(Some(self.now));
        if !self.streamed(id) {
            return;
        }
        if let Some(pod) = self.pods.get_mut(pod) {
            pod.chunk(self.now);
        }
        if first {
            self.tell(Event::FirstToken(id));
        }
    }

    fn finished(&mut self, id: RequestId, output_tokens: u32) {
        let (streamed, now) = (self.streamed(id), self.now);
        let Some(flight) = self.flights.remove(&id) else { return };
        self.outcomes.insert(id, Outcome::Served(flight.served(streamed)));
        let prompt_tokens = self.known.get(&id).map(|one| one.input_tokens);
        self.tell(Event::End(End {
            id,
            kind: EndKind::Complete,
            output_tokens: Some(output_tokens),
            prompt_tokens,
            last_token_at: streamed.then_some(now),
        }));
    }

    /// Tells the scheduler how far streams and pods have come, at most once in [`TICK`].
    fn sweep(&mut self) {
        if self.now.since(self.swept_at) < TICK {
            return;
        }
        self.swept_at = self.now;
        let mut progress = Progress::default();
        for (id, flight) in &mut self.flights {
            let seen = self.known.get(id).is_some_and(|one| one.request.streamed);
            if seen && flight.tokens > flight.swept {
                flight.swept = flight.tokens;
                progress.tokens.push((*id, flight.tokens));
            }
        }
        // The table of flights has no order of its own.
        progress.tokens.sort_unstable_by_key(|(id, _)| *id);
        let pulses = (0..).zip(&self.pods);
        progress.pulses = pulses.map(|(id, pod)| (PodId(id), pod.pulse())).collect();
        self.tell(Event::Progress(progress));
    }

    fn tell(&mut self, event: Event) {
        let mut next = Some(event);
        let mut rejected = Vec::new();
        while let Some(event) = next {
            let mut actions = Vec::new();
            self.scheduler.handle(self.now, event, &mut actions);
            for action in actions {
                match action {
                    Action::Dispatch(dispatch) => rejected.extend(self.dispatch(dispatch)),
                    Action::Refuse(refusal) => {
                        self.outcomes.insert(refusal.id, Outcome::Refused(refusal.reason));
                    }
                    Action::Sample(sample) => self.samples.push(*sample),
                }
            }
            next = rejected.pop();
        }
    }

    /// Sends a request to its pod. Returns its end when the engine does not take it.
    fn dispatch(&mut self, dispatch: Dispatch) -> Option<Event> {
        let asked = self.known.get(&dispatch.id)?;
        let pod = self.pods.get_mut(dispatch.pod.0 as usize)?;
        if pod.submit(self.now, asked).is_err() {
            let (id, kind) = (dispatch.id, EndKind::PodError);
            self.outcomes.insert(id, Outcome::Rejected);
            let (output_tokens, prompt_tokens, last_token_at) = (None, None, None);
            return Some(Event::End(End { id, kind, output_tokens, prompt_tokens, last_token_at }));
        }
        let (sent, last_token) = (self.now, self.now);
        let flight = Flight { dispatch, sent, first_token: None, last_token, tokens: 0, swept: 0 };
        self.flights.insert(dispatch.id, flight);
        None
    }

    fn streamed(&self, id: RequestId) -> bool {
        self.known.get(&id).is_some_and(|one| one.request.streamed)
    }
}

impl Flight {
    fn served(&self, streamed: bool) -> Served {
        let first = self.first_token.unwrap_or(self.last_token);
        let gaps = self.tokens.saturating_sub(1);
        Served {
            pod: self.dispatch.pod,
            streamed,
            predicted: self.dispatch.prediction,
            wait_ms: self.dispatch.waited.as_secs_f64() * 1000.0,
            ttft_ms: first.ms_since(self.sent),
            tpot_ms: (gaps > 0).then(|| self.last_token.ms_since(first) / f64::from(gaps)),
        }
    }
}
