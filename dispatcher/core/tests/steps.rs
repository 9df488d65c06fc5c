//! Prompts that begin with the same step of an engine: which may, and until when the others wait.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Event, PodClass, PodId, Progress, PromptSize, Pulse, Reason, RequestId, SchedulerConfig,
};
use world::World;

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
