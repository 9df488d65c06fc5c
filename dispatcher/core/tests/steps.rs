//! Prompts that begin with the same step of an engine: which may, and until when the others wait.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Event, PodClass, PodId, Progress, PromptSize, Pulse, Reason, RequestId, SchedulerConfig, Slo,
    Time,
};
use weir_schema::StepTime;
use world::{Priors, World};

/// One pod that decodes, so that it is not empty.
fn busy(config: SchedulerConfig) -> World {
    let mut world = World::new(config, 1);
    let resident = world.arrive(|_| {});
    world.pass(Duration::from_millis(50));
    world.send(Event::FirstToken(resident));
    world
}

fn prompt(world: &mut World, tokens: u32) -> RequestId {
    world.arrive(|request| request.prompt = PromptSize::Tokens(tokens))
}

/// The pod is seen to end a step.
fn step(world: &mut World, steps: u64) {
    let pulse = Pulse { steps, last_step_at: world.now };
    let progress = Progress { pulses: vec![(PodId(0), pulse)], ..Progress::default() };
    world.send(Event::Progress(progress));
    world.send(Event::Tick);
}

#[test]
fn a_prompt_waits_for_the_end_of_the_step_when_another_begins_with_the_next() {
    let mut world = busy(SchedulerConfig::default());
    let (first, second) = (prompt(&mut world, 600), prompt(&mut world, 600));
    assert_eq!(world.pod_of(first), Some(PodId(0)), "however long it is");
    assert_eq!(world.scheduler.reason(second), Some(Reason::StepFull));
    world.pass(Duration::from_millis(20));
    assert_eq!(world.pod_of(second), None, "the step lasts longer");
    step(&mut world, 1);
    assert_eq!(world.pod_of(second), Some(PodId(0)));
}

#[test]
fn short_prompts_begin_together() {
    let mut world = busy(SchedulerConfig::default());
    let ids = [200, 200, 200].map(|tokens| prompt(&mut world, tokens));
    assert_eq!(ids.map(|id| world.pod_of(id).is_some()), [true, true, false]);
    assert_eq!(world.scheduler.reason(ids[2]), Some(Reason::StepFull));
}

/// A pod that decodes with steps of 20 ms, and who of three prompts of 500 tokens begins with its next one. They came so long ago.
fn begin(slo: Slo, waited_ms: u64) -> [bool; 3] {
    let slow = StepTime { base_ms: 20.0, ..StepTime::default() };
    let priors = Priors(slow, Arc::default());
    let mut world = World::with(SchedulerConfig::default(), 1, Box::new(priors));
    world.pass(Duration::from_secs(1));
    let arrived = Time::from_millis(1_000 - waited_ms);
    let prompt = |world: &mut World| {
        world.arrive(|request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(500), slo);
            request.arrived = arrived;
        })
    };
    let resident = prompt(&mut world);
    world.send(Event::FirstToken(resident));
    [(); 3].map(|()| prompt(&mut world)).map(|id| world.pod_of(id).is_some())
}

#[test]
fn prompts_that_have_waited_share_a_step_as_far_as_the_tightest_pace_allows() {
    // Four times a step of 20 ms is 60 ms more, or 1,090 tokens. Four fifths of 50 ms are 20 ms more: fewer than go in any case.
    assert_eq!(begin(world::slo(2000, 200), 400), [true, true, false]);
    assert_eq!(begin(world::slo(2000, 50), 400), [true, false, false]);
    assert_eq!(begin(world::slo(2000, 200), 0), [true, false, false], "nobody is in a hurry");
}

#[test]
fn more_of_them_share_one_where_nobody_is_promised_a_pace() {
    let soon = Slo { tpot: None, ..world::slo(2000, 0) };
    assert_eq!(begin(soon, 400), [true, true, true]);
    assert_eq!(begin(soon, 0), [true, false, false]);
    assert_eq!(begin(Slo::default(), 400), [true, false, false], "without objectives one may wait");
}

#[test]
fn where_no_stream_tells_of_steps_a_prompt_waits_no_longer_than_one_takes() {
    let mut world = busy(SchedulerConfig::default());
    prompt(&mut world, 600);
    let second = prompt(&mut world, 600);
    world.pass(Duration::from_millis(90));
    assert_eq!(world.pod_of(second), Some(PodId(0)));
}

#[test]
fn an_engine_with_a_small_chunk_bounds_its_steps_itself() {
    let small = PodClass { chunk_tokens: 512, ..PodClass::default() };
    let mut world = busy(SchedulerConfig { classes: vec![small], ..SchedulerConfig::default() });
    let second = [prompt(&mut world, 600), prompt(&mut world, 600)][1];
    assert_eq!(world.pod_of(second), Some(PodId(0)));
}
