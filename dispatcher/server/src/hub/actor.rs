//! The desk: a pool's scheduler and what is needed to carry out its actions.
//!
//! Only [`super::Hub`] touches it, under its lock. It performs nothing: what is due is handed back
//! as [`Delivery`] values, so that no waker runs and no [`Lease`](super::Lease) is dropped while
//! the lock is held.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use async_channel::Receiver;
use smallvec::SmallVec;
use weir_core::{
    Action, Dispatch, Event, PodId, Progress, Pulse, Refusal, RequestId, Scheduler, TICK, Time,
    by_id::ById, spread::NumberMap,
};
use weir_schema::Sample;

use super::message::{Message, Waiter};
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
    waiters: ById<Waiter>,
    /// Requests with a lease.
    streams: ById<Stream>,
    /// Pods as the scheduler knows them. The table that others read may be ahead of it.
    pods: NumberMap<PodId, KnownPod>,
    swept_at: Time,
}

struct Stream {
    id: RequestId,
    events: Arc<AtomicU32>,
    swept: u32,
    /// Its first token was announced; a sweep must not be faster than that message.
    started: bool,
}

struct KnownPod {
    pod: Arc<Pod>,
    swept: Pulse,
}

impl Desk {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        Self {
            scheduler,
            actions: Vec::new(),
            waiters: ById::default(),
            streams: ById::default(),
            pods: NumberMap::default(),
            swept_at: Time::ZERO,
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
        self.sweep(now, due);
        for _ in 0..TURN {
            let Ok(message) = inbox.try_recv() else { break };
            self.take(now, message, due);
            // Read again after each: the scheduler may take a millisecond for a large pass.
            now = clock.now();
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
        self.sweep(now, due);
        self.take(now, message, due);
        clock.now()
    }

    fn take(&mut self, now: Time, message: Message, due: &mut Due) {
        match message {
            Message::Admit(request, waiter) => {
                self.waiters.insert(request.id, waiter);
                self.handle(now, Event::Arrive(request), due);
            }
            Message::Retry(id, waiter) => {
                self.waiters.insert(id, waiter);
                self.streams.remove(id);
                self.handle(now, Event::Undelivered(id), due);
            }
            Message::Cancel(id) => {
                if self.waiter(id).is_some() {
                    self.handle(now, Event::Cancel(id), due);
                }
            }
            Message::PodUp(pod) => {
                // Read now and not when it was posted: the breaker may have moved in between.
                let up = Event::PodUpAs(pod.spec(), pod.phase());
                self.pods.insert(pod.id, KnownPod { pod, swept: Pulse::default() });
                self.handle(now, up, due);
            }
            Message::PodChanged(id) => {
                // Read now and not when it was posted: breaker and operator may both be at it.
                let phase = self.pods.get(&id).map(|known| known.pod.phase());
                let event = phase.map(|phase| Event::PodPhase(id, phase));
                event.into_iter().for_each(|event| self.handle(now, event, due));
            }
            Message::Event(event) => {
                match &event {
                    Event::FirstToken(id) => {
                        if let Some(stream) = self.streams.get_mut(*id) {
                            stream.started = true;
                        }
                    }
                    Event::End(end) => drop(self.streams.remove(end.id)),
                    Event::PodDown(id) => drop(self.pods.remove(id)),
                    _ => {}
                }
                self.handle(now, event, due);
            }
        }
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
        let events = Arc::new(AtomicU32::new(0));
        let id = dispatch.id;
        self.streams.insert(id, Stream { id, events: events.clone(), swept: 0, started: false });
        Some(Grant { dispatch, pod, events, waiter })
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
        let mut progress = Progress::default();
        for stream in self.streams.values_mut().filter(|stream| stream.started) {
            let events = stream.events.load(Relaxed);
            if events != stream.swept {
                stream.swept = events;
                progress.events.push((stream.id, events));
            }
        }
        for (id, known) in &mut self.pods {
            let pulse = known.pod.pulse.read();
            if pulse != known.swept {
                known.swept = pulse;
                progress.pulses.push((*id, pulse));
            }
        }
        if progress != Progress::default() {
            self.handle(now, Event::Progress(progress), due);
        }
    }
}
