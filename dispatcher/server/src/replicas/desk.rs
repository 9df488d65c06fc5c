//! Is called by another dispatcher, and answers for the pool by the hub, as if the requests were its own.
//!
//! What the caller has here is held by guards, a [`Ticket`] while a request waits and a [`Lease`] while it is on a pod: when the
//! call is over, for whatever reason, they are dropped, and the queue and the ledger are as if it had never called.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_channel::Sender;
use futures_util::{
    future::{AbortHandle, Abortable, Aborted, BoxFuture},
    stream::{FuturesUnordered, StreamExt},
};
use subtle::ConstantTimeEq as _;
use tokio::{
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::{MissedTickBehavior, interval, timeout},
};
use weir_core::{EndKind, PodId, Refusal, RefusalReason, RequestId, Time};

use super::{
    BEAT, SILENT,
    circle::Circle,
    seal::{Nonce, Seals, Side, nonce, proof},
    teach::{Lessons, fitting},
    wire::{Asks, Hello, Out, PROTOCOL, Says, Values, Welcome, Why},
};
use crate::{
    fleet::{Failing, Pod},
    hub::{
        Hub, Lease, Ticket,
        errand::{
            Ask, Charge, Ended, Errand, Facts, Given, Lore, Missed, Numbers, Onward, Refused,
            Steps, Strides, Word, before,
        },
        held::Held,
        led::News,
    },
    shutdown::Stage,
};

/// Calls that have asked for something.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Who has shown that it may ask.
pub(super) struct Caller {
    circle: Arc<Circle>,
    asks: Values<OwnedReadHalf>,
    says: OwnedWriteHalf,
    out: Out,
}

/// Meets who calls. `None` when it may not ask, which it was told.
///
/// # Errors
/// When it leaves before that, or says what cannot be understood.
pub(super) async fn meet(
    stream: TcpStream,
    circles: &[Arc<Circle>],
    secret: [u8; 32],
) -> io::Result<Option<Caller>> {
    stream.set_nodelay(true)?;
    let (from, mut says) = stream.into_split();
    let (mut asks, mut out) = (Values::new(from), Out::default());
    let known = identify((&mut asks, &mut says, &mut out), circles, secret).await?;
    match &known {
        Ok(circle) => out.put(&Welcome::Come(circle.own))?,
        Err(why) => out.put(&Welcome::Stay(*why))?,
    }
    out.send(&mut says).await?;
    Ok(known.ok().map(|circle| Caller { circle: circle.clone(), asks, says, out }))
}

/// Answers a call until it is over.
///
/// # Errors
/// When the call is lost, or the caller says what cannot be understood.
pub(super) async fn answer(caller: Caller) -> io::Result<()> {
    let Caller { circle, mut asks, mut says, out } = caller;
    let mut guest = Guest::new(circle.clone(), out);
    let over = guest.attend(&mut asks, &mut says).await;
    if guest.leases.is_empty() && guest.aborts.is_empty() {
        // It may have called itself, or this one twice.
        return over.or_else(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(()),
            _ => Err(error),
        });
    }
    circle.hub.lost_sight();
    over
}

/// Learns what the caller wants and whether it knows the secret, and proves that this one does. From then on all is sealed.
async fn identify<'a>(
    (asks, says, out): (&mut Values<OwnedReadHalf>, &mut OwnedWriteHalf, &mut Out),
    circles: &'a [Arc<Circle>],
    secret: [u8; 32],
) -> io::Result<Result<&'a Arc<Circle>, Why>> {
    let hello: Hello = timeout(SILENT, asks.next()).await??;
    if hello.protocol != PROTOCOL {
        return Ok(Err(Why::Protocol(PROTOCOL)));
    }
    let nonce = nonce()?;
    let nonces = [&hello.nonce, &nonce];
    out.put(&Welcome::Prove { nonce, proof: proof(&secret, Side::Called, nonces) })?;
    out.send(says).await?;
    let proven: Nonce = timeout(SILENT, asks.next()).await??;
    if !bool::from(proof(&secret, Side::Caller, nonces).ct_eq(&proven)) {
        return Ok(Err(Why::Secret));
    }
    asks.seal(Seals::new(&secret, Side::Caller, nonces));
    out.seal(Seals::new(&secret, Side::Called, nonces));
    Ok(admit(&hello, circles))
}

fn admit<'a>(hello: &Hello, circles: &'a [Arc<Circle>]) -> Result<&'a Arc<Circle>, Why> {
    let circle = circles.iter().find(|circle| **circle.hub.model() == *hello.model);
    let circle = circle.ok_or(Why::Model)?;
    if circle.life.stage() > Stage::Serving { Err(Why::Leaving) } else { Ok(circle) }
}

/// News that wait to be told to a caller, for a beat at most.
const NEWS: usize = 1 << 12;

/// A ticket, which asking it is of, and what came of it.
type Answered = (RequestId, Ask, Ticket, Result<Box<Lease>, Refusal>);

/// A caller, and what it has here. Requests go by the numbers that it gave them.
struct Guest {
    circle: Arc<Circle>,
    tickets: FuturesUnordered<Abortable<BoxFuture<'static, Answered>>>,
    /// Takes a ticket back.
    aborts: HashMap<RequestId, AbortHandle>,
    leases: HashMap<RequestId, (Box<Lease>, Ticket)>,
    /// What its requests are called here. `None` before the first, for many calls are needless and never ask.
    numbers: Option<Numbers>,
    /// What it was told last that an operator holds.
    held: Option<Held>,
    /// The hub's pods, and where each is among them by host and port.
    pods: (Arc<Vec<Arc<Pod>>>, HashMap<String, usize>),
    /// What it has yet to be told of what is known here, once it goes by what is decided here.
    lessons: Option<Lessons>,
    /// When the last step ended of each pod that it has told of.
    stepped: HashMap<PodId, Time>,
    out: Out,
}

impl Guest {
    fn new(circle: Arc<Circle>, out: Out) -> Self {
        Self {
            circle,
            tickets: FuturesUnordered::new(),
            aborts: HashMap::new(),
            leases: HashMap::new(),
            numbers: None,
            held: None,
            pods: Default::default(),
            lessons: None,
            stepped: HashMap::new(),
            out,
        }
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.circle.hub
    }

    async fn attend(
        &mut self,
        asks: &mut Values<OwnedReadHalf>,
        says: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        let mut beat = interval(BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let life = self.circle.life.clone();
        let leaving = life.reached(Stage::Draining);
        tokio::pin!(leaving);
        let (to, news) = async_channel::bounded(NEWS);
        self.hub().listen(to.clone());
        loop {
            tokio::select! {
                // What it asks for has an answer, and there has to be room for that. It reads answers whatever it has to say itself.
                asked = asks.next(), if self.out.has_room() => {
                    match asked? {
                        Asks::Errand(errand) => self.run(errand)?,
                        Asks::Beat => {
                            self.hub().catch_up();
                            self.out.put(&Says::Done)?;
                        }
                    }
                }
                Some(answered) = self.tickets.next(),
                    if self.out.has_room() && !self.tickets.is_empty() => self.tell(answered)?,
                written = self.out.write(says), if self.out.is_due() => written?,
                _ = beat.tick() => {
                    if !self.out.has_room() {
                        asks.excuse();
                    }
                    asks.beat()?;
                    self.out.beat()?;
                    self.out.put(&Says::Beat)?;
                    self.tell_held()?;
                    self.teach(&to)?;
                }
                () = &mut leaving => {
                    self.tell_held()?;
                    self.part();
                    self.out.put(&Says::Farewell)?;
                    return self.out.send(says).await;
                }
            }
            // In time for a next decider, and not worth a wake-up of their own at either end.
            while self.out.has_room()
                && let Ok(one) = news.try_recv()
            {
                self.tell_news(one)?;
            }
            self.out.offer(says)?;
        }
    }

    /// What the caller has here goes to another's books.
    fn part(&mut self) {
        self.leases.drain().for_each(|(_, (lease, _))| lease.part());
        self.aborts.clear();
        if let Some(numbers) = &self.numbers {
            self.hub().withdraw(numbers.taken().clone());
        }
    }

    fn tell_held(&mut self) -> io::Result<()> {
        let held = Some(self.hub().held());
        if self.held == held {
            return Ok(());
        }
        self.held = held;
        let said = self.held.clone().map(Says::Held);
        said.map_or(Ok(()), |said| self.out.put(&said))
    }

    /// Tells it some of what is known here.
    fn teach(&mut self, to: &Sender<News>) -> io::Result<()> {
        let Some(lessons) = &mut self.lessons else { return Ok(()) };
        if lessons.learned_is_due() {
            self.circle.hub.tell_learned(to);
        }
        lessons.beat(&self.circle.hub);
        while self.out.has_room()
            && let Some(lore) = lessons.next()
        {
            self.out.put(&Says::Lore(lore))?;
        }
        Ok(())
    }

    /// Does what it asks for.
    ///
    /// # Errors
    /// When there is no number left for a request: the caller calls again, and hands over what it has here to that call.
    fn run(&mut self, errand: Errand) -> io::Result<()> {
        match errand {
            Errand::Admit(facts) => self.admit(*facts)?,
            Errand::Adopt(onward) => self.adopt(*onward)?,
            Errand::Part(id) => {
                if let Some((lease, _)) = self.leases.remove(&id) {
                    lease.part();
                }
            }
            Errand::Retry(facts, missed) => match self.leases.remove(&facts.id) {
                Some((lease, mut ticket)) => {
                    match missed {
                        Missed::Unreached => lease.undelivered(&mut ticket),
                        Missed::Full => lease.turned_away(&mut ticket),
                    }
                    self.wait(facts.id, facts.ask, ticket);
                }
                // It was adopted from another, on a pod that is not known here.
                None => self.admit(*facts)?,
            },
            Errand::Decline(id, ask) => {
                if let Some((lease, mut ticket)) = self.leases.remove(&id) {
                    lease.decline(&mut ticket);
                    self.wait(id, ask, ticket);
                }
            }
            Errand::Hold(held) => self.hub().hold_newer(&held),
            Errand::Teach => self.lessons = Some(Lessons::of(self.hub())),
            Errand::Cancel(id) => {
                if let Some(abort) = self.aborts.remove(&id) {
                    abort.abort();
                }
                // Its verdict is on its way, and nobody takes it.
                drop(self.leases.remove(&id));
            }
            Errand::FirstToken(id) => {
                if let Some((lease, _)) = self.leases.get(&id) {
                    lease.pod().breaker.begins();
                    lease.first_token();
                }
            }
            Errand::HoldAgainst(charge) => self.hold_against(&charge),
            Errand::Progress(strides) => self.stride(strides),
            Errand::End(ended) => self.end(ended),
        }
        Ok(())
    }

    /// What a request is called here.
    fn number(&mut self) -> io::Result<RequestId> {
        let of_call = || Numbers::of_call(CALLS.fetch_add(1, Relaxed));
        let number = self.numbers.get_or_insert_with(of_call).take();
        number.ok_or_else(|| io::Error::other("the numbers of its requests are used up"))
    }

    fn adopt(&mut self, onward: Onward) -> io::Result<()> {
        let (id, number) = (onward.facts.id, self.number()?);
        match self.hub().adopt(number, onward) {
            Some(adopted) => drop(self.leases.insert(id, adopted)),
            // Its pod is not known here as yet.
            None => self.hub().lost_sight(),
        }
        Ok(())
    }

    fn admit(&mut self, facts: Facts) -> io::Result<()> {
        let (id, ask, number) = (facts.id, facts.ask, self.number()?);
        let request = facts.request(number, self.hub().clock().now());
        let ticket = self.hub().admit(request);
        self.wait(id, ask, ticket);
        Ok(())
    }

    fn wait(&mut self, id: RequestId, ask: Ask, mut ticket: Ticket) {
        let (abort, aborted) = AbortHandle::new_pair();
        let verdict: BoxFuture<'static, Answered> = Box::pin(async move {
            let verdict = ticket.verdict().await;
            (id, ask, ticket, verdict)
        });
        self.tickets.push(Abortable::new(verdict, aborted));
        self.aborts.insert(id, abort);
    }

    /// Tells a verdict; one of a request that was cancelled is none.
    fn tell(&mut self, answered: Result<Answered, Aborted>) -> io::Result<()> {
        let Ok((id, ask, ticket, verdict)) = answered else { return Ok(()) };
        self.aborts.remove(&id);
        if matches!(verdict, Err(Refusal { reason: RefusalReason::Closing, .. })) {
            // The call is about to end, and then another one decides.
            return Ok(());
        }
        self.circle.told.fetch_add(1, Relaxed);
        let word = match verdict {
            Ok(lease) => {
                let word = given(id, ask, &lease);
                self.leases.insert(id, (lease, ticket));
                word
            }
            Err(Refusal { reason, retry_after, .. }) => {
                Word::Refuse(Refused { id, ask, reason, retry_after })
            }
        };
        self.out.put(&Says::Word(word))
    }

    fn tell_news(&mut self, news: News) -> io::Result<()> {
        let own = |number: RequestId| {
            self.numbers.as_ref().is_some_and(|numbers| numbers.taken().contains(&number.0))
        };
        let lore = match news {
            // It knows itself where its own go.
            News::Sent(number, ..) if own(number) => return Ok(()),
            News::Sent(_, pod, blocks) => Lore::Sent { pod: pod.address.clone(), blocks },
            News::Answered(answered) => Lore::Answered(answered),
            News::Learned(learned) => Lore::Learned(Box::new(fitting(*learned))),
        };
        self.out.put(&Says::Lore(lore))
    }

    fn stride(&mut self, strides: Strides) {
        let now = self.hub().clock().now();
        for (id, events) in strides.events {
            if let Some((lease, _)) = self.leases.get_mut(&id) {
                lease.carried(events, now);
            }
        }
        strides.steps.into_iter().for_each(|steps| self.step(steps, now));
    }

    fn step(&mut self, steps: Steps, now: Time) {
        let at = before(now, steps.age);
        let Some(pod) = self.pod(&steps.pod) else { return };
        let last = self.stepped.insert(pod.id, at).unwrap_or_default();
        pod.pulse.told(at, steps.count, last);
    }

    /// The pod at an address. Every sweep of a caller names all pods that moved.
    fn pod(&mut self, address: &str) -> Option<Arc<Pod>> {
        let now = self.hub().pods();
        let (known, places) = &mut self.pods;
        if !Arc::ptr_eq(known, &now) {
            *places = now.iter().map(|pod| pod.address.clone()).zip(0..).collect();
            self.stepped.retain(|id, _| now.iter().any(|pod| pod.id == *id));
            *known = now;
        }
        known.get(*places.get(address)?).cloned()
    }

    /// What others see of a pod counts as what is seen here: it may have no requests of this one's own clients. But who has no way to a
    /// pod that answers here says nothing of that pod.
    fn hold_against(&mut self, charge: &Charge) {
        let now = self.hub().clock().now();
        let Some(pod) = self.pod(&charge.pod) else { return };
        if charge.failing != Failing::Undelivered || !pod.occupancy.is_told(now) {
            pod.fails(charge.failing, self.hub().others_are_ready(pod.id));
        }
    }

    fn end(&mut self, ended: Ended) {
        let Some((mut lease, _)) = self.leases.remove(&ended.id) else { return };
        if let Some(age) = ended.last_token_age {
            lease.carried(ended.events, before(self.hub().clock().now(), age));
        }
        if ended.kind == EndKind::Complete {
            lease.pod().breaker.succeeded();
        }
        lease.end(ended.kind, ended.output_tokens, ended.prompt_tokens);
    }
}

fn given(id: RequestId, ask: Ask, lease: &Lease) -> Word {
    let dispatch = lease.dispatch();
    Word::Give(Given {
        id,
        ask,
        pod: lease.pod().address.clone(),
        attempt: dispatch.attempt,
        uncached_tokens: dispatch.uncached_tokens,
        prediction: dispatch.prediction,
        tokens_per_event: dispatch.tokens_per_event,
    })
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
