//! Policies that predict and push: tiers, affinity gate, admitters.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod posed;
#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use posed::{changed, scraped};
use weir_core::{
    Band, EndKind, Event, Phase, PodId, Policy, PromptSize, RefusalReason, Request, Rules,
    SchedulerConfig,
    policy::{Admission, Affinity, Filter, Picker, Scorer, TtftSource},
};
use world::{World, slo, steps_are_shared};

/// Keeps `count` requests decoding on a pod, each with this TPOT objective.
fn occupy(world: &mut World, pod: u32, count: usize, tpot_ms: Option<u64>) {
    for other in 0..8 {
        if other != pod {
            world.send(Event::PodPhase(PodId(other), Phase::Cordoned));
        }
    }
    for _ in 0..count {
        let id = world.arrive(|request| {
            request.slo.tpot = tpot_ms.map(Duration::from_millis);
        });
        assert_eq!(world.pod_of(id), Some(PodId(pod)));
        world.send(Event::FirstToken(id));
    }
    for other in 0..8 {
        world.send(Event::PodPhase(PodId(other), Phase::Ready));
    }
}

fn never_explore(rules: &mut Rules) {
    rules.filters = vec![Filter::HeadroomTier { explore_negative: 0.0 }];
}

/// Share of `n` requests that go to pod 0.
fn share_of_pod_0(world: &mut World, n: u32, build: impl Fn(&mut Request)) -> f64 {
    let mut hits = 0;
    for _ in 0..n {
        let id = world.arrive(&build);
        hits += u32::from(world.pod_of(id) == Some(PodId(0)));
        world.send(Event::FirstToken(id));
        world.end(id, EndKind::Complete);
    }
    f64::from(hits) / f64::from(n)
}

/// llm-d, running_request_tpot_slo_queue: a request without a TPOT SLO is inserted with 0, sorts first
/// and reads as "no SLO on pod": "One anonymous request switches it off".
#[test]
fn a_resident_without_a_tpot_objective_never_switches_the_guard_off() {
    for anonymous in [0, 1] {
        let mut world = changed(Policy::PredictedLatency, 2, never_explore);
        occupy(&mut world, 0, 1, Some(1));
        occupy(&mut world, 0, anonymous, None);
        occupy(&mut world, 1, 1, Some(500));
        let share = share_of_pod_0(&mut world, 50, |request| request.slo = slo(60_000, 400));
        assert_eq!(
            share, 0.0,
            "pod 0 breaks its resident's promise, {anonymous} anonymous beside it"
        );
    }
}

/// Seed 001: valid pods are those "within its SLO and within the SLO of all running requests, or have
/// no running requests".
#[test]
fn a_pod_without_residents_is_valid_whatever_is_predicted_there() {
    let mut world = changed(Policy::SloAware, 2, never_explore);
    occupy(&mut world, 0, 1, Some(1));
    let share = share_of_pod_0(&mut world, 50, |request| request.slo = slo(1, 1));
    assert_eq!(share, 0.0, "the idle pod takes everything");
    let shed = world.arrive(|request| {
        request.band = Band(-1);
        request.slo = slo(1, 1);
    });
    assert_eq!(world.pod_of(shed), Some(PodId(1)), "and sheddable requests are admitted to it");
}

/// llm-d, slo-headroom-tier-filter: epsilonExploreNeg .01: "1% negative instead of positive".
#[test]
fn the_violating_tier_is_explored_as_often_as_the_policy_says() {
    for (explore, range) in [(0.0, 0.0..=0.0), (0.3, 0.2..=0.4), (1.0, 1.0..=1.0)] {
        let mut world = changed(Policy::PredictedLatency, 2, |rules| {
            rules.filters = vec![Filter::HeadroomTier { explore_negative: explore }];
        });
        occupy(&mut world, 0, 1, Some(1));
        occupy(&mut world, 1, 1, Some(500));
        let share = share_of_pod_0(&mut world, 400, |request| request.slo = slo(60_000, 400));
        assert!(range.contains(&share), "{explore}: {share}");
    }
}

/// Seed 000: "On a configurable fraction of requests the filter bypasses itself entirely".
#[test]
fn the_affinity_gate_is_left_open_as_often_as_the_policy_says() {
    let blocks: Arc<[u64]> = (1..=60).collect();
    for probability in [0.0, 1.0] {
        let mut world = changed(Policy::PredictedLatency, 2, |rules| {
            rules.scorer = Scorer::None;
            rules.picker = Picker::Random;
            if let Affinity::PrefixCache { exploration_probability, .. } = &mut rules.affinity {
                *exploration_probability = probability;
            }
        });
        world.send(Event::PodPhase(PodId(1), Phase::Cordoned));
        let first = world.arrive(|request| request.blocks = blocks.clone());
        world.send(Event::FirstToken(first));
        world.end(first, EndKind::Complete);
        world.send(Event::PodPhase(PodId(1), Phase::Ready));
        let stayed = (0..40u64).all(|salt| {
            // Most of the prompt is shared, the rest is new each time.
            let tail = (0..10).map(|n| 1_000_000 + salt * 100 + n);
            let prompt: Arc<[u64]> = blocks.iter().copied().take(54).chain(tail).collect();
            let id = world.arrive(|request| request.blocks = prompt);
            world.send(Event::FirstToken(id));
            world.end(id, EndKind::Complete);
            world.pod_of(id) == Some(PodId(0))
        });
        assert_eq!(stayed, probability == 0.0);
    }
}

/// Whether a prompt goes to the pod that has it while so many tokens are pending there, and one request
/// fewer is in flight on the other. The gate bears a penalty of one second.
fn goes_to_its_warm_pod(ttft_source: TtftSource, backlog_tokens: u32, started: bool) -> bool {
    let mut world = changed(Policy::LeastRequest, 2, |rules| {
        rules.affinity = Affinity::PrefixCache {
            threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 1000.0,
            ttft_source,
            peak_prefill_throughput: 15_928.0,
        };
    });
    let blocks: Arc<[u64]> = (1..=60).collect();
    world.send(Event::PodPhase(PodId(1), Phase::Cordoned));
    let first = world.arrive(|request| request.blocks = blocks.clone());
    world.send(Event::FirstToken(first));
    world.end(first, EndKind::Complete);
    let busy = world.arrive(|request| request.prompt = PromptSize::Tokens(backlog_tokens));
    if started {
        world.send(Event::FirstToken(busy));
    }
    world.send(Event::PodPhase(PodId(1), Phase::Ready));
    let id = world.arrive(|request| request.blocks = blocks.clone());
    world.pod_of(id) == Some(PodId(0))
}

/// llm-d, ttftSource prefillThroughput: "TTFT heuristic = inflight_tokens/15928*1000".
#[test]
fn by_prefill_throughput_the_load_gate_counts_the_tokens_in_flight() {
    let by_throughput = TtftSource::PrefillThroughput;
    assert!(goes_to_its_warm_pod(by_throughput, 15_928, false), "1000 ms, at the penalty");
    assert!(!goes_to_its_warm_pod(by_throughput, 15_944, false), "1001 ms");
    assert!(goes_to_its_warm_pod(by_throughput, 15_944, true), "computed: no longer in flight");
    assert!(
        !goes_to_its_warm_pod(TtftSource::Prediction, 15_928, false),
        "14 ms, 55 us per token, and 190 ms for what the tokens attend to"
    );
}

/// Llumnix: "lowest predicted_ttft / predicted_tpot; top-k random if k>1" (--dispatch-top-k).
#[test]
fn of_the_best_few_any_is_taken_all_alike_and_none_of_the_others() {
    let taken = |k| {
        let mut world = changed(Policy::LeastRequest, 4, |rules| {
            rules.picker = Picker::TopRandom { k };
        });
        occupy(&mut world, 2, 3, None);
        occupy(&mut world, 3, 3, None);
        let mut taken = [0; 4];
        for _ in 0..900 {
            let id = world.arrive(|_| {});
            taken[world.pod_of(id).unwrap().0 as usize] += 1;
            world.send(Event::FirstToken(id));
            world.end(id, EndKind::Complete);
        }
        taken
    };
    let [first, second, rest @ ..] = taken(1);
    assert_eq!((first, second, rest), (450, 450, [0, 0]), "the one that was given fewer");
    let [first, second, rest @ ..] = taken(2);
    assert!((380..=520).contains(&first) && first + second == 900, "{first} {second}");
    assert_eq!(rest, [0, 0]);
    let [first, second, rest @ ..] = taken(3);
    assert!((240..=360).contains(&first) && (240..=360).contains(&second), "{first} {second}");
    assert!(rest.iter().all(|count| *count > 0), "of two equals behind them either is third");
    assert!(taken(9).iter().all(|count| (160..=290).contains(count)), "more than there are is all");
}

/// Seed 000: "rejects sheddable requests (priority < 0) when no endpoint can meet the SLO"; llm-d:
/// priority >= 0 and requests without SLO bypass, an idle endpoint or one with kv < 2 % admits.
#[test]
fn the_latency_slo_admitter_refuses_only_sheddable_requests_that_no_pod_can_serve_in_time() {
    let busy = |residents| {
        let mut world = changed(Policy::PredictedLatency, 1, never_explore);
        occupy(&mut world, 0, residents, Some(1));
        scraped(&mut world, 0, 0, 0.5);
        world
    };
    let sheddable = |request: &mut Request| {
        request.band = Band(-1);
        request.slo = slo(1, 1);
    };
    let mut world = busy(1);
    let id = world.arrive(sheddable);
    assert_eq!((world.refused[0].id, world.refused[0].reason), (id, RefusalReason::Hopeless));
    let bypass = [
        world.arrive(|request| request.slo = slo(1, 1)),
        world.arrive(|request| {
            request.band = Band(-1);
            request.slo = weir_core::Slo::default();
        }),
    ];
    assert!(bypass.iter().all(|id| world.pod_of(*id).is_some()), "{:?}", world.refused);
    let mut cold = busy(1);
    scraped(&mut cold, 0, 0, 0.019);
    let id = cold.arrive(sheddable);
    assert!(cold.pod_of(id).is_some(), "a cold pod serves anybody");
    let mut idle = busy(0);
    let id = idle.arrive(sheddable);
    assert!(idle.pod_of(id).is_some(), "so does an idle one");
}

/// llm-d: probabilistic-admitter, p = min(sat^5 * 300, 1) for priority < 0.
#[test]
fn the_probabilistic_admitter_refuses_the_more_the_fuller_the_pool_is() {
    let refused = |kv_usage: f32, band| {
        let mut world = changed(Policy::LeastRequest, 1, |rules| {
            rules.admission = Admission::Probabilistic {
                queue_depth: 5.0,
                kv_usage: 0.8,
                power: 5.0,
                factor: 300.0,
            };
        });
        for _ in 0..300 {
            scraped(&mut world, 0, 0, kv_usage);
            let id = world.arrive(|request| {
                request.band = Band(band);
                request.prompt = PromptSize::Tokens(1);
            });
            if world.pod_of(id).is_some() {
                world.send(Event::FirstToken(id));
                world.end(id, EndKind::Complete);
            }
        }
        assert!(world.refused.iter().all(|one| one.reason == RefusalReason::PredictedWait));
        world.refused.len()
    };
    assert_eq!(refused(0.05, -1), 0);
    assert!((170..=260).contains(&refused(0.24, -1)), "73 % at a saturation of .30");
    assert_eq!(refused(0.28, -1), 300, "certain from .34 on");
    assert_eq!(refused(1.0, 0), 0, "only sheddable requests");
}

/// Seed 001: "if True, proceed to use an SLO-aware scheduling profile instead of the default".
#[test]
fn a_request_goes_by_the_policy_that_it_chose() {
    let config = SchedulerConfig {
        rules: Some(Policy::Weir.rules()),
        rules_by_header: Some(Policy::LeastRequest.rules()),
        ..steps_are_shared()
    };
    let mut world = World::new(config, 1);
    let held: Vec<_> = (0..5).map(|_| world.arrive(|_| {})).collect();
    assert_eq!(world.dispatched.len(), 2, "the others are held back");
    let pushed = world.arrive(|request| request.by_header = true);
    assert_eq!(world.pod_of(pushed), Some(PodId(0)), "pushed past them, though of their pattern");
    assert_eq!(world.pod_of(held[2]), None);
    let config = SchedulerConfig {
        rules: Some(Policy::LeastRequest.rules()),
        rules_by_header: Some(Policy::Weir.rules()),
        ..steps_are_shared()
    };
    let mut world = World::new(config, 1);
    for _ in 0..5 {
        world.arrive(|_| {});
    }
    let held = world.arrive(|request| request.by_header = true);
    assert_eq!((world.dispatched.len(), world.pod_of(held)), (5, None));
}
