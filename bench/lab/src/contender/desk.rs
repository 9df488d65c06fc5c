//! What every rival needs besides its decision: the queue, and what is in flight on each pod.
//!
//! A [`Rival`] is a [`Desk`] and somebody who [`Decide`]s. The desk takes the events of the simulation, keeps one queue in the
//! order that the rival asks for, and offers its head until the rival keeps it. It knows of a pod what was scraped and what it
//! sent there itself, and of a request what its client stated and what was relayed; the length of an answer is known when it
//! has ended. A rival states no prediction: both latencies of its dispatches are zero.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use weir_core::{
    Action, Band, Dispatch, End, Event, PodClass, PodId, PodSpec, PromptSize, Refusal,
    RefusalReason, Request, RequestId, Scrape, Snapshot, Time,
};
use weir_schema::Prediction;

use super::cached::Cached;
use crate::sim::{Dispatcher, LoraScrape, Pool};

/// Place of a request in the queue: the band where the rival knows bands, then a time, then the order of arrival.
pub(super) type Rank = (Reverse<Band>, Time);

/// Tokens of a block of the simulated prompts.
pub(super) const BLOCK_TOKENS: u64 = 16;

/// How often a rival that lets nobody wait for ever looks at who has waited too long.
const SWEEP: Duration = Duration::from_secs(1);

/// A rival's decision, and what it must hear of to make it.
pub(super) trait Decide {
    /// The pod that the head of the queue goes to now, by its place; `None`: it waits, and all behind it.
    fn place(&mut self, now: Time, head: &Request, desk: &Desk) -> Option<usize>;

    /// Where a newcomer stands in the queue: first come, first served, unless the rival says otherwise.
    fn rank(&self, request: &Request) -> Rank {
        (Reverse(Band::default()), request.arrived)
    }

    /// Whether a newcomer is turned away.
    fn turns_away(&self, _request: &Request, _desk: &Desk) -> bool {
        false
    }

    /// Longest time that a request waits.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// A request has joined the queue.
    fn arrived(&mut self, _now: Time, _desk: &Desk) {}

    /// Whether it hears from the engines which blocks they compute, and so of answers.
    fn hears_of_answers(&self) -> bool {
        false
    }

    /// A request goes to a pod.
    fn sent(&mut self, _request: &Request, _place: usize) {}

    /// A request is over.
    fn ended(&mut self, _request: &Request, _place: usize) {}
}

/// A pod as a rival knows it.
#[derive(Debug)]
pub(super) struct Post {
    id: PodId,
    pub(super) class: PodClass,
    /// The last scrape; of an idle pod before the first.
    pub(super) scrape: Scrape,
    /// What that said of adapters.
    pub(super) adapters: LoraScrape,
    /// Requests in flight.
    pub(super) in_flight: usize,
    /// Prompt tokens to be computed of the requests in flight that have no first token.
    pub(super) prefill_tokens: u64,
    /// What it is believed to have cached.
    pub(super) index: Cached,
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    request: Box<Request>,
    place: usize,
    /// Tokens of its prompt that count as being computed.
    prefill_tokens: u64,
}

/// The queue and the pods.
#[derive(Debug, Default)]
pub(super) struct Desk {
    classes: Vec<PodClass>,
    /// The pods, in the order in which they joined.
    pub(super) posts: Vec<Post>,
    waiting: BTreeMap<(Rank, RequestId), Box<Request>>,
    flights: HashMap<RequestId, Flight>,
    swept_at: Time,
}

impl Desk {
    pub(super) fn new(pool: &Pool) -> Self {
        Self { classes: pool.classes.clone(), ..Self::default() }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Those of a band.
    pub(super) fn waiting_in(&self, band: Band) -> usize {
        self.waiting.values().filter(|request| request.band == band).count()
    }

    /// The pods by place.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &Post)> {
        self.posts.iter().enumerate()
    }

    /// The pod with the fewest requests in flight of those that `takes` lets through, the first of equals.
    pub(super) fn least_loaded(&self, takes: impl Fn(&Post) -> bool) -> Option<usize> {
        let open = self.places().filter(|(_, post)| takes(post));
        open.min_by_key(|(place, post)| (post.in_flight, *place)).map(|(place, _)| place)
    }

    fn join(&mut self, spec: &PodSpec) {
        let class = self.classes.get(usize::from(spec.class)).cloned().unwrap_or_default();
        self.posts.push(Post {
            id: spec.id,
            index: Cached::new(class.kv_blocks as usize),
            class,
            scrape: Scrape::default(),
            adapters: LoraScrape::default(),
            in_flight: 0,
            prefill_tokens: 0,
        });
    }

    /// Sends the head of the queue to a pod.
    fn send(&mut self, now: Time, place: usize) -> Option<Dispatch> {
        let post = self.posts.get_mut(place)?;
        let (_, request) = self.waiting.pop_first()?;
        let prefill_tokens = uncached(&request, post);
        post.in_flight += 1;
        post.prefill_tokens += prefill_tokens;
        post.index.insert(&request.blocks);
        let dispatch = Dispatch {
            id: request.id,
            pod: post.id,
            attempt: 1,
            arrived: request.arrived,
            waited: now.since(request.arrived),
            slo: request.slo,
            sequences: request.sequences,
            uncached_tokens: 0.0,
            prediction: Prediction::default(),
            tokens_per_event: 1.0,
        };
        self.flights.insert(request.id, Flight { request, place, prefill_tokens });
        Some(dispatch)
    }

    /// The prompt of a request is computed.
    fn prefilled(&mut self, id: RequestId) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let tokens = std::mem::take(&mut flight.prefill_tokens);
        if let Some(post) = self.posts.get_mut(flight.place) {
            post.prefill_tokens = post.prefill_tokens.saturating_sub(tokens);
        }
    }

    fn end(&mut self, end: &End) -> Option<Flight> {
        self.prefilled(end.id);
        let flight = self.flights.remove(&end.id)?;
        if let Some(post) = self.posts.get_mut(flight.place) {
            post.in_flight = post.in_flight.saturating_sub(1);
        }
        Some(flight)
    }

    fn answered(&mut self, flight: &Flight, end: &End) {
        let blocks = u64::from(end.output_tokens.unwrap_or(0)) / BLOCK_TOKENS;
        if let Some(post) = self.posts.get_mut(flight.place) {
            post.index.answered(flight.request.turn.name, blocks as usize);
        }
    }

    /// Refuses who has waited longer than `patience`.
    fn expire(&mut self, now: Time, patience: Duration, actions: &mut Vec<Action>) {
        if now.since(self.swept_at) < SWEEP {
            return;
        }
        self.swept_at = now;
        self.waiting.retain(|_, request| {
            let keeps = now.since(request.arrived) < patience;
            if !keeps {
                actions.push(refusal(now, request, RefusalReason::MaxWait));
            }
            keeps
        });
    }
}

/// Tokens of a prompt.
pub(super) fn input_tokens(request: &Request) -> u32 {
    match request.prompt {
        PromptSize::Tokens(tokens) => tokens,
        // Four bytes a token, as for text nothing is known of.
        PromptSize::Bytes(bytes) => bytes.div_ceil(4),
    }
}

/// Tokens of a prompt that a pod is believed to have cached.
pub(super) fn cached(request: &Request, post: &Post) -> u64 {
    post.index.matched(&request.blocks) as u64 * BLOCK_TOKENS
}

/// Those that it has to compute.
pub(super) fn uncached(request: &Request, post: &Post) -> u64 {
    match request.prefilled {
        true => 1,
        false => u64::from(input_tokens(request)).saturating_sub(cached(request, post)),
    }
}

fn refusal(now: Time, request: &Request, reason: RefusalReason) -> Action {
    let (waited, retry_after) = (now.since(request.arrived), SWEEP);
    Action::Refuse(Refusal { id: request.id, band: request.band, reason, waited, retry_after })
}

/// A dispatcher of its own.
#[derive(Debug)]
pub(super) struct Rival<D> {
    desk: Desk,
    decide: D,
}

impl<D: Decide> Rival<D> {
    pub(super) fn new(pool: &Pool, decide: D) -> Self {
        Self { desk: Desk::new(pool), decide }
    }

    #[cfg(test)]
    pub(super) fn parts(&self) -> (&Desk, &D) {
        (&self.desk, &self.decide)
    }

    fn arrive(&mut self, now: Time, request: Box<Request>, actions: &mut Vec<Action>) {
        if self.decide.turns_away(&request, &self.desk) {
            actions.push(refusal(now, &request, RefusalReason::QueueFull));
            return;
        }
        let key = (self.decide.rank(&request), request.id);
        self.desk.waiting.insert(key, request);
        self.decide.arrived(now, &self.desk);
    }

    /// Gives out the queue from its head on, until one waits.
    fn give_out(&mut self, now: Time, actions: &mut Vec<Action>) {
        while let Some((_, head)) = self.desk.waiting.first_key_value() {
            let Some(place) = self.decide.place(now, head, &self.desk) else { return };
            self.decide.sent(head, place);
            let Some(dispatch) = self.desk.send(now, place) else { return };
            actions.push(Action::Dispatch(dispatch));
        }
    }
}

impl<D: Decide> Dispatcher for Rival<D> {
    fn adapters(&mut self, pod: PodId, scrape: &LoraScrape) {
        if let Some(post) = self.desk.posts.iter_mut().find(|post| post.id == pod) {
            post.adapters.clone_from(scrape);
        }
    }

    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::PodUp(spec) => self.desk.join(&spec),
            Event::Scraped(pod, scrape) => {
                if let Some(post) = self.desk.posts.iter_mut().find(|post| post.id == pod) {
                    post.scrape = scrape;
                }
                return;
            }
            Event::Arrive(request) => self.arrive(now, request, actions),
            Event::Cancel(gone) => self.desk.waiting.retain(|(_, id), _| *id != gone),
            Event::FirstToken(id) => self.desk.prefilled(id),
            Event::End(end) => {
                if let Some(flight) = self.desk.end(&end) {
                    if self.decide.hears_of_answers() {
                        self.desk.answered(&flight, &end);
                    }
                    self.decide.ended(&flight.request, flight.place);
                }
            }
            Event::Tick => {
                if let Some(patience) = self.decide.patience() {
                    self.desk.expire(now, patience, actions);
                }
            }
            // Nothing else happens to a pool whose pods and clients stay.
            _ => return,
        }
        self.give_out(now, actions);
    }

    fn waiting(&self) -> usize {
        self.desk.waiting()
    }

    fn takes_whole(&self, _now: Time, request: &Request, local_tokens: f64) -> bool {
        self.desk.posts.iter().any(|post| (uncached(request, post) as f64) < local_tokens)
    }

    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}
