//! Every preset, seen through the scheduler's door, and the load that each serves to its end.

#[expect(dead_code, reason = "the model is shared with invariants.rs, which uses all of it")]
mod naive;
mod posed;
#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{collections::BTreeSet, sync::Arc};

use naive::{
    moody::Mood,
    steps,
    toy::{Load, Pool},
    watched::Watched,
};
use posed::{changed, preset, scraped};
use proptest::prelude::*;
use weir_core::{
    EndKind, Event, HeadRule, PodId, Policy, Rules, SchedulerConfig,
    policy::{Admission, Picker},
};
use world::World;

/// Policies that push.
const PUSHING: &[(Policy, HeadRule)] = &[
    (Policy::PredictedLatency, HeadRule::Auto),
    (Policy::SloAware, HeadRule::Auto),
    (Policy::LoadPrefix, HeadRule::Auto),
    (Policy::LoadPrefix322, HeadRule::Auto),
    (Policy::Random, HeadRule::Auto),
    (Policy::PowerOfTwo, HeadRule::Auto),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_a_policy_that_pushes_keeps_the_invariants(
        case in steps::cases(PUSHING, Just(Mood::Sound), 40),
    ) {
        // The naive model takes a refused SLO for one of the first token.
        let rules = Rules { admission: Admission::Open, ..case.config.policy.rules() };
        let config = SchedulerConfig { rules: Some(rules), ..case.config.clone() };
        let mut watched = Watched::new(config, case.mood);
        steps::play(&case, &mut watched);
    }
}

#[test]
fn every_preset_serves_a_load_to_its_end() {
    for policy in Policy::ALL {
        let load = Load {
            pods: 3,
            input_tokens: 1000,
            output_tokens: 60,
            ttft_slo_ms: 2000.0,
            tpot_slo_ms: 50.0,
            times_capacity: 0.6,
            requests: 400,
            seed: 5,
        };
        let config = SchedulerConfig { policy, ..SchedulerConfig::default() };
        let [high, low] = Pool::serve(load, config);
        assert_eq!(high.requests + low.requests, 300, "{policy:?}");
        assert_eq!(high.refused, 0, "{policy:?}: {high:?}");
        assert!(high.kept_share() > 0.5, "{policy:?}: {high:?}");
    }
}

#[test]
fn every_preset_can_be_overloaded_without_losing_a_request() {
    for policy in Policy::ALL {
        let load = Load {
            pods: 2,
            input_tokens: 2000,
            output_tokens: 60,
            ttft_slo_ms: 1000.0,
            tpot_slo_ms: 40.0,
            times_capacity: 1.6,
            requests: 400,
            seed: 6,
        };
        let config = SchedulerConfig { policy, ..SchedulerConfig::default() };
        let [high, low] = Pool::serve(load, config);
        assert_eq!(high.requests + low.requests, 300, "{policy:?}");
    }
}

#[test]
fn random_reaches_every_pod_and_repeats_under_its_seed() {
    let pods = |seed| {
        let mut world = changed(Policy::Random, 4, |rules| rules.seed = seed);
        let ids: Vec<_> = (0..60).map(|_| world.arrive(|_| {})).collect();
        ids.iter().map(|id| world.pod_of(*id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(pods(1).iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(pods(1), pods(1));
    assert_ne!(pods(1), pods(2));
}

#[test]
fn power_of_two_never_takes_the_fullest_pod() {
    let mut world = preset(Policy::PowerOfTwo, 3);
    for _ in 0..200 {
        let before: Vec<_> = pending(&world);
        let id = world.arrive(|_| {});
        let pod = world.pod_of(id).unwrap().0 as usize;
        let most = before.iter().max().unwrap();
        let alone = before.iter().filter(|count| *count == most).count() == 1;
        assert!(!alone || before[pod] < *most, "{before:?} {pod}");
    }
}

fn pending(world: &World) -> Vec<usize> {
    let snapshot = world.scheduler.snapshot(world.now);
    snapshot.pods.iter().map(|pod| pod.pending + pod.residents).collect()
}

#[test]
fn a_pool_of_one_pod_serves_under_every_picker() {
    for picker in [
        Picker::Best,
        Picker::TopRandom { k: 3 },
        Picker::WeightedRandom,
        Picker::Random,
        Picker::RoundRobin,
        Picker::PowerOfTwo,
    ] {
        let mut world = changed(Policy::Random, 1, |rules| rules.picker = picker);
        let id = world.arrive(|_| {});
        assert_eq!(world.pod_of(id), Some(PodId(0)), "{picker:?}");
    }
}

/// Seed 003: "Old Params (111) Load+prefix scorer with weights (1, 1, 1), New Params (322)".
#[test]
fn load_prefix_weighs_memory_queue_and_prefix_and_322_the_prefix_most() {
    let blocks: Arc<[u64]> = (1..=60).collect();
    let warm_but_full = |policy| {
        let mut world = preset(policy, 2);
        let first = world.arrive(|request| request.blocks = blocks.clone());
        let warm = world.pod_of(first).unwrap();
        world.send(Event::FirstToken(first));
        world.end(first, EndKind::Complete);
        scraped(&mut world, warm.0, 4, 0.5);
        scraped(&mut world, 1 - warm.0, 0, 0.0);
        let next = world.arrive(|request| request.blocks = blocks.clone());
        world.pod_of(next) == Some(warm)
    };
    assert!(!warm_but_full(Policy::LoadPrefix), "(.5 + 0 + 1) / 3 < (1 + 1 + 0) / 3");
    assert!(
        !warm_but_full(Policy::LoadPrefix322),
        "(1 + 0 + 3) / 7 = (2 + 2 + 0) / 7, fewer given"
    );
    let prefix_only = |world: &mut World| {
        let first = world.arrive(|request| request.blocks = blocks.clone());
        let warm = world.pod_of(first);
        let next = world.arrive(|request| request.blocks = blocks.clone());
        assert_eq!(world.pod_of(next), warm);
    };
    prefix_only(&mut preset(Policy::LoadPrefix, 3));
    prefix_only(&mut preset(Policy::LoadPrefix322, 3));
}
