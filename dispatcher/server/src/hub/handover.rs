//! What waits and what runs goes to whoever decides now.
//!
//! What runs goes at once, for who decides has to know of it. What waits may be a hundred thousand requests, a third of a second's work:
//! it goes in slices, between which everybody else comes to the desk.

use std::{
    cmp::Reverse,
    mem,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use smallvec::smallvec;
use weir_core::{Dispatch, Event, PodId, Request, RequestId, Running, Time};

use super::{
    actor::{Desk, Due, Grant, Stream},
    errand::{Errand, Facts, Onward, is_guest},
    led::{Asked, Errands, Lead, LedStream},
    message::Waiter,
};

/// Requests that go on in one turn at the desk: a millisecond at most.
pub(super) const SLICE: usize = 250;

/// What waits, and where its verdict goes.
type Waits = (Box<Request>, Waiter);

impl Desk {
    /// Goes by what a lead decides from now on, or decides itself. What runs goes into the ledger of whoever decides now, and what waits
    /// is asked for anew by [`Desk::move_on`].
    pub(super) fn follow(&mut self, now: Time, lead: Option<Arc<Lead>>, due: &mut Due) {
        self.led.lead = lead;
        // First what runs: who decides what waits has to know of it.
        match self.led.lead.clone() {
            Some(lead) => self.hand_over(now, &lead),
            None => self.take_back(now, due),
        }
        self.led.moving = self.waits_elsewhere().into();
        // The ledger here knows nothing of what runs now, and what waits here still is about to go elsewhere.
        self.scheduler.withhold(self.led.lead.is_some() && !self.led.moving.is_empty());
    }

    /// Has some of what waits decided by whoever decides now. Says whether there is more of it.
    pub(super) fn move_on(&mut self, now: Time, due: &mut Due) -> bool {
        let some = self.led.moving.len().min(SLICE);
        let some: Vec<RequestId> = self.led.moving.drain(..some).collect();
        let waits = self.take_along(now, some);
        match self.led.lead.clone() {
            Some(lead) => self.ask_for_all(now, &lead, waits),
            None => waits
                .into_iter()
                .for_each(|(request, waiter)| self.decide(now, request, waiter, due)),
        }
        let over = self.led.moving.is_empty();
        if over && self.scheduler.withholds() {
            self.scheduler.withhold(false);
            self.handle(now, Event::Tick, due);
        }
        !over
    }

    /// One that cannot be told any more is gone, and then what it is asked for here is asked for anew.
    fn ask_for_all(&mut self, now: Time, lead: &Arc<Lead>, waits: Vec<Waits>) {
        let mut errands = Errands::new();
        for (request, waiter) in waits {
            let (id, ask) = (request.id, self.led.next_ask());
            errands.push(Errand::Admit(Box::new(Facts::of(&request, ask, now))));
            let lead = lead.clone();
            let asked = Asked { lead, request, waiter, ask, declined: 0, let_in: true };
            self.led.asked.insert(id, asked);
        }
        lead.tell_all(errands);
    }

    /// What waits for the verdict of another than whoever decides now: the higher bands first, for what comes meanwhile goes between,
    /// and each in the order in which it came.
    fn waits_elsewhere(&self) -> Vec<RequestId> {
        let asked = self.led.asked.values().filter(|asked| self.is_elsewhere(asked));
        let mut waits: Vec<_> =
            asked.map(|asked| (Reverse(asked.request.band), asked.request.id)).collect();
        if self.led.lead.is_some() {
            let own = self.scheduler.waiting_in_bands().filter(|(_, id)| !is_guest(*id));
            waits.extend(own.map(|(band, id)| (Reverse(band), id)));
        }
        waits.sort_unstable();
        waits.into_iter().map(|(_, id)| id).collect()
    }

    fn is_elsewhere(&self, asked: &Asked) -> bool {
        self.led.lead.as_ref().is_none_or(|lead| !Arc::ptr_eq(lead, &asked.lead))
    }

    /// Takes what of these still waits for another's verdict from where it does.
    fn take_along(&mut self, now: Time, ids: Vec<RequestId>) -> Vec<Waits> {
        let (mut mail, mut taken) = (Mail::default(), Vec::with_capacity(ids.len()));
        for id in ids {
            match self.led.asked.get(id).map(|asked| self.is_elsewhere(asked)) {
                Some(true) => {
                    let Some(asked) = self.led.asked.remove(id) else { continue };
                    mail.add(&asked.lead, Errand::Cancel(id));
                    taken.push((asked.request, asked.waiter));
                }
                None if self.led.lead.is_some() => {
                    taken.extend(self.scheduler.withdraw(now, id).zip(self.waiters.remove(id)));
                }
                _ => {}
            }
        }
        mail.send();
        taken
    }

    /// Everything that runs is in the ledger of a lead from now on.
    fn hand_over(&mut self, now: Time, to: &Arc<Lead>) {
        let mut mail = Mail::default();
        for stream in self.streams.values_mut().filter(|stream| !is_guest(stream.id)) {
            match &mut stream.led {
                Some(led) if Arc::ptr_eq(&led.lead, to) => continue,
                Some(led) => {
                    let from = mem::replace(&mut led.lead, to.clone());
                    mail.add(&from, Errand::Part(stream.id));
                }
                None => {
                    let running = self.scheduler.hand_over(stream.id);
                    let led = |running| Box::new(LedStream { lead: to.clone(), running });
                    stream.led = running.map(led);
                    self.led.streams += usize::from(stream.led.is_some());
                }
            }
            let Some(running) = stream.come() else { continue };
            let known = self.pods.get(&running.pod).map(|known| &known.pod.address);
            let departed = || self.departed.iter().find(|(_, left)| left.pod.id == running.pod);
            if let Some(address) = known.or_else(|| departed().map(|(address, _)| address)) {
                let onward = Onward::of(running, address.clone(), now);
                mail.add(to, Errand::Adopt(Box::new(onward)));
            }
        }
        mail.send();
    }

    /// Everything that runs is in the ledger here from now on.
    fn take_back(&mut self, now: Time, due: &mut Due) {
        let (mut back, mut mail) = (Vec::new(), Mail::default());
        for stream in self.streams.values_mut() {
            stream.come();
            if let Some(led) = stream.led.take() {
                mail.add(&led.lead, Errand::Part(stream.id));
                back.push(led.running);
            }
        }
        mail.send();
        self.led.streams = 0;
        // In the order in which they went.
        back.sort_unstable_by_key(|running| (running.sent, running.request.id));
        for running in back {
            self.handle(now, Event::Adopt(Box::new(running)), due);
        }
    }

    /// Takes a request that another dispatcher relays to a pod into the ledger here. Gives back what its lease is made of; nothing where
    /// the pod is not known.
    pub(super) fn adopt(
        &mut self,
        now: Time,
        id: RequestId,
        onward: Onward,
        due: &mut Due,
    ) -> Option<Grant> {
        let pod = self.by_address.get(&onward.pod).and_then(|id| self.pods.get(id));
        let pod = pod.map(|known| known.pod.clone())?;
        let running = onward.running(id, pod.id, now);
        let dispatch = Dispatch {
            id,
            pod: pod.id,
            attempt: 1,
            arrived: running.request.arrived,
            waited: running.sent.since(running.request.arrived),
            slo: running.request.slo,
            sequences: running.request.sequences,
            uncached_tokens: running.uncached_tokens,
            prediction: running.prediction,
            tokens_per_event: running.tokens_per_event,
        };
        let events = self.open_stream(id, None);
        events.store(running.events, Relaxed);
        if let Some(stream) = self.streams.get_mut(id) {
            (stream.swept, stream.started) = (running.events, running.first_token.is_some());
        }
        self.handle(now, Event::Adopt(Box::new(running)), due);
        Some(Grant { dispatch, pod, events, waiter: None })
    }

    /// Whether anything that is relayed here, or is in the ledger here, runs on a pod.
    pub(super) fn runs_on(&self, pod: PodId) -> bool {
        let led = self.streams.values().filter_map(|stream| stream.led.as_ref());
        self.scheduler.runs_on(pod) || led.into_iter().any(|led| led.running.pod == pod)
    }

    /// A pod has come back under another number, with what ran there when it left.
    pub(super) fn carry_over(&mut self, from: PodId, to: PodId) {
        self.scheduler.carry_over(from, to);
        let led = self.streams.values_mut().filter_map(|stream| stream.led.as_mut());
        led.filter(|led| led.running.pod == from).for_each(|led| led.running.pod = to);
    }

    /// Another dispatcher has its request in another ledger now.
    pub(super) fn part_with(&mut self, id: RequestId) {
        self.streams.remove(id);
        self.scheduler.hand_over(id);
    }
}

impl Stream {
    /// What a ledger that does not know of it has to know, as far as it has come.
    fn come(&mut self) -> Option<&Running> {
        let running = &mut self.led.as_mut()?.running;
        running.events = self.events.load(Relaxed);
        self.swept = running.events;
        Some(running)
    }
}

/// What several leads are to be told.
#[derive(Default)]
struct Mail(Vec<(Arc<Lead>, Errands)>);

impl Mail {
    fn add(&mut self, to: &Arc<Lead>, errand: Errand) {
        match self.0.iter_mut().find(|(lead, _)| Arc::ptr_eq(lead, to)) {
            Some((_, errands)) => errands.push(errand),
            None => self.0.push((to.clone(), smallvec![errand])),
        }
    }

    fn send(self) {
        for (lead, errands) in self.0 {
            lead.tell_all(errands);
        }
    }
}
