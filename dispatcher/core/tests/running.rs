//! What is shown of the requests on a pod: objectives, predictions, and the actual values so far.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use weir_core::{
    Band, EndKind, Event, Policy, Progress, REQUESTS_SHOWN, RequestId, RequestView,
    SchedulerConfig, Slo,
};
use world::{World, slo};

/// One pod that takes everything at once.
fn world() -> World {
    World::new(SchedulerConfig { policy: Policy::RoundRobin, ..SchedulerConfig::default() }, 1)
}

fn shown(world: &World) -> Vec<RequestView> {
    world.scheduler.snapshot(world.now).pods.remove(0).requests
}

#[test]
fn a_pods_requests_are_shown_by_objective_with_those_without_one_last() {
    let mut world = world();
    let loose = world.arrive(|request| request.slo = slo(4000, 100));
    let none = world.arrive(|request| request.slo = Slo::default());
    let tight = world.arrive(|request| (request.slo, request.band) = (slo(2000, 50), Band(1)));
    let as_tight = world.arrive(|request| request.slo = slo(1000, 50));
    world.send(Event::FirstToken(loose));
    let seen = shown(&world);
    assert_eq!(seen.iter().map(|one| one.id).collect::<Vec<_>>(), [tight, as_tight, loose, none]);
    assert_eq!(
        seen.iter().map(|one| one.decoding).collect::<Vec<_>>(),
        [false, false, true, false]
    );
    let objectives: Vec<_> = seen.iter().map(|one| (one.ttft_slo_ms, one.tpot_slo_ms)).collect();
    let both = |ttft, tpot| (Some(ttft), Some(tpot));
    let want = [both(2000.0, 50.0), both(1000.0, 50.0), both(4000.0, 100.0), (None, None)];
    assert_eq!(objectives, want);
    assert_eq!(seen[0].band, Band(1));
}

#[test]
fn the_actual_values_so_far_stand_beside_the_predicted_ones() {
    let mut world = world();
    let id = world.arrive(|_| {});
    assert!(world.pod_of(id).is_some() && world.refused.is_empty());
    let predicted = world.dispatched[0].prediction;
    world.pass(Duration::from_millis(60));
    let waiting = shown(&world)[0].clone();
    assert_eq!((waiting.ttft_ms, waiting.tpot_ms, waiting.tokens), (Some(60.0), None, 0));
    assert_eq!(waiting.predicted_ttft_ms, predicted.ttft_ms.p50);
    assert_eq!(waiting.predicted_tpot_ms, predicted.tpot_ms.p50);

    world.send(Event::FirstToken(id));
    assert_eq!(shown(&world)[0].tpot_ms, None, "one token has no pace");
    world.pass(Duration::from_millis(200));
    world.send(Event::Progress(Progress { events: vec![(id, 11)], pulses: vec![] }));
    let running = shown(&world)[0].clone();
    assert_eq!(world.strides.load(Relaxed), 0, "no step was seen to end");
    assert_eq!((running.ttft_ms, running.tpot_ms, running.tokens), (Some(60.0), Some(20.0), 11));

    world.end(id, EndKind::Complete);
    assert_eq!(shown(&world), []);
    assert_eq!(world.samples[0].ttft_ms, Some(60.0), "the sample says the same");
}

#[test]
fn a_response_that_is_not_streamed_has_no_actual_values() {
    let mut world = world();
    world.arrive(|request| request.streamed = false);
    world.pass(Duration::from_secs(2));
    let seen = shown(&world)[0].clone();
    assert!(seen.decoding && !seen.streamed, "its first token is assumed");
    assert_eq!((seen.ttft_ms, seen.tpot_ms, seen.tokens), (None, None, 0));
}

#[test]
fn of_many_requests_those_with_the_tightest_objectives_are_shown() {
    let mut world = world();
    for tpot_ms in (1..=200).rev() {
        world.arrive(|request| request.slo = slo(60_000, tpot_ms));
    }
    let seen = shown(&world);
    let tightest = (1..=REQUESTS_SHOWN).map(|tpot_ms| Some(tpot_ms as f64)).collect::<Vec<_>>();
    assert_eq!(seen.iter().map(|one| one.tpot_slo_ms).collect::<Vec<_>>(), tightest);
    assert_eq!(seen[0].id, RequestId(199));
    let pod = &world.scheduler.snapshot(world.now).pods[0];
    assert_eq!(pod.pending + pod.residents, 200, "the counts are of all");
}
