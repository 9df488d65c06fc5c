//! Prompts that begin with the same step of an engine: which may, and until when the others wait.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Event, PodClass, PodId, Progress, PromptSize, Pulse, Reason, RequestId, SchedulerConfig, Slo,
};
use weir_schema::StepTime;
use world::{Priors, World};

/// One pod that decodes, so that it is not empty.
fn busy(config: SchedulerConfig) -> World {
    busy_with(world::slo(2000, 50), config)
}

fn busy_with(slo: Slo, config: SchedulerConfig) -> World {
    let mut world = World::new(config, 1);
    let resident = world.arrive(|request| request.slo = slo);
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

#[test]
fn more_begin_together_where_nobody_is_promised_a_pace() {
    let soon = Slo { tpot: None, ..world::slo(2000, 0) };
    // A step takes 14 ms and a token of a prompt 55 us: 1,280 of them make it six times as long.
    let mut world = busy_with(soon, SchedulerConfig::default());
    let prompts = [(600, soon), (100, Slo::default()), (600, soon), (600, soon)];
    let ids = prompts.map(|(tokens, slo)| {
        world.arrive(|request| (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo))
    });
    let [_, _, _, third] = ids;
    let went = ids.map(|id| world.pod_of(id).is_some());
    assert_eq!(went, [true, false, true, false], "one without objectives may wait");
    assert_eq!(world.scheduler.reason(third), Some(Reason::StepFull));
}

#[test]
fn a_step_is_shared_as_far_as_the_tightest_pace_allows() {
    let slow = StepTime { base_ms: 20.0, ..StepTime::default() };
    // Four times a step of 20 ms is 60 ms more, or 1,090 tokens. Four fifths of 50 ms are 20 ms more, fewer than go in any case.
    for (tpot_ms, second) in [(200, true), (50, false)] {
        let soon = world::slo(2000, tpot_ms);
        let priors = Priors(slow, Arc::default());
        let mut world = World::with(SchedulerConfig::default(), 1, Box::new(priors));
        let prompt = |world: &mut World, tokens| {
            world.arrive(|request| {
                (request.prompt, request.slo) = (PromptSize::Tokens(tokens), soon);
            })
        };
        let resident = prompt(&mut world, 1000);
        world.pass(Duration::from_millis(100));
        world.send(Event::FirstToken(resident));
        let ids = [500, 500, 500].map(|tokens| prompt(&mut world, tokens));
        let went = ids.map(|id| world.pod_of(id).is_some());
        assert_eq!(went, [true, second, false], "{tpot_ms} ms");
    }
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
