//! A hub that is led: another dispatcher's decides for it.
//!
//! Of several dispatchers in front of one pool one decides for all, for two that decide apart know neither what the other has sent
//! to a pod nor what it keeps for whom. The others keep their clients and their streams: they ask for a verdict, relay to the pod
//! themselves, and tell how it goes. This is what is told ([`Errand`]) and what is heard ([`Word`]), as values; how they travel is
//! for [`crate::replicas`].
//!
//! # Promises
//! - A request is asked for with one lead at a time, and kept until its first token: when the lead is gone before its verdict, or
//!   nothing reached the pod, it is decided here, or by the next lead, with the arrival it had. It waits once more and starts once.
//! - What a lead has given is told to that lead alone, to its end. What runs on when the lead is gone is in nobody's ledger; for a
//!   minute what scrapes show beyond the ledger is counted then ([`AFTERMATH`]).
//! - The hub's own scheduler hears of pods and scrapes all the time, so that it can decide from one moment to the next.

use std::{sync::Arc, time::Duration};

use async_channel::Sender;
use serde::{Deserialize, Serialize};
use weir_core::{
    Band, Dispatch, End, EndKind, Event, Phase, PromptSize, Refusal, RefusalReason, Request,
    RequestId, Slo, Time, by_id::ById,
};
use weir_schema::Prediction;

use super::{
    actor::{Delivery, Desk, Due, Grant},
    message::Waiter,
};
use crate::fleet::{Failing, Pod};

/// For how long what scrapes show beyond the ledger is counted after the decider has changed or has lost sight of what another
/// relays: most answers are over by then. At other times that would be the noise of scrapes that are older than the ledger.
pub const AFTERMATH: Duration = Duration::from_secs(60);

/// Something told to the dispatcher that decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Errand {
    /// A request arrived: it is to be decided.
    Admit(Box<Facts>),
    /// Nothing of a request reached its pod: it is to be decided again.
    Retry(RequestId),
    /// Its client has left before a verdict.
    Cancel(RequestId),
    /// The first token of its response was relayed.
    FirstToken(RequestId),
    /// How far streams and pods have come.
    Progress(Strides),
    /// It is over.
    End(Ended),
    /// It did not go well on its pod, whose breaker counts that.
    HoldAgainst(Charge),
}

/// That a request did not go well on a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// Host and port of the pod.
    pub pod: String,
    /// In which way.
    pub failing: Failing,
}

/// A request as another dispatcher is told of it: clocks differ, so times are told as ages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Request`")]
pub struct Facts {
    pub id: RequestId,
    pub age: Duration,
    pub prompt: PromptSize,
    pub max_output_tokens: Option<u32>,
    pub sequences: u32,
    pub slo: Slo,
    pub band: Band,
    pub tenant: Option<Arc<str>>,
    pub body_bytes: u32,
    pub blocks: Arc<[u64]>,
    pub streamed: bool,
    pub expires_in: Option<Duration>,
    pub immediate: bool,
    pub by_header: bool,
    pub name: Arc<str>,
}

impl Facts {
    fn of(request: &Request, now: Time) -> Self {
        Self {
            id: request.id,
            age: now.since(request.arrived),
            prompt: request.prompt,
            max_output_tokens: request.max_output_tokens,
            sequences: request.sequences,
            slo: request.slo,
            band: request.band,
            tenant: request.tenant.clone(),
            body_bytes: request.body_bytes,
            blocks: request.blocks.clone(),
            streamed: request.streamed,
            expires_in: request.expiry().map(|expires| expires.since(now)),
            immediate: request.immediate,
            by_header: request.by_header,
            name: request.name.clone(),
        }
    }

    /// The request, under the name that it has here.
    pub fn request(self, id: RequestId, now: Time) -> Request {
        Request {
            id,
            arrived: before(now, self.age),
            prompt: self.prompt,
            max_output_tokens: self.max_output_tokens,
            sequences: self.sequences.max(1),
            slo: self.slo,
            band: self.band,
            tenant: self.tenant,
            body_bytes: self.body_bytes,
            blocks: self.blocks,
            streamed: self.streamed,
            expires: self.expires_in.map_or(Time::NEVER, |left| now.plus(left)),
            immediate: self.immediate,
            by_header: self.by_header,
            name: self.name,
        }
    }
}

/// That long ago, or the start of the process where it was not there yet.
pub fn before(now: Time, age: Duration) -> Time {
    let age_us = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Time::from_micros(now.as_micros().saturating_sub(age_us))
}

/// How far streams and pods have come since it was told last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Strides {
    /// Events with some of the answer so far, in total.
    pub events: Vec<(RequestId, u32)>,
    /// Steps of pods that these streams have shown.
    pub steps: Vec<Steps>,
}

/// Steps of a pod since they were told of last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Its host and port.
    pub pod: String,
    /// How many ended.
    pub count: u64,
    /// How long ago the last one did.
    pub age: Duration,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which.
    pub id: RequestId,
    /// How it ended.
    pub kind: EndKind,
    /// Output tokens from `usage`.
    pub output_tokens: Option<u32>,
    /// Prompt tokens from `usage`.
    pub prompt_tokens: Option<u32>,
    /// Events with some of the answer, in total.
    pub events: u32,
    /// How long ago the last token was relayed.
    pub last_token_age: Option<Duration>,
}

impl Ended {
    fn of(end: End, now: Time) -> Self {
        Self {
            id: end.id,
            kind: end.kind,
            output_tokens: end.output_tokens,
            prompt_tokens: end.prompt_tokens,
            events: end.events,
            last_token_age: end.last_token_at.map(|at| now.since(at)),
        }
    }

    fn unwanted(id: RequestId) -> Self {
        let kind = EndKind::ClientGone;
        Self { id, kind, output_tokens: None, prompt_tokens: None, events: 0, last_token_age: None }
    }
}

/// Something heard from the dispatcher that decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// A request may go to a pod.
    Give(Given),
    /// It is refused.
    Refuse(Refused),
}

/// A pod for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Dispatch`")]
pub struct Given {
    pub id: RequestId,
    /// Host and port of the pod: its number is another one in every process.
    pub pod: String,
    pub attempt: u32,
    pub prediction: Prediction,
    pub tokens_per_event: f64,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "those of `weir_core::Refusal`")]
pub struct Refused {
    pub id: RequestId,
    pub reason: RefusalReason,
    pub retry_after: Duration,
}

/// The dispatcher that decides, for as long as it can be told something.
#[derive(Debug)]
pub struct Lead {
    /// Where it is, for people.
    pub address: String,
    errands: Sender<Errand>,
}

impl Lead {
    /// One that is told by a bounded channel; `address` is for people.
    pub fn new(address: String, errands: Sender<Errand>) -> Arc<Self> {
        Arc::new(Self { address, errands })
    }

    /// Says that nothing can be told to it any more.
    pub fn part(&self) {
        self.errands.close();
    }

    /// Whether nothing can be told to it any more.
    pub fn is_gone(&self) -> bool {
        self.errands.is_closed()
    }

    /// Tells it something. Says whether it will hear it, as far as one can know. One that is so slow that the channel is full is
    /// given up: nothing may be left out of what it is told.
    fn tell(&self, errand: Errand) -> bool {
        let told = self.errands.try_send(errand).is_ok();
        if !told {
            self.part();
        }
        told
    }
}

/// What a desk has with leads.
#[derive(Debug, Default)]
pub(super) struct Led {
    /// Who decides what comes; `None`: this one does.
    lead: Option<Arc<Lead>>,
    /// Requests that a lead was asked for, until their first token.
    asked: ById<Asked>,
    /// Streams of requests that a lead has given.
    streams: usize,
    /// Until when scrapes may count what no ledger knows.
    aftermath: Time,
}

/// A request that a lead was asked for.
#[derive(Debug)]
struct Asked {
    lead: Arc<Lead>,
    request: Box<Request>,
    /// Its ticket; `None` while it has a pod.
    waiter: Option<Waiter>,
}

impl Led {
    /// Requests whose end or verdict is awaited.
    pub(super) fn open(&self) -> usize {
        self.asked.len() + self.streams
    }

    /// Who decides what comes, unless this one does.
    pub(super) fn lead(&self) -> Option<&Arc<Lead>> {
        self.lead.as_ref()
    }

    /// A stream of a lead is over.
    pub(super) fn stream_over(&mut self) {
        self.streams = self.streams.saturating_sub(1);
    }

    /// Something runs on pods that no ledger knows.
    pub(super) fn lost_sight(&mut self, now: Time) {
        self.aftermath = now.plus(AFTERMATH);
    }

    /// Whether scrapes may count what no ledger knows.
    pub(super) fn in_aftermath(&self, now: Time) -> bool {
        now < self.aftermath
    }
}

impl Desk {
    /// Asks the lead for a request. Gives it back with its ticket where none is to be asked.
    pub(super) fn ask(
        &mut self,
        now: Time,
        request: Box<Request>,
        waiter: Waiter,
    ) -> Option<(Box<Request>, Waiter)> {
        let Some(lead) = self.led.lead.clone() else { return Some((request, waiter)) };
        if !lead.tell(Errand::Admit(Box::new(Facts::of(&request, now)))) {
            return Some((request, waiter));
        }
        self.led.asked.insert(request.id, Asked { lead, request, waiter: Some(waiter) });
        None
    }

    /// A request could not be delivered: asks again where it was asked. Gives its new ticket back when it is not a lead's.
    pub(super) fn ask_again(
        &mut self,
        now: Time,
        id: RequestId,
        waiter: Waiter,
        due: &mut Due,
    ) -> Option<Waiter> {
        let Some(asked) = self.led.asked.get_mut(id) else { return Some(waiter) };
        self.streams.remove(id);
        self.led.streams = self.led.streams.saturating_sub(1);
        if asked.lead.tell(Errand::Retry(id)) {
            asked.waiter = Some(waiter);
        } else if let Some(asked) = self.led.asked.remove(id) {
            self.admit(now, asked.request, waiter, due);
        }
        None
    }

    /// Its client has left. Says whether a lead had been asked.
    pub(super) fn ask_no_more(&mut self, id: RequestId) -> bool {
        let waits = self.led.asked.get(id).is_some_and(|asked| asked.waiter.is_some());
        let asked = if waits { self.led.asked.remove(id) } else { None };
        asked.is_some_and(|asked| asked.lead.tell(Errand::Cancel(id))) || waits
    }

    /// An event of a request that a lead has given. Gives it back when it is none.
    pub(super) fn tell_lead(&mut self, now: Time, event: Event) -> Option<Event> {
        let (id, errand) = match &event {
            Event::FirstToken(id) => (*id, Errand::FirstToken(*id)),
            Event::End(end) => (end.id, Errand::End(Ended::of(*end, now))),
            _ => return Some(event),
        };
        let Some(stream) = self.streams.get_mut(id) else { return Some(event) };
        let Some(lead) = stream.lead.clone() else { return Some(event) };
        stream.started = true;
        lead.tell(errand);
        self.led.asked.remove(id);
        if matches!(event, Event::End(_)) {
            self.streams.remove(id);
            self.led.stream_over();
        }
        None
    }

    /// Takes a verdict in. Returns what has to be said to it.
    pub(super) fn hear(
        &mut self,
        now: Time,
        lead: &Arc<Lead>,
        word: Word,
        due: &mut Due,
    ) -> Option<Errand> {
        let id = match &word {
            Word::Give(given) => given.id,
            Word::Refuse(refused) => refused.id,
        };
        let asked = self.led.asked.get(id).is_some_and(|asked| Arc::ptr_eq(&asked.lead, lead));
        match word {
            Word::Give(given) if asked => self.given(now, given, due),
            // Its client left, or it was asked elsewhere meanwhile.
            Word::Give(_) => Some(Errand::End(Ended::unwanted(id))),
            Word::Refuse(refused) => {
                if asked {
                    self.refused(now, refused, due);
                }
                None
            }
        }
    }

    fn refused(&mut self, now: Time, refused: Refused, due: &mut Due) {
        let Some(asked) = self.led.asked.remove(refused.id) else { return };
        let Some(waiter) = asked.waiter else { return };
        // Where it is decided no pod answers; here one does.
        if refused.reason == RefusalReason::NoPods && self.has_ready_pods() {
            return self.decide(now, asked.request, waiter, due);
        }
        due.push(Delivery::Refuse(waiter, refused.of(&asked.request, now)));
    }

    fn has_ready_pods(&self) -> bool {
        self.pods.values().any(|known| known.pod.phase() == Phase::Ready)
    }

    /// A request did not go well on a pod.
    pub(super) fn hold_against(&self, pod: &Pod, failing: Failing) {
        if let Some(lead) = &self.led.lead {
            lead.tell(Errand::HoldAgainst(Charge { pod: pod.authority.clone(), failing }));
        }
    }

    fn given(&mut self, now: Time, given: Given, due: &mut Due) -> Option<Errand> {
        let id = given.id;
        let pod = self.by_address.get(&given.pod).and_then(|id| self.pods.get(id));
        // One that is not known here, or not any more: then another.
        let Some(pod) = pod.map(|known| known.pod.clone()) else { return Some(Errand::Retry(id)) };
        let asked = self.led.asked.get_mut(id)?;
        let waiter = asked.waiter.take()?;
        let (dispatch, lead) = (given.dispatch(&asked.request, pod.id, now), asked.lead.clone());
        let events = self.open_stream(id, Some(lead));
        self.led.streams += 1;
        due.push(Delivery::Give(Grant { dispatch, pod, events, waiter: Some(waiter) }));
        None
    }

    /// Goes by what a lead decides from now on, or decides itself. What waits for the verdict of another is asked for anew.
    pub(super) fn follow(&mut self, now: Time, lead: Option<Arc<Lead>>, due: &mut Due) {
        if self.led.lead.is_some() && lead.is_none() {
            self.led.lost_sight(now);
        }
        self.led.lead = lead;
        let same = |asked: &Asked| match &self.led.lead {
            Some(lead) => Arc::ptr_eq(lead, &asked.lead),
            None => false,
        };
        let waits = |asked: &&Asked| asked.waiter.is_some() && !same(asked);
        let mut elsewhere: Vec<RequestId> =
            self.led.asked.values().filter(waits).map(|asked| asked.request.id).collect();
        // In the order in which they came.
        elsewhere.sort_unstable();
        for id in elsewhere {
            let Some(asked) = self.led.asked.remove(id) else { continue };
            asked.lead.tell(Errand::Cancel(id));
            if let Some(waiter) = asked.waiter {
                self.admit(now, asked.request, waiter, due);
            }
        }
    }

    /// Tells leads how far their streams have come.
    pub(super) fn tell_strides(&self, strides: Vec<(Arc<Lead>, Strides)>) {
        for (lead, strides) in strides {
            lead.tell(Errand::Progress(strides));
        }
    }
}

/// Notes what one lead is to be told.
pub(super) fn note(
    all: &mut Vec<(Arc<Lead>, Strides)>,
    lead: &Arc<Lead>,
    what: impl FnOnce(&mut Strides),
) {
    if let Some((_, strides)) = all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, lead)) {
        return what(strides);
    }
    let mut strides = Strides::default();
    what(&mut strides);
    all.push((lead.clone(), strides));
}

impl Given {
    fn dispatch(&self, request: &Request, pod: weir_core::PodId, now: Time) -> Dispatch {
        Dispatch {
            id: self.id,
            pod,
            attempt: self.attempt,
            arrived: request.arrived,
            waited: now.since(request.arrived),
            slo: request.slo,
            sequences: request.sequences,
            prediction: self.prediction,
            tokens_per_event: self.tokens_per_event,
        }
    }
}

impl Refused {
    fn of(self, request: &Request, now: Time) -> Refusal {
        let (id, band, waited) = (self.id, request.band, now.since(request.arrived));
        Refusal { id, band, reason: self.reason, waited, retry_after: self.retry_after }
    }
}
