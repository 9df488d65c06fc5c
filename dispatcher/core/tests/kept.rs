//! While long prompts come, what is short goes together, and a pod is left that bears the next long one.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{EndKind, Event, PodId, PromptSize, RequestId};
use world::{World, slo, steps_are_shared};

/// Some three seconds on an idle pod.
const LONG: u32 = 40_000;

/// Two pods, and a long prompt that has come and gone.
fn world(long_prompt_ms: f64) -> World {
    let mut config = steps_are_shared();
    config.pull.long_prompt_ms = long_prompt_ms;
    let mut world = World::new(config, 2);
    let long = asks(&mut world, LONG);
    world.end(long, EndKind::Complete);
    world
}

/// A request that has time for its first token. It streams from then on, if it goes.
fn asks(world: &mut World, tokens: u32) -> RequestId {
    let id = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo(30_000, 50));
    });
    world.pass(Duration::from_millis(50));
    if world.pod_of(id).is_some() {
        world.send(Event::FirstToken(id));
    }
    id
}

#[test]
fn short_ones_go_together_and_the_next_long_one_at_once() {
    let mut world = world(1000.0);
    let [one, other] = [50, 50].map(|tokens| asks(&mut world, tokens));
    assert_eq!(world.pod_of(one), world.pod_of(other));
    let decided = world.scheduler.decisions(world.now, 0, 1, |_| true);
    let [passed] = decided[0].alternatives.as_slice() else { panic!("{decided:?}") };
    assert!(passed.kept && passed.verdict.is_none(), "{passed:?}");
    assert!(world.scheduler.snapshot(world.now).kept_for_ms > 500.0);
    let long = asks(&mut world, LONG);
    let empty = [PodId(0), PodId(1)].into_iter().find(|pod| Some(*pod) != world.pod_of(one));
    assert_eq!(world.pod_of(long), empty);
}

#[test]
fn where_no_prompt_is_called_long_they_are_spread_and_a_long_one_waits() {
    let mut world = world(f64::INFINITY);
    let [one, other] = [50, 50].map(|tokens| asks(&mut world, tokens));
    assert_ne!(world.pod_of(one), world.pod_of(other));
    let decided = world.scheduler.decisions(world.now, 0, 1, |_| true);
    assert!(decided[0].alternatives.iter().all(|passed| !passed.kept));
    assert_eq!(world.scheduler.snapshot(world.now).kept_for_ms, 0.0);
    let long = asks(&mut world, LONG);
    assert_eq!(world.pod_of(long), None);
}

#[test]
fn a_long_one_is_forgotten_after_two_minutes() {
    for (seconds, together) in [(40, true), (130, false)] {
        let mut world = world(1000.0);
        world.pass(Duration::from_secs(seconds));
        let [one, other] = [50, 50].map(|tokens| asks(&mut world, tokens));
        assert_eq!(world.pod_of(one) == world.pod_of(other), together, "after {seconds} s");
    }
}

#[test]
fn nothing_is_kept_for_a_prompt_that_no_pod_could_serve_in_time() {
    let mut world = World::new(steps_are_shared(), 2);
    let lost = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(LONG), slo(1500, 50));
    });
    world.pass(Duration::from_millis(50));
    world.end(lost, EndKind::Complete);
    let [one, other] = [50, 50].map(|tokens| asks(&mut world, tokens));
    assert_ne!(world.pod_of(one), world.pod_of(other));
}

#[test]
fn a_prompt_that_a_pod_has_cached_is_not_long() {
    let mut config = steps_are_shared();
    config.pull.long_prompt_ms = 1000.0;
    let mut world = World::new(config, 2);
    let blocks: std::sync::Arc<[u64]> = (0..1250).collect();
    for round in 0..2 {
        let id = world.arrive(|request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(LONG), slo(30_000, 50));
            request.blocks = blocks.clone();
        });
        world.pass(Duration::from_millis(50));
        world.send(Event::FirstToken(id));
        world.end(id, EndKind::Complete);
        if round == 0 {
            // Long enough for the first one, which was cold, to be forgotten.
            world.pass(Duration::from_secs(130));
        }
    }
    let [one, other] = [50, 50].map(|tokens| asks(&mut world, tokens));
    assert_ne!(world.pod_of(one), world.pod_of(other));
}
