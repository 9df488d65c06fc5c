//! [`Hub`]: a pool's mailbox, the lock of its desk, and the pods it knows.
//!
//! See [`super`] for what it promises.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
            fence,
        },
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use async_channel::{Receiver, Sender, TrySendError};
use parking_lot::{Mutex, MutexGuard};
use smallvec::smallvec;
use tokio::sync::Notify;
use weir_core::{Event, Phase, PodId, Reason, Request, RequestId, Scheduler, Snapshot, Time};
use weir_schema::Sample;

use super::{
    Lease, Ticket,
    actor::{Delivery, Desk, Due},
    errand::{Errand, Lore, Missed, Onward, Word},
    held::Held,
    led::{Lead, News},
    message::{Message, Verdict, Waiter},
    recall::Awaited,
    seat::Counted,
};
use crate::{
    clock::Clock,
    fleet::{Failing, Pod},
};

/// Where samples go. Bounded; when it is full a sample is dropped and counted.
pub type SampleSink = Sender<Sample>;

/// Messages that fit into the mailbox. It is drained at once by whoever posts, so it fills only
/// while one thread is inside the scheduler and the others are faster; then they wait for it.
const MAILBOX: usize = 4096;

/// One pool's scheduler, for any number of threads.
pub struct Hub {
    /// Handed to leases; a hub lives as long as anybody may post to it.
    me: Weak<Self>,
    model: Arc<str>,
    clock: Clock,
    mailbox: Sender<Message>,
    inbox: Receiver<Message>,
    desk: Mutex<Desk>,
    /// Pods as told by the fleet, for readers that must not wait for the desk.
    pods: ArcSwap<Vec<Arc<Pod>>>,
    sink: SampleSink,
    samples_dropped: AtomicU64,
    /// Time that threads have been at the desk, in nanoseconds.
    busy_ns: AtomicU64,
    /// Requests waiting after the last drain, and those that another dispatcher decides, to their end.
    astir: AtomicUsize,
    /// Wakes the ticks when the first of them comes.
    ticks: Notify,
    /// What waits as it was last counted.
    pub(super) counted: Mutex<Option<Counted>>,
    /// What an operator holds, as of its last change. Locked before the desk.
    pub(super) held: Mutex<Held>,
    /// Whether that was told by another dispatcher, or one before.
    pub(super) is_told: AtomicBool,
    /// What pods have cached that have not been seen here yet.
    pub(super) awaited: Mutex<Awaited>,
    /// Pods that were believed to have cached what they had before this process.
    pub(super) recalled: AtomicU64,
}

impl Hub {
    /// A hub without pods.
    pub fn new(scheduler: Scheduler, model: Arc<str>, clock: Clock, sink: SampleSink) -> Arc<Self> {
        Self::with_mailbox(MAILBOX, scheduler, model, clock, sink)
    }

    pub(super) fn with_mailbox(
        capacity: usize,
        scheduler: Scheduler,
        model: Arc<str>,
        clock: Clock,
        sink: SampleSink,
    ) -> Arc<Self> {
        let (mailbox, inbox) = async_channel::bounded(capacity);
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            model,
            clock,
            mailbox,
            inbox,
            desk: Mutex::new(Desk::new(scheduler)),
            pods: ArcSwap::default(),
            sink,
            samples_dropped: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            astir: AtomicUsize::new(0),
            ticks: Notify::new(),
            counted: Mutex::default(),
            held: Mutex::default(),
            is_told: AtomicBool::new(false),
            awaited: Mutex::default(),
            recalled: AtomicU64::new(0),
        })
    }

    /// The model the pool serves.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The clock that the pool's times count on.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Tells the scheduler something. Pods join by [`Hub::add_pod`] and requests by [`Hub::admit`].
    ///
    /// Never loses the event. Returns at once unless the mailbox is full, and then after at most one
    /// turn of another thread.
    pub fn post(&self, event: Event) {
        self.send(Message::Event(event));
    }

    /// Lets a pod in; it gets requests if its breaker says so.
    pub fn add_pod(&self, pod: Arc<Pod>) {
        self.ask_newcomer(&pod);
        self.pods.rcu(|pods| {
            let others = pods.iter().filter(|other| other.id != pod.id);
            others.cloned().chain([pod.clone()]).collect::<Vec<_>>()
        });
        self.send(Message::PodUp(pod));
    }

    /// Lets no new request go to a pod and forgets it. Its streams go on, and are in the ledger of the pod that joins at its address
    /// before they have ended.
    pub fn remove_pod(&self, id: PodId) {
        self.pods.rcu(|pods| pods.iter().filter(|pod| pod.id != id).cloned().collect::<Vec<_>>());
        self.post(Event::PodDown(id));
    }

    /// The same of one whose process has ended, and with it everything that ran there.
    pub fn remove_restarted(&self, id: PodId) {
        self.pods.rcu(|pods| pods.iter().filter(|pod| pod.id != id).cloned().collect::<Vec<_>>());
        self.send(Message::PodRestarted(id));
    }

    /// Says that a pod may be in another phase: its breaker or an operator moved.
    pub fn pod_changed(&self, id: PodId) {
        self.send(Message::PodChanged(id));
    }

    /// The pods, as last told by [`Hub::add_pod`] and [`Hub::remove_pod`].
    pub fn pods(&self) -> Arc<Vec<Arc<Pod>>> {
        self.pods.load_full()
    }

    /// Lets a request in. Its verdict comes by the ticket; to drop that is to cancel.
    pub fn admit(self: &Arc<Self>, request: Request) -> Ticket {
        let (ticket, waiter) = Ticket::new(self.clone(), request.id);
        self.send(Message::Admit(Box::new(request), waiter));
        ticket
    }

    pub(super) fn cancel(&self, id: RequestId) {
        self.send(Message::Cancel(id));
    }

    pub(super) fn retry(&self, id: RequestId, missed: Missed, waiter: Waiter) {
        self.send(Message::Retry(id, missed, waiter));
    }

    pub(super) fn decline(&self, id: RequestId, waiter: Waiter) {
        self.send(Message::Decline(id, waiter));
    }

    /// The pool at this moment.
    pub fn snapshot(&self) -> Snapshot {
        self.look(|scheduler, now| scheduler.snapshot(now))
    }

    /// Why a request waits; `None` when it does not.
    pub fn explain(&self, id: RequestId) -> Option<Reason> {
        self.look(|scheduler, _| scheduler.reason(id))
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn idle(&self) -> bool {
        self.at_desk(|desk, _, _| {
            let scheduler = &desk.scheduler;
            scheduler.waiting() == 0 && scheduler.in_flight() == 0 && desk.led.open() == 0
        })
    }

    /// Lets a bundle that has come serve, also in a pool that nobody asks and whose pods are all away. Gives the version of the one that
    /// serves then.
    pub fn take_up_bundle(&self) -> u64 {
        self.at_desk(|desk, _, _| {
            desk.scheduler.take_up();
            desk.scheduler.predictor().model_version
        })
    }

    /// Takes in everything posted so far.
    pub fn catch_up(&self) {
        self.at_desk(|_, _, _| ());
    }

    /// Requests waiting.
    pub fn waiting(&self) -> usize {
        self.look(|scheduler, _| scheduler.waiting())
    }

    /// From now on another dispatcher decides, or this one does. What waits and what runs goes to whoever decides.
    pub fn follow(&self, lead: Option<Arc<Lead>>) {
        self.turn_to(lead);
        while self.move_on() {}
    }

    /// The same, and what waits goes on by [`Hub::move_on`], until which it is where it was.
    pub fn turn_to(&self, lead: Option<Arc<Lead>>) {
        if let Some(lead) = &lead {
            self.await_no_more();
            // Before anything waits there: what is held here may be newer.
            lead.tell_all(smallvec![Errand::Hold(self.held()), Errand::Teach]);
        }
        self.at_desk(|desk, now, due| desk.follow(now, lead, due));
    }

    /// Some of what waits goes on to whoever decides now. Says whether there is more of it.
    pub fn move_on(&self) -> bool {
        self.at_desk(|desk, now, due| desk.move_on(now, due))
    }

    /// Who decides, unless this one does.
    pub fn lead(&self) -> Option<Arc<Lead>> {
        self.at_desk(|desk, _, _| desk.led.lead().cloned())
    }

    /// Whether anything is decided here for the pool: this one decides, or others ask it which do not reach the one that does.
    pub fn decides(&self) -> bool {
        self.at_desk(|desk, _, _| desk.led.lead().is_none() || desk.decides_for_guests())
    }

    /// A verdict came from a lead. Returns what has to be said to it.
    pub fn hear(&self, lead: &Arc<Lead>, word: Word) -> Option<Errand> {
        self.at_desk(|desk, now, due| desk.hear(now, lead, word, due))
    }

    /// Takes a request that another dispatcher relays to a pod into the ledger here. `None` where its pod is not known.
    pub fn adopt(self: &Arc<Self>, id: RequestId, onward: Onward) -> Option<(Box<Lease>, Ticket)> {
        let grant = self.at_desk(|desk, now, due| desk.adopt(now, id, onward, due))?;
        let lease = Lease::new(self.clone(), grant.pod, grant.dispatch, grant.events);
        Some((Box::new(lease), Ticket::spent(self.clone(), id)))
    }

    /// Requests of these numbers that wait do so in another dispatcher's queue from now on.
    pub fn withdraw(&self, numbers: Range<u64>) {
        self.at_desk(|desk, now, _| {
            let ids = desk.scheduler.waiting_ids().into_iter();
            for id in ids.filter(|id| numbers.contains(&id.0)) {
                desk.scheduler.withdraw(now, id);
                desk.waiters.remove(id);
            }
        });
    }

    /// A request is in the ledger of another dispatcher from now on.
    pub(super) fn part_with(&self, id: RequestId) {
        self.at_desk(|desk, _, _| desk.part_with(id));
    }

    /// Tells somebody what comes to be known here, from now on.
    pub fn listen(&self, to: Sender<News>) {
        self.at_desk(|desk, _, _| desk.listen(to));
    }

    /// A lead has come to know something.
    pub fn note_lore(&self, lead: &Arc<Lead>, lore: Lore) {
        let Some(lore) = self.await_pod(lead, lore) else { return };
        self.at_desk(|desk, now, due| desk.note_lore(now, lead, lore, due));
    }

    /// A request did not go well on a pod: told to whoever decides, if that is another dispatcher.
    pub(super) fn hold_against(&self, pod: &Pod, failing: Failing) {
        self.at_desk(|desk, _, _| desk.hold_against(pod, failing));
    }

    /// Whether a request of which another pool could compute the prompt is to come here with nothing of it computed; see
    /// [`Scheduler::takes_whole`].
    pub fn takes_whole(&self, request: &Request, local_tokens: f64) -> bool {
        self.look(|scheduler, now| scheduler.takes_whole(now, request, local_tokens))
    }

    /// Whether a pod besides this one takes requests.
    pub fn others_are_ready(&self, besides: PodId) -> bool {
        self.pods().iter().any(|pod| pod.id != besides && pod.phase() == Phase::Ready)
    }

    /// Something runs on pods that no ledger knows: for a while scrapes count what is beyond it.
    pub fn lost_sight(&self) {
        self.at_desk(|desk, now, _| desk.led.lost_sight(now));
    }

    /// Samples that found the sink full or closed.
    pub fn samples_dropped(&self) -> u64 {
        self.samples_dropped.load(Relaxed)
    }

    /// Time that threads have spent at the desk, of which there is one: what there is of it bounds how many threads are of use.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns.load(Relaxed))
    }

    /// Time passed. [`super::run_ticks`] calls this while something waits.
    pub fn tick(&self) {
        self.post(Event::Tick);
    }

    /// Returns once something waits, or another dispatcher has to be told how something goes.
    pub(super) async fn until_something_stirs(&self) {
        while self.astir.load(SeqCst) == 0 {
            self.ticks.notified().await;
        }
    }

    fn send(&self, message: Message) {
        // With the desk free and nothing in the mailbox the message need not go through it. What this thread posted
        // before has been taken then, so that nothing of one thread is overtaken.
        match self.desk.try_lock().filter(|_| self.inbox.is_empty()) {
            Some(desk) => self.turn(desk, Some(message)),
            None => self.enqueue(message),
        }
        self.drain();
    }

    fn enqueue(&self, mut message: Message) {
        loop {
            // The mailbox cannot be closed: both of its ends are in here.
            match self.mailbox.try_send(message) {
                Ok(()) | Err(TrySendError::Closed(_)) => return,
                Err(TrySendError::Full(back)) => message = back,
            }
            self.turn(self.desk.lock(), None);
        }
    }

    /// Empties the mailbox, unless another thread is at it: that one looks again when it is done.
    fn drain(&self) {
        loop {
            // Orders "I put a message in, then found the lock taken" against "I let the lock go,
            // then found the mailbox empty": at least one of the two threads sees the other.
            fence(SeqCst);
            if self.inbox.is_empty() {
                return;
            }
            let Some(desk) = self.desk.try_lock() else { return };
            self.turn(desk, None);
        }
    }

    /// One turn at the desk, with a message or else with what is in the mailbox. Whoever calls this must look into the
    /// mailbox again afterwards.
    fn turn(&self, mut desk: MutexGuard<'_, Desk>, message: Option<Message>) {
        let mut due = Due::new();
        let began = self.clock.now();
        let over = match message {
            Some(message) => desk.take_one(began, message, self.clock, &mut due),
            None => desk.drain(&self.inbox, began, self.clock, &mut due),
        };
        self.publish(&desk);
        self.count_busy(began, over);
        drop(desk);
        self.perform(&mut due);
    }

    /// Counts time at the desk.
    fn count_busy(&self, began: Time, over: Time) {
        let spent = over.since(began).as_nanos();
        self.busy_ns.fetch_add(u64::try_from(spent).unwrap_or(u64::MAX), Relaxed);
    }

    /// Reads the scheduler after everything posted so far was taken in.
    pub(super) fn look<T>(&self, read: impl FnOnce(&Scheduler, Time) -> T) -> T {
        self.at_desk(|desk, now, _| read(&desk.scheduler, now))
    }

    /// Does something at the desk after everything posted so far was taken in.
    pub(super) fn at_desk<T>(&self, act: impl FnOnce(&mut Desk, Time, &mut Due) -> T) -> T {
        let mut due = Due::new();
        let mut desk = self.desk.lock();
        let began = self.clock.now();
        let now = desk.drain(&self.inbox, began, self.clock, &mut due);
        let done = act(&mut desk, now, &mut due);
        self.publish(&desk);
        self.count_busy(began, self.clock.now());
        drop(desk);
        self.perform(&mut due);
        self.drain();
        done
    }

    fn publish(&self, desk: &Desk) {
        let astir = desk.scheduler.waiting() + desk.led.open();
        if self.astir.swap(astir, SeqCst) == 0 && astir > 0 {
            self.ticks.notify_one();
        }
    }

    fn perform(&self, due: &mut Due) {
        for delivery in due.drain(..) {
            match delivery {
                Delivery::Refuse(waiter, refusal) => {
                    self.answer(Some(waiter), Err(Box::new(refusal)))
                }
                Delivery::Give(grant) => {
                    // Fails only while the hub itself is dropped, and then nobody waits.
                    let Some(hub) = self.me.upgrade() else { return };
                    let lease = Lease::new(hub, grant.pod, grant.dispatch, grant.events);
                    self.answer(grant.waiter, Ok(Box::new(lease)));
                }
                Delivery::Sample(sample) => self.spool(*sample),
            }
        }
    }

    /// Hands a verdict over. A pod that nobody takes is given back: booked first, rolled back if the
    /// reply cannot be delivered. Not by dropping the lease, which would drain again from in here.
    fn answer(&self, waiter: Option<Waiter>, verdict: Verdict) {
        let back = match waiter {
            Some(waiter) => waiter.send(verdict).err(),
            None => Some(verdict),
        };
        if let Some(Ok(lease)) = back {
            self.enqueue(Message::Event(lease.forfeit()));
        }
    }

    fn spool(&self, mut sample: Sample) {
        sample.at_unix_ms = self.clock.unix_ms();
        if self.sink.try_send(sample).is_err() {
            self.samples_dropped.fetch_add(1, Relaxed);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("model", &self.model).finish_non_exhaustive()
    }
}
