//! Requests that go from one dispatcher's books to another's.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Counters, EndKind, Event, PodView, Policy, Progress, PromptSize, RequestId, Running,
    SchedulerConfig, Slo,
};
use world::World;

/// Pods that take everything at once.
fn world(pods: u32) -> World {
    World::new(SchedulerConfig { policy: Policy::RoundRobin, ..SchedulerConfig::default() }, pods)
}

fn pod(world: &World) -> PodView {
    world.scheduler.snapshot(world.now).pods.remove(0)
}

fn counters(world: &World) -> Counters {
    world.scheduler.snapshot(world.now).counters
}

/// What a ledger says of a pod.
fn ledger(world: &World) -> (usize, usize, u64, u64) {
    let pod = pod(world);
    (pod.pending, pod.residents, pod.pending_tokens, pod.kv_tokens)
}

fn adopt(world: &mut World, running: Running) {
    world.send(Event::Adopt(Box::new(running)));
}

#[test]
fn what_is_handed_over_is_booked_there_as_it_was_here() {
    let (mut from, mut to) = (world(1), world(1));
    let ids = [0, 1, 2].map(|_| from.arrive(|_| {}));
    let unstreamed = from.arrive(|request| request.streamed = false);
    from.pass(Duration::from_millis(40));
    from.send(Event::FirstToken(ids[0]));
    from.send(Event::FirstToken(ids[1]));
    from.pass(Duration::from_millis(500));
    from.send(Event::Progress(Progress { events: vec![(ids[0], 25)], pulses: vec![] }));
    let before = ledger(&from);
    let shown = pod(&from).requests;
    to.now = from.now;
    for id in ids.into_iter().chain([unstreamed]) {
        let running = from.scheduler.hand_over(id).unwrap();
        adopt(&mut to, running);
    }
    assert_eq!(ledger(&to), before);
    assert_eq!(ledger(&from), (0, 0, 0, 0));
    assert_eq!(pod(&to).requests, shown, "objectives, predictions, and what came so far");
    assert_eq!((counters(&from).handed_over, counters(&to).adopted), (4, 4));

    // What nothing is seen of gets its first token by what was predicted, as here.
    to.send(Event::FirstToken(ids[2]));
    to.pass(Duration::from_millis(500));
    assert_eq!((ledger(&to).0, ledger(&to).1), (0, 4));
    ids.into_iter().chain([unstreamed]).for_each(|id| to.end(id, EndKind::Complete));
    assert_eq!(ledger(&to), (0, 0, 0, 0));
    let seen = counters(&to);
    assert_eq!((seen.completed, seen.arrived, seen.dispatched, seen.ignored), (4, 0, 0, 0));
    assert!(to.samples.is_empty(), "by which row it was decided is not known here");
    let tally = to.scheduler.tallies().map(|(_, tally)| (tally.sent, tally.attained));
    assert_eq!(tally.collect::<Vec<_>>(), [(4, 4)]);
}

#[test]
fn what_is_taken_over_stands_where_it_was_sent_and_not_behind_what_was_sent_since() {
    let (mut from, mut to) = (world(1), world(1));
    let unstreamed = from.arrive(|request| request.streamed = false);
    from.pass(Duration::from_secs(9));
    to.now = from.now;
    to.arrive(|request| {
        request.id = RequestId(1000);
        request.prompt = PromptSize::Tokens(30_000);
    });
    assert_eq!(ledger(&to).0, 1);
    let running = from.scheduler.hand_over(unstreamed).unwrap();
    adopt(&mut to, running);
    to.pass(Duration::from_millis(500));
    assert_eq!((ledger(&to).0, ledger(&to).1), (1, 1), "its first token was due long ago");
}

#[test]
fn what_is_known_already_is_ignored_and_what_is_on_no_pod_has_its_outcome_all_the_same() {
    let (mut from, mut to) = (world(2), world(1));
    let ids = [from.arrive(|_| {}), from.arrive(|_| {})];
    to.now = from.now;
    let [first, second] = ids.map(|id| from.scheduler.hand_over(id).unwrap());
    adopt(&mut to, first.clone());
    adopt(&mut to, first);
    adopt(&mut to, second);
    assert_eq!((counters(&to).adopted, counters(&to).ignored), (2, 1));
    assert_eq!(pod(&to).pending, 1);
    to.send(Event::Undelivered(ids[1]));
    assert!(to.pod_of(ids[1]).is_some(), "it goes to a pod that is there");
    assert!(from.scheduler.hand_over(RequestId(99)).is_none());
}

#[test]
fn what_waits_goes_without_a_trace() {
    let mut world = World::new(SchedulerConfig::default(), 0);
    let asks = |slo: Slo| move |request: &mut weir_core::Request| request.slo = slo;
    let ids = [world::slo(500, 10), world::slo(2000, 50)].map(|slo| world.arrive(asks(slo)));
    assert_eq!(world.scheduler.waiting_ids(), ids);
    let request = world.scheduler.withdraw(world.now, ids[0]).unwrap();
    assert_eq!((request.id, request.arrived), (ids[0], world.now));
    assert!(world.scheduler.withdraw(world.now, ids[0]).is_none());
    assert_eq!((world.scheduler.waiting(), world.refused.len()), (1, 0));
    let seen = counters(&world);
    assert_eq!((seen.arrived, seen.handed_over, seen.cancelled), (2, 1, 0));
}

#[test]
fn what_did_not_reach_its_pod_goes_to_another_one() {
    let (mut from, mut to) = (world(1), world(2));
    let id = from.arrive(|_| {});
    to.now = from.now;
    let running = from.scheduler.hand_over(id).unwrap();
    let first = running.pod;
    adopt(&mut to, running);
    to.send(Event::Undelivered(id));
    assert_ne!(to.pod_of(id), Some(first));
    to.end(id, EndKind::Complete);
    assert_eq!((counters(&to).requeued, counters(&to).completed), (1, 1));
    assert_eq!(to.samples.len(), 1, "now it was decided here");
}

#[test]
fn a_pod_that_the_one_who_sends_does_not_reach_is_no_attempt() {
    let mut world = world(4);
    let id = world.arrive(|_| {});
    let mut went = vec![world.pod_of(id)];
    for _ in 0..3 {
        world.send(Event::Declined(id));
        went.push(world.pod_of(id));
        assert_eq!(world.dispatched.last().map(|one| one.attempt), Some(1));
    }
    went.sort();
    went.dedup();
    assert_eq!((went.len(), world.refused.len()), (4, 0));
    world.send(Event::Declined(id));
    assert_eq!(world.scheduler.waiting(), 1, "until it may try one again");
}
