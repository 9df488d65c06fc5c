//! Requests whose prompt was computed elsewhere: each pod loads it, and nothing of it is computed again.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Band, EndKind, Event, PodId, PromptSize, Request, RequestId, SchedulerConfig, Slo,
};
use world::{World, request, slo};

/// Some two seconds on an idle pod.
const LONG: u32 = 30_000;

fn names(count: u64) -> Arc<[u64]> {
    (1..=count).collect()
}

fn prefilled(request: &mut Request) {
    (request.prompt, request.slo) = (PromptSize::Tokens(LONG), slo(1000, 50));
    request.prefilled = true;
}

#[test]
fn nothing_but_its_last_token_is_computed_on_any_pod() {
    let mut world = World::new(SchedulerConfig::default(), 3);
    // In time, and side by side, though each of them would take twice its objective.
    let ids: Vec<RequestId> = (0..6).map(|_| world.arrive(prefilled)).collect();
    assert!(ids.iter().all(|id| world.pod_of(*id).is_some()));
    assert!(
        world.dispatched.iter().all(|one| one.uncached_tokens == 1.0),
        "{:?}",
        world.dispatched
    );
    // A pod that loads a prompt has it in its cache all the same, and its ledger says so.
    ids.iter().for_each(|id| world.send(Event::FirstToken(*id)));
    let seen = world.scheduler.snapshot(world.now);
    let kv_tokens: u64 = seen.pods.iter().map(|pod| pod.kv_tokens).sum();
    assert_eq!(kv_tokens, 6 * u64::from(LONG + 1));
    ids.iter().for_each(|id| world.end(*id, EndKind::Complete));
    let seen = world.scheduler.snapshot(world.now);
    assert!(seen.pods.iter().all(|pod| (pod.residents, pod.kv_tokens) == (0, 0)));
}

#[test]
fn whoever_comes_with_the_whole_of_it_is_late() {
    let mut world = World::new(SchedulerConfig::default(), 1);
    let whole = world.arrive(|request| {
        prefilled(request);
        request.prefilled = false;
    });
    assert!(world.pod_of(whole).is_some());
    assert!(world.dispatched[0].uncached_tokens >= f64::from(LONG));
    assert!(world.dispatched[0].prediction.ttft_ms.p50 > 1000.0);
}

#[test]
fn it_has_its_place_by_the_time_at_which_the_whole_request_came() {
    let class = weir_core::PodClass { max_sequences: 1, ..Default::default() };
    let config = SchedulerConfig { classes: vec![class], ..SchedulerConfig::default() };
    let mut world = World::new(config, 1);
    let first = world.arrive(|_| {});
    world.pass(Duration::from_millis(400));
    let whole = world.arrive(|_| {});
    // Its prompt took what the other one waits less.
    let half = world.arrive(|one| {
        *one = Request { arrived: weir_core::Time::from_millis(10), ..one.clone() }.decode_half();
    });
    world.send(Event::FirstToken(first));
    world.end(first, EndKind::Complete);
    assert_eq!((world.pod_of(half), world.pod_of(whole)), (Some(PodId(0)), None));
}

#[test]
fn a_prompt_that_a_pod_has_but_for_a_little_is_to_come_whole() {
    let mut world = World::new(SchedulerConfig::default(), 2);
    let of = |count: u64| Request {
        blocks: names(count),
        prompt: PromptSize::Tokens(count as u32 * 16),
        ..request(RequestId(99), weir_core::Time::ZERO)
    };
    let takes_whole =
        |world: &World, count| world.scheduler.takes_whole(world.now, &of(count), 256.0);
    assert!(!takes_whole(&world, 100) && takes_whole(&world, 15), "nobody has anything");
    let id = world.arrive(|request| {
        (request.blocks, request.prompt) = (names(100), PromptSize::Tokens(1600));
    });
    assert!(takes_whole(&world, 100) && takes_whole(&world, 110));
    assert!(!takes_whole(&world, 117), "272 tokens are left");
    let pod = world.pod_of(id).unwrap();
    world.send(Event::PodPhase(pod, weir_core::Phase::Cordoned));
    assert!(!takes_whole(&world, 100), "the one that has it takes nobody");
    let other = PodId(1 - pod.0);
    world.send(Event::PodPhase(other, weir_core::Phase::Broken));
    assert!(takes_whole(&world, 100), "nobody could answer what somebody computed");
}

#[test]
fn nothing_is_computed_for_what_would_be_refused() {
    let mut config = SchedulerConfig::default();
    config.bounds.max_requests = 1;
    let mut world = World::new(config, 0);
    world.arrive(|_| {});
    let sheddable = Request { band: Band(-1), ..request(RequestId(99), world.now) };
    assert!(world.scheduler.takes_whole(world.now, &sheddable, 0.0));
    let none = Request { slo: Slo::default(), ..request(RequestId(99), world.now) };
    assert!(world.scheduler.takes_whole(world.now, &none, 0.0), "the queue is full for all");
}
