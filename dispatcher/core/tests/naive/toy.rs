//! Pods that prefill and decode in steps, and the scheduler in front of them.
//!
//! A step takes the time that [`StepTime`] gives it: every stream gets one token, and prompts get
//! what is left of the chunk, first come, first served. Far from an engine, but overload on it is
//! real: what is sent too early makes everybody late.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use weir_core::{
    Action, Band, End, EndKind, Event, PodId, PodSpec, Progress, PromptSize, Pulse, Request,
    RequestId, Scheduler, SchedulerConfig, Slo, TICK, Time,
};
use weir_schema::{StepTime, prefill_pairs};

use super::moody::{Mood, Moody, dice};

/// Prompt tokens of a step, less the sequences that decode.
const CHUNK_TOKENS: f64 = 8192.0;

/// Share of its fluid capacity that a pool carries with 99 % inside the objectives, as measured on
/// traces (docs/decisions/001-the-pull-loop.md).
const CARRIED: f64 = 0.8;

/// Arrivals that are not counted, at half of what the pods can carry: until lengths are known,
/// budgets are spread over a guess.
const WARM_UP: u64 = 100;

/// A load on a pool.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub pods: u32,
    pub input_tokens: u32,
    pub output_tokens: u32,
    pub ttft_slo_ms: f64,
    pub tpot_slo_ms: f64,
    /// Offered, as a multiple of what the pods can carry.
    pub times_capacity: f64,
    /// Requests, [`WARM_UP`] included.
    pub requests: u64,
    pub seed: u64,
}

impl Load {
    /// Requests per second that one pod can carry: [`CARRIED`] of what it would serve if every step
    /// took exactly the TPOT objective. In such a step of `t`, rate x t prompts are computed and
    /// rate x t x output streams get a token.
    fn capacity(&self) -> f64 {
        let (steps, t) = (StepTime::default(), self.tpot_slo_ms);
        let (input, output) = (f64::from(self.input_tokens), f64::from(self.output_tokens));
        let context = steps.per_kv_ms * output * (input + output / 2.0);
        let prefill_ms = steps.prefill_ms(input, prefill_pairs(input, 0.0));
        let each_ms = prefill_ms + steps.per_decode_ms * output + context;
        CARRIED * (t - steps.base_ms) / t / each_ms * 1000.0
    }

    /// Time from the `n`-th arrival to the next.
    fn gap(&self, n: u64) -> Duration {
        let times = if n < WARM_UP { 0.5 } else { self.times_capacity };
        let rate = self.capacity() * times * f64::from(self.pods);
        Duration::from_secs_f64(self.varied(n, 3) / rate)
    }

    /// A half to one and a half, evenly: sizes, lengths and gaps vary by this.
    fn varied(&self, n: u64, place: u64) -> f64 {
        0.5 + (dice(self.seed, n, place) % 1000) as f64 / 1000.0
    }

    fn input(&self, id: RequestId) -> f64 {
        (f64::from(self.input_tokens) * self.varied(id.0, 1)).round()
    }

    fn output(&self, id: RequestId) -> u32 {
        (f64::from(self.output_tokens) * self.varied(id.0, 2)).round() as u32
    }

    /// The `n`-th request; bands take turns.
    fn request(&self, n: u64, at: Time) -> Request {
        Request {
            max_output_tokens: Some(4 * self.output_tokens),
            slo: Slo {
                ttft: Some(Duration::from_secs_f64(self.ttft_slo_ms / 1000.0)),
                tpot: Some(Duration::from_secs_f64(self.tpot_slo_ms / 1000.0)),
            },
            band: Band(if n.is_multiple_of(2) { 1 } else { -1 }),
            body_bytes: 4 * self.input_tokens,
            ..Request::new(RequestId(n), at, PromptSize::Tokens(self.input(RequestId(n)) as u32))
        }
    }
}

/// What became of one request.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    band: Band,
    arrived: Time,
    first_token: Option<Time>,
    last_token: Option<Time>,
    tokens: u32,
    refused: bool,
}

impl Fate {
    fn kept(&self, load: &Load) -> bool {
        let Some((first, last)) = self.first_token.zip(self.last_token) else { return false };
        let tpot_ms = last.ms_since(first) / f64::from(self.tokens.saturating_sub(1).max(1));
        first.ms_since(self.arrived) <= load.ttft_slo_ms && tpot_ms <= load.tpot_slo_ms
    }
}

/// How a band fared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    pub requests: u32,
    pub kept: u32,
    pub refused: u32,
}

impl Share {
    pub fn kept_share(&self) -> f64 {
        f64::from(self.kept) / f64::from(self.requests.max(1))
    }

    pub fn refused_share(&self) -> f64 {
        f64::from(self.refused) / f64::from(self.requests.max(1))
    }
}

#[derive(Debug, Default)]
struct Toy {
    prompts: VecDeque<(RequestId, f64)>,
    streams: Vec<RequestId>,
    /// The running step: its end, and the prompts it completes.
    step: Option<(Time, Vec<RequestId>)>,
    steps: u64,
}

/// The pool, its clock and every fate.
pub struct Pool {
    load: Load,
    scheduler: Scheduler,
    now: Time,
    toys: BTreeMap<PodId, Toy>,
    fates: BTreeMap<RequestId, Fate>,
}

impl Pool {
    /// Serves a load until nothing is left of it.
    pub fn serve(load: Load, config: SchedulerConfig) -> [Share; 2] {
        let mut pool = Self {
            load,
            scheduler: Scheduler::new(config, Box::new(Moody::new(Mood::Sound))),
            now: Time::ZERO,
            toys: (0..load.pods).map(|id| (PodId(id), Toy::default())).collect(),
            fates: BTreeMap::new(),
        };
        for id in 0..load.pods {
            let name = format!("toy-{id}").into();
            pool.send(Event::PodUp(PodSpec { id: PodId(id), name, class: 0, group: None }));
        }
        pool.run();
        [Band(1), Band(-1)].map(|band| pool.share(band))
    }

    fn run(&mut self) {
        let (mut arrival, mut tick) = (Some(Time::ZERO), Time::ZERO);
        let mut number = 0;
        while arrival.is_some() || !self.idle() {
            let step = self.toys.values().filter_map(|toy| toy.step.as_ref()).map(|step| step.0);
            let step = step.min();
            let next = arrival.into_iter().chain(step).fold(tick, Time::min);
            self.now = next;
            if arrival == Some(next) {
                self.arrive(number);
                number += 1;
                let gap = self.load.gap(number);
                arrival = (number < self.load.requests).then(|| next.plus(gap));
            } else if step == Some(next) {
                self.finish_steps();
            } else {
                self.tick();
                tick = next.plus(TICK);
            }
        }
    }

    fn idle(&self) -> bool {
        self.scheduler.waiting() == 0 && self.scheduler.in_flight() == 0
    }

    fn arrive(&mut self, number: u64) {
        let request = self.load.request(number, self.now);
        let fate = Fate {
            band: request.band,
            arrived: self.now,
            first_token: None,
            last_token: None,
            tokens: 0,
            refused: false,
        };
        self.fates.insert(request.id, fate);
        self.send(Event::Arrive(Box::new(request)));
    }

    fn tick(&mut self) {
        let streams = self.toys.values().flat_map(|toy| &toy.streams);
        let count = |id: &RequestId| Some((*id, self.fates.get(id)?.tokens));
        let events = streams.filter_map(count).collect();
        let pulse =
            |(id, toy): (&PodId, &Toy)| (*id, Pulse { steps: toy.steps, last_step_at: self.now });
        let pulses = self.toys.iter().map(pulse).collect();
        self.send(Event::Progress(Progress { events, pulses }));
        self.send(Event::Tick);
    }

    fn send(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.scheduler.handle(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Dispatch(dispatch) => {
                    if let Some(toy) = self.toys.get_mut(&dispatch.pod) {
                        toy.prompts.push_back((dispatch.id, self.load.input(dispatch.id)));
                    }
                }
                Action::Refuse(refusal) => {
                    if let Some(fate) = self.fates.get_mut(&refusal.id) {
                        fate.refused = true;
                    }
                }
                Action::Sample(_) => {}
            }
        }
        let input = f64::from(self.load.input_tokens);
        for toy in self.toys.values_mut().filter(|toy| toy.step.is_none()) {
            toy.begin(self.now, input);
        }
    }

    fn finish_steps(&mut self) {
        let mut events = Vec::new();
        for toy in self.toys.values_mut() {
            let Some((_, firsts)) = toy.step.take_if(|(end, _)| *end <= self.now) else { continue };
            toy.steps += 1;
            for id in &toy.streams {
                let Some(fate) = self.fates.get_mut(id) else { continue };
                fate.tokens += 1;
                fate.last_token = Some(self.now);
            }
            for id in firsts {
                let Some(fate) = self.fates.get_mut(&id) else { continue };
                (fate.tokens, fate.first_token, fate.last_token) =
                    (1, Some(self.now), Some(self.now));
                toy.streams.push(id);
                events.push(Event::FirstToken(id));
            }
            let load = &self.load;
            let done =
                |id: &RequestId| self.fates.get(id).is_some_and(|it| it.tokens >= load.output(*id));
            events.extend(toy.streams.extract_if(.., |id| done(id)).map(|id| {
                Event::End(End {
                    id,
                    kind: EndKind::Complete,
                    output_tokens: Some(load.output(id)),
                    events: load.output(id),
                    prompt_tokens: None,
                    last_token_at: Some(self.now),
                })
            }));
            toy.begin(self.now, f64::from(self.load.input_tokens));
        }
        events.into_iter().for_each(|event| self.send(event));
    }

    fn share(&self, band: Band) -> Share {
        let mut share = Share::default();
        let counted = self.fates.range(RequestId(WARM_UP)..).map(|(_, fate)| fate);
        for fate in counted.filter(|fate| fate.band == band) {
            share.requests += 1;
            share.kept += u32::from(fate.kept(&self.load));
            share.refused += u32::from(fate.refused);
        }
        share
    }
}

impl Toy {
    /// Begins a step if there is anything to do.
    fn begin(&mut self, now: Time, input_tokens: f64) {
        if self.prompts.is_empty() && self.streams.is_empty() {
            return;
        }
        let decodes = self.streams.len() as f64;
        let (mut room, mut firsts) = (CHUNK_TOKENS - decodes, Vec::new());
        let before = room;
        while let Some((id, left)) = self.prompts.front_mut() {
            let taken = left.min(room);
            *left -= taken;
            room -= taken;
            if *left > 0.0 {
                break;
            }
            firsts.push(*id);
            self.prompts.pop_front();
        }
        let kv = decodes * input_tokens;
        let step_ms = StepTime::default().step_ms(decodes, kv, before - room);
        self.step = Some((now.plus(Duration::from_secs_f64(step_ms / 1000.0)), firsts));
    }
}
