//! A new configuration takes nothing from what waits and what runs.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{collections::BTreeSet, time::Duration};

use weir_core::{
    BucketEdges, EndKind, Event, PodClass, PromptSize, RefusalReason, RequestId, Rules,
    SchedulerConfig, policy::Order,
};
use world::{World, slo};

/// A pod that takes two prompts at a time, so that the rest waits.
fn crowded(requests: u32) -> (World, Vec<RequestId>) {
    let mut world = World::new(SchedulerConfig::default(), 1);
    let ids = (0..requests).map(|number| {
        world.now = world.now.plus(Duration::from_micros(1));
        world.arrive(|request| {
            request.prompt = PromptSize::Tokens(6000 + 40 * number);
            request.slo = slo(600_000, 200);
        })
    });
    let ids = ids.collect();
    assert!(world.scheduler.waiting() > 3, "something waits");
    assert!(world.scheduler.in_flight() > 0, "something runs");
    (world, ids)
}

/// Serves everything; in which order it was dispatched.
fn serve_all(world: &mut World) -> Vec<RequestId> {
    let mut ended = BTreeSet::new();
    loop {
        let running = world.dispatched.iter().map(|one| one.id).find(|id| !ended.contains(id));
        let Some(running) = running else { break };
        world.send(Event::FirstToken(running));
        world.pass(Duration::from_millis(50));
        world.end(running, EndKind::Complete);
        ended.insert(running);
    }
    assert_eq!(world.scheduler.waiting(), 0, "what waits is dispatched once there is room");
    world.dispatched.iter().map(|one| one.id).collect()
}

fn reconfigure(world: &mut World, change: impl FnOnce(&mut SchedulerConfig)) {
    let mut config = SchedulerConfig::default();
    change(&mut config);
    world.send(Event::Reconfigure(Box::new(config)));
}

fn rules(change: impl FnOnce(&mut Rules)) -> Option<Rules> {
    let mut rules = SchedulerConfig::default().rules();
    change(&mut rules);
    Some(rules)
}

#[test]
fn what_waits_keeps_its_place_and_what_runs_its_room() {
    let (mut untouched, _) = crowded(12);
    let (mut world, ids) = crowded(12);
    let before = world.scheduler.snapshot(world.now);
    reconfigure(&mut world, |config| config.bounds.max_wait = Duration::from_secs(500));
    let after = world.scheduler.snapshot(world.now);
    assert_eq!((after.waiting, after.in_flight), (before.waiting, before.in_flight));
    for (before, after) in before.pods.iter().zip(&after.pods) {
        assert_eq!((after.pending, after.residents), (before.pending, before.residents));
        assert_eq!(after.kv_tokens, before.kv_tokens);
    }
    assert_eq!(serve_all(&mut world), serve_all(&mut untouched));
    assert_eq!(world.dispatched.len(), ids.len());
    let idle = world.scheduler.snapshot(world.now);
    assert!(
        idle.pods.iter().all(|pod| pod.pending == 0 && pod.residents == 0 && pod.kv_tokens == 0)
    );
    assert!(world.refused.is_empty());
}

#[test]
fn new_buckets_put_what_waits_into_other_lanes_and_change_no_order() {
    let (mut untouched, _) = crowded(12);
    let (mut world, _) = crowded(12);
    let lanes = |world: &World| {
        let lanes = world.scheduler.snapshot(world.now).lanes.into_iter();
        lanes.map(|lane| (lane.pattern, lane.depth)).collect::<Vec<_>>()
    };
    let before = lanes(&world);
    let buckets = BucketEdges { input: vec![6200, 6300, 6400], output: vec![1000] };
    reconfigure(&mut world, |config| config.buckets = buckets);
    let after = lanes(&world);
    assert!(after.len() > before.len(), "{before:?} became {after:?}");
    let depth = |lanes: &[(String, usize)]| lanes.iter().map(|(_, depth)| depth).sum::<usize>();
    assert_eq!(depth(&after), depth(&before));
    assert_eq!(serve_all(&mut world), serve_all(&mut untouched));
}

#[test]
fn a_lower_bound_refuses_newcomers_only() {
    let (mut world, ids) = crowded(12);
    let waiting = world.scheduler.waiting();
    reconfigure(&mut world, |config| config.bounds.max_requests = 1);
    assert_eq!(world.scheduler.waiting(), waiting);
    let newcomer = world.arrive(|_| {});
    assert_eq!(world.refused.len(), 1);
    assert_eq!(
        (world.refused[0].id, world.refused[0].reason),
        (newcomer, RefusalReason::QueueFull)
    );
    assert_eq!(serve_all(&mut world).len(), ids.len());
}

#[test]
fn another_order_counts_for_what_waits_already() {
    let (mut world, ids) = crowded(12);
    let short = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(5000);
        request.slo = slo(600_000, 200);
    });
    reconfigure(&mut world, |config| {
        config.rules = rules(|rules| rules.order = Order::ShortestFirst)
    });
    let order = serve_all(&mut world);
    let place = |id| order.iter().position(|other| *other == id).unwrap();
    assert!(place(short) < place(*ids.last().unwrap()), "{order:?}");
    assert_eq!(order.len(), 13);
}

#[test]
fn a_class_may_change_under_its_pods() {
    let (mut world, ids) = crowded(6);
    reconfigure(&mut world, |config| {
        config.classes = vec![PodClass { kv_blocks: 30_000, ..PodClass::default() }];
    });
    assert_eq!(serve_all(&mut world).len(), ids.len());
}
