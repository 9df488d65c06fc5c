//! Prompts that several wait for get a further pod.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Event, PodClass, PodId, Policy, PromptSize, Reason, Request, RequestId, SchedulerConfig, Slo,
    TICK, policy::Affinity,
};
use world::{World, slo, steps_are_shared};

/// Of 4,000 tokens: cold it takes 272 ms, and less than 10 where it is cached.
fn asks(ttft_ms: u64) -> impl FnOnce(&mut Request) {
    move |request| {
        request.prompt = PromptSize::Tokens(4000);
        request.slo = slo(ttft_ms, 50);
        request.blocks = (1..=250).collect();
    }
}

/// So many pods for two requests each: the first has the prompt and both on it, the others one of their own.
fn taken(pods: u32, config: SchedulerConfig) -> Option<(World, PodId)> {
    let classes = vec![PodClass { max_sequences: 2, ..PodClass::default() }];
    let mut world = World::new(SchedulerConfig { classes, ..config }, pods);
    let mut warm = None;
    for _ in 0..2 {
        let id = world.arrive(asks(10_000));
        warm = world.pod_of(id).filter(|pod| warm.is_none_or(|warm| *pod == warm));
        world.send(Event::FirstToken(id));
    }
    let warm = warm?;
    for _ in 1..pods {
        let other = world.arrive(|request| request.slo = slo(10_000, 1000));
        assert!(world.pod_of(other).is_some_and(|pod| pod != warm));
        world.send(Event::FirstToken(other));
    }
    Some((world, warm))
}

fn wait<const N: usize>(world: &mut World, ttft_ms: u64) -> [RequestId; N] {
    let ids = [(); N].map(|()| world.arrive(asks(ttft_ms)));
    assert!(ids.iter().all(|id| world.pod_of(*id).is_none()));
    ids
}

#[test]
fn a_head_that_others_wait_with_starts_cold_where_it_fits() {
    let (mut world, warm) = taken(2, steps_are_shared()).unwrap();
    let [head, _] = wait(&mut world, 10_000);
    world.pass(TICK);
    assert_eq!(world.scheduler.reason(head), Some(Reason::WaitsForWarmPod), "one is behind it");
    let [_] = wait(&mut world, 10_000);
    world.pass(TICK);
    assert!(world.pod_of(head).is_some_and(|pod| pod != warm));
}

#[test]
fn so_does_one_that_is_promised_nothing() {
    let (mut world, warm) = taken(2, steps_are_shared()).unwrap();
    let ask = |world: &mut World| {
        world.arrive(|request| {
            asks(0)(request);
            request.slo = Slo::default();
        })
    };
    let (head, _) = (ask(&mut world), ask(&mut world));
    world.pass(TICK);
    assert_eq!(world.scheduler.reason(head), Some(Reason::WaitsForWarmPod), "one is behind it");
    ask(&mut world);
    world.pass(TICK);
    assert!(world.pod_of(head).is_some_and(|pod| pod != warm));
}

#[test]
fn those_that_wait_for_another_prompt_on_the_same_pod_are_no_company() {
    let (mut world, _) = taken(2, steps_are_shared()).unwrap();
    let [head] = wait(&mut world, 10_000);
    for name in 1..=3 {
        let other = world.arrive(|request| {
            asks(10_000)(request);
            request.blocks = (1..=200).chain((1000 * name..).take(50)).collect();
        });
        assert_eq!(world.pod_of(other), None);
    }
    world.pass(TICK);
    assert_eq!(world.scheduler.reason(head), Some(Reason::WaitsForWarmPod));
}

#[test]
fn one_pod_at_a_time_gets_the_prompt() {
    let (mut world, warm) = taken(3, steps_are_shared()).unwrap();
    let [first, second, _, _] = wait(&mut world, 10_000);
    world.pass(TICK);
    let cold = world.pod_of(first).unwrap();
    world.pass(Duration::from_millis(200));
    assert_eq!(world.pod_of(second), None, "{cold:?} computes it");
    world.send(Event::FirstToken(first));
    world.pass(TICK);
    assert!(world.pod_of(second).is_some_and(|pod| pod != warm && pod != cold));
}

#[test]
fn where_a_cold_start_is_late_the_head_of_several_goes_ahead_when_it_is_nearly_so_itself() {
    for (others, goes) in [(1, false), (2, true)] {
        let (mut world, warm) = taken(2, steps_are_shared()).unwrap();
        let [head] = wait(&mut world, 250);
        for _ in 0..others {
            let [_] = wait(&mut world, 250);
        }
        world.pass(Duration::from_millis(190));
        assert_eq!(world.pod_of(head), None);
        world.pass(TICK + TICK);
        let cold = world.pod_of(head);
        assert_eq!(cold.is_some_and(|pod| pod != warm), goes, "{others} behind it");
    }
}

#[test]
fn of_those_that_are_late_already_one_goes_ahead_even_if_somebody_is_held_back() {
    let (mut world, warm) = taken(2, steps_are_shared()).unwrap();
    let [head, _] = wait(&mut world, 20);
    assert_eq!(world.scheduler.reason(head), Some(Reason::Late));
    // In time, and to wait for the warm pod as well.
    let [held] = wait(&mut world, 10_000);
    assert_eq!(world.scheduler.reason(held), Some(Reason::WaitsForWarmPod));
    world.pass(TICK);
    assert_eq!(world.pod_of(head), None, "one is behind it");
    let [_] = wait(&mut world, 20);
    world.pass(TICK);
    assert!(world.pod_of(head).is_some_and(|pod| pod != warm));
}

#[test]
fn a_policy_that_waits_for_no_pod_goes_ahead_for_nobody() {
    let mut rules = Policy::Weir.rules();
    rules.affinity = Affinity::None;
    let config = SchedulerConfig { rules: Some(rules), ..steps_are_shared() };
    let (mut world, _) = taken(2, config).unwrap();
    let [head, _, _] = wait(&mut world, 250);
    world.pass(Duration::from_millis(210));
    assert_eq!(world.pod_of(head), None);
}
