//! Requests that are promised nothing: each goes where all together lose least time to it.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    EndKind, Event, Phase, PodClass, PodId, PromptSize, Reason, Request, SchedulerConfig, Scrape,
    Slo, inspect::Supposition,
};
use world::{World, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

fn prompt(tokens: u32) -> impl FnOnce(&mut Request) {
    move |request| {
        request.slo = Slo::default();
        request.prompt = PromptSize::Tokens(tokens);
    }
}

/// One of those whose prompts begin alike, and are the same for so many tokens.
fn shared(tokens: u32, alike: u32) -> impl FnOnce(&mut Request) {
    move |request| {
        prompt(tokens)(request);
        let own = 1_000_000 + request.id.0 * 1000;
        let blocks = (0..u64::from(tokens / 16))
            .map(|block| if block < u64::from(alike / 16) { block + 1 } else { own + block });
        request.blocks = blocks.collect();
    }
}

#[test]
fn a_prompt_goes_where_it_stalls_fewest_though_its_own_first_token_comes_later_there() {
    let mut world = world(2);
    let crowd: Vec<_> = (0..2).map(|_| world.arrive(prompt(1000))).collect();
    let crowded = world.pod_of(crowd[0]).unwrap();
    let other = world.pod_of(crowd[1]).unwrap();
    assert_ne!(crowded, other, "the second goes where nobody is");
    crowd.iter().for_each(|id| world.send(Event::FirstToken(*id)));
    // Ten more beside the first: a drained pod takes nobody.
    world.send(Event::PodPhase(other, Phase::Cordoned));
    for _ in 0..10 {
        let next = world.arrive(prompt(100));
        world.send(Event::FirstToken(next));
    }
    world.send(Event::PodPhase(other, Phase::Ready));
    let pending = world.arrive(prompt(500));
    assert_eq!(world.pod_of(pending), Some(other));
    let next = world.arrive(prompt(1500));
    assert_eq!(world.pod_of(next), Some(other), "behind a prompt, but beside one and not eleven");
}

#[test]
fn a_cached_prompt_draws_a_request_to_a_busier_pod() {
    let mut world = world(2);
    let first = world.arrive(shared(4000, 3200));
    let warm = world.pod_of(first).unwrap();
    world.send(Event::FirstToken(first));
    let second = world.arrive(shared(4000, 3200));
    assert_eq!(world.pod_of(second), Some(warm), "the other pod is empty");
}

#[test]
fn a_request_waits_for_its_warm_pod_while_that_costs_everybody_less() {
    let mut world = world(2);
    let first = world.arrive(shared(24_000, 21_600));
    let warm = world.pod_of(first).unwrap();
    world.send(Event::FirstToken(first));
    let before = world.arrive(shared(24_000, 21_600));
    assert_eq!(world.pod_of(before), Some(warm));
    let next = world.arrive(shared(24_000, 21_600));
    assert_eq!(world.scheduler.reason(next), Some(Reason::WaitsForWarmPod));
    world.pass(Duration::from_millis(50));
    world.send(Event::FirstToken(before));
    assert_eq!(world.pod_of(next), Some(warm));
}

#[test]
fn that_goes_first_of_which_least_is_left_to_compute() {
    let mut world = world(1);
    let first = world.arrive(shared(24_000, 21_600));
    world.send(Event::FirstToken(first));
    let before = world.arrive(prompt(4000));
    let cold = world.arrive(prompt(4000));
    let cached = world.arrive(shared(24_000, 21_600));
    assert_eq!([cold, cached].map(|id| world.pod_of(id)), [None, None]);
    world.send(Event::FirstToken(before));
    assert_eq!([cold, cached].map(|id| world.pod_of(id)), [None, Some(PodId(0))]);
    world.send(Event::FirstToken(cached));
    assert_eq!(world.pod_of(cold), Some(PodId(0)));
}

#[test]
fn a_small_part_of_what_it_costs_is_worth_a_wait() {
    let mut world = world(2);
    let long = |request: &mut Request| {
        shared(3000, 1600)(request);
        request.max_output_tokens = Some(600);
    };
    let first = world.arrive(long);
    world.send(Event::FirstToken(first));
    let other = world.arrive(prompt(500));
    world.send(Event::FirstToken(other));
    let [warm, cold] = [first, other].map(|id| world.pod_of(id).unwrap());
    world.send(Event::PodPhase(cold, Phase::Cordoned));
    let before = world.arrive(prompt(4000));
    assert_eq!(world.pod_of(before), Some(warm));
    world.send(Event::PodPhase(cold, Phase::Ready));
    // Cold it would cost less than a tenth more, most of it the tokens of its answer.
    let next = world.arrive(long);
    assert_eq!(world.scheduler.reason(next), Some(Reason::WaitsForWarmPod));
    world.send(Event::FirstToken(before));
    assert_eq!(world.pod_of(next), Some(warm));
}

#[test]
fn the_last_pod_that_has_a_prompt_is_not_waited_for_when_it_is_gone() {
    let mut world = world(2);
    let first = world.arrive(shared(24_000, 21_600));
    let warm = world.pod_of(first).unwrap();
    world.send(Event::FirstToken(first));
    let before = world.arrive(shared(24_000, 21_600));
    let next = world.arrive(shared(24_000, 21_600));
    assert_eq!(world.pod_of(next), None);
    world.send(Event::PodDown(warm));
    world.end(before, EndKind::Complete);
    assert_eq!(world.pod_of(next), Some(PodId(1 - warm.0)));
}

#[test]
fn twice_as_much_may_be_pending_while_nobody_is_promised_a_pace() {
    let started = |paced: bool| {
        let mut world = world(1);
        let promised = world.arrive(|request| {
            request.prompt = PromptSize::Tokens(100);
            request.slo.tpot = paced.then_some(Duration::from_secs(10));
        });
        world.send(Event::FirstToken(promised));
        let pending: Vec<_> = (0..6).map(|_| world.arrive(prompt(1000))).collect();
        pending.iter().filter(|id| world.pod_of(**id).is_some()).count()
    };
    assert_eq!((started(true), started(false)), (2, 4), "2,048 tokens and 4,096");
}

#[test]
fn a_large_prompt_that_waits_keeps_one_pod_and_lets_small_ones_use_the_others() {
    let mut world = world(2);
    let pending = [0; 2].map(|_| world.arrive(prompt(2000)));
    assert!(pending.iter().all(|id| world.pod_of(*id).is_some()));
    let large = world.arrive(prompt(8000));
    assert_eq!(world.scheduler.reason(large), Some(Reason::PendingFull));
    // By now it is due before any that comes.
    world.pass(Duration::from_secs(40));
    let small = world.arrive(prompt(100));
    let used = world.pod_of(small).expect("it passes the large one");
    for id in pending {
        world.send(Event::FirstToken(id));
    }
    assert!(world.pod_of(large).is_some_and(|pod| pod != used));
}

#[test]
fn a_wait_for_a_warm_pod_lasts_no_longer_than_it_saves() {
    let waits = |beside_others: bool| {
        let mut config = steps_are_shared();
        config.classes = vec![PodClass { max_sequences: 20, ..PodClass::default() }];
        let mut world = World::new(config, 2);
        let first = world.arrive(shared(60_000, 59_800));
        let warm = world.pod_of(first).unwrap();
        let other = PodId(1 - warm.0);
        let phase = |world: &mut World, phase| world.send(Event::PodPhase(other, phase));
        phase(&mut world, Phase::Cordoned);
        world.send(Event::FirstToken(first));
        // Its batch is full for longer than anybody waits.
        for _ in 0..19 {
            let next = world.arrive(prompt(100));
            world.send(Event::FirstToken(next));
        }
        phase(&mut world, Phase::Ready);
        if beside_others {
            let one = world.arrive(prompt(100));
            assert_eq!(world.pod_of(one), Some(other));
            world.send(Event::FirstToken(one));
        }
        let next = world.arrive(shared(60_000, 59_800));
        assert_eq!(world.scheduler.reason(next), Some(Reason::WaitsForWarmPod));
        let came = world.now;
        while world.pod_of(next).is_none() && world.now.since(came) < Duration::from_secs(119) {
            world.pass(Duration::from_millis(50));
        }
        assert_eq!(world.pod_of(next), Some(other), "it starts cold");
        world.now.since(came)
    };
    let (beside_an_empty_pod, beside_others) = (waits(false), waits(true));
    // 60,000 tokens take some five seconds.
    assert!(beside_an_empty_pod < Duration::from_secs(9), "{beside_an_empty_pod:?}");
    assert!(beside_others <= Duration::from_millis(60_100), "{beside_others:?}");
}

#[test]
fn what_would_be_judged_beside_a_supposed_request_is_not_so_judged_without_it() {
    let went = |supposes: bool| {
        let mut world = World::new(SchedulerConfig::default(), 2);
        let [claimed, other] = [500, 1000].map(|tokens| world.arrive(prompt(tokens)));
        let [claimed, other] = [claimed, other].map(|id| world.pod_of(id).unwrap());
        let next = world.arrive(prompt(2500));
        assert!(matches!(world.scheduler.reason(next), Some(Reason::StepFull)));
        // The steps are over, and nobody has looked since. Where it claims its place the cache is full now.
        world.now = world.now.plus(Duration::from_millis(150));
        let (running, waiting, kv_usage) = (1, 0, 0.99);
        let scrape = Scrape { running, waiting, kv_usage, engines: 1, ..Scrape::default() };
        world.send(Event::Scraped(claimed, scrape));
        if supposes {
            // Beside one that is promised a pace half as much may be pending.
            let tpot = Some(Duration::from_millis(50));
            let what = Supposition {
                input_tokens: 4000,
                slo: Slo { tpot, ..Slo::default() },
                ..Supposition::default()
            };
            world.scheduler.suppose(world.now, &what);
        }
        world.send(Event::Tick);
        assert_ne!(claimed, other);
        world.pod_of(next) == Some(other)
    };
    assert!(went(false));
    assert!(went(true));
}
