//! Dispatchers of a pool that is split: one in front of the pods that compute prompts, one in front of those that answer.
//!
//! As the program does it ([`weir_core::halves`]): a request is given to the first, and what it has become once its prompt is
//! computed to the second, which sees a request whose prompt is on all of its pods. Each of the two is a whole dispatcher of any
//! policy, decides late, and keeps what waits for it. The pod that computed a prompt has it in its ledger until the first token
//! came from the other: so long its engine keeps it. A prompt of which a pod that answers has all but a little goes to such a pod at
//! once, and one that no pod prefills at once waits for both: it goes as it is to a pod that answers, where that has room for it first.

use std::collections::HashMap;

use weir_core::{
    Action, End, EndKind, Event, Handover, PodId, Progress, Request, RequestId, Snapshot, Time,
};

use super::{Dispatcher, LoraScrape, Pool, SimRequest};

/// The two dispatchers, and where each request is.
pub struct Halves {
    prefill: Box<dyn Dispatcher>,
    decode: Box<dyn Dispatcher>,
    /// Whether a pod, by its number, computes prompts.
    prefills: Vec<bool>,
    /// A prompt of which a pod that answers has fewer than so many tokens to compute goes there at once.
    local_tokens: f64,
    /// Whether one that no pod prefills at once may go to a pod that answers.
    overflow: bool,
    handover: Handover,
    stages: HashMap<RequestId, Stage>,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Its prompt is to be computed, or was given to a pod that does.
    Prefill,
    /// That, or else it goes to a pod that answers as it is: whichever is first.
    Either,
    /// Its prompt was computed, at this time, and is kept where it was.
    Kept {
        since: Time,
        /// Whether the first token of its answer will be seen.
        streamed: bool,
    },
    /// Nothing of it is left to the first dispatcher.
    Decode,
}

/// One of the two dispatchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Prefill,
    Decode,
}

impl Halves {
    /// These two, in front of the pods of a pool of which some compute prompts for the others.
    pub fn new(prefill: Box<dyn Dispatcher>, decode: Box<dyn Dispatcher>, pool: &Pool) -> Self {
        Self {
            prefill,
            decode,
            prefills: pool.pods.iter().map(|pod| pod.prefills).collect(),
            local_tokens: pool.local_tokens.into(),
            overflow: pool.overflow,
            handover: Handover::default(),
            stages: HashMap::new(),
        }
    }

    fn half_of(&self, pod: PodId) -> Half {
        match self.prefills.get(pod.0 as usize) {
            Some(true) => Half::Prefill,
            _ => Half::Decode,
        }
    }

    /// Tells one of the two something, and the other what follows from that.
    fn tell(&mut self, now: Time, half: Half, event: Event, actions: &mut Vec<Action>) {
        let dispatcher = match half {
            Half::Prefill => &mut self.prefill,
            Half::Decode => &mut self.decode,
        };
        let mut own = Vec::new();
        dispatcher.handle(now, event, &mut own);
        for action in own {
            let stays = match &action {
                Action::Dispatch(dispatch) => {
                    self.dispatched(now, half, dispatch.id, actions);
                    true
                }
                Action::Refuse(refusal) => self.refused(now, half, refusal.id, actions),
                Action::Sample(_) => true,
            };
            if stays {
                actions.push(action);
            }
        }
    }

    /// A request has a pod of one of the two: the other need not look for one. Where nothing will be seen of its first token, its prompt
    /// is thought to be loaded at once.
    fn dispatched(&mut self, now: Time, half: Half, id: RequestId, actions: &mut Vec<Action>) {
        match (self.stages.get_mut(&id), half) {
            (Some(stage @ Stage::Either), Half::Prefill) => {
                *stage = Stage::Prefill;
                self.tell(now, Half::Decode, Event::Cancel(id), actions);
            }
            (Some(stage @ Stage::Either), Half::Decode) => {
                *stage = Stage::Decode;
                self.tell(now, Half::Prefill, Event::Cancel(id), actions);
            }
            (Some(Stage::Kept { streamed: false, .. }), Half::Decode) => {
                self.let_go(now, id, actions);
            }
            _ => {}
        }
    }

    /// One of the two refuses a request. Says whether that is the end of it.
    fn refused(&mut self, now: Time, half: Half, id: RequestId, actions: &mut Vec<Action>) -> bool {
        if let Some(stage @ Stage::Either) = self.stages.get_mut(&id) {
            *stage = if half == Half::Prefill { Stage::Decode } else { Stage::Prefill };
            return false;
        }
        self.let_go(now, id, actions);
        true
    }

    fn arrive(&mut self, now: Time, request: Box<Request>, actions: &mut Vec<Action>) {
        let id = request.id;
        if request.prefilled {
            self.stages.insert(id, Stage::Kept { since: now, streamed: request.streamed });
            return self.tell(now, Half::Decode, Event::Arrive(request), actions);
        }
        if self.decode.takes_whole(now, &request, self.local_tokens) {
            self.stages.insert(id, Stage::Decode);
            return self.tell(now, Half::Decode, Event::Arrive(request), actions);
        }
        self.stages.insert(id, if self.overflow { Stage::Either } else { Stage::Prefill });
        let half = request.prefill_half(self.handover.expected());
        self.tell(now, Half::Prefill, Event::Arrive(Box::new(half)), actions);
        if matches!(self.stages.get(&id), Some(Stage::Either | Stage::Decode)) {
            self.tell(now, Half::Decode, Event::Arrive(request), actions);
        }
    }

    /// Takes a request off the pod that computed its prompt, if it is there. Returns when it was computed.
    fn let_go(&mut self, now: Time, id: RequestId, actions: &mut Vec<Action>) -> Option<Time> {
        let stage = self.stages.get_mut(&id)?;
        let Stage::Kept { since, .. } = *stage else { return None };
        *stage = Stage::Decode;
        self.tell(now, Half::Prefill, Event::End(end_of_prompt(id)), actions);
        Some(since)
    }

    fn first_token(&mut self, now: Time, id: RequestId, actions: &mut Vec<Action>) {
        let half = match self.stages.get(&id) {
            Some(Stage::Prefill) => Half::Prefill,
            _ => Half::Decode,
        };
        if half == Half::Decode
            && let Some(since) = self.let_go(now, id, actions)
        {
            self.handover.took(now.since(since));
        }
        self.tell(now, half, Event::FirstToken(id), actions);
    }

    fn end(&mut self, now: Time, end: End, actions: &mut Vec<Action>) {
        self.let_go(now, end.id, actions);
        let half = match self.stages.remove(&end.id) {
            Some(Stage::Prefill) => Half::Prefill,
            _ => Half::Decode,
        };
        self.tell(now, half, Event::End(end), actions);
    }

    fn progress(&mut self, now: Time, progress: Progress, actions: &mut Vec<Action>) {
        let is_first = |(pod, _): &(PodId, _)| self.half_of(*pod) == Half::Prefill;
        let (first, second) = progress.pulses.into_iter().partition(is_first);
        let prompts = Progress { events: Vec::new(), pulses: first };
        self.tell(now, Half::Prefill, Event::Progress(prompts), actions);
        let answers = Progress { events: progress.events, pulses: second };
        self.tell(now, Half::Decode, Event::Progress(answers), actions);
    }
}

/// A prompt is computed, and nobody needs it any more where it was.
fn end_of_prompt(id: RequestId) -> End {
    End {
        id,
        kind: EndKind::Complete,
        output_tokens: Some(1),
        events: 1,
        prompt_tokens: None,
        last_token_at: None,
    }
}

impl Dispatcher for Halves {
    fn foresee(&mut self, requests: &[SimRequest]) {
        self.prefill.foresee(requests);
        self.decode.foresee(requests);
    }

    fn adapters(&mut self, pod: PodId, scrape: &LoraScrape) {
        match self.half_of(pod) {
            Half::Prefill => self.prefill.adapters(pod, scrape),
            Half::Decode => self.decode.adapters(pod, scrape),
        }
    }

    fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrive(request) => self.arrive(now, request, actions),
            Event::FirstToken(id) => self.first_token(now, id, actions),
            Event::End(end) => self.end(now, end, actions),
            Event::Progress(progress) => self.progress(now, progress, actions),
            Event::PodUp(ref spec) => self.tell(now, self.half_of(spec.id), event, actions),
            Event::Scraped(pod, _) => self.tell(now, self.half_of(pod), event, actions),
            Event::Tick => {
                if self.prefill.waiting() > 0 {
                    self.tell(now, Half::Prefill, Event::Tick, actions);
                }
                if self.decode.waiting() > 0 {
                    self.tell(now, Half::Decode, Event::Tick, actions);
                }
            }
            // Nobody leaves, no pod fails and nobody operates in a simulation.
            _ => {}
        }
    }

    fn waiting(&self) -> usize {
        self.prefill.waiting() + self.decode.waiting()
    }

    /// None: each of the two sees its half.
    fn snapshot(&self, _now: Time) -> Option<Snapshot> {
        None
    }
}

#[cfg(test)]
mod tests;
