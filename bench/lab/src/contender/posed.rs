//! A rival in a posed situation: tests say what happens to it and read what it does.

use std::{sync::Arc, time::Duration};

use weir_core::{
    Action, Band, End, EndKind, Event, PodId, PodSpec, PromptSize, Request, RequestId, Scrape, Slo,
    Snapshot, Time,
};

use super::{
    Contender,
    desk::{Decide, Desk, Rival},
};
use crate::sim::{Dispatcher, LoraScrape, Oracle, Pool};

/// A request of so many prompt tokens, with the objectives of the default class.
pub(super) fn request(id: u64, arrived: Time, input_tokens: u32) -> Request {
    Request {
        slo: Slo { ttft: Some(Duration::from_secs(2)), tpot: Some(Duration::from_millis(50)) },
        ..Request::new(RequestId(id), arrived, PromptSize::Tokens(input_tokens))
    }
}

/// The names of the blocks of a prompt that begins as all of its `kind` do.
pub(super) fn blocks(kind: u64, count: u64) -> Arc<[u64]> {
    (0..count).map(|block| kind * 1_000_000 + block + 1).collect()
}

/// The pool of posed situations.
pub(super) fn pool(pods: usize) -> Pool {
    Pool::of("h100-qwen3-32b-tp2", pods, None).unwrap()
}

/// A contender's dispatcher, which is told nothing of what will come.
pub(super) struct Untold(pub(super) Box<dyn Dispatcher>);

impl Dispatcher for Untold {
    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        self.0.handle(now, event, actions);
    }

    fn waiting(&self) -> usize {
        self.0.waiting()
    }

    fn snapshot(&self, now: Time) -> Option<Snapshot> {
        self.0.snapshot(now)
    }
}

/// A dispatcher, some pods and a clock.
pub(super) struct Posed<T> {
    rival: T,
    now: Time,
    refused: usize,
}

impl<D: Decide> Posed<Rival<D>> {
    pub(super) fn new(pods: u32, decide: D) -> Self {
        Self::of(pods, Rival::new(&pool(0), decide))
    }

    /// The rival's books and its decision.
    pub(super) fn parts(&self) -> (&Desk, &D) {
        self.rival.parts()
    }
}

impl Posed<Untold> {
    /// A contender with predictions that are exact.
    pub(super) fn named(name: &str, pods: u32) -> Self {
        let pool = pool(pods as usize);
        let predictor = Box::new(Oracle::new(&pool, 0.0, 1));
        Self::of(pods, Untold(Contender::named(name).unwrap().build(&pool, predictor, 1)))
    }
}

impl<T: Dispatcher> Posed<T> {
    fn of(pods: u32, rival: T) -> Self {
        let mut posed = Self { rival, now: Time::ZERO, refused: 0 };
        for id in 0..pods {
            let name = Arc::from(format!("pod-{id}"));
            posed.tell(Event::PodUp(PodSpec { id: PodId(id), name, class: 0, group: None }));
        }
        posed
    }

    /// What is dispatched because of an event: request and pod.
    fn tell(&mut self, event: Event) -> Vec<(u64, u32)> {
        let mut actions = Vec::new();
        self.rival.handle(self.now, event, &mut actions);
        self.refused += actions.iter().filter(|one| matches!(one, Action::Refuse(_))).count();
        let dispatches = actions.iter().filter_map(|action| match action {
            Action::Dispatch(dispatch) => Some((dispatch.id.0, dispatch.pod.0)),
            _ => None,
        });
        dispatches.collect()
    }

    /// A request arrives; where it goes at once.
    pub(super) fn comes(&mut self, request: Request) -> Option<u32> {
        let id = request.id.0;
        let sent = self.tell(Event::Arrive(Box::new(request)));
        sent.iter().find(|(sent, _)| *sent == id).map(|(_, pod)| *pod)
    }

    pub(super) fn arrives(&mut self, id: u64, input_tokens: u32) -> Option<u32> {
        self.comes(request(id, self.now, input_tokens))
    }

    pub(super) fn arrives_in_band(&mut self, id: u64, band: i8) -> Option<u32> {
        self.comes(Request { band: Band(band), ..request(id, self.now, 100) })
    }

    /// A request arrives whose first blocks are those of a kind.
    pub(super) fn arrives_with(
        &mut self,
        id: u64,
        input_tokens: u32,
        (kind, count): (u64, u64),
    ) -> Option<u32> {
        let blocks = blocks(kind, count);
        self.comes(Request { blocks, ..request(id, self.now, input_tokens) })
    }

    pub(super) fn first_token(&mut self, id: u64) -> Vec<(u64, u32)> {
        self.tell(Event::FirstToken(RequestId(id)))
    }

    pub(super) fn ends(&mut self, id: u64) -> Vec<(u64, u32)> {
        self.tell(Event::End(End {
            id: RequestId(id),
            kind: EndKind::Complete,
            output_tokens: Some(1),
            events: 0,
            prompt_tokens: None,
            last_token_at: Some(self.now),
        }))
    }

    /// A pod is scraped: requests waiting inside it, share of its memory in use.
    pub(super) fn scrape(&mut self, pod: u32, waiting: u32, kv_usage: f32) {
        let scrape = Scrape { waiting, kv_usage, ..Scrape::default() };
        self.tell(Event::Scraped(PodId(pod), scrape));
    }

    /// A pod says which adapters it has.
    pub(super) fn adapters(&mut self, pod: u32, scrape: &LoraScrape) {
        self.rival.adapters(PodId(pod), scrape);
    }

    /// Time passes, and a tick with it.
    pub(super) fn passes(&mut self, time: Duration) -> Vec<(u64, u32)> {
        self.now = self.now.plus(time);
        self.tell(Event::Tick)
    }

    pub(super) fn waiting(&self) -> usize {
        self.rival.waiting()
    }

    pub(super) fn refused(&self) -> usize {
        self.refused
    }
}
