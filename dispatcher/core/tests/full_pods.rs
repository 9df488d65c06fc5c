//! Pods that say themselves that they take no more for now: what they turned away waits at its rank, and they are tried with more as time
//! passes.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use proptest::prelude::*;
use weir_core::{
    EndKind, Event, PodId, PromptSize, Reason, RefusalReason, RequestId, Scrape,
    inspect::{Supposition, Would},
};
use world::{World, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

fn ask(world: &mut World) -> RequestId {
    world.arrive(|request| {
        request.prompt = PromptSize::Tokens(100);
        request.slo.ttft = None;
    })
}

fn reason(world: &World, id: RequestId) -> Option<Reason> {
    world.scheduler.reason(id)
}

#[test]
fn what_a_pod_turned_away_waits_until_it_has_fewer() {
    let mut world = world(1);
    let all: Vec<RequestId> = (0..4).map(|_| ask(&mut world)).collect();
    // It takes three: the fourth comes back.
    world.send(Event::TurnedAway(all[3]));
    let next = ask(&mut world);
    assert_eq!((reason(&world, all[3]), world.pod_of(next)), (Some(Reason::PodsFull), None));
    let would = world.scheduler.suppose(world.now, &Supposition::default());
    assert_eq!((would.would, would.reason), (Would::Wait, "pods_full"));
    let look = &would.pods[0];
    assert!(look.text.contains("it takes no more for now"), "{look:?}");
    assert_eq!(world.dispatched.len(), 4);
    world.end(all[0], EndKind::Complete);
    assert_eq!(world.dispatched.len(), 5, "one has ended, one goes");
    assert_eq!(world.dispatched[4].id, all[3], "the one that came first");
    assert_eq!(world.dispatched[4].attempt, 1, "it was no attempt");
    let counters = world.scheduler.snapshot(world.now).counters;
    assert_eq!((counters.turned_away, counters.requeued), (1, 1));
}

#[test]
fn as_time_passes_it_is_tried_with_more_and_then_as_before() {
    let mut world = world(1);
    let first: Vec<RequestId> = (0..8).map(|_| ask(&mut world)).collect();
    world.send(Event::TurnedAway(first[7]));
    let more: Vec<RequestId> = (0..12).map(|_| ask(&mut world)).collect();
    assert!(more.iter().all(|id| reason(&world, *id).is_some()));
    let there = |world: &World| world.scheduler.snapshot(world.now).pods[0].pending;
    assert_eq!(there(&world), 7);
    world.pass(Duration::from_millis(260));
    assert_eq!(there(&world), 8, "one more");
    let last = world.dispatched.last().unwrap().id;
    world.send(Event::TurnedAway(last));
    assert_eq!(there(&world), 7, "it was still full");
    assert_eq!(world.scheduler.snapshot(world.now).pods[0].full_with, Some(7));
    world.pass(Duration::from_millis(260));
    world.pass(Duration::from_millis(260));
    assert_eq!(there(&world), 10, "one more, and two more");
    world.pass(Duration::from_secs(5));
    assert_eq!(there(&world), 20);
}

#[test]
fn the_others_are_given_what_one_turned_away() {
    let mut world = world(2);
    let id = ask(&mut world);
    let first = world.pod_of(id).unwrap();
    world.send(Event::TurnedAway(id));
    let second = world.pod_of(id).unwrap();
    assert_ne!(first, second);
    for _ in 0..4 {
        let next = ask(&mut world);
        assert_eq!(world.pod_of(next), Some(second));
    }
}

#[test]
fn one_that_turns_everything_away_with_nothing_to_do_is_given_up() {
    let mut world = world(1);
    let id = ask(&mut world);
    for _ in 0..3 {
        assert!(world.refused.is_empty());
        world.send(Event::TurnedAway(id));
        world.pass(Duration::from_millis(260));
    }
    assert_eq!(world.refused[0].reason, RefusalReason::Undeliverable);
    // One that others keep busy is waited for.
    let mut busy = self::world(1);
    let id = ask(&mut busy);
    for _ in 0..5 {
        let scrape = Scrape { running: 9, shared: true, ..Scrape::default() };
        busy.send(Event::Scraped(PodId(0), scrape));
        busy.send(Event::TurnedAway(id));
        busy.pass(Duration::from_millis(260));
    }
    assert!(busy.refused.is_empty() && busy.pod_of(id).is_some());
}

#[test]
fn a_pod_that_is_gone_or_a_request_that_is_over_is_nothing_to_wait_for() {
    let mut world = world(2);
    let id = ask(&mut world);
    let first = world.pod_of(id).unwrap();
    world.send(Event::PodDown(first));
    world.send(Event::TurnedAway(id));
    assert!(world.pod_of(id).is_some_and(|pod| pod != first));
    world.end(id, EndKind::Complete);
    world.send(Event::TurnedAway(id));
    let counters = world.scheduler.snapshot(world.now).counters;
    assert_eq!((counters.turned_away, counters.ignored), (0, 1));
}

proptest! {
    /// Engines that take so many each, whatever the scheduler thinks of them.
    #[test]
    fn everybody_is_served_by_pods_that_take_only_so_many(
        pods in 1..4u32,
        takes in 1..5usize,
        crowd in 1..40usize,
    ) {
        let mut world = world(pods);
        let mut at = vec![Vec::new(); pods as usize];
        let mut seen = 0;
        let mut served = 0;
        let mut arrived = 0;
        for turn in 0..4000u32 {
            if arrived < crowd {
                ask(&mut world);
                arrived += 1;
            }
            while let Some(dispatch) = world.dispatched.get(seen).cloned() {
                seen += 1;
                let there: &mut Vec<RequestId> = &mut at[dispatch.pod.0 as usize];
                if there.len() < takes {
                    there.push(dispatch.id);
                } else {
                    world.send(Event::TurnedAway(dispatch.id));
                }
            }
            world.pass(Duration::from_millis(10));
            // Each engine is done with one now and then.
            if turn.is_multiple_of(10) {
                for there in at.iter_mut().filter(|there| !there.is_empty()) {
                    world.end(there.remove(0), EndKind::Complete);
                    served += 1;
                }
            }
        }
        prop_assert!(world.refused.is_empty(), "{:?}", world.refused);
        prop_assert_eq!(served, crowd);
    }
}
