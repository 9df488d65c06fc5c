//! A hub that is led: another dispatcher's decides for it.
//!
//! Of several dispatchers in front of one pool one decides for all, for two that decide apart know neither what the other has sent
//! to a pod nor what it keeps for whom. The others keep their clients and their streams: they ask for a verdict, relay to the pod
//! themselves, and tell how it goes: [`Errand`]s go there, [`Word`]s come back.
//!
//! # Promises
//! - A request is asked for with one lead at a time, and kept until its end: when the lead is gone before its verdict, or nothing
//!   reached the pod, it is decided here, or by the next lead, with the arrival it had. It waits once more and starts once.
//! - What is relayed here is in one ledger at a time: that of whoever decides. When that becomes another, be it this one, what waits
//!   and what runs goes with it.
//! - The hub's own scheduler hears of pods and scrapes all the time, of the prompts that the lead has sent where, and of how long
//!   answers were, so that it can decide from one moment to the next.
//! - Who is asked decides, also if it is led itself: two that are about to change places do not ask each other in turns. So what others
//!   asked for here stays in the ledger here until they ask elsewhere.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_channel::Sender;
use smallvec::{SmallVec, smallvec};
use weir_core::{
    Answered, Event, Learned, Lesson, Phase, RefusalReason, Request, RequestId, Running, Time,
    by_id::ById,
};

use super::{
    actor::{Delivery, Desk, Due, Grant},
    errand::{
        Ask, Charge, Ended, Errand, Facts, Given, Lore, Missed, Refused, Strides, Word, is_guest,
    },
    message::Waiter,
};
use crate::fleet::{Failing, Pod};

/// For how long what scrapes show beyond the ledger is counted after another dispatcher was lost that may live on where it cannot be
/// heard: most answers are over by then. At other times that would be the noise of scrapes that are older than the ledger.
pub const AFTERMATH: Duration = Duration::from_secs(60);

/// Pods of no use here that a request is given before it is decided here.
const DECLINES: u32 = 3;
/// Between two looks whether anything waits longer than it may.
const CHECKED_EVERY: Duration = Duration::from_secs(1);
/// By how much longer than anything may wait a verdict may take.
const LENIENCE: Duration = Duration::from_secs(5);

/// What has come to be known here, as the desk hands it out.
#[derive(Clone, Debug)]
pub enum News {
    /// A request was given a pod.
    Sent(RequestId, Arc<Pod>, Arc<[u64]>),
    /// A response was whole.
    Answered(Answered),
    /// Everything that was learned: all answers before it are in it, and none after.
    Learned(Box<Learned>),
}

/// Errands that are told at once: one mostly, and everything when another one decides than before.
pub type Errands = SmallVec<[Errand; 1]>;

/// The dispatcher that decides, for as long as it can be told something.
#[derive(Debug)]
pub struct Lead {
    /// Where it is, for people.
    pub address: String,
    errands: Sender<Errands>,
}

impl Lead {
    /// One that is told by a bounded channel; `address` is for people.
    pub fn new(address: String, errands: Sender<Errands>) -> Arc<Self> {
        Arc::new(Self { address, errands })
    }

    /// Says that nothing can be told to it any more.
    pub fn part(&self) {
        self.errands.close();
    }

    /// Tells it something. Says whether it will hear it, as far as one can know. One that is so slow that the channel is full is
    /// given up: nothing may be left out of what it is told.
    pub(super) fn tell(&self, errand: Errand) -> bool {
        self.tell_all(smallvec![errand])
    }

    pub(super) fn tell_all(&self, errands: Errands) -> bool {
        let told = errands.is_empty() || self.errands.try_send(errands).is_ok();
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
    pub(super) lead: Option<Arc<Lead>>,
    /// Requests that wait for a lead's verdict.
    pub(super) asked: ById<Asked>,
    /// What waits and has yet to come to whoever decides now, in that order. It is where it was until then, or over.
    pub(super) moving: VecDeque<RequestId>,
    /// How often any was asked for.
    asks: Ask,
    /// Streams that are in a lead's ledger.
    pub(super) streams: usize,
    /// When it was last looked whether any waits too long.
    checked_at: Time,
    /// Until when scrapes may count what no ledger knows.
    aftermath: Time,
    /// Those who want to know what is known here.
    listeners: Vec<Sender<News>>,
}

/// A request that waits for a lead's verdict.
#[derive(Debug)]
pub(super) struct Asked {
    pub lead: Arc<Lead>,
    pub request: Box<Request>,
    pub waiter: Waiter,
    /// Which asking it is.
    pub ask: Ask,
    /// How often it was given a pod that is of no use here.
    pub declined: u32,
    /// Whether it was let in before, by another dispatcher or here.
    pub let_in: bool,
}

/// A stream that is in a lead's ledger, with what the ledger of another has to know of it.
#[derive(Debug)]
pub(super) struct LedStream {
    pub lead: Arc<Lead>,
    pub running: Running,
}

impl Led {
    /// Requests whose end or verdict is awaited.
    pub(super) fn open(&self) -> usize {
        self.asked.len() + self.streams
    }

    /// Counts one more asking.
    pub(super) fn next_ask(&mut self) -> Ask {
        self.asks = self.asks.wrapping_add(1);
        self.asks
    }

    /// Who decides what comes, unless this one does.
    pub(super) fn lead(&self) -> Option<&Arc<Lead>> {
        self.lead.as_ref()
    }

    fn stream_over(&mut self) {
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

    /// Whether another decides and something is in the books here all the same: of somebody who does not reach that one, or what is
    /// decided here for want of pods that are known to both. What the other has sent to pods these books do not know.
    pub(super) fn decides_beside(&self) -> bool {
        self.led.lead.is_some() && self.scheduler.waiting() + self.scheduler.in_flight() > 0
    }

    /// Whether it decides for others though another decides for it.
    pub(super) fn decides_for_guests(&self) -> bool {
        let waits = || self.scheduler.waiting_ids().into_iter().any(is_guest);
        self.decides_beside()
            && (self.streams.values().any(|stream| is_guest(stream.id)) || waits())
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
            Lore::Cached { pod, cached } => {
                self.by_address.get(&pod).map(|pod| Lesson::Cached(*pod, cached))
            }
            Lore::Learned(learned) => Some(Lesson::Learned(learned)),
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
        let lead = self.led.lead.clone().filter(|_| !is_guest(request.id));
        let Some(lead) = lead else { return Some((request, waiter)) };
        let ask = self.led.next_ask();
        if !lead.tell(Errand::Admit(Box::new(Facts::of(&request, ask, now)))) {
            return Some((request, waiter));
        }
        let asked = Asked { lead, request, waiter, ask, declined: 0, let_in: false };
        self.led.asked.insert(asked.request.id, asked);
        None
    }

    /// The pod of a request has nothing of it: asks again where it was asked.
    pub(super) fn ask_again(
        &mut self,
        now: Time,
        (led, missed): (LedStream, Missed),
        waiter: Waiter,
        due: &mut Due,
    ) {
        self.led.stream_over();
        let (lead, request, ask) = (led.lead, led.running.request, self.led.next_ask());
        if lead.tell(Errand::Retry(Box::new(Facts::of(&request, ask, now)), missed)) {
            let asked = Asked { lead, request, waiter, ask, declined: 0, let_in: true };
            self.led.asked.insert(asked.request.id, asked);
        } else {
            self.admit(now, request, waiter, due);
        }
    }

    /// Its client has left. Of one that has a pod its lease says so.
    pub(super) fn ask_no_more(&mut self, id: RequestId) {
        if let Some(asked) = self.led.asked.remove(id) {
            asked.lead.tell(Errand::Cancel(id));
        }
    }

    /// An event of a request that is in a lead's ledger. Gives it back when it is none.
    pub(super) fn tell_lead(&mut self, now: Time, event: Event) -> Option<Event> {
        let (id, errand) = match &event {
            Event::FirstToken(id) => (*id, Errand::FirstToken(*id)),
            Event::End(end) => (end.id, Errand::End(Ended::of(*end, now))),
            _ => return Some(event),
        };
        let stream = self.streams.get_mut(id);
        let Some((led, started)) =
            stream.and_then(|stream| Some((stream.led.as_mut()?, &mut stream.started)))
        else {
            return Some(event);
        };
        *started = true;
        led.running.first_token.get_or_insert(now);
        led.lead.tell(errand);
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
        let (id, ask) = match &word {
            Word::Give(given) => (given.id, given.ask),
            Word::Refuse(refused) => (refused.id, refused.ask),
        };
        let awaits = |asked: &Asked| asked.ask == ask && Arc::ptr_eq(&asked.lead, lead);
        // What has yet to come to whoever decides now is asked for anew.
        let decides = self.led.lead.as_ref().is_some_and(|decides| Arc::ptr_eq(decides, lead));
        if !decides || !self.led.asked.get(id).is_some_and(awaits) {
            // Its client left, or it was asked for anew meanwhile: the lead was told so, or is about to be.
            return None;
        }
        match word {
            Word::Give(given) => self.given(now, given, due),
            Word::Refuse(refused) => {
                self.refused(now, refused, due);
                None
            }
        }
    }

    fn refused(&mut self, now: Time, refused: Refused, due: &mut Due) {
        let Some(Asked { request, waiter, let_in, .. }) = self.led.asked.remove(refused.id) else {
            return;
        };
        let here = match refused.reason {
            // Where it is decided no pod answers; here one does.
            RefusalReason::NoPods => self.has_ready_pods(),
            // There is no room where it is decided now; where it waited there was.
            RefusalReason::QueueFull | RefusalReason::QueueBytes => let_in,
            _ => false,
        };
        if here {
            return self.decide(now, request, waiter, due);
        }
        due.push(Delivery::Refuse(waiter, refused.of(&request, now)));
    }

    fn has_ready_pods(&self) -> bool {
        self.pods.values().any(|known| known.pod.phase() == Phase::Ready)
    }

    /// A request did not go well on a pod.
    pub(super) fn hold_against(&self, pod: &Pod, failing: Failing) {
        if let Some(lead) = &self.led.lead {
            lead.tell(Errand::HoldAgainst(Charge { pod: pod.address.clone(), failing }));
        }
    }

    fn given(&mut self, now: Time, given: Given, due: &mut Due) -> Option<Errand> {
        let id = given.id;
        let pod = self.by_address.get(&given.pod).and_then(|id| self.pods.get(id));
        // One that is not known here, or not any more, or not reached from here: then another.
        let pod = pod.map(|known| known.pod.clone()).filter(|pod| !pod.breaker.is_open());
        let Some(pod) = pod else { return Some(self.decline(now, id, due)) };
        let Asked { lead, request, waiter, .. } = self.led.asked.remove(id)?;
        let dispatch = given.dispatch(&request, pod.id, now);
        // What is sent from here the lead says to others alone.
        let lesson = Lesson::Sent(pod.id, request.blocks.clone());
        self.handle(now, Event::Told(lesson), due);
        let running = Running {
            request,
            pod: pod.id,
            sent: now,
            uncached_tokens: dispatch.uncached_tokens,
            first_token: None,
            events: 0,
            prediction: dispatch.prediction,
            tokens_per_event: dispatch.tokens_per_event,
        };
        let events = self.open_stream(id, Some(Box::new(LedStream { lead, running })));
        self.led.streams += 1;
        due.push(Delivery::Give(Grant { dispatch, pod, events, waiter: Some(waiter) }));
        None
    }

    /// Gives a pod back. Where it is decided other pods are known, or reached, than here: then it is decided here.
    fn decline(&mut self, now: Time, id: RequestId, due: &mut Due) -> Errand {
        let again = self.led.asked.get_mut(id).and_then(|asked| {
            asked.declined += 1;
            (asked.declined < DECLINES).then_some(asked.ask)
        });
        if let Some(ask) = again {
            return Errand::Decline(id, ask);
        }
        if let Some(Asked { request, waiter, .. }) = self.led.asked.remove(id) {
            self.decide(now, request, waiter, due);
        }
        // Its client has not left: it is in the books here.
        Errand::Part(id)
    }

    /// Refuses what has waited for a verdict longer than anything may. No lead lets it, unless it is none.
    pub(super) fn take_overdue(&mut self, now: Time, due: &mut Due) {
        if now.since(self.led.checked_at) < CHECKED_EVERY {
            return;
        }
        self.led.checked_at = now;
        let longest = self.scheduler.max_wait() + LENIENCE;
        let overdue =
            self.led.asked.values().filter(|one| now.since(one.request.arrived) > longest);
        let ids: Vec<RequestId> = overdue.map(|one| one.request.id).collect();
        for id in ids {
            let Some(Asked { lead, request, waiter, ask, .. }) = self.led.asked.remove(id) else {
                continue;
            };
            lead.tell(Errand::Cancel(id));
            let retry_after = CHECKED_EVERY;
            let refused = Refused { id, ask, reason: RefusalReason::MaxWait, retry_after };
            due.push(Delivery::Refuse(waiter, refused.of(&request, now)));
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
