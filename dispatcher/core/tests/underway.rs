//! What a pod has computed of a prompt is not ahead of those that come after it.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{EndKind, Event, PromptSize, Reason, RequestId};
use world::{World, slo, steps_are_shared};

/// Some 1.3 seconds on an idle pod.
const LONG: u32 = 20_000;

fn asks(world: &mut World, tokens: u32, ttft_ms: u64) -> RequestId {
    world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo(ttft_ms, 50));
    })
}

fn pass_ms(world: &mut World, ms: u64) {
    world.pass(Duration::from_millis(ms));
}

/// How long a prompt of [`LONG`] takes on an idle pod, as it is predicted.
fn takes_ms(world: &World) -> u64 {
    world.dispatched.first().map_or(0, |first| first.prediction.ttft_ms.p50 as u64)
}

#[test]
fn a_request_can_be_in_time_behind_a_prompt_that_is_half_computed() {
    let mut world = World::new(steps_are_shared(), 1);
    let first = asks(&mut world, LONG, 10_000);
    let takes_ms = takes_ms(&world);
    pass_ms(&mut world, takes_ms / 2);
    // Late behind all of it, in time behind what is left.
    let second = asks(&mut world, LONG, takes_ms + takes_ms * 3 / 4);
    pass_ms(&mut world, 50);
    assert_eq!(world.scheduler.reason(second), Some(Reason::PendingFull));
    pass_ms(&mut world, takes_ms * 4 / 10);
    world.send(Event::FirstToken(first));
    world.end(first, EndKind::Complete);
    assert!(world.pod_of(second).is_some());
}

#[test]
fn a_short_prompt_joins_one_that_is_nearly_computed() {
    let mut world = World::new(steps_are_shared(), 1);
    asks(&mut world, 8000, 10_000);
    let takes_ms = takes_ms(&world);
    let short = asks(&mut world, 400, 5000);
    pass_ms(&mut world, takes_ms / 2);
    assert_eq!(world.pod_of(short), None);
    pass_ms(&mut world, takes_ms / 2);
    assert!(world.pod_of(short).is_some());
}

#[test]
fn nobody_joins_a_prompt_that_is_long_overdue() {
    let mut world = World::new(steps_are_shared(), 1);
    asks(&mut world, 8000, 10_000);
    let takes_ms = takes_ms(&world);
    pass_ms(&mut world, 2 * takes_ms);
    let short = asks(&mut world, 400, 5000);
    pass_ms(&mut world, 100);
    assert_eq!(world.pod_of(short), None);
}

#[test]
fn a_prompt_behind_one_that_was_taken_back_has_only_begun() {
    let mut world = World::new(steps_are_shared(), 1);
    let first = asks(&mut world, 8000, 10_000);
    let takes_ms = takes_ms(&world);
    let short = asks(&mut world, 400, 5000);
    pass_ms(&mut world, takes_ms);
    assert!(world.pod_of(short).is_some(), "it joins");
    world.end(first, EndKind::ClientGone);
    let third = asks(&mut world, 1900, 5000);
    assert_eq!(world.pod_of(third), None, "all of the second is still to compute");
}
