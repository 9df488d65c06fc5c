//! Prompts that no pod can serve in time leave pods to those that can be in time.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    EndKind, Event, Phase, PodId, PromptSize, Reason, RequestId,
    inspect::{Against, Out},
};
use world::{World, slo, steps_are_shared};

/// Some three seconds on an idle pod.
const LONG: u32 = 40_000;

/// Pods that have just served a request in time.
fn world(late_share: f64, pods: u32) -> World {
    let mut config = steps_are_shared();
    config.pull.late_share = late_share;
    let mut world = World::new(config, pods);
    serves(&mut world);
    world
}

/// A short request comes, is served in time and ends.
fn serves(world: &mut World) {
    let short = asks(world, 100);
    assert!(world.pod_of(short).is_some());
    world.send(Event::FirstToken(short));
    world.end(short, EndKind::Complete);
}

/// The same once a second.
fn serves_for(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        world.pass(Duration::from_millis(950));
        serves(world);
    }
}

/// A prompt of a length with a second and a half to its first token.
fn asks(world: &mut World, tokens: u32) -> RequestId {
    let id = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo(1500, 50));
    });
    world.pass(Duration::from_millis(50));
    id
}

fn lost<const N: usize>(world: &mut World) -> [RequestId; N] {
    [(); N].map(|()| asks(world, LONG))
}

#[test]
fn half_of_the_pods_are_left_to_those_that_can_be_in_time() {
    let mut world = world(0.5, 4);
    let [one, other, third] = lost(&mut world);
    assert!(world.pod_of(one).is_some() && world.pod_of(other).is_some());
    assert_eq!(world.pod_of(third), None);
    let lanes = world.scheduler.lanes();
    let lane = &world.scheduler.queue_views(world.now, &lanes)[0];
    assert_eq!((&*lane.lane, &*lane.pattern), ("b0/late", "band 0 all sizes"));
    assert_eq!(world.scheduler.reason(third), Some(Reason::Late));
    let short = asks(&mut world, 1000);
    assert!(world.pod_of(short).is_some(), "it has a pod of its own");
    world.send(Event::FirstToken(one));
    assert!(world.pod_of(third).is_some(), "the next one goes when a prompt is computed");
}

#[test]
fn a_share_of_one_leaves_nothing_and_one_pod_is_always_theirs() {
    for (late_share, pods, go) in [(1.0, 3, 3), (0.9, 3, 2), (0.5, 3, 1), (0.0, 3, 1), (0.5, 1, 1)]
    {
        let mut world = world(late_share, pods);
        let gone = lost::<3>(&mut world).into_iter().filter(|id| world.pod_of(*id).is_some());
        assert_eq!(gone.count(), go, "{late_share} of {pods} pods");
    }
}

#[test]
fn the_share_grows_with_the_wait_of_the_next_one() {
    let mut world = world(0.0, 4);
    let [_, second, third] = lost(&mut world);
    serves_for(&mut world, 28);
    assert_eq!(world.pod_of(second), None);
    serves_for(&mut world, 3);
    assert!(world.pod_of(second).is_some(), "half of the longest wait of who is late");
    assert_eq!(world.pod_of(third), None);
    serves_for(&mut world, 15);
    assert!(world.pod_of(third).is_some(), "three quarters");
}

#[test]
fn no_pod_is_left_idle_when_nobody_comes_that_could_be_in_time() {
    let mut world = world(0.5, 4);
    let gone = lost::<3>(&mut world);
    assert_eq!(world.pod_of(gone[2]), None);
    // Longer than such a prompt takes.
    world.pass(Duration::from_secs(5));
    assert!(world.pod_of(gone[2]).is_some());
    let mut fresh = World::new(steps_are_shared(), 4);
    assert!(lost::<4>(&mut fresh).iter().all(|id| fresh.pod_of(*id).is_some()), "nor before");
}

#[test]
fn a_late_prompt_that_is_short_goes_beside_long_ones() {
    let mut world = world(0.5, 2);
    lost::<1>(&mut world);
    // Half a second on an idle pod: longer than it is since somebody was in time, and not long.
    let short = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(8_000), slo(1, 50));
    });
    world.pass(Duration::from_millis(50));
    assert!(world.pod_of(short).is_some());
}

#[test]
fn one_that_a_pod_did_not_take_keeps_nobody_from_that_pod() {
    let mut world = world(1.0, 2);
    let [_, other] = lost(&mut world);
    let pod = world.pod_of(other).expect("a share of one leaves nothing");
    world.send(Event::Undelivered(other));
    assert_eq!(world.scheduler.reason(other), Some(Reason::Late), "the other pod is at work");
    let short = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(500), slo(1, 50));
    });
    world.pass(Duration::from_millis(50));
    assert_eq!(world.pod_of(short), Some(pod));
}

#[test]
fn pods_that_take_nobody_do_not_count() {
    let mut world = world(0.5, 4);
    for pod in [2, 3] {
        world.send(Event::PodPhase(PodId(pod), Phase::Cordoned));
    }
    let [one, other] = lost(&mut world);
    assert!(world.pod_of(one).is_some());
    assert_eq!(world.pod_of(other), None);
}

#[test]
fn the_look_at_the_pods_says_why_none_takes_it() {
    let mut world = world(0.5, 2);
    let [_, other] = lost(&mut world);
    let view = world.scheduler.inspect(world.now, other).expect("it waits");
    let left = Some(Against::Out(Out::LeftToOthers));
    assert!(view.pods.iter().all(|look| !look.fits && look.verdict == left), "{view:?}");
    assert!(view.explanation.contains("None of 2 pods would take it now"), "{}", view.explanation);
}
