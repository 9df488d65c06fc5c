//! The pace of a newcomer: kept where some pod can keep it, and asked for nowhere else.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Band, Event, Phase, PodClass, PodId, PodSpec, PromptSize, Reason, Request, RequestId,
    SchedulerConfig,
};
use weir_schema::{FirstToken, Predict, StepTime};
use world::{Priors, World, slo, steps_are_shared};

/// A step of the default model takes 14 ms, whoever is alone there.
const OUT_OF_REACH_MS: u64 = 12;
/// Kept where nobody else is, but for the margin.
const NEARLY_US: u64 = 14_200;
/// Kept where nobody else is.
const FOR_ONE_MS: u64 = 15;

fn asks(world: &mut World, change: impl FnOnce(&mut Request)) -> RequestId {
    world.arrive(|request| {
        request.prompt = PromptSize::Tokens(100);
        change(request);
    })
}

/// Each pod gets one that decodes with a context that takes more than a millisecond in every step.
fn occupy(world: &mut World, pods: u32) {
    for _ in 0..pods {
        let id = asks(world, |request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(30_000), slo(60_000, 50));
        });
        world.send(Event::FirstToken(id));
        world.pass(Duration::from_millis(50));
    }
    assert_eq!(world.dispatched.len(), pods as usize);
}

fn busy(pods: u32) -> World {
    let mut world = World::new(steps_are_shared(), pods);
    occupy(&mut world, pods);
    world
}

#[test]
fn an_objective_that_no_pod_can_keep_stops_nobody() {
    let mut world = busy(2);
    for (band, tpot_us) in [(1, OUT_OF_REACH_MS * 1000), (0, NEARLY_US), (-1, NEARLY_US)] {
        let tight = asks(&mut world, |request| {
            request.band = Band(band);
            request.slo = slo(60_000, 0);
            request.slo.tpot = Some(Duration::from_micros(tpot_us));
        });
        world.pass(Duration::from_millis(50));
        assert!(
            world.pod_of(tight).is_some(),
            "in band {band}: {:?}",
            world.scheduler.reason(tight)
        );
        let other = asks(&mut world, |request| request.band = Band(-1));
        world.pass(Duration::from_millis(50));
        assert!(world.pod_of(other).is_some(), "behind one in band {band}");
    }
    assert!(world.refused.is_empty());
}

#[test]
fn one_that_an_idle_pod_keeps_waits_for_one() {
    let mut world = busy(2);
    let tight = asks(&mut world, |request| request.slo = slo(60_000, FOR_ONE_MS));
    world.pass(Duration::from_millis(50));
    assert!(matches!(world.scheduler.reason(tight), Some(Reason::TpotOverSlo { .. })));
    world.end(RequestId(0), weir_core::EndKind::Complete);
    assert_eq!(world.pod_of(tight), Some(PodId(0)));
}

#[test]
fn who_is_late_has_no_pace_to_keep() {
    let mut world = busy(2);
    let tight = asks(&mut world, |request| request.slo = slo(200, FOR_ONE_MS));
    world.pass(Duration::from_millis(100));
    assert_eq!(world.pod_of(tight), None);
    world.pass(Duration::from_millis(150));
    assert!(world.pod_of(tight).is_some(), "{:?}", world.scheduler.reason(tight));
}

#[test]
fn an_objective_that_no_pod_can_keep_makes_no_step_too_long_for_others() {
    let class = PodClass { chunk_tokens: 512, ..PodClass::default() };
    let mut world = World::new(SchedulerConfig { classes: vec![class], ..steps_are_shared() }, 1);
    let unpaced = asks(&mut world, |request| request.slo.tpot = None);
    world.send(Event::FirstToken(unpaced));
    let absurd = asks(&mut world, |request| request.slo = slo(60_000, OUT_OF_REACH_MS));
    assert!(world.pod_of(absurd).is_some());
    let prompts = [1500; 3].map(|tokens| {
        asks(&mut world, |request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo(60_000, 50));
        })
    });
    let reasons = prompts.map(|id| world.scheduler.reason(id));
    assert_eq!(prompts.map(|id| world.pod_of(id).is_some()), [true; 3], "{reasons:?}");
}

#[test]
fn while_prompts_come_residents_are_thought_to_bear_less() {
    let mut world = World::new(steps_are_shared(), 2);
    let resident = asks(&mut world, |request| request.slo = slo(60_000, 50));
    world.send(Event::FirstToken(resident));
    let bears_ms = |world: &World| {
        let pods = world.scheduler.snapshot(world.now).pods;
        pods.into_iter().find(|pod| pod.residents == 1).unwrap().stall_budget_ms.unwrap()
    };
    let before = bears_ms(&world);
    let long = asks(&mut world, |request| request.prompt = PromptSize::Tokens(30_000));
    assert_ne!(world.pod_of(long), world.pod_of(resident));
    let after = bears_ms(&world);
    assert!(after > 0.0 && after < before, "{after} of {before} ms");
}

/// The step times of the default for pods of class 0, and of half as fast ones for class 1.
struct Mixed(Priors);

impl Predict for Mixed {
    fn predict(
        &mut self,
        rows: &[weir_schema::Row],
        out: &mut [weir_schema::Prediction],
    ) -> Result<(), weir_schema::PredictError> {
        self.0.predict(rows, out)
    }

    fn take_up(&mut self) {}

    fn step_time(&self, pod_class: u16) -> StepTime {
        let fast = self.0.0;
        if pod_class == 0 { fast } else { StepTime { base_ms: 2.0 * fast.base_ms, ..fast } }
    }

    fn observe_stride(&mut self, _stride: &weir_schema::Stride) {}

    fn observe_first_token(&mut self, _: &FirstToken) {}

    fn observe_sample(&mut self, _sample: &weir_schema::Sample) {}

    fn status(&self) -> weir_schema::Status {
        self.0.status()
    }
}

/// A fast pod and one half as fast, at work on an answer each whose prompt took seconds.
fn mixed() -> World {
    let config = SchedulerConfig {
        classes: vec![PodClass::default(), PodClass::default()],
        ..steps_are_shared()
    };
    let predictor = Mixed(Priors(StepTime::default(), Arc::default()));
    let mut world = World::with(config, 1, Box::new(predictor));
    world.send(Event::PodUp(PodSpec {
        id: PodId(1),
        name: Arc::from("slow"),
        class: 1,
        group: None,
    }));
    occupy(&mut world, 2);
    assert_eq!(world.pod_of(RequestId(1)), Some(PodId(1)));
    world
}

#[test]
fn a_pod_that_could_keep_it_counts_while_it_takes_requests() {
    let mut world = mixed();
    let tight = asks(&mut world, |request| request.slo = slo(500, FOR_ONE_MS));
    world.pass(Duration::from_millis(50));
    assert_eq!(world.pod_of(tight), None, "the fast one keeps it when it is idle");
    world.send(Event::PodPhase(PodId(0), Phase::Broken));
    world.pass(Duration::from_millis(50));
    assert_eq!(world.pod_of(tight), Some(PodId(1)), "nobody keeps it any more");
}

#[test]
fn who_can_wait_leaves_residents_what_prompts_may_take_of_their_time() {
    let mut world = mixed();
    world.send(Event::PodPhase(PodId(0), Phase::Broken));
    world.pass(Duration::from_millis(100));
    let patient = asks(&mut world, |request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(400), slo(60_000, FOR_ONE_MS));
    });
    let reason = world.scheduler.reason(patient);
    assert!(matches!(reason, Some(Reason::StallOverBudget { .. })), "{reason:?}");
}
