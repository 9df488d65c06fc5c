//! A hub that is led: another dispatcher's decides for it.
//!
//! Of several dispatchers in front of one pool one decides for all, for two that decide apart know neither what the other has sent
//! to a pod nor what it keeps for whom. The others keep their clients and their streams: they ask for a verdict, relay to the pod
//! themselves, and tell how it goes: [`Errand`]s go there, [`Word`]s come back.
//!
//! # Promises
//! - A request is asked for with one lead at a time, and kept until its first token: when the lead is gone before its verdict, or
//!   nothing reached the pod, it is decided here, or by the next lead, with the arrival it had. It waits once more and starts once.
//! - What a lead has given is told to that lead alone, to its end. What runs on when the lead is gone is in nobody's ledger; for a
//!   minute what scrapes show beyond the ledger is counted then ([`AFTERMATH`]).
//! - The hub's own scheduler hears of pods and scrapes all the time, of the prompts that the lead has sent where, and of how long
//!   answers were, so that it can decide from one moment to the next.

use std::{sync::Arc, time::Duration};

use async_channel::Sender;
use weir_core::{
    Answered, Event, Lesson, Phase, RefusalReason, Request, RequestId, Time, by_id::ById,
};

use super::{
    actor::{Delivery, Desk, Due, Grant},
    errand::{Charge, Ended, Errand, Facts, Given, Lore, Refused, Strides, Word},
    message::Waiter,
};
use crate::fleet::{Failing, Pod};

/// For how long what scrapes show beyond the ledger is counted after the decider has changed or has lost sight of what another
/// relays: most answers are over by then. At other times that would be the noise of scrapes that are older than the ledger.
pub const AFTERMATH: Duration = Duration::from_secs(60);

/// What has come to be known here, as the desk hands it out.
#[derive(Clone, Debug)]
pub enum News {
    /// A request was given a pod.
    Sent(RequestId, Arc<Pod>, Arc<[u64]>),
    /// A response was whole.
    Answered(Answered),
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
    /// Those who want to know what is known here.
    listeners: Vec<Sender<News>>,
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
    /// Tells somebody what comes to be known here. Who does not listen fast enough misses some.
    pub(super) fn listen(&mut self, to: Sender<News>) {
        self.led.listeners.retain(|to| !to.is_closed());
        self.led.listeners.push(to);
    }

    /// Tells those who listen. What it is, is only made where somebody does.
    pub(super) fn spread(&mut self, news: impl FnOnce(&Self) -> Option<News>) {
        if self.led.listeners.is_empty() {
            return;
        }
        let Some(news) = news(self) else { return };
        self.led.listeners.retain(|to| !to.is_closed());
        for to in &self.led.listeners {
            // One that is full loses it: it is a belief, and more of it comes.
            let _ = to.try_send(news.clone());
        }
    }

    /// Notes what a lead has come to know.
    pub(super) fn note_lore(&mut self, now: Time, lead: &Arc<Lead>, lore: Lore, due: &mut Due) {
        if !self.led.lead.as_ref().is_some_and(|decides| Arc::ptr_eq(decides, lead)) {
            return;
        }
        let lesson = match lore {
            Lore::Sent { pod, blocks } => {
                self.by_address.get(&pod).map(|pod| Lesson::Sent(*pod, blocks))
            }
            Lore::Answered(answered) => Some(Lesson::Answered(answered)),
        };
        lesson.into_iter().for_each(|lesson| self.handle(now, Event::Told(lesson), due));
    }

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

    /// Its client has left. Of one that has a pod its lease says so.
    pub(super) fn ask_no_more(&mut self, id: RequestId) {
        if self.led.asked.get(id).is_some_and(|asked| asked.waiter.is_some())
            && let Some(asked) = self.led.asked.remove(id)
        {
            asked.lead.tell(Errand::Cancel(id));
        }
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
        let blocks = asked.request.blocks.clone();
        let (dispatch, lead) = (given.dispatch(&asked.request, pod.id, now), asked.lead.clone());
        let events = self.open_stream(id, Some(lead));
        self.led.streams += 1;
        // What is sent from here it says to others alone.
        self.handle(now, Event::Told(Lesson::Sent(pod.id, blocks)), due);
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
