//! pattern-pull: profiled capacity, placement, and who may pass whom.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    EndKind, Event, PodClass, PodId, PodSpec, Policy, Profiles, PromptSize, Reason, Request, Rules,
    SchedulerConfig, Scrape, Slo,
    policy::{Filter, Mode, Order, Placement, Scorer},
};
use weir_schema::profile::{Percentile, Profile};
use world::{World, slo, steps_are_shared};

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
    let config =
        SchedulerConfig { policy, rules: Some(rules), profiles: patterns(), ..steps_are_shared() };
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

/// Small prompts that take a fifth of a pod, and big ones that take half of it.
fn small_and_big(dispatch: Mode) -> World {
    let mut rules = Policy::PatternPull.rules();
    (rules.dispatch, rules.order) = (dispatch, Order::Fifo);
    let profiles = profiles("[[10.0, 2.0], [10.0, 2.0]]", "[[0.5, 1.0], [0.5, 1.0]]");
    World::new(SchedulerConfig { rules: Some(rules), profiles, ..SchedulerConfig::default() }, 2)
}

/// AIBrix, measured: backfill lets small loads take the room that a big one waits for; "backfill only
/// behind a reservation".
#[test]
fn a_reservation_keeps_one_pod_for_the_head_and_lets_small_ones_use_the_others() {
    let passed = |dispatch| {
        let mut world = small_and_big(dispatch);
        let busy: Vec<_> = (0..8).map(|_| world.arrive(short)).collect();
        let head = world.arrive(|request| {
            long(request);
            request.max_output_tokens = Some(16);
        });
        assert_eq!(world.pod_of(head), None, "0.8 + 0.5 > 1 on both pods");
        let behind: Vec<_> = (0..2).map(|_| world.arrive(short)).collect();
        let passed: Vec<_> = behind.iter().filter_map(|id| world.pod_of(*id)).collect();
        if dispatch == Mode::PullReservation {
            let kept = PodId(1 - passed[0].0);
            let there = busy.iter().filter(|id| world.pod_of(**id) == Some(kept));
            let there: Vec<_> = there.copied().collect();
            world.end(there[0], EndKind::Complete);
            assert_eq!(world.pod_of(behind[1]), None, "the room that is freed is the head's");
            world.end(there[1], EndKind::Complete);
            assert_eq!(world.pod_of(head), Some(kept));
        }
        passed.len()
    };
    assert_eq!(passed(Mode::PullStrict), 0, "nothing passes");
    assert_eq!(passed(Mode::PullReservation), 1, "one, on the pod that is not claimed");
    assert_eq!(passed(Mode::PullBackfill), 2, "whatever fits");
}

/// AIBrix, PR #2760: one failed profile rank collapsed the whole Peek to FIFO.
#[test]
fn a_class_that_cannot_serve_a_pattern_does_not_turn_the_order_into_fifo() {
    let mut profiles = patterns();
    let poor = self::profiles("[[4.0, 2.0], [3.0, 0.0]]", "[[0.5, 2.0], [1.0, 5.0]]");
    profiles.insert(1, poor.get(0).unwrap().clone().into());
    let config = SchedulerConfig {
        policy: Policy::PatternPull,
        classes: vec![PodClass::default(), PodClass::default()],
        profiles,
        ..SchedulerConfig::default()
    };
    let mut world = World::new(config, 1);
    let poor = PodSpec { id: PodId(1), name: "poor".into(), class: 1, group: None };
    world.send(Event::PodUp(poor));
    let busy: Vec<_> = (0..4).map(|_| world.arrive(short)).collect();
    let first = world.arrive(|request| {
        short(request);
        request.slo = slo(1000, 1000);
    });
    let with_less_slack = world.arrive(|request| {
        long(request);
        request.slo = slo(1100, 1000);
    });
    world.end(busy[0], EndKind::Complete);
    assert_eq!(world.pod_of(with_less_slack), Some(PodId(0)), "first neither here nor by deadline");
    assert_eq!(world.pod_of(first), None);
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

/// AIBrix ignores "prefix-cache hits, KV usage and live engine load"; Weir's gates go together with a
/// profiled capacity.
#[test]
fn a_policy_may_have_both_weirs_gates_and_a_profiled_capacity() {
    let held_by = |kv_usage: f32, requests: usize| {
        let mut world = pattern_world(1, |rules| {
            rules.filters = vec![Filter::Headroom, Filter::Capacity { most: 1.0 }];
        });
        let scrape = Scrape { kv_usage, ..Scrape::default() };
        (0..3).for_each(|_| world.send(Event::Scraped(PodId(0), scrape)));
        let ids: Vec<_> = (0..requests).map(|_| world.arrive(short)).collect();
        world.scheduler.reason(*ids.last().unwrap())
    };
    assert_eq!(held_by(0.1, 2), None, "two fit by both");
    assert_eq!(held_by(0.1, 3), Some(Reason::OverCapacity), "the profile has room for two");
    assert_eq!(held_by(0.99, 2), Some(Reason::KvFull), "and the memory for none");
}

#[test]
fn a_request_that_no_class_can_serve_holds_nobody_back() {
    for objectives in [slo(60_000, 1000), slo(5, 1000), Slo::default()] {
        let policy = Policy::PatternPull;
        let profiles = profiles("[[4.0, 2.0], [3.0, 0.0]]", "[[0.5, 2.0], [1.0, 0.0]]");
        let config = SchedulerConfig { policy, profiles, ..steps_are_shared() };
        let mut world = World::new(config, 1);
        let never = world.arrive(|request| {
            long(request);
            request.slo = objectives;
        });
        world.pass(Duration::from_millis(20));
        let next = world.arrive(|request| {
            short(request);
            request.slo = objectives;
        });
        world.pass(Duration::from_millis(20));
        assert_eq!(world.pod_of(never), None);
        assert_eq!(world.pod_of(next), Some(PodId(0)), "{objectives:?}");
    }
}

#[test]
fn what_no_class_can_serve_is_parted_from_the_others_when_the_pods_are_known() {
    let policy = Policy::PatternPull;
    let profiles = profiles("[[4.0, 2.0], [3.0, 0.0]]", "[[0.5, 2.0], [1.0, 0.0]]");
    let config = SchedulerConfig { policy, profiles, ..steps_are_shared() };
    let mut world = World::new(config, 0);
    // Late ones share a lane.
    let never = world.arrive(|request| {
        long(request);
        request.slo = slo(5, 1000);
    });
    world.pass(Duration::from_millis(20));
    let next = world.arrive(short);
    world.send(Event::PodUp(PodSpec { id: PodId(0), name: "pod-0".into(), class: 0, group: None }));
    world.pass(Duration::from_millis(20));
    let late = world.arrive(|request| {
        short(request);
        request.slo = slo(5, 1000);
    });
    world.pass(Duration::from_millis(20));
    assert_eq!(
        [never, next, late].map(|id| world.pod_of(id)),
        [None, Some(PodId(0)), Some(PodId(0))]
    );
}
