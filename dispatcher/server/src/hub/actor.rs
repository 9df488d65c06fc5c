//! The desk: a pool's scheduler and what is needed to carry out its actions.
//!
//! Only [`super::Hub`] touches it, under its lock. It performs nothing: what is due is handed back
//! as [`Delivery`] values, so that no waker runs and no [`Lease`](super::Lease) is dropped while
//! the lock is held.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use async_channel::Receiver;
use smallvec::SmallVec;
use weir_core::{
    Action, Dispatch, Event, Phase, PodId, Progress, Pulse, Refusal, Request, RequestId, Scheduler,
    TICK, Time, by_id::ById, spread::NumberMap,
};
use weir_schema::Sample;

use super::{
    errand::{Missed, Steps},
    led::{Led, LedStream, News, note},
    message::{Message, Waiter},
    ticket::nobody_answers,
};
use crate::{clock::Clock, fleet::Pod};

/// Most messages taken in one turn: bounds how long the lock is held.
const TURN: usize = 1024;

/// What a turn at the desk leaves to be done: a pod given and a sample, mostly.
pub(super) type Due = SmallVec<[Delivery; 2]>;

/// Something to be done once the lock is let go.
pub(super) enum Delivery {
    /// Give a pod to a ticket.
    Give(Grant),
    /// Tell a ticket that it is refused.
    Refuse(Waiter, Refusal),
    /// Hand a sample to the spool.
    Sample(Box<Sample>),
}

/// What a lease is made of.
pub(super) struct Grant {
    /// The decision.
    pub dispatch: Dispatch,
    /// The pod it names.
    pub pod: Arc<Pod>,
    /// The counter that the lease writes and the sweep reads.
    pub events: Arc<AtomicU32>,
    /// The ticket; `None` when the request came without one.
    pub waiter: Option<Waiter>,
}

/// A pool's scheduler and its surroundings.
pub(super) struct Desk {
    pub scheduler: Scheduler,
    /// Reused between calls of the scheduler.
    actions: Vec<Action>,
    /// Tickets without a verdict. A `Cancel` counts only while its request is in here: a request
    /// that was given a pod meanwhile ends with its lease.
    pub(super) waiters: ById<Waiter>,
    /// Requests with a lease.
    pub(super) streams: ById<Stream>,
    /// Pods as the scheduler knows them. The table that others read may be ahead of it.
    pub(super) pods: NumberMap<PodId, KnownPod>,
    /// The same by host and port.
    pub(super) by_address: HashMap<String, PodId>,
    /// Pods that have left while something ran there, by host and port.
    pub(super) departed: HashMap<String, Departed>,
    /// What another dispatcher decides.
    pub(super) led: Led,
    swept_at: Time,
    /// When the process was last back from standing still, as the scheduler knows.
    back_at: Time,
}

pub(super) struct Stream {
    pub id: RequestId,
    /// In whose ledger it is, if that is not the scheduler's here.
    pub led: Option<Box<LedStream>>,
    pub events: Arc<AtomicU32>,
    pub swept: u32,
    /// Its first token was announced; a sweep must not be faster than that message.
    pub started: bool,
}

/// A pod that has left.
#[derive(Clone)]
pub(super) struct Departed {
    pub pod: Arc<Pod>,
    /// When it did.
    pub at: Time,
}

pub(super) struct KnownPod {
    pub pod: Arc<Pod>,
    swept: Pulse,
    /// Steps that the scheduler here was not told of, for its ledger knew nothing of what ran then.
    hidden: u64,
}

impl Desk {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self {
            scheduler,
            actions: Vec::new(),
            waiters: ById::default(),
            streams: ById::default(),
            pods: NumberMap::default(),
            by_address: HashMap::new(),
            departed: HashMap::new(),
            led: Led::default(),
            swept_at: Time::ZERO,
            back_at: Time::ZERO,
        }
    }

    /// Takes what is in the mailbox through the scheduler; `due` gets what is to be done. Returns when that was.
    pub(super) fn drain(
        &mut self,
        inbox: &Receiver<Message>,
        mut now: Time,
        clock: Clock,
        due: &mut Due,
    ) -> Time {
        self.note_standstill(now, clock, due);
        self.sweep(now, due);
        for _ in 0..TURN {
            let Ok(message) = inbox.try_recv() else { break };
            self.take(now, message, due);
            // Read again after each: the scheduler may take a millisecond for a large pass.
            now = clock.now();
            self.note_standstill(now, clock, due);
        }
        now
    }

    /// The same with one message.
    pub(super) fn take_one(
        &mut self,
        now: Time,
        message: Message,
        clock: Clock,
        due: &mut Due,
    ) -> Time {
        self.note_standstill(now, clock, due);
        self.sweep(now, due);
        self.take(now, message, due);
        clock.now()
    }

    /// Tells the scheduler that the process did not run for a while, before it hears of anything that was measured meanwhile.
    fn note_standstill(&mut self, now: Time, clock: Clock, due: &mut Due) {
        let back_at = clock.back_at(now);
        if back_at > self.back_at {
            self.back_at = back_at;
            self.handle(now, Event::StoodStill, due);
        }
    }

    fn take(&mut self, now: Time, message: Message, due: &mut Due) {
        match message {
            Message::Admit(request, waiter) => self.admit(now, request, waiter, due),
            Message::Retry(id, missed, waiter) => {
                let stream = self.streams.remove(id);
                match stream.and_then(|stream| stream.led) {
                    Some(led) => self.ask_again(now, (*led, missed), waiter, due),
                    None => {
                        self.waiters.insert(id, waiter);
                        let event = match missed {
                            Missed::Unreached => Event::Undelivered(id),
                            Missed::Full => Event::TurnedAway(id),
                        };
                        self.handle(now, event, due);
                        self.refuse_unknown(id, due);
                    }
                }
            }
            Message::Decline(id, waiter) => {
                self.streams.remove(id);
                self.waiters.insert(id, waiter);
                self.handle(now, Event::Declined(id), due);
                self.refuse_unknown(id, due);
            }
            Message::Cancel(id) => {
                if self.waiter(id).is_some() {
                    self.handle(now, Event::Cancel(id), due);
                } else {
                    self.ask_no_more(id);
                }
            }
            Message::PodUp(pod) => self.pod_up(now, pod, due),
            Message::PodRestarted(id) => {
                self.strike(id);
                self.departed.retain(|_, departed| departed.pod.id != id);
                self.handle(now, Event::PodDown(id), due);
            }
            Message::PodChanged(id) => {
                // Read now and not when it was posted: breaker and operator may both be at it.
                let phase = self.pods.get(&id).map(|known| known.pod.phase());
                let event = phase.map(|phase| Event::PodPhase(id, phase));
                event.into_iter().for_each(|event| self.handle(now, event, due));
            }
            Message::Event(event) => {
                if let Some(event) = self.tell_lead(now, event) {
                    self.happen(now, event, due);
                }
            }
        }
    }

    /// Has a request decided, by whoever decides.
    pub(super) fn admit(
        &mut self,
        now: Time,
        request: Box<Request>,
        waiter: Waiter,
        due: &mut Due,
    ) {
        if let Some((request, waiter)) = self.ask(now, request, waiter) {
            self.decide(now, request, waiter, due);
        }
    }

    /// Has a request decided by the scheduler here.
    pub(super) fn decide(
        &mut self,
        now: Time,
        request: Box<Request>,
        waiter: Waiter,
        due: &mut Due,
    ) {
        self.waiters.insert(request.id, waiter);
        self.handle(now, Event::Arrive(request), due);
    }

    fn happen(&mut self, now: Time, mut event: Event, due: &mut Due) {
        match &mut event {
            Event::FirstToken(id) => {
                if let Some(stream) = self.streams.get_mut(*id) {
                    stream.started = true;
                }
            }
            Event::End(end) => {
                drop(self.streams.remove(end.id));
                let end = *end;
                self.spread(|desk| desk.scheduler.answer_of(&end).map(News::Answered));
            }
            Event::PodDown(id) => self.forget(now, *id),
            Event::Scraped(_, scrape) => {
                scrape.shared |= self.led.in_aftermath(now) || self.decides_beside();
            }
            _ => {}
        }
        let closes = matches!(event, Event::Close);
        self.handle(now, event, due);
        if closes {
            // What waits for another's verdict is refused like everything else.
            self.follow(now, None, due);
            while self.move_on(now, due) {}
        }
    }

    /// A pod joins. Its phase is read now and not when it was posted: the breaker may have moved in between.
    fn pod_up(&mut self, now: Time, pod: Arc<Pod>, due: &mut Due) {
        let (id, spec, phase) = (pod.id, pod.spec(), pod.phase());
        self.by_address.insert(pod.address.clone(), id);
        let before = self.departed.remove(&pod.address);
        self.pods.insert(id, KnownPod { pod, swept: Pulse::default(), hidden: 0 });
        let Some(before) = before else {
            return self.handle(now, Event::PodUpAs(spec, phase), due);
        };
        // With what ran there when it left, for its streams went on; it is given nothing before that is in its ledger.
        self.handle(now, Event::PodUpAs(spec, Phase::Broken), due);
        self.carry_over(before.pod.id, id);
        self.handle(now, Event::PodPhase(id, phase), due);
    }

    /// A pod leaves. What runs there is in the ledger of the pod that is at its address now, or of the next one.
    fn forget(&mut self, now: Time, id: PodId) {
        let Some(pod) = self.strike(id) else { return };
        if let Some(heir) = self.by_address.get(&pod.address).copied() {
            return self.carry_over(id, heir);
        }
        let mut departed = std::mem::take(&mut self.departed);
        departed.insert(pod.address.clone(), Departed { pod, at: now });
        departed.retain(|_, departed| self.runs_on(departed.pod.id));
        self.departed = departed;
    }

    /// Strikes a pod off the list.
    fn strike(&mut self, id: PodId) -> Option<Arc<Pod>> {
        self.by_address.retain(|_, known| *known != id);
        self.pods.remove(&id).map(|known| known.pod)
    }

    pub(super) fn handle(&mut self, now: Time, event: Event, due: &mut Due) {
        let mut next = Some(event);
        let mut undeliverable = Vec::new();
        while let Some(event) = next {
            self.scheduler.handle(now, event, &mut self.actions);
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.drain(..) {
                match action {
                    Action::Dispatch(dispatch) => match self.grant(dispatch) {
                        Some(grant) => due.push(Delivery::Give(grant)),
                        None => undeliverable.push(dispatch.id),
                    },
                    Action::Refuse(refusal) => due.extend(self.refuse(refusal)),
                    Action::Sample(sample) => due.push(Delivery::Sample(sample)),
                }
            }
            self.actions = actions;
            next = undeliverable.pop().map(Event::Undelivered);
        }
    }

    /// `None` when the pod was made known to the scheduler by somebody else than this desk.
    fn grant(&mut self, dispatch: Dispatch) -> Option<Grant> {
        let pod = self.pods.get(&dispatch.pod)?.pod.clone();
        let waiter = self.waiter(dispatch.id);
        let events = self.open_stream(dispatch.id, None);
        self.spread(|desk| {
            let blocks = desk.scheduler.prompt_of(dispatch.id).filter(|blocks| !blocks.is_empty());
            Some(News::Sent(dispatch.id, pod.clone(), blocks?.clone()))
        });
        Some(Grant { dispatch, pod, events, waiter })
    }

    /// Notes that a request has a pod. Returns the counter that its lease writes.
    pub(super) fn open_stream(
        &mut self,
        id: RequestId,
        led: Option<Box<LedStream>>,
    ) -> Arc<AtomicU32> {
        let events = Arc::new(AtomicU32::new(0));
        let stream = Stream { id, led, events: events.clone(), swept: 0, started: false };
        self.streams.insert(id, stream);
        events
    }

    /// Nobody waits for a verdict on what the scheduler does not know.
    fn refuse_unknown(&mut self, id: RequestId, due: &mut Due) {
        if self.scheduler.reason(id).is_none() {
            let waiter = self.waiter(id);
            due.extend(waiter.map(|waiter| Delivery::Refuse(waiter, nobody_answers(id))));
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Option<Delivery> {
        let waiter = self.waiter(refusal.id)?;
        Some(Delivery::Refuse(waiter, refusal))
    }

    /// Takes a ticket that gets its verdict, or is gone.
    fn waiter(&mut self, id: RequestId) -> Option<Waiter> {
        self.waiters.remove(id)
    }

    /// Tells the scheduler how far streams and pods have come, at most once in [`TICK`].
    fn sweep(&mut self, now: Time, due: &mut Due) {
        if now.since(self.swept_at) < TICK {
            return;
        }
        self.swept_at = now;
        self.take_overdue(now, due);
        let mut progress = Progress::default();
        let mut strides = Vec::new();
        for stream in self.streams.values_mut().filter(|stream| stream.started) {
            let events = stream.events.load(Relaxed);
            if events != stream.swept {
                stream.swept = events;
                match &stream.led {
                    Some(led) => {
                        note(&mut strides, &led.lead, |to| to.events.push((stream.id, events)))
                    }
                    None => progress.events.push((stream.id, events)),
                }
            }
        }
        let lead = self.led.lead();
        for (id, known) in &mut self.pods {
            let pulse = known.pod.pulse.read();
            if pulse == known.swept {
                continue;
            }
            match lead {
                Some(lead) => {
                    let steps = known.hide(pulse, now);
                    note(&mut strides, lead, |to| to.steps.push(steps));
                }
                None => progress.pulses.push((*id, known.show(pulse))),
            }
        }
        self.tell_strides(strides);
        if progress != Progress::default() {
            self.handle(now, Event::Progress(progress), due);
        }
    }
}

impl KnownPod {
    /// What its streams have shown, for the scheduler here.
    fn show(&mut self, pulse: Pulse) -> Pulse {
        self.swept = pulse;
        Pulse { steps: pulse.steps.saturating_sub(self.hidden), ..pulse }
    }

    /// The same for another's.
    fn hide(&mut self, pulse: Pulse, now: Time) -> Steps {
        let count = pulse.steps.saturating_sub(self.swept.steps);
        self.hidden += count;
        self.swept = pulse;
        Steps { pod: self.pod.address.clone(), count, age: now.since(pulse.last_step_at) }
    }
}
