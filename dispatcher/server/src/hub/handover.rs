//! What waits and what runs goes to whoever decides now.

use std::{
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

impl Desk {
    /// Goes by what a lead decides from now on, or decides itself. What runs goes into the ledger of whoever decides now, and what waits
    /// is asked for anew.
    pub(super) fn follow(&mut self, now: Time, lead: Option<Arc<Lead>>, due: &mut Due) {
        self.led.lead = lead;
        // First what runs: who decides what waits has to know of it.
        match self.led.lead.clone() {
            Some(lead) => self.hand_over(now, &lead),
            None => self.take_back(now, due),
        }
        let waits = self.waits_elsewhere(now);
        match self.led.lead.clone() {
            Some(lead) => self.ask_for_all(now, &lead, waits),
            None => waits
                .into_iter()
                .for_each(|(request, waiter)| self.decide(now, request, waiter, due)),
        }
    }

    /// One that cannot be told any more is gone, and then what it is asked for here is asked for anew.
    fn ask_for_all(&mut self, now: Time, lead: &Arc<Lead>, waits: Vec<(Box<Request>, Waiter)>) {
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

    /// Takes what waits for the verdict of another than whoever decides now, in the order in which it came.
    fn waits_elsewhere(&mut self, now: Time) -> Vec<(Box<Request>, Waiter)> {
        let lead = self.led.lead.clone();
        let elsewhere =
            |asked: &&Asked| lead.as_ref().is_none_or(|lead| !Arc::ptr_eq(lead, &asked.lead));
        let asked = self.led.asked.values().filter(elsewhere);
        let mut ids: Vec<RequestId> = asked.map(|asked| asked.request.id).collect();
        if lead.is_some() {
            ids.extend(self.scheduler.waiting_ids().into_iter().filter(|id| !is_guest(*id)));
        }
        ids.sort_unstable();
        let mut mail = Mail::default();
        let take = |id| match self.led.asked.remove(id) {
            Some(Asked { lead, request, waiter, .. }) => {
                mail.add(&lead, Errand::Cancel(id));
                Some((request, waiter))
            }
            None => self.scheduler.withdraw(now, id).zip(self.waiters.remove(id)),
        };
        let taken = ids.into_iter().filter_map(take).collect();
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
            let known = self.pods.get(&running.pod).map(|known| &known.pod.authority);
            let departed = || self.departed.iter().find(|(_, left)| left.pod.id == running.pod);
            if let Some(authority) = known.or_else(|| departed().map(|(authority, _)| authority)) {
                let onward = Onward::of(running, authority.clone(), now);
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
