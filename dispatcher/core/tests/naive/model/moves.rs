//! How events and actions move the map.

use weir_core::{
    Action, Control, Dispatch, EndKind, Event, PodClass, Progress, Refusal, RefusalReason, Scrape,
};

use super::*;
use crate::naive::moody;

impl Naive {
    fn scraped(&mut self, now: Time, pod: PodId, scrape: &Scrape) {
        let Some(seen) = self.pods.get_mut(&pod) else { return };
        let told = scrape.cache;
        let above_zero = |number: Option<u32>| number.filter(|number| *number > 0).map(u64::from);
        seen.told_blocks = above_zero(told.blocks).or(seen.told_blocks);
        seen.told_size = above_zero(told.block_tokens).or(seen.told_size);
        seen.told_tokens = told.tokens.filter(|tokens| *tokens > 0).or(seen.told_tokens);
        self.answers(now, pod);
    }

    /// Takes an event in, before the scheduler does.
    pub fn hear(&mut self, now: Time, event: &Event) {
        self.samples_due = 0;
        self.cancelling.clear();
        self.assume(now);
        match event {
            Event::Arrive(request) => self.arrive(request),
            Event::Cancel(id) => self.cancel(*id),
            Event::Undelivered(id) => self.undelivered(now, *id),
            Event::FirstToken(id) => self.first_token(now, *id),
            Event::Progress(progress) => self.progress(now, progress),
            Event::End(end) => self.end(end.id, end.kind),
            Event::Scraped(pod, scrape) => self.scraped(now, *pod, scrape),
            Event::PodUp(spec) => {
                let class = self.config.classes.get(usize::from(spec.class)).cloned();
                let PodClass { kv_blocks, .. } = class.unwrap_or_default();
                self.pods.entry(spec.id).or_default().class_blocks = u64::from(kv_blocks);
            }
            Event::PodUpAs(..) | Event::Adopt(_) | Event::Declined(_) | Event::TurnedAway(_) => {
                unreachable!("no test of this model sends it")
            }
            Event::PodPhase(pod, phase) => self.phase(*pod, *phase),
            Event::PodDown(pod) => self.down(*pod),
            Event::StoodStill => self.stood_still_until = now,
            Event::Tick | Event::Reconfigure(_) | Event::Told(_) => {}
            Event::Close => self.closing = true,
            Event::Control(control) => self.control(control),
        }
        let ready = self.pods.values().any(is_open);
        self.no_pod_since = if ready { None } else { self.no_pod_since.or(Some(now)) };
        let (open, all) = self.largest();
        self.largest_out_since = (open < all).then(|| self.largest_out_since.unwrap_or(now));
    }

    /// Takes an action in, in the order they were returned.
    pub fn obey(&mut self, now: Time, event: &'static str, action: &Action) {
        match action {
            Action::Dispatch(dispatch) => self.dispatch(now, dispatch),
            Action::Refuse(refusal) => self.refuse(now, event, refusal),
            Action::Sample(_) => {
                assert!(self.samples_due > 0, "a sample of a request that did not just end");
                self.samples_due -= 1;
            }
        }
    }

    /// Whether an operator holds a request, by its band or with the whole pool.
    pub fn held(&self, tale: &Tale) -> bool {
        let gates = [Gate::Pool, Gate::Band(tale.request.band)];
        gates.iter().any(|gate| self.gates.contains(gate))
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Cancel(ids) => self.cancelling.extend(ids),
            Control::Move(id, band) => {
                if let Some(tale) = self.tales.get_mut(id).filter(|tale| tale.waits()) {
                    tale.request.band = *band;
                }
            }
            Control::Pause(gate) => drop(self.gates.insert(*gate)),
            Control::Resume(Gate::Pool) => self.gates.clear(),
            Control::Resume(gate) => drop(self.gates.remove(gate)),
        }
    }

    fn arrive(&mut self, request: &Request) {
        self.tally.arrived += 1;
        let tale = Tale {
            request: request.clone(),
            state: State::Waiting,
            attempts: 0,
            excluded: BTreeSet::new(),
            failed_at: Time::ZERO,
        };
        assert!(self.tales.insert(request.id, tale).is_none(), "the test reused an id");
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(tale) = self.tales.get_mut(&id).filter(|tale| tale.waits()) {
            tale.state = State::Over;
            self.tally.cancelled += 1;
        }
    }

    fn undelivered(&mut self, now: Time, id: RequestId) {
        let Some(tale) = self.tales.get_mut(&id) else { return };
        let State::On(stay) = tale.state else { return };
        if self.pods.contains_key(&stay.pod) {
            tale.excluded.insert(stay.pod);
        }
        tale.failed_at = now;
        tale.state = State::Waiting;
        self.tally.requeued += 1;
    }

    fn stay_mut(&mut self, id: RequestId) -> Option<(&Request, &mut Stay)> {
        let tale = self.tales.get_mut(&id)?;
        match &mut tale.state {
            State::On(stay) => Some((&tale.request, stay)),
            _ => None,
        }
    }

    fn first_token(&mut self, now: Time, id: RequestId) {
        if let Some(stay) = self.tales.get(&id).and_then(Tale::stay).filter(|stay| !stay.seen) {
            let log = (now.ms_since(stay.sent) / f64::from(stay.predicted_ttft_ms)).ln();
            if log.is_finite() && stay.sent >= self.stood_still_until {
                self.late += 0.02 * (log.clamp(-1.0, 1.0) - self.late);
            }
            let pod = stay.pod;
            self.answers(now, pod);
        }
        self.start_before(id);
        if let Some((_, stay)) = self.stay_mut(id) {
            stay.seen = true;
            stay.resident = true;
            stay.generated = stay.generated.max(1);
        }
    }

    fn progress(&mut self, now: Time, progress: &Progress) {
        for (id, events) in &progress.events {
            self.first_token(now, *id);
            if let Some((request, stay)) = self.stay_mut(*id) {
                stay.generated = stay.generated.max(events / request.sequences.max(1));
            }
        }
    }

    fn end(&mut self, id: RequestId, kind: EndKind) {
        let tale = self.tales.get_mut(&id);
        let Some((sent, tale)) = tale.and_then(|tale| Some((tale.stay()?.sent, tale))) else {
            return;
        };
        tale.state = State::Over;
        self.samples_due = u32::from(sent >= self.stood_still_until);
        match kind {
            EndKind::Complete | EndKind::PodError | EndKind::BadRequest => {
                self.tally.completed += 1
            }
            EndKind::ClientGone => self.tally.client_gone += 1,
            EndKind::PodFailed => self.tally.failed += 1,
        }
    }

    fn phase(&mut self, id: PodId, phase: Phase) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        let recovered = pod.phase == Phase::Broken && phase == Phase::Ready;
        pod.phase = phase;
        if recovered {
            for tale in self.tales.values_mut() {
                tale.excluded.remove(&id);
            }
        }
    }

    fn answers(&mut self, now: Time, id: PodId) {
        for tale in self.tales.values_mut().filter(|tale| tale.waits()) {
            if now.ms_since(tale.failed_at) >= 250.0 {
                tale.excluded.remove(&id);
            }
        }
    }

    fn down(&mut self, id: PodId) {
        self.pods.remove(&id);
        for tale in self.tales.values_mut() {
            tale.excluded.remove(&id);
            if let State::On(stay) = &mut tale.state {
                stay.booked &= stay.pod != id;
            }
        }
    }

    /// On each pod, in the order of the dispatches: a response that is not streamed is assumed to have
    /// begun when that is due, unless a prompt before it has no first token yet.
    fn assume(&mut self, now: Time) {
        let pods: Vec<PodId> = self.pods.keys().copied().collect();
        for pod in pods {
            for (request, stay) in self.pending(pod) {
                if request.streamed || stay.assumed > now {
                    break;
                }
                stay.resident = true;
            }
        }
    }

    /// A first token was seen: what is not streamed and was sent to the pod before it has begun too.
    fn start_before(&mut self, id: RequestId) {
        let Some(at) = self.tales.get(&id).and_then(Tale::stay).copied() else { return };
        if at.resident || !at.booked {
            return;
        }
        let before = self.pending(at.pod).into_iter().filter(|(_, stay)| stay.number < at.number);
        for (_, stay) in before.filter(|(request, _)| !request.streamed) {
            stay.resident = true;
        }
    }

    /// What is booked on a pod without a first token, in the order of the dispatches.
    fn pending(&mut self, pod: PodId) -> Vec<(&Request, &mut Stay)> {
        fn on(tale: &mut Tale) -> Option<(&Request, &mut Stay)> {
            match &mut tale.state {
                State::On(stay) => Some((&tale.request, stay)),
                _ => None,
            }
        }
        let here = self.tales.values_mut().filter_map(on);
        let mut pending: Vec<(&Request, &mut Stay)> =
            here.filter(|(_, stay)| stay.pod == pod && stay.booked && !stay.resident).collect();
        pending.sort_by_key(|(_, stay)| stay.number);
        pending
    }

    fn dispatch(&mut self, now: Time, dispatch: &Dispatch) {
        let id = dispatch.id;
        assert!(self.tales.contains_key(&id), "{id:?} is unknown");
        let Some(tale) = self.tales.get(&id) else { return };
        assert!(tale.waits(), "I2: {id:?} was dispatched while {:?}", tale.state);
        assert!(self.may_use(tale, dispatch.pod), "I2: {dispatch:?} after {:?}", tale.excluded);
        assert!(!self.closing, "{id:?} was dispatched while closing");
        assert!(!self.held(tale), "{id:?} was dispatched while it is paused");
        assert_eq!(dispatch.attempt, tale.attempts + 1, "{id:?}");
        assert!(dispatch.attempt <= self.config.max_attempts.max(1), "{id:?} has no attempt left");
        assert_eq!(dispatch.waited, now.since(tale.request.arrived), "{id:?}");
        let stay = Stay {
            pod: dispatch.pod,
            booked: true,
            seen: false,
            resident: false,
            generated: 0,
            assumed: moody::assumed_first_token(now, &dispatch.prediction, self.late),
            number: self.tally.dispatched,
            sent: now,
            predicted_ttft_ms: dispatch.prediction.ttft_ms.p50,
        };
        self.tally.dispatched += 1;
        if let Some(pod) = self.pods.get_mut(&dispatch.pod) {
            pod.dispatched += 1;
        }
        if let Some(tale) = self.tales.get_mut(&id) {
            tale.attempts = dispatch.attempt;
            tale.state = State::On(stay);
        }
    }

    fn refuse(&mut self, now: Time, event: &'static str, refusal: &Refusal) {
        let id = refusal.id;
        assert!(self.tales.contains_key(&id), "{id:?} is unknown");
        let outsized = self.tales.get(&id).and_then(|tale| self.outsized_for(now, tale));
        let outsized = outsized.filter(|_| event == "tick");
        let Some(tale) = self.tales.get_mut(&id) else { return };
        assert!(tale.waits(), "I1: {id:?} was refused while {:?}", tale.state);
        tale.state = State::Over;
        self.tally.refused += 1;
        let tale = &*tale;
        let waited = now.since(tale.request.arrived);
        assert_eq!(refusal.waited, waited, "{id:?}");
        let hint = Duration::from_secs(1)..=Duration::from_secs(60);
        assert!(hint.contains(&refusal.retry_after), "{refusal:?}");
        let bounds = &self.config.bounds;
        let homeless = self.no_pod_since.map(|since| now.since(since.max(tale.request.arrived)));
        let sheddable = tale.request.band.sheddable();
        let immediate = tale.request.immediate;
        let expired = now >= tale.request.expires;
        let just = match refusal.reason {
            RefusalReason::QueueFull | RefusalReason::QueueBytes => event == "arrive" && !immediate,
            RefusalReason::PredictedWait => event == "arrive" && sheddable && !immediate,
            RefusalReason::Hopeless => sheddable && tale.request.slo.ttft.is_some(),
            RefusalReason::MaxWait => {
                let may_be_late = tale.request.slo.ttft.is_some();
                waited >= bounds.longest_wait(may_be_late, None)
            }
            RefusalReason::Ttl => expired && event == "tick" && homeless.is_none(),
            RefusalReason::Immediate => {
                immediate && ["arrive", "undelivered"].contains(&event) && homeless.is_none()
            }
            RefusalReason::NoPods => {
                outsized.is_some_and(|for_| for_ >= bounds.max_wait_no_pods)
                    || homeless.is_some_and(|for_| {
                        for_ >= bounds.max_wait_no_pods || immediate || expired && event == "tick"
                    })
            }
            RefusalReason::Undeliverable => tale.attempts > 0,
            RefusalReason::Closing => self.closing,
            RefusalReason::Cancelled => self.cancelling.contains(&id),
        };
        assert!(just, "{refusal:?} on {event} without cause: {tale:?}");
    }
}
