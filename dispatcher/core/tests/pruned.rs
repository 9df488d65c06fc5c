//! What is left out of a look changes nothing: a scheduler that remembers which pods are shut and asks no more than it
//! must does what one does that looks at every pod for every head at every event. With more pods than are looked at it may give
//! another pod, and the last tests say when and that it gives one.

#[expect(dead_code, reason = "what the other tests need of it")]
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use proptest::prelude::*;
use weir_core::{
    Band, CacheInfo, EndKind, Event, HeadRule, Lesson, Phase, PodClass, PodId, PodSpec, Progress,
    PromptSize, PullConfig, Pulse, Request, RequestId, SchedulerConfig, Scrape, Slo,
};
use weir_schema::{
    Feature, Features, FirstToken, Predict, PredictError, Prediction, Quantiles, Row, Sample,
    Status, StepTime, Stride,
};
use world::{World, slo};

/// Pods that are looked at for one head, at most, once one of them takes it.
const ALL_LOOKED_AT: u32 = 24;

/// The priors, each off by up to a third, which depends on the row alone, unless they are right. Step times change with every stride.
struct Rough {
    strides: u64,
    right: bool,
}

impl Rough {
    fn factor(&self, row: &Row) -> f32 {
        if self.right {
            return 1.0;
        }
        let mixed = row.iter().fold(7u32, |mixed, value| {
            mixed.rotate_left(5).wrapping_mul(0x9e37_79b9) ^ value.to_bits()
        });
        0.67 + (mixed % 1000) as f32 / 1500.0
    }
}

impl Predict for Rough {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        for (row, prediction) in rows.iter().zip(out) {
            let factor = self.factor(row);
            let quantiles = |feature| {
                let p50 = Features(*row).get(feature) * factor;
                Quantiles { p50, p90: p50 * 1.2 }
            };
            prediction.ttft_ms = quantiles(Feature::PriorTtftMs);
            prediction.tpot_ms = quantiles(Feature::PriorTpotMs);
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        let steps = StepTime::default();
        let factor = 1.0 + 0.01 * (self.strides % 7) as f64 + 0.3 * f64::from(pod_class);
        StepTime { base_ms: steps.base_ms * factor, ..steps }
    }

    fn observe_stride(&mut self, _stride: &Stride) {
        self.strides += 1;
    }

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        tokens: u32,
        prompt: u8,
        shared: u8,
        band: i8,
        promised: u8,
    },
    FirstToken(u8),
    Tokens(u8, u8),
    End(u8),
    Undelivered(u8),
    TurnedAway(u8),
    Cancel(u8),
    /// Another dispatcher has a request in its ledger for a moment.
    ThereAndBack(u8),
    /// A waiting request goes to another dispatcher.
    Withdraw(u8),
    Scrape {
        pod: u8,
        kv: u8,
        waiting: u8,
        blocks: Option<u16>,
    },
    Phase(u8, bool),
    PodDown(u8),
    PodUp(u8),
    /// Another dispatcher sent the beginning of a prompt to a pod.
    Told {
        pod: u8,
        prompt: u8,
        shared: u8,
    },
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let arrive = (1..6000u32, 0..4u8, 0..30u8, -1..3i8, 0..4u8);
    prop_oneof![
        10 => arrive.prop_map(|(tokens, prompt, shared, band, promised)| {
            Step::Arrive { tokens, prompt, shared, band, promised }
        }),
        6 => any::<u8>().prop_map(Step::FirstToken),
        6 => (any::<u8>(), 1..60u8).prop_map(|(which, more)| Step::Tokens(which, more)),
        4 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Undelivered),
        1 => any::<u8>().prop_map(Step::TurnedAway),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => any::<u8>().prop_map(Step::ThereAndBack),
        1 => any::<u8>().prop_map(Step::Withdraw),
        3 => (0..5u8, 0..100u8, 0..9u8, prop::option::weighted(0.1, 100..9000u16)).prop_map(
            |(pod, kv, waiting, blocks)| Step::Scrape { pod, kv, waiting, blocks },
        ),
        1 => (0..5u8, any::<bool>()).prop_map(|(pod, ready)| Step::Phase(pod, ready)),
        1 => (0..5u8).prop_map(Step::PodDown),
        1 => (0..5u8).prop_map(Step::PodUp),
        1 => (0..5u8, 0..4u8, 0..30u8)
            .prop_map(|(pod, prompt, shared)| Step::Told { pod, prompt, shared }),
        4 => (1..400u16).prop_map(Step::Pass),
    ]
}

/// Names of blocks that prompts of a kind share.
fn beginning(prompt: u8, blocks: u8) -> impl Iterator<Item = u64> {
    (0..u64::from(blocks)).map(move |block| u64::from(prompt) * 1000 + block)
}

fn request(id: u64, world: &World, step: &Step) -> Option<Request> {
    let Step::Arrive { tokens, prompt, shared, band, promised } = *step else { return None };
    // Equal names only after equal beginnings: the tail is the request's own.
    let shared = beginning(prompt, shared);
    let own = (0..u64::from(tokens) / 200).map(|block| 1_000_000 * (id + 1) + block);
    let slo = match promised {
        0 => Slo::default(),
        1 => slo(400, 30),
        2 => slo(2000, 50),
        _ => Slo { ttft: Some(Duration::from_secs(3)), tpot: None },
    };
    Some(Request {
        prompt: PromptSize::Tokens(tokens),
        blocks: Arc::from(shared.chain(own).collect::<Vec<u64>>()),
        band: Band(band),
        slo,
        adapter: (prompt > 0).then(|| Arc::from(prompt.to_string())),
        streamed: tokens % 5 != 0,
        ..world::request(RequestId(id), world.now)
    })
}

/// A scheduler with what its pods did.
struct Side {
    world: World,
    tokens: BTreeMap<RequestId, u32>,
    over: Vec<RequestId>,
    steps: u64,
    /// Pods that are engines of one server.
    engines: u32,
}

impl Side {
    fn new(
        config: &SchedulerConfig,
        (pods, engines): (u32, u32),
        right: bool,
        thorough: bool,
    ) -> Self {
        let predictor = Rough { strides: 0, right };
        let mut world = World::with(config.clone(), 0, Box::new(predictor));
        (0..pods).for_each(|id| world.join(id, engines));
        if thorough {
            world.scheduler.look_at_everything();
        }
        Self { world, tokens: BTreeMap::new(), over: Vec::new(), steps: 0, engines }
    }

    /// One of those that are in flight.
    fn flying(&self, which: u8) -> Option<RequestId> {
        let alive = self.world.dispatched.iter().map(|one| one.id);
        let alive: Vec<RequestId> = alive.filter(|id| !self.over.contains(id)).collect();
        alive.get(usize::from(which) % alive.len().max(1)).copied()
    }

    fn apply(&mut self, number: u64, step: &Step) {
        if let Some(request) = request(number, &self.world, step) {
            self.world.send(Event::Arrive(Box::new(request)));
            return;
        }
        match *step {
            Step::Arrive { .. } => {}
            Step::FirstToken(which) => {
                let id = self.flying(which);
                id.into_iter().for_each(|id| self.world.send(Event::FirstToken(id)));
            }
            Step::Tokens(which, more) => self.stream(which, more),
            Step::End(which) => {
                if let Some(id) = self.flying(which) {
                    self.over.push(id);
                    self.world.end(id, EndKind::Complete);
                }
            }
            Step::Undelivered(which) => {
                if let Some(id) = self.flying(which) {
                    self.world.dispatched.retain(|one| one.id != id);
                    self.world.send(Event::Undelivered(id));
                }
            }
            Step::TurnedAway(which) => {
                if let Some(id) = self.flying(which) {
                    self.world.dispatched.retain(|one| one.id != id);
                    self.world.send(Event::TurnedAway(id));
                }
            }
            Step::Cancel(which) => {
                self.world.send(Event::Cancel(RequestId(number.saturating_sub(which.into()))));
            }
            Step::ThereAndBack(which) => {
                let id = self.flying(which);
                let running = id.and_then(|id| self.world.scheduler.hand_over(id));
                running.into_iter().for_each(|one| self.world.send(Event::Adopt(Box::new(one))));
            }
            Step::Withdraw(which) => {
                let id = RequestId(number.saturating_sub(which.into()));
                self.world.scheduler.withdraw(self.world.now, id);
            }
            Step::Scrape { pod, kv, waiting, blocks } => {
                let scrape = Scrape {
                    waiting: waiting.into(),
                    kv_usage: f32::from(kv) / 100.0,
                    cache: CacheInfo { blocks: blocks.map(u32::from), ..CacheInfo::default() },
                    shared: kv % 2 == 0,
                    ..Scrape::default()
                };
                self.world.send(Event::Scraped(PodId(pod.into()), scrape));
            }
            Step::Phase(pod, ready) => {
                let phase = if ready { Phase::Ready } else { Phase::Broken };
                self.world.send(Event::PodPhase(PodId(pod.into()), phase));
            }
            Step::PodDown(pod) => self.world.send(Event::PodDown(PodId(pod.into()))),
            Step::PodUp(pod) => {
                self.world.join(pod.into(), self.engines);
            }
            Step::Told { pod, prompt, shared } => {
                let blocks = beginning(prompt, shared).collect::<Vec<u64>>();
                let sent = Lesson::Sent(PodId(pod.into()), Arc::from(blocks));
                self.world.send(Event::Told(sent));
            }
            Step::Pass(ms) => self.world.pass(Duration::from_millis(ms.into())),
        }
    }

    fn stream(&mut self, which: u8, more: u8) {
        let Some(id) = self.flying(which) else { return };
        let Some(pod) = self.world.pod_of(id) else { return };
        let tokens = self.tokens.entry(id).or_insert(1);
        *tokens += u32::from(more);
        self.steps += 3;
        let pulse = Pulse { steps: self.steps, last_step_at: self.world.now };
        let events = vec![(id, *tokens)];
        self.world.send(Event::Progress(Progress { events, pulses: vec![(pod, pulse)] }));
    }
}

fn config(rule: u8, max_loras: u32) -> SchedulerConfig {
    let head_rule = match rule % 3 {
        0 => HeadRule::Auto,
        1 => HeadRule::Claims,
        _ => HeadRule::Strict,
    };
    // Pods are kept for prompts that take this long: for any, or for none that come here.
    let long_prompt_ms = if rule < 3 { 0.0 } else { PullConfig::default().long_prompt_ms };
    let pull = PullConfig { head_rule, long_prompt_ms, ..PullConfig::default() };
    let classes = vec![PodClass { max_loras, ..PodClass::default() }];
    SchedulerConfig { pull, classes, ..SchedulerConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn looking_at_less_decides_the_same(
        rule in 0..6u8,
        // Many pods, too: the likeliest are looked at first.
        pods in prop_oneof![Just(4u32), Just(20), Just(ALL_LOOKED_AT)],
        // Where several step together, what changes one changes what all of them wait for.
        engines in prop_oneof![2 => Just(1u32), 1 => Just(2), 1 => Just(4)],
        right in any::<bool>(),
        max_loras in prop_oneof![2 => Just(0u32), 1 => Just(1), 1 => Just(2)],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let config = config(rule, max_loras);
        let side = |thorough| Side::new(&config, (pods, engines), right, thorough);
        let (mut pruned, mut thorough) = (side(false), side(true));
        for (number, step) in (0..).zip(&steps) {
            pruned.apply(number, step);
            thorough.apply(number, step);
            let [one, other] = [&pruned.world, &thorough.world];
            prop_assert_eq!(&one.dispatched, &other.dispatched, "after {:?}", step);
            prop_assert_eq!(&one.refused, &other.refused);
            prop_assert_eq!(one.scheduler.waiting(), other.scheduler.waiting());
            for id in (0..=number).map(RequestId) {
                let [name, wanted] = [one, other].map(|side| side.scheduler.reason(id));
                prop_assert_eq!(name, wanted, "request {} after {:?}", id.0, step);
            }
        }
    }
}

/// Says that every pod of the first class is far too late, once it is told to.
struct Against(Arc<AtomicBool>);

impl Predict for Against {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        for (row, prediction) in rows.iter().zip(out) {
            let first = Features(*row).get(Feature::PodClass) == 0.0;
            let late = first && self.0.load(Relaxed);
            let pending = Features(*row).get(Feature::PendingRequests);
            let ms = if late { 1e6 } else { 10.0 + pending };
            prediction.ttft_ms = Quantiles { p50: ms, p90: ms };
            prediction.tpot_ms = Quantiles { p50: 10.0, p90: 10.0 };
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        let steps = StepTime::default();
        StepTime { base_ms: steps.base_ms * (1.0 + 0.05 * f64::from(pod_class)), ..steps }
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

#[test]
fn when_none_of_the_likeliest_pods_will_do_the_others_are_asked_about() {
    for others in [20, 100] {
        let late = Arc::<AtomicBool>::default();
        let classes = vec![PodClass::default(); 2];
        let config = SchedulerConfig { classes, ..SchedulerConfig::default() };
        let mut world = World::with(config, others, Box::new(Against(late.clone())));
        let (id, name) = (PodId(others), Arc::from("slow"));
        world.send(Event::PodUp(PodSpec { id, name, class: 1, group: None }));
        let patient = |request: &mut Request| {
            request.prompt = PromptSize::Tokens(100);
            request.slo = slo(9000, 500);
        };
        for _ in 0..=others {
            world.arrive(patient);
        }
        let pods: BTreeSet<PodId> = world.dispatched.iter().map(|one| one.pod).collect();
        assert_eq!(pods.len(), others as usize + 1, "none is empty: {:?}", world.dispatched);
        late.store(true, Relaxed);
        let id = world.arrive(patient);
        assert_eq!(world.pod_of(id), Some(PodId(others)));
    }
}

/// Counts the rows that it is asked about, and says of so many of the first that their first token comes far too late.
struct Asked {
    rows: Arc<AtomicUsize>,
    late: Arc<AtomicUsize>,
}

impl Predict for Asked {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        let before = self.rows.fetch_add(rows.len(), Relaxed);
        for (at, one) in (before..).zip(out) {
            let ms = if at < self.late.load(Relaxed) { 1e6 } else { 10.0 };
            one.ttft_ms = Quantiles { p50: ms, p90: ms };
            one.tpot_ms = Quantiles { p50: 10.0, p90: 10.0 };
        }
        Ok(())
    }

    fn take_up(&mut self) {}

    fn step_time(&self, _pod_class: u16) -> StepTime {
        StepTime::default()
    }

    fn observe_stride(&mut self, _stride: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &Sample) {}

    fn status(&self) -> Status {
        Status::default()
    }
}

#[test]
fn the_best_pod_alone_is_predicted_and_others_where_that_one_is_refused() {
    let promised = slo(9000, 500);
    for (late, slo) in [(0, promised), (0, Slo::default()), (1, promised), (3, promised)] {
        for pods in [4, ALL_LOOKED_AT, 1000] {
            let [rows, first_late] = [0, 0].map(|count| Arc::new(AtomicUsize::new(count)));
            let asked = Asked { rows: rows.clone(), late: first_late.clone() };
            let mut world = World::with(SchedulerConfig::default(), pods, Box::new(asked));
            let ask = |world: &mut World| {
                let id = world.arrive(|request| {
                    request.prompt = PromptSize::Tokens(100);
                    request.slo = slo;
                });
                world.pod_of(id)
            };
            // What is predicted of an empty pod stands against nobody.
            let taken: BTreeSet<_> = (0..pods).map(|_| ask(&mut world)).collect();
            assert_eq!(taken.len(), pods as usize);
            rows.store(0, Relaxed);
            first_late.store(late, Relaxed);
            assert!(ask(&mut world).is_some(), "{pods} pods, {late} late");
            assert_eq!(rows.load(Relaxed), late + 1, "{pods} pods, {late} late");
        }
    }
}

#[test]
fn a_request_that_is_promised_nothing_goes_where_it_costs_least_though_few_are_asked_about() {
    let predictor = Rough { strides: 0, right: true };
    let mut world = World::with(SchedulerConfig::default(), 100, Box::new(predictor));
    let ask = |world: &mut World| {
        let id = world.arrive(|request| {
            request.prompt = PromptSize::Tokens(1500);
            request.slo = Slo::default();
        });
        world.pod_of(id)
    };
    let last = PodId(77);
    world.send(Event::PodPhase(last, Phase::Broken));
    for _ in 0..99 {
        assert!(ask(&mut world).is_some_and(|pod| pod != last));
    }
    world.pass(Duration::from_secs(1));
    let dispatched: Vec<RequestId> = world.dispatched.iter().map(|one| one.id).collect();
    dispatched.into_iter().for_each(|id| world.send(Event::FirstToken(id)));
    world.send(Event::PodPhase(last, Phase::Ready));
    assert_eq!(
        ask(&mut world),
        Some(last),
        "the others have a request each, beside which it would cost more"
    );
}
