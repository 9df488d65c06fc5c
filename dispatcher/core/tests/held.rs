//! Policies that hold: flow control and Llumnix's filters.

mod posed;
#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use posed::{changed, preset, scraped};
use weir_core::{
    Band, EndKind, Event, Phase, PodId, Policy, PromptSize, Reason, RefusalReason, SchedulerConfig,
    decide::failover::{Domain, Place},
    policy::{Detector, Filter, UsageLimit},
};
use world::{World, slo};

/// llm-d, flow control: dispatch while saturation < 1; slo-deadline-ordering-policy.
#[test]
fn flow_control_holds_while_the_pool_is_saturated_and_goes_by_deadline() {
    let mut world = preset(Policy::FlowControl, 1);
    scraped(&mut world, 0, 5, 0.0);
    let relaxed = world.arrive(|request| request.slo = slo(9000, 100));
    let urgent = world.arrive(|request| request.slo = slo(3000, 100));
    let never = world.arrive(|request| request.slo = weir_core::Slo::default());
    assert!(world.dispatched.is_empty());
    let reason = world.scheduler.reason(urgent);
    assert!(matches!(reason, Some(Reason::PoolSaturated { saturation }) if saturation >= 1.0));
    scraped(&mut world, 0, 0, 0.0);
    world.pass(Duration::from_millis(10));
    let order: Vec<_> = world.dispatched.iter().map(|one| one.id).collect();
    assert_eq!(order, [urgent, relaxed, never], "the one without a deadline goes last");
}

/// llm-d, R#2066: the gate leaks between two scrapes; here what was sent counts at once.
#[test]
fn flow_control_does_not_leak_between_two_scrapes() {
    let mut world = preset(Policy::FlowControl, 2);
    scraped(&mut world, 0, 0, 0.0);
    scraped(&mut world, 1, 0, 0.0);
    for _ in 0..100 {
        world.arrive(|_| {});
    }
    assert_eq!(world.dispatched.len(), 12, "five queued behind the one that is computed, per pod");
}

/// llm-d, concurrency-detector: requests in flight over maxConcurrency, the mean over pods. R#1474 reads
/// 0.0 for ever there, R#2060 sticks at 1.0 with two pods or more.
#[test]
fn the_concurrency_detector_counts_what_is_in_flight_and_nothing_else() {
    let mut world = changed(Policy::FlowControl, 2, |rules| {
        if let Some(Filter::Saturation { detector, max_concurrency, .. }) =
            rules.filters.first_mut()
        {
            (*detector, *max_concurrency) = (Detector::Concurrency, 3);
        }
    });
    scraped(&mut world, 0, 50, 0.99);
    scraped(&mut world, 1, 50, 0.99);
    let ids: Vec<_> = (0..8).map(|_| world.arrive(|_| {})).collect();
    assert_eq!(world.dispatched.len(), 6, "three on each of two pods, whatever a scrape says");
    assert_eq!(world.scheduler.reason(ids[6]), Some(Reason::PoolSaturated { saturation: 1.0 }));
    let shares = world.scheduler.snapshot(world.now).pods;
    assert_eq!(shares.iter().map(|pod| pod.pending).collect::<Vec<_>>(), [3, 3]);
    world.send(Event::FirstToken(ids[0]));
    assert_eq!(world.dispatched.len(), 6, "a first token ends nothing");
    world.end(ids[0], EndKind::Complete);
    assert_eq!((world.dispatched.len(), world.pod_of(ids[7])), (7, None));
    assert!(world.pod_of(ids[6]).is_some());
}

/// llm-d, R#2173: "unweighted average hides a hot pod".
#[test]
fn a_full_pod_gets_nothing_though_the_mean_of_the_pool_has_room() {
    let blocks: Arc<[u64]> = (1..=60).collect();
    let mut world = preset(Policy::FlowControl, 2);
    let first = world.arrive(|request| request.blocks = blocks.clone());
    let warm = world.pod_of(first).unwrap();
    world.send(Event::FirstToken(first));
    world.end(first, EndKind::Complete);
    scraped(&mut world, warm.0, 6, 0.0);
    scraped(&mut world, 1 - warm.0, 0, 0.0);
    let next = world.arrive(|request| request.blocks = blocks.clone());
    assert_eq!(world.pod_of(next), Some(PodId(1 - warm.0)), "the mean is 0.6, its own is 1.2");
}

/// llm-d: "Between bands: strict priority, stop at first gated band"; priority-holdback.
#[test]
fn a_band_above_its_ceiling_leaves_the_rest_of_the_pool_to_those_above() {
    let held_back = UsageLimit::PriorityHoldback { min_ceiling: 0.4, max_ceiling: 0.9 };
    for (now, goes) in [(UsageLimit::Static, true), (held_back, false)] {
        let mut world = changed(Policy::FlowControl, 1, |rules| {
            if let Some(Filter::Saturation { limit, .. }) = rules.filters.first_mut() {
                *limit = now;
            }
        });
        scraped(&mut world, 0, 3, 0.0);
        // It could not be delivered to the only pod, and waits for another one.
        let high = world.arrive(|request| request.band = Band(1));
        world.send(Event::Undelivered(high));
        let low = world.arrive(|request| request.band = Band(0));
        assert_eq!(world.pod_of(low).is_some(), goes, "0.4 < 0.6 < 1");
        let saturated = matches!(world.scheduler.reason(low), Some(Reason::PoolSaturated { .. }));
        assert_eq!(saturated, !goes);
        world.send(Event::Cancel(high));
        assert!(world.pod_of(low).is_some(), "alone it is the highest: 0.6 < 0.9");
    }
}

/// Llumnix: "predicted_ttft < TtftSlo * TtftSloDispatchThreshold"; ErrorNoAvailableEndpoint is polled
/// there, here the request waits in its lane.
#[test]
fn without_an_available_pod_a_request_waits_in_its_lane_and_goes_when_one_is() {
    let mut world = preset(Policy::LlumnixSlo, 1);
    let first = world.arrive(|request| request.slo = slo(1000, 1000));
    let parked = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(10_000);
        request.slo = slo(850, 1000);
    });
    assert_eq!(world.pod_of(first), Some(PodId(0)));
    assert_eq!(world.scheduler.reason(parked), Some(Reason::LatencyOverThreshold));
    world.send(Event::FirstToken(first));
    assert_eq!(world.pod_of(parked), Some(PodId(0)));
}

#[test]
fn one_that_cannot_be_served_in_time_any_more_is_refused_and_holds_up_nobody() {
    let mut world = preset(Policy::LlumnixSlo, 1);
    let parked = world.arrive(|request| request.slo = slo(1, 1000));
    assert_eq!((world.refused[0].id, world.refused[0].reason), (parked, RefusalReason::Hopeless));
    let tight = world.arrive(|request| request.slo = slo(9000, 1));
    assert_eq!(world.scheduler.reason(tight), Some(Reason::LatencyOverThreshold));
    let easy = world.arrive(|_| {});
    assert_eq!(world.pod_of(easy), Some(PodId(0)), "nothing waits in order here");
}

/// Llumnix, metricBasedSelector: lowest; map-order ties there.
#[test]
fn of_pods_with_the_same_latency_always_the_same_one_is_taken() {
    for _ in 0..20 {
        let mut world = preset(Policy::LlumnixSlo, 4);
        let pods: Vec<_> = (0..4)
            .map(|_| {
                let id = world.arrive(|_| {});
                let pod = world.pod_of(id).unwrap().0;
                world.send(Event::FirstToken(id));
                world.end(id, EndKind::Complete);
                pod
            })
            .collect();
        assert_eq!(pods, [0, 1, 2, 3], "of equals the one that was given fewer, then the first");
    }
}

/// Llumnix: staleness and failover filters together.
#[test]
fn a_stale_pod_and_all_of_its_unit_are_left_out() {
    let place = |unit: &str| Place { node: Arc::from(""), unit: Arc::from(unit) };
    let places = [("pod-0", "a"), ("pod-1", "a"), ("pod-2", "b")];
    let places = places.map(|(pod, unit)| (Arc::from(pod), place(unit))).into();
    let config =
        SchedulerConfig { policy: Policy::LlumnixSlo, places, ..SchedulerConfig::default() };
    let mut world = World::new(config, 3);
    scraped(&mut world, 0, 0, 0.0);
    world.now = world.now.plus(Duration::from_millis(60_001));
    scraped(&mut world, 1, 0, 0.0);
    scraped(&mut world, 2, 0, 0.0);
    for _ in 0..3 {
        let id = world.arrive(|_| {});
        assert_eq!(world.pod_of(id), Some(PodId(2)));
        world.send(Event::FirstToken(id));
    }
    world.send(Event::PodPhase(PodId(2), Phase::Broken));
    let waiting = world.arrive(|_| {});
    assert_eq!(world.scheduler.reason(waiting), Some(Reason::FailureDomain));
    scraped(&mut world, 0, 0, 0.0);
    world.pass(Duration::from_millis(10));
    assert_eq!(world.pod_of(waiting), Some(PodId(0)));
}

/// Llumnix: --failover-domain; a broken pod takes its node along.
#[test]
fn a_broken_pod_takes_its_node_along_only_if_the_domain_says_so() {
    let place = || Place { node: Arc::from("n"), unit: Arc::from("") };
    for (domain, served) in [(Domain::Instance, true), (Domain::Node, false)] {
        let mut rules = Policy::LeastRequest.rules();
        rules.filters = vec![Filter::Failover { domain }];
        let places = ["pod-0", "pod-1"].map(|pod| (Arc::from(pod), place())).into();
        let config = SchedulerConfig { rules: Some(rules), places, ..SchedulerConfig::default() };
        let mut world = World::new(config, 2);
        world.send(Event::PodPhase(PodId(0), Phase::Broken));
        let id = world.arrive(|_| {});
        assert_eq!(world.pod_of(id).is_some(), served, "{domain:?}");
    }
}
