//! pattern-pull: profiled capacity, placement, and who may pass whom.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    EndKind, PodId, Policy, Profiles, PromptSize, Reason, Request, Rules, SchedulerConfig,
    policy::{Mode, Order, Placement, Scorer},
};
use weir_schema::profile::{Percentile, Profile};
use world::{World, slo};

/// A profile: a row of rates for outputs of 16 tokens, one for 32, each for inputs of 256 and of 4096.
fn profiles(tputs: &str, e2e: &str) -> Profiles {
    let text = format!(
        r#"{{"indexes": [[16, 32], [256, 4096]], "tputs": {tputs}, "e2e": {e2e}, "slos": {{"e2e": 20.0}}}}"#
    );
    let mut profile = Profile::default();
    let read = profile.add(&text, Percentile::P50);
    assert!(read.is_ok(), "{read:?}");
    let mut profiles = Profiles::default();
    profile.patterns.into_iter().for_each(|patterns| profiles.insert(0, patterns));
    profiles
}

/// Seed 002's examples: short requests take half of a pod, long ones a fifth.
fn patterns() -> Profiles {
    profiles("[[4.0, 2.0], [3.0, 1.0]]", "[[0.5, 2.0], [1.0, 5.0]]")
}

fn pattern_world(pods: u32, change: impl FnOnce(&mut Rules)) -> World {
    let mut rules = Policy::PatternPull.rules();
    change(&mut rules);
    let policy = Policy::PatternPull;
    let config = SchedulerConfig {
        policy,
        rules: Some(rules),
        profiles: patterns(),
        ..SchedulerConfig::default()
    };
    World::new(config, pods)
}

fn short(request: &mut Request) {
    request.prompt = PromptSize::Tokens(256);
    request.max_output_tokens = Some(16);
    request.slo = slo(60_000, 1000);
}

fn long(request: &mut Request) {
    request.prompt = PromptSize::Tokens(4096);
    request.max_output_tokens = Some(32);
    request.slo = slo(60_000, 1000);
}

/// Seed 002: "only pulls from the global queue if the instance side has spare capacity",
/// Load(Consumer) <= 1.
#[test]
fn a_pod_pulls_until_its_profiled_capacity_is_taken() {
    let mut world = pattern_world(1, |_| {});
    let ids: Vec<_> = (0..3).map(|_| world.arrive(short)).collect();
    assert_eq!(world.dispatched.len(), 2, "a capacity of two");
    assert_eq!(world.scheduler.reason(ids[2]), Some(Reason::OverCapacity));
    world.end(ids[0], EndKind::Complete);
    assert_eq!(world.dispatched.len(), 3);
    let mut world = pattern_world(1, |_| {});
    for _ in 0..7 {
        world.arrive(long);
    }
    assert_eq!(world.dispatched.len(), 5, "a capacity of five");
}

/// Seed 002: "Least load with the global queue (pull)" and "Binpack (pull)".
#[test]
fn least_load_spreads_and_binpack_fills() {
    let pods = |placement| {
        let mut world = pattern_world(2, |rules| rules.scorer = Scorer::PatternLoad { placement });
        let ids: Vec<_> = (0..4).map(|_| world.arrive(long)).collect();
        ids.iter().map(|id| world.pod_of(*id).unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(pods(Placement::LeastLoad), [0, 1, 0, 1]);
    assert_eq!(pods(Placement::Binpack), [0, 0, 0, 0]);
}

/// AIBrix backfills: small loads take the gap that a large one waits for.
#[test]
fn a_strict_head_waits_for_room_and_backfill_passes_it() {
    let passed = |dispatch| {
        let mut world = pattern_world(1, |rules| {
            rules.dispatch = dispatch;
            rules.order = Order::Fifo;
        });
        for _ in 0..4 {
            world.arrive(long);
        }
        let head = world.arrive(short);
        let small = world.arrive(long);
        assert_eq!(world.pod_of(head), None, "0.8 + 0.5 > 1");
        world.pod_of(small).is_some()
    };
    assert!(!passed(Mode::PullStrict));
    assert!(passed(Mode::PullBackfill));
}

/// Seed 002: "pull a request from the queue with the greatest SLO violation possibilities".
#[test]
fn the_pattern_nearest_to_a_violation_goes_first_and_a_simple_queue_goes_by_arrival() {
    let first = |order| {
        let mut world = pattern_world(1, |rules| rules.order = order);
        let busy: Vec<_> = (0..2).map(|_| world.arrive(short)).collect();
        let relaxed = world.arrive(long);
        world.pass(Duration::from_millis(10));
        let urgent = world.arrive(|request| {
            short(request);
            request.slo = slo(70, 1000);
        });
        world.end(busy[0], EndKind::Complete);
        let next = world.dispatched[2].id;
        assert!(next == relaxed || next == urgent);
        next == urgent
    };
    assert!(first(Order::Slack));
    assert!(first(Order::Violation));
    assert!(!first(Order::Fifo));
}

#[test]
fn shortest_first_goes_by_size_with_a_cap_on_age() {
    let mut world = pattern_world(1, |rules| rules.order = Order::ShortestFirst);
    let busy: Vec<_> = (0..2).map(|_| world.arrive(short)).collect();
    let big = world.arrive(long);
    let small = world.arrive(short);
    world.end(busy[0], EndKind::Complete);
    assert_eq!(world.dispatched[2].id, small);
    world.pass(Duration::from_secs(31));
    world.arrive(short);
    world.end(busy[1], EndKind::Complete);
    world.end(small, EndKind::Complete);
    assert_eq!(world.dispatched[3].id, big);
}

fn one_pod(profiles: Profiles) -> World {
    let policy = Policy::PatternPull;
    World::new(SchedulerConfig { policy, profiles, ..SchedulerConfig::default() }, 1)
}

/// AIBrix: tputs cell==0 -> the gateway answers 503; no e2e -> consumption 0, unlimited admission.
#[test]
fn a_request_that_no_pod_can_serve_by_its_profile_waits_and_says_so() {
    let mut world = one_pod(profiles("[[4.0, 2.0], [3.0, 0.0]]", "[[0.5, 2.0], [1.0, 5.0]]"));
    let id = world.arrive(long);
    assert_eq!(world.scheduler.reason(id), Some(Reason::OverCapacity));
}

#[test]
fn an_empty_pod_serves_a_request_that_needs_more_than_a_whole_one() {
    let mut world = one_pod(profiles("[[1.0, 1.0], [1.0, 1.0]]", "[[0.4, 0.4], [0.4, 0.4]]"));
    let id = world.arrive(short);
    assert_eq!(world.pod_of(id), Some(PodId(0)), "a load of 2.5");
    let next = world.arrive(short);
    assert_eq!(world.scheduler.reason(next), Some(Reason::OverCapacity));
}

#[test]
fn a_class_without_a_profile_carries_the_configured_number_of_requests() {
    let policy = Policy::PatternPull;
    let config = SchedulerConfig { policy, default_capacity: 3.0, ..SchedulerConfig::default() };
    let mut world = World::new(config, 1);
    for _ in 0..5 {
        world.arrive(|_| {});
    }
    assert_eq!(world.dispatched.len(), 3);
}
