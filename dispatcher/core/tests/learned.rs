//! What was learned, and what pods have cached, go on in another scheduler.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Band, End, EndKind, Event, Learned, Lesson, NeedConfig, PodClass, PodId, PromptSize, Request,
    SchedulerConfig,
    inspect::Supposition,
    prefix::{Cached, Part},
};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, StepsLearned,
    Stride,
};
use world::{World, slo};

/// Knows the steps of a class as it was told of them.
#[derive(Default)]
struct Remembers(Vec<(u16, StepsLearned)>);

impl Predict for Remembers {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        let priors = Arc::default();
        world::Priors(StepTime::default(), priors).predict(rows, out)
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        let known = self.steps_learned(pod_class);
        let factor = known.map_or(1.0, |steps| steps.multiples[0]);
        StepTime { base_ms: factor * StepTime::default().base_ms, ..StepTime::default() }
    }

    fn observe_stride(&mut self, _: &Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _: &Sample) {}

    fn steps_learned(&self, pod_class: u16) -> Option<StepsLearned> {
        let known = &self.0;
        known.iter().rev().find(|(class, _)| *class == pod_class).map(|(_, steps)| steps.clone())
    }

    fn recall_steps(&mut self, pod_class: u16, learned: &StepsLearned) -> bool {
        self.0.push((pod_class, learned.clone()));
        true
    }

    fn status(&self) -> Status {
        Status::default()
    }
}

fn config() -> SchedulerConfig {
    SchedulerConfig {
        classes: ["small", "large"]
            .map(|name| PodClass { name: name.into(), ..PodClass::default() })
            .into(),
        ..SchedulerConfig::default()
    }
}

fn world(config: SchedulerConfig) -> World {
    World::with(config, 2, Box::<Remembers>::default())
}

/// Requests of some tenants whose answers are of their own lengths and come two tokens with an event, many of them late.
fn traffic(world: &mut World) {
    for number in 0..2000_u32 {
        let tenant = number % 3;
        let id = world.arrive(|request| {
            request.tenant = Some(format!("tenant-{tenant}").into());
            request.prompt = PromptSize::Bytes(4000 + 100 * (number % 7));
            request.slo = slo(2000, 50);
        });
        world.send(Event::FirstToken(id));
        world.pass(Duration::from_millis(50));
        let events = 20 + 40 * tenant;
        let took =
            Duration::from_millis(u64::from(events * 2) * if number % 5 == 0 { 110 } else { 10 });
        world.send(Event::End(End {
            id,
            kind: EndKind::Complete,
            output_tokens: Some(2 * events - 1),
            events,
            prompt_tokens: Some(1500 + number % 100),
            last_token_at: Some(world.now.plus(took)),
        }));
    }
}

fn tell(world: &mut World, learned: &Learned) {
    world.send(Event::Told(Lesson::Learned(Box::new(learned.clone()))));
}

/// Tokens that are expected of an answer to come.
fn expected(world: &mut World, tenant: &str) -> u32 {
    let what = Supposition {
        input_tokens: 1500,
        output_tokens: None,
        slo: slo(2000, 50),
        band: Band(0),
        tenant: Some(tenant.into()),
        adapter: None,
    };
    world.scheduler.suppose(world.now, &what).output_tokens
}

#[test]
fn another_scheduler_goes_on_from_what_was_learned() {
    let mut first = world(config());
    traffic(&mut first);
    let steps = StepsLearned {
        multiples: [2.0; 5],
        covariance: [[0.1; 5]; 5],
        ceiling: [1.0; 5],
        usual_residual: 0.1,
        lean: 0.0,
        strides: 77,
        outside_ms: 9.0,
        outside_usual_ms: 2.0,
    };
    let mut known = first.scheduler.learned();
    known.classes[1].steps = Some(steps);
    tell(&mut first, &known);
    let learned = first.scheduler.learned();
    assert_eq!(learned.classes[1].steps, known.classes[1].steps);
    assert!(learned.held < NeedConfig::default().load, "some were late: {}", learned.held);
    assert_eq!(learned.classes[0].per_event.single.last(), Some(&2.0));

    let mut next = world(config());
    tell(&mut next, &learned);
    assert_eq!(next.scheduler.learned(), learned);
    assert_eq!(next.scheduler.need(next.now).held, learned.held);
    for tenant in ["tenant-0", "tenant-1", "tenant-2", "nobody"] {
        assert_eq!(expected(&mut next, tenant), expected(&mut first, tenant), "{tenant}");
    }
    assert!(expected(&mut next, "tenant-2") > 2 * expected(&mut next, "tenant-0"));
}

#[test]
fn what_is_configured_otherwise_is_not_gone_on_from() {
    let mut first = world(config());
    traffic(&mut first);
    let learned = first.scheduler.learned();
    let told = |change: fn(&mut SchedulerConfig)| {
        let mut config = config();
        change(&mut config);
        let mut next = world(config);
        tell(&mut next, &learned);
        next.scheduler.learned()
    };
    let cold = world(config()).scheduler.learned();
    let edges = told(|config| config.buckets.input.push(1_000_000));
    assert_eq!((edges.lengths.all, edges.ratio), (cold.lengths.all, learned.ratio));
    let need = told(|config| config.need.attained = 0.95);
    assert_eq!((need.held, need.lengths), (cold.held, learned.lengths.clone()));
    let need = told(|config| config.need.learn = false);
    assert_eq!(need.held, cold.held);
    let classes = told(|config| config.classes.swap(0, 1));
    assert_eq!(classes.classes[1], learned.classes[0]);
    let classes = told(|config| config.classes[0].name = "other".into());
    assert_eq!(classes.classes[0].per_event, cold.classes[0].per_event);
}

#[test]
fn what_cannot_be_is_left_out() {
    let mut first = world(config());
    traffic(&mut first);
    let mut learned = first.scheduler.learned();
    learned.held = f64::NAN;
    learned.expected.decodes = -1.0;
    learned.classes[0].per_event.single = vec![f32::INFINITY, 0.5];
    learned.lengths.all.0.push((u32::MAX, 1.0));
    learned.lengths.any_tenant[0].0 = vec![(100, f32::NAN), (100, -1.0)];
    learned.lengths.sizes.push((u16::MAX, learned.lengths.all.clone()));
    learned.lengths.tenants[0].2.pop();
    let mut next = world(config());
    tell(&mut next, &learned);
    let taken = next.scheduler.learned();
    let cold = world(config()).scheduler.learned();
    assert_eq!((taken.held, taken.expected), (cold.held, cold.expected));
    assert!(taken.classes[0].per_event.single.is_empty());
    assert_eq!(taken.lengths.any_tenant[0], cold.lengths.any_tenant[0]);
    assert_eq!(taken.lengths.all, first.scheduler.learned().lengths.all);
    assert_eq!(taken.lengths.tenants.len(), 2);
    assert!(expected(&mut next, "tenant-0") > 1);
}

/// A prompt of 4,000 tokens in blocks of its own.
fn prompt(name: u64) -> impl Fn(&mut Request) {
    move |request| {
        request.prompt = PromptSize::Tokens(4000);
        request.slo = slo(10_000, 50);
        request.blocks = (0..125).map(|block| 1000 * name + block).collect();
    }
}

#[test]
fn what_pods_have_cached_is_found_there_by_another_scheduler() {
    let mut first = world(config());
    let over: Vec<_> = (1..=6)
        .map(|name| {
            let id = first.arrive(prompt(name));
            first.send(Event::FirstToken(id));
            first.pass(Duration::from_millis(50));
            id
        })
        .collect();
    for id in &over[..4] {
        first.end(*id, EndKind::Complete);
    }
    let mut next = world(config());
    for pod in [0, 1].map(PodId) {
        let cached = first.scheduler.cached_on(pod);
        assert!(!cached.is_empty());
        next.send(Event::Told(Lesson::Cached(pod, cached.clone())));
        // What runs is the youngest there and only held here.
        assert_eq!(next.scheduler.cached_on(pod).len(), cached.len());
    }
    next.send(Event::Told(Lesson::Cached(PodId(9), Cached(vec![Part::Prompt([1].into())]))));
    for (name, before) in (1..=6).zip(over) {
        let id = next.arrive(prompt(name));
        next.send(Event::FirstToken(id));
        assert_eq!(next.pod_of(id), first.pod_of(before), "prompt {name}");
        let sent = next.dispatched.iter().find(|one| one.id == id).unwrap();
        assert!(sent.uncached_tokens < 100.0, "{sent:?}");
        next.pass(Duration::from_secs(1));
        next.end(id, EndKind::Complete);
    }
}
