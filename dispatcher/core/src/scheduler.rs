//! The door of the core: an event and the time in, actions out.
//!
//! The scheduler owns a pool's whole decision state and performs nothing. Every event is booked
//! completely before it returns; a dispatch is debited in the step that decides it. Exactly one of
//! these ends each accepted request: an [`End`](crate::End), a refusal, or a cancellation while it
//! waits.
//!
//! - `alive`: what pods are judged by
//! - `admit`: arrivals against the bounds, and everything that refuses
//! - `flight`: dispatched requests until their end; `outcome`: what that end says
//! - `handover`: requests that go from one dispatcher's books to another's
//! - `roster`: pods as they join, change, tell of themselves and leave
//! - `hidden`: responses of which nothing is seen until their end
//! - `view`: the snapshot; `summary`: a few numbers; `page`, `pods`: walks over what waits, and over pods
//! - `inspect`, `look`, `tell`: one request, on every pod, in words; `suppose`: one that does not exist
//! - `control`: what an operator does; `record`: what is remembered of decisions and ends
//! - `learned`: what another scheduler goes on from
//! - `need`: how many pods what comes needs
//! - `reconfigure`: a new configuration

mod admit;
mod alive;
mod control;
mod flight;
mod handover;
mod hidden;
mod inspect;
mod learned;
mod look;
mod need;
mod outcome;
mod page;
mod pods;
mod prefills;
mod progress;
mod reconfigure;
mod record;
mod roster;
mod slots;
mod summary;
mod suppose;
mod tell;
mod together;
mod tokens;
mod view;

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;
use weir_schema::Predict;

use crate::{
    Action, AdapterId, Band, Counters, Event, Lesson, PodId, PodSpec, Progress, Refusal,
    RefusalReason, Request, RequestId, SchedulerConfig, Time,
    decide::{Choice, Floor, pull, scratch::Scratch},
    decisions::{Decision, Ended, Losers, Names, Ring},
    explain::Reason,
    fleet::Pods,
    headroom::{outlook, stride::Seen},
    inspect::Tally,
    length::LengthHistory,
    need::{Demand, Held},
    per_event::PerEvent,
    policy::{Dice, Hopeless, Rules},
    queue::{Board, Drain, Longest, Promised, Strain, Waiting},
    rate::Rate,
    ratio::TokenRatio,
    regrets::Regrets,
    spread::NumberMap,
};
use alive::{Asked, Basis};
use flight::{Flight, Way};
use hidden::Lateness;

/// Time constant of what prompts take of the pods, in seconds: about as long as a response takes.
const PREFILL_MEMORY_S: f64 = 20.0;

/// One pool's whole decision state. One owner drives it.
pub struct Scheduler {
    config: SchedulerConfig,
    rules: Rules,
    rules_by_header: Rules,
    dice: Dice,
    predictor: Box<dyn Predict>,
    pods: Pods,
    /// Pods that have left, for their names.
    gone: Ring<PodSpec>,
    board: Board,
    flights: NumberMap<RequestId, Flight>,
    length: LengthHistory,
    ratio: TokenRatio,
    per_event: PerEvent,
    drain: Drain,
    strain: Strain,
    /// What prompts take of the pods, in milliseconds.
    prefill_ms: Rate,
    longest: Longest,
    demand: Demand,
    held: Held,
    /// When a request that had an objective for its first token, and was not late, last went to a pod.
    in_time_at: Option<Time>,
    /// What is promised to everything that waits or is in flight.
    alive: Promised,
    regrets: Regrets,
    counters: Counters,
    refused: BTreeMap<RefusalReason, u64>,
    last_picked: Option<PodId>,
    /// What waits again after a delivery that failed, and what did so until the last tick: nobody else has a pod to avoid.
    requeued: Vec<RequestId>,
    /// What must not wait and has come with the event at hand.
    immediate: Vec<RequestId>,
    no_pod_since: Option<Time>,
    /// Since when a pod is not open whose cache holds more than that of any that is; `None`: there is none.
    largest_out_since: Option<Time>,
    /// What waits and is too long for the open pods, while that is so.
    outsized: Vec<RequestId>,
    /// Whether a pod runs only so many adapters at once.
    slotted: bool,
    /// Adapters that were asked for, each with when it last was.
    adapters: NumberMap<AdapterId, Time>,
    /// Classes of the pods that take requests, each once.
    open_classes: SmallVec<[u16; 4]>,
    unstreamed: usize,
    /// No first token of a response that is not streamed is due before.
    starts_at: Time,
    /// When the tokens of responses that are not streamed were last moved on.
    advanced_at: Time,
    /// When it was last noted how far pods are with their prompts.
    prefills_at: Time,
    lateness: Lateness,
    /// Until when the process did not run, the last time.
    stood_still_until: Time,
    closing: bool,
    /// Nothing is given out.
    withholds: bool,
    names: Names,
    decisions: Ring<Decision>,
    ended: Ring<Ended>,
    tallies: BTreeMap<Band, Tally>,
    losers: Losers,
    scratch: Scratch,
    basis: Basis,
    asked: Asked,
    thorough: bool,
}

impl Scheduler {
    /// A scheduler without pods.
    pub fn new(config: SchedulerConfig, predictor: Box<dyn Predict>) -> Self {
        let rules = config.rules();
        Self {
            length: LengthHistory::new(config.length, &config.buckets.input),
            dice: Dice::new(rules.seed),
            rules_by_header: config.rules_by_header.clone().unwrap_or_else(|| rules.clone()),
            rules,
            held: Held::new(&config.need),
            config,
            predictor,
            pods: Pods::new(),
            gone: Ring::default(),
            board: Board::default(),
            flights: NumberMap::default(),
            ratio: TokenRatio::new(),
            per_event: PerEvent::default(),
            drain: Drain::default(),
            strain: Strain::default(),
            prefill_ms: Rate::over(PREFILL_MEMORY_S),
            longest: Longest::default(),
            demand: Demand::default(),
            in_time_at: None,
            alive: Promised::default(),
            regrets: Regrets::default(),
            counters: Counters::default(),
            refused: BTreeMap::new(),
            last_picked: None,
            requeued: Vec::new(),
            immediate: Vec::new(),
            no_pod_since: Some(Time::ZERO),
            largest_out_since: None,
            outsized: Vec::new(),
            slotted: false,
            adapters: NumberMap::default(),
            open_classes: SmallVec::new(),
            unstreamed: 0,
            starts_at: Time::NEVER,
            advanced_at: Time::ZERO,
            prefills_at: Time::ZERO,
            lateness: Lateness::default(),
            stood_still_until: Time::ZERO,
            closing: false,
            withholds: false,
            names: Names::default(),
            decisions: Ring::default(),
            ended: Ring::default(),
            tallies: BTreeMap::new(),
            losers: Losers::default(),
            scratch: Scratch::default(),
            basis: Basis::default(),
            asked: Asked::default(),
            thorough: false,
        }
    }

    /// Looks at every pod for every head from now on, whatever is known already. Nothing is decided otherwise by
    /// that, only slower: tests compare.
    #[doc(hidden)]
    pub const fn look_at_everything(&mut self) {
        self.thorough = true;
    }

    /// Takes one event and appends what is to be done to `actions`, in order.
    ///
    /// `now` must never be earlier than in the call before. An event that names a request or pod
    /// that is not known is counted and otherwise ignored: ends and cancellations race by nature.
    pub fn handle(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        let silent = matches!(event, Event::Progress(_) | Event::Scraped(..) | Event::StoodStill);
        let pulls = !silent && !matches!(event, Event::Told(_) | Event::Adopt(_));
        self.advance_unstreamed(now, &event);
        self.advance_prefills(now);
        match event {
            Event::Arrive(request) => self.arrive(now, request, actions),
            Event::Cancel(id) => self.cancel(now, id),
            Event::Undelivered(id) => self.undelivered(now, (id, 1), actions),
            Event::Declined(id) => self.undelivered(now, (id, 0), actions),
            Event::TurnedAway(id) => self.turned_away(now, id, actions),
            Event::FirstToken(id) => self.first_token(now, id),
            Event::Progress(progress) => self.progress(now, progress),
            Event::End(end) => self.end(now, end, actions),
            Event::Scraped(pod, scrape) => self.scraped(now, pod, scrape),
            Event::PodUp(spec) => self.pod_up(now, spec, None),
            Event::PodUpAs(spec, phase) => self.pod_up(now, spec, Some(phase)),
            Event::PodPhase(pod, phase) => self.pod_phase(now, pod, phase),
            Event::PodDown(pod) => self.pod_down(now, pod),
            Event::Tick => {
                self.try_full_pods(now);
                self.expire(now, actions);
            }
            Event::StoodStill => self.stood_still(now),
            Event::Reconfigure(config) => {
                self.reconfigure(*config);
                self.note_readiness(now);
                self.part_picky();
            }
            Event::Close => self.close(now, actions),
            Event::Control(control) => self.control(now, control, actions),
            Event::Told(lesson) => self.told(lesson),
            Event::Adopt(running) => self.adopt(*running),
        }
        if self.withholds {
            return;
        }
        if pulls && !self.board.is_empty() {
            self.pull(now, actions);
        }
        // What it held back while it was looked at may go now.
        if self.refuse_immediate(now, actions) && !self.board.is_empty() {
            self.pull(now, actions);
        }
    }

    /// Requests waiting. While it is above zero, [`Event::Tick`] is due every [`crate::TICK`].
    pub fn waiting(&self) -> usize {
        self.board.len()
    }

    /// Requests dispatched and not over.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Why a waiting request waits; `None` when it does not wait.
    pub fn reason(&self, id: RequestId) -> Option<Reason> {
        Some(self.reason_of(self.board.get(id)?))
    }

    fn reason_of(&self, waiting: &Waiting) -> Reason {
        if self.board.paused().covers(waiting.key()) {
            return Reason::Paused;
        }
        let behind = !waiting.late && waiting.reason() == Reason::NotConsidered;
        if behind { Reason::BehindItsLane } else { waiting.reason() }
    }

    /// The highest band alive; what an operator holds back is not.
    fn top_band(&self) -> Band {
        self.alive.top_band(self.board.held())
    }

    /// The stall for which pods are kept, in milliseconds; `None` while no long prompt comes.
    fn kept_for_ms(&self, now: Time) -> Option<f64> {
        self.longest.kept_for_ms(now, self.config.pull.long_prompt_ms)
    }

    /// How many times as long as a step a token to come is thought to take.
    ///
    /// Residents bear what a prompt takes out of the time of tokens that are to come, and others come meanwhile. Under overload, where
    /// somebody is late for whatever is kept, nothing is kept for those.
    fn slower(&self, now: Time) -> f64 {
        let pods = self.pods.len().max(1) as f64;
        let share = self.prefill_ms.per_second(now) / 1000.0 / pods;
        1.0 + self.strain.calm() * (outlook::slower(share) - 1.0)
    }

    /// Everything that a pass reads.
    fn floor(&mut self, now: Time) -> Floor<'_> {
        let steps = self.steps_in_use(now);
        Floor {
            tightest_tpot_ms: self.tightest_tpot_ms(&steps),
            top_band: self.top_band(),
            open_classes: &self.open_classes,
            kept_for_ms: self.kept_for_ms(now),
            strain: self.strain.share(),
            slower: self.slower(now),
            in_time_at: self.in_time_at,
            config: &self.config,
            rules: &self.rules,
            own: &self.rules,
            by_header: &self.rules_by_header,
            dice: &mut self.dice,
            last: &mut self.last_picked,
            losers: &mut self.losers,
            pods: &self.pods,
            regrets: &self.regrets,
            board: &mut self.board,
            steps,
            thorough: self.thorough,
            scratch: &mut self.scratch,
            predictor: self.predictor.as_mut(),
            now,
        }
    }

    /// Gives out requests until a pass finds none that can go.
    fn pull(&mut self, now: Time, actions: &mut Vec<Action>) {
        loop {
            self.allot_slots(now);
            self.note_basis(now);
            let mut floor = self.floor(now);
            let lost = pull::hopeless(&mut floor);
            let choice = if lost.is_empty() { pull::pass(&mut floor) } else { None };
            let over = lost.is_empty() && choice.is_none();
            lost.iter().for_each(|id| self.give_up(now, *id, actions));
            self.scratch.lost = lost;
            if let Some(choice) = choice {
                self.dispatch(now, &choice, actions);
            }
            if over || self.board.is_empty() {
                return;
            }
        }
    }

    /// A head can no longer meet its objective: refuse it, or put it last.
    fn give_up(&mut self, now: Time, id: RequestId, actions: &mut Vec<Action>) {
        if self.board.get(id).is_some_and(|waiting| self.refuses_hopeless(waiting)) {
            self.refuse_waiting(now, id, RefusalReason::Hopeless, actions);
        } else {
            self.note_demotion(now, id);
            self.board.demote(id);
            self.counters.demoted += 1;
        }
    }

    /// Whether one that can no longer meet its objective is refused: if it is sheddable or its policy refuses everybody.
    fn refuses_hopeless(&self, waiting: &Waiting) -> bool {
        let rules = if waiting.request.by_header { &self.rules_by_header } else { &self.rules };
        // One that no cache holds is not told to come back: its engine says what is wrong with it.
        let sheddable = waiting.request.band.sheddable()
            && !self.pods.hold_nowhere(waiting.input_tokens.into());
        rules.hopeless == Hopeless::Refuse || sheddable
    }

    fn dispatch(&mut self, now: Time, choice: &Choice, actions: &mut Vec<Action>) {
        let Some(mut waiting) = self.board.remove(choice.id) else { return };
        let band = waiting.pattern.band;
        self.drain.dispatched(band, now);
        self.note_strain(now, waiting.request.arrived, waiting.request.slo.ttft);
        if !waiting.late && waiting.request.slo.ttft.is_some() {
            self.in_time_at = Some(now);
        }
        self.note_backlog(now, band);
        let class = self.pods.get(&choice.pod).map_or(0, |pod| pod.spec.class);
        let load = self.config.load(class, waiting.input_tokens, waiting.output_tokens);
        self.note_dispatch(now, &waiting, choice);
        self.board.recycle(&mut waiting);
        let per_event = self.per_event.tokens_per_event(class);
        let steps = self.predictor.step_time(class);
        let way = Way {
            pod: choice.pod,
            load: load.unwrap_or(0.0),
            sent: now,
            uncached_tokens: choice.uncached_tokens,
            row: Some(choice.row),
            api_ms: steps.api_ms as f32,
            prediction: choice.prediction,
            tokens_per_event: per_event,
        };
        if let Some(adapter) = waiting.adapter {
            self.take_back_slots(|one| one == adapter);
        }
        let mut flight = Flight::depart(waiting, way);
        let together = self.pods.step_together();
        if together {
            self.hold_up(now, &mut flight, &steps);
        }
        if let Some(pod) = self.pods.get_mut(&choice.pod) {
            pod.load += flight.load;
            let pending = flight.pending(self.lateness);
            if !together {
                let (tokens, pairs) = (pending.uncached_tokens, pending.uncached_pairs);
                self.prefill_ms.add(now, steps.prefill_ms(tokens, pairs));
                pod.held_up(now, tokens);
            }
            pod.ledger.debit(pending);
            let input_tokens = f64::from(flight.input_tokens);
            pod.sent([input_tokens, choice.uncached_tokens], &flight.request);
            self.keep_prompt(&mut flight);
        }
        self.note_start(choice.pod);
        self.unstreamed += usize::from(!flight.request.streamed);
        self.counters.dispatched += 1;
        self.counters.spread += u64::from(choice.spreads);
        if let Some(regret) = choice.regret {
            self.regrets.note(now, regret);
        }
        actions.push(Action::Dispatch(flight.dispatch()));
        self.flights.insert(choice.id, flight);
    }

    fn told(&mut self, lesson: Lesson) {
        match lesson {
            Lesson::Sent(pod, blocks) => self.believe(pod, &blocks),
            Lesson::Answered(answered) => self.learn_answer(&answered),
            Lesson::Cached(pod, cached) => self.recall_cached(pod, &cached),
            Lesson::Learned(learned) => self.recall(&learned),
        }
    }

    /// A prompt went to a pod, sent by another dispatcher: it is cached there, if it fits.
    fn believe(&mut self, pod: PodId, blocks: &[u64]) {
        // To change a pod is to have it looked at anew. One that has left here, or has not come yet, has nothing.
        let Some(state) = self.pods.get_mut(&pod) else { return };
        let most = self.config.named_blocks(state.kv_capacity_tokens() as u64);
        if blocks.len() <= most {
            self.pods.index_mut().insert(pod, blocks);
        }
    }

    /// Keeps the rates of dispatch per band in step with the board.
    fn note_backlog(&mut self, now: Time, band: Band) {
        self.drain.backlog(band, self.board.backlog_of(band).0 > 0, now);
    }

    /// A request leaves the queue.
    fn note_strain(&mut self, now: Time, arrived: Time, ttft: Option<Duration>) {
        if let Some(objective) = ttft {
            self.strain.left(now.since(arrived), objective);
        }
    }

    fn progress(&mut self, now: Time, progress: Progress) {
        self.streamed(now, progress.events);
        let stale = self.config.pull.stale_after_ms;
        for (id, pulse) in progress.pulses {
            let held_up = self.pods.step_together() && self.is_held_up(id, pulse);
            let Some(pod) = self.pods.get_mut(&id) else { continue };
            pod.pulse = pulse;
            if pod.ledger.is_empty() {
                pod.stride.idle();
                continue;
            }
            let class = pod.spec.class;
            let counted = [pod.steps_apart(), held_up];
            let seen = pod.stride.pulse(pulse, &pod.ledger, class, counted, now);
            // Steps that are shared with others would be put down to our own tokens.
            let alone = pod.others(now, stale).is_empty();
            if let Some(Seen { mut stride, decode_steps }) = seen.filter(|_| alone) {
                let known = &mut self.per_event;
                known.stepped(class, stride.decode_steps / decode_steps);
                // Of what is kept back for several steps an event shows them all.
                stride.decode_steps *= known.tokens_per_event(class) / known.tokens_per_step(class);
                self.predictor.observe_stride(&stride);
            }
        }
    }

    fn refusal(&self, now: Time, request: &Request, reason: RefusalReason) -> Refusal {
        Refusal {
            id: request.id,
            band: request.band,
            reason,
            waited: now.since(request.arrived),
            retry_after: self.retry_after(now, request.band),
        }
    }
}
