//! Engines that step together: a prompt on one of them holds up what all of them serve, and prompts that begin with the
//! same step hold it up once.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Event, PodClass, PodId, Progress, PromptSize, Pulse, Request, RequestId, SchedulerConfig,
};
use world::{World, slo};

/// Engines, all of one server.
fn engines(count: u16, steps_together: bool) -> World {
    let class = PodClass { data_parallel_size: count, ..PodClass::default() };
    let config = SchedulerConfig { classes: vec![class], ..SchedulerConfig::default() };
    let mut world = World::new(config, 0);
    let count = u32::from(count);
    (0..count).for_each(|id| world.join(id, if steps_together { count } else { 1 }));
    world
}

/// A prompt that takes about so many milliseconds.
fn prompt(ms: u32) -> impl Fn(&mut Request) {
    move |request| {
        request.prompt = PromptSize::Tokens(18 * ms);
        request.max_output_tokens = Some(200);
        request.slo = slo(2000, 50);
    }
}

/// A resident that has come to so many tokens in half a second, where ten are as many as it was promised. Returns where.
fn resident(world: &mut World, tokens: u32) -> Option<PodId> {
    let id = world.arrive(prompt(1));
    let pod = world.pod_of(id);
    world.send(Event::FirstToken(id));
    world.now = world.now.plus(Duration::from_millis(500));
    step(world, vec![(id, tokens)]);
    pod
}

/// All engines are seen to end a step.
fn step(world: &mut World, events: Vec<(RequestId, u32)>) {
    let pulse = Pulse { steps: world.now.as_micros() / 50_000, last_step_at: world.now };
    let pulses = world.scheduler.snapshot(world.now).pods.len() as u32;
    let pulses = (0..pulses).map(|id| (PodId(id), pulse)).collect();
    world.send(Event::Progress(Progress { events, pulses }));
}

#[test]
fn a_prompt_waits_for_those_that_another_engine_serves() {
    for (together, sent) in [(true, false), (false, true)] {
        let mut world = engines(2, together);
        let busy = resident(&mut world, 10);
        let other = world.arrive(prompt(400));
        let pod = world.pod_of(other);
        assert_eq!(pod.is_some(), sent, "together {together}: {:?}", world.scheduler.reason(other));
        assert!(pod.is_none() || pod != busy, "it went to the engine with nothing to do");
    }
}

#[test]
fn a_prompt_that_begins_with_the_same_step_on_another_engine_holds_nobody_up() {
    let mut world = engines(4, true);
    // It can spare the one, and not the other after it.
    resident(&mut world, 13);
    let first = world.arrive(prompt(300));
    let second = world.arrive(prompt(290));
    let pods = [first, second].map(|id| world.pod_of(id));
    assert!(pods.iter().all(Option::is_some), "{:?}", world.scheduler.reason(second));
    assert_ne!(pods[0], pods[1], "at once, each on an engine of its own");
    let longer = world.arrive(prompt(450));
    assert_eq!(world.pod_of(longer), None, "one that is longer holds up everybody by the rest");
    // The step has begun: whoever comes now makes the one after it longer.
    world.now = world.now.plus(Duration::from_millis(40));
    step(&mut world, vec![]);
    let late = world.arrive(prompt(290));
    assert_eq!(world.pod_of(late), None);
}

#[test]
fn every_engine_has_the_pace_of_the_slowest() {
    let mut world = engines(2, true);
    resident(&mut world, 10);
    let steps = |world: &World| {
        let pods = world.scheduler.snapshot(world.now).pods;
        pods.iter().map(|pod| (pod.residents, pod.step_ms)).collect::<Vec<_>>()
    };
    let [(1, one_ms), (0, other_ms)] = steps(&world)[..] else { panic!("{:?}", steps(&world)) };
    assert_eq!(one_ms, other_ms);
    let mut apart = engines(2, false);
    resident(&mut apart, 10);
    let [(1, one_ms), (0, other_ms)] = steps(&apart)[..] else { panic!("{:?}", steps(&apart)) };
    assert!(one_ms > other_ms);
}

#[test]
fn requests_spread_evenly_over_engines_that_are_all_as_fast_as_the_slowest() {
    let mut world = engines(4, true);
    for _ in 0..40 {
        let id = world.arrive(|request| {
            request.prompt = PromptSize::Tokens(100);
            request.slo = slo(2000, 200);
        });
        world.send(Event::FirstToken(id));
        world.now = world.now.plus(Duration::from_millis(60));
        step(&mut world, vec![]);
    }
    let residents: Vec<_> =
        world.scheduler.snapshot(world.now).pods.iter().map(|p| p.residents).collect();
    assert_eq!(residents, [10; 4]);
}
