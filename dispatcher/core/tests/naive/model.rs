//! A plain map of request to state, moved only by the events sent and the actions returned.
//!
//! It decides nothing. What an action must not do (dispatch what is in flight, to a pod that takes
//! nothing, refuse without cause) is asserted where the action is taken in.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use weir_core::{
    Action, Control, Dispatch, EndKind, Event, Gate, Phase, PodClass, PodId, Progress, PromptSize,
    Refusal, RefusalReason, Request, RequestId, Role, SchedulerConfig, Scrape, Time,
};

use super::moody;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// In a lane.
    Waiting,
    /// On a pod.
    On(Stay),
    /// It had its one outcome.
    Over,
}

/// A request on a pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stay {
    pub pod: PodId,
    /// Whether the pod has been known ever since the dispatch: if not, no ledger holds it.
    pub booked: bool,
    /// Whether its first token was reported.
    pub seen: bool,
    /// Whether it decodes.
    pub resident: bool,
    /// Tokens per sequence.
    pub generated: u32,
    /// When its first token is assumed, if it is not streamed.
    pub assumed: Time,
    /// Its number among all dispatches: a pod prefills in this order.
    pub number: u64,
    pub sent: Time,
    pub predicted_ttft_ms: f32,
}

/// What became of a request so far.
#[derive(Clone, Debug)]
pub struct Tale {
    pub request: Request,
    pub state: State,
    pub attempts: u32,
    /// Pods it could not be delivered to and that have not recovered since.
    pub excluded: BTreeSet<PodId>,
    /// When it could not be delivered last.
    pub failed_at: Time,
}

impl Tale {
    pub const fn stay(&self) -> Option<&Stay> {
        match &self.state {
            State::On(stay) => Some(stay),
            _ => None,
        }
    }

    pub fn waits(&self) -> bool {
        self.state == State::Waiting
    }
}

/// Whether a pod takes requests.
fn is_open(seen: &Seen) -> bool {
    seen.phase == Phase::Ready && seen.role != Role::Decode
}

/// A pod as its events describe it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub phase: Phase,
    pub role: Role,
    pub dispatched: u64,
    class_blocks: u64,
    told_blocks: Option<u64>,
    told_size: Option<u64>,
    told_tokens: Option<u64>,
}

impl Seen {
    /// Tokens that its KV cache holds.
    pub fn kv_tokens(&self) -> u64 {
        match (self.told_tokens, self.told_blocks, self.told_size) {
            (Some(tokens), ..) => tokens,
            (None, blocks, size) => blocks.unwrap_or(self.class_blocks) * size.unwrap_or(16),
        }
    }
}

/// Outcomes counted, in the order of [`weir_core::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub arrived: u64,
    pub dispatched: u64,
    pub requeued: u64,
    pub completed: u64,
    pub failed: u64,
    pub client_gone: u64,
    pub cancelled: u64,
    pub refused: u64,
}

/// The whole model.
#[derive(Debug)]
pub struct Naive {
    pub config: SchedulerConfig,
    pub tales: BTreeMap<RequestId, Tale>,
    pub pods: BTreeMap<PodId, Seen>,
    pub tally: Tally,
    pub closing: bool,
    /// What an operator holds.
    pub gates: BTreeSet<Gate>,
    /// What the event at hand cancels.
    pub cancelling: BTreeSet<RequestId>,
    /// Since when no pod is ready; from the start, when none ever was.
    pub no_pod_since: Option<Time>,
    /// Since when the largest cache of all is not that of an open pod.
    pub largest_out_since: Option<Time>,
    samples_due: u32,
    /// Recent mean of ln(measured / predicted) TTFT of streams.
    late: f64,
    /// Nothing is learned of what was sent before.
    stood_still_until: Time,
}

impl Naive {
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            tales: BTreeMap::new(),
            pods: BTreeMap::new(),
            tally: Tally::default(),
            closing: false,
            gates: BTreeSet::new(),
            cancelling: BTreeSet::new(),
            no_pod_since: Some(Time::ZERO),
            largest_out_since: None,
            samples_due: 0,
            late: 0.0,
            stood_still_until: Time::ZERO,
        }
    }

    /// Everything that waits.
    pub fn waiting(&self) -> impl Iterator<Item = &Tale> {
        self.tales.values().filter(|tale| tale.waits())
    }

    /// Everything that is dispatched and not over.
    pub fn flying(&self) -> impl Iterator<Item = (&Tale, &Stay)> {
        self.tales.values().filter_map(|tale| Some((tale, tale.stay()?)))
    }

    /// What the ledger of a pod must hold.
    pub fn booked(&self, pod: PodId) -> impl Iterator<Item = (&Tale, &Stay)> {
        self.flying().filter(move |(_, stay)| stay.booked && stay.pod == pod)
    }

    /// Whether a pod takes a request, whatever it would cost.
    pub fn may_use(&self, tale: &Tale, pod: PodId) -> bool {
        self.is_open_to(tale, pod) && self.holds(tale, pod) != Some(false)
    }

    /// The same, where a naive eye can tell.
    pub fn surely_may_use(&self, tale: &Tale, pod: PodId) -> bool {
        self.is_open_to(tale, pod) && self.holds(tale, pod) == Some(true)
    }

    fn is_open_to(&self, tale: &Tale, pod: PodId) -> bool {
        self.pods.get(&pod).is_some_and(is_open) && !tale.excluded.contains(&pod)
    }

    /// Whether no cache holds a prompt: it goes at once, in whatever order, to an engine that refuses it.
    pub fn is_endless(&self, tale: &Tale) -> bool {
        let (open, _) = self.largest();
        let long =
            matches!(tale.request.prompt, PromptSize::Tokens(tokens) if u64::from(tokens) > open);
        long && self.is_outsized(tale) == Some(false)
    }

    /// What the largest cache of an open pod holds, and that of any that prefills.
    fn largest(&self) -> (u64, u64) {
        let prefills = || self.pods.values().filter(|seen| seen.role != Role::Decode);
        let open = prefills().filter(|seen| is_open(seen)).map(Seen::kv_tokens).max();
        (open.unwrap_or_default(), prefills().map(Seen::kv_tokens).max().unwrap_or_default())
    }

    /// Whether a prompt is too long for every open pod, of which there is one, and not for one that is out.
    pub fn is_outsized(&self, tale: &Tale) -> Option<bool> {
        let (open, all) = self.largest();
        match tale.request.prompt {
            _ if open == 0 || open == all => Some(false),
            PromptSize::Tokens(tokens) => Some((open + 1..=all).contains(&u64::from(tokens))),
            PromptSize::Bytes(bytes) if u64::from(bytes) <= open => Some(false),
            PromptSize::Bytes(_) => None,
        }
    }

    /// How long one that may be such a one has been.
    pub fn outsized_for(&self, now: Time, tale: &Tale) -> Option<Duration> {
        let since = self.largest_out_since.filter(|_| self.is_outsized(tale) != Some(false))?;
        Some(now.since(since.max(tale.request.arrived)))
    }

    /// Whether a pod's cache holds a prompt, or no other's holds more. Bytes are more than no and at most as many tokens.
    fn holds(&self, tale: &Tale, pod: PodId) -> Option<bool> {
        if self.is_outsized(tale)? {
            return Some(false);
        }
        let kv_tokens = self.pods.get(&pod).map_or(0, Seen::kv_tokens);
        let most = self.pods.values().filter(|seen| is_open(seen)).map(Seen::kv_tokens).max();
        if most.is_none_or(|most| kv_tokens >= most) {
            return Some(true);
        }
        match tale.request.prompt {
            PromptSize::Tokens(tokens) => Some(u64::from(tokens) <= kv_tokens),
            PromptSize::Bytes(bytes) if u64::from(bytes) <= kv_tokens => Some(true),
            PromptSize::Bytes(_) => None,
        }
    }

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
                let PodClass { role, kv_blocks, .. } = class.unwrap_or_default();
                let seen = self.pods.entry(spec.id).or_default();
                (seen.role, seen.class_blocks) = (role, u64::from(kv_blocks));
            }
            Event::PodUpAs(..) | Event::Adopt(_) | Event::Declined(_) => {
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
