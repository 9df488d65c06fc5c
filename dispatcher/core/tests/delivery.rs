//! Pods that join, and what could not be delivered to them: where it goes, when it is tried again, and when it is given up.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{Event, Phase, PodId, PodSpec, RefusalReason, Scrape};
use world::{World, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

#[test]
fn what_could_not_be_delivered_goes_to_another_pod_at_its_old_rank() {
    let mut world = world(2);
    let id = world.arrive(|_| {});
    let first = world.pod_of(id).unwrap();
    world.send(Event::Undelivered(id));
    assert_eq!(world.dispatched[1].attempt, 2);
    assert_ne!(world.pod_of(id), Some(first));
    world.send(Event::Undelivered(id));
    assert_eq!(world.scheduler.waiting(), 1, "no pod left to try");
    world.send(Event::PodPhase(first, Phase::Broken));
    world.send(Event::PodPhase(first, Phase::Ready));
    assert_eq!(world.pod_of(id), Some(first), "it recovered");
    world.send(Event::Undelivered(id));
    assert_eq!(world.refused[0].reason, RefusalReason::Undeliverable);
}

#[test]
fn what_could_not_be_delivered_is_tried_again_where_it_failed_once_that_pod_answers() {
    let mut world = world(1);
    let scrape = |world: &mut World| world.send(Event::Scraped(PodId(0), Scrape::default()));
    let id = world.arrive(|_| {});
    world.send(Event::Undelivered(id));
    scrape(&mut world);
    world.pass(Duration::from_millis(240));
    assert_eq!(world.scheduler.waiting(), 1, "that answer may be older than the failure");
    world.pass(Duration::from_millis(20));
    scrape(&mut world);
    world.pass(Duration::from_millis(10));
    assert_eq!(world.dispatched.last().map(|dispatch| dispatch.attempt), Some(2));
    assert!(world.refused.is_empty());
}

#[test]
fn a_pod_that_joins_and_takes_no_requests_is_given_none() {
    let mut world = world(0);
    let id = world.arrive(|request| request.slo.ttft = None);
    let spec = |id| PodSpec { id: PodId(id), name: "pod".into(), class: 0, group: None };
    for (pod, phase) in [(0, Phase::Broken), (1, Phase::Cordoned), (2, Phase::Draining)] {
        world.send(Event::PodUpAs(spec(pod), phase));
        world.pass(Duration::from_secs(4));
        assert_eq!(world.pod_of(id), None, "{phase:?}");
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.refused[0].reason, RefusalReason::NoPods, "none of them ended the wait");
    let next = world.arrive(|_| {});
    world.send(Event::PodUpAs(spec(3), Phase::Ready));
    assert_eq!(world.pod_of(next), Some(PodId(3)));
}

#[test]
fn one_that_failed_on_the_only_pod_after_a_long_wait_waits_for_another() {
    let mut world = world(1);
    world.send(Event::PodPhase(PodId(0), Phase::Cordoned));
    let id = world.arrive(|request| request.slo.ttft = None);
    world.pass(Duration::from_secs(14));
    world.send(Event::PodPhase(PodId(0), Phase::Ready));
    world.pass(Duration::from_secs(2));
    world.send(Event::Undelivered(id));
    world.pass(Duration::from_secs(14));
    assert!(world.refused.is_empty(), "it has waited for another pod for 14 s");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.refused[0].reason, RefusalReason::Undeliverable);
}
