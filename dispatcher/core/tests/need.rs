//! How many pods what comes needs: what comes over what the open pods hold, and the load that is held.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Band, End, EndKind, Event, NeedConfig, Phase, PodClass, PodId, Request, SchedulerConfig, Slo,
};
use world::{World, slo};

/// What a request of 1,000 tokens and an answer of 100 take of a pod whose steps take 50 ms, in seconds: 55 ms for its tokens, .75 for
/// their pairs, 2.6 for the answer's tokens and 4.62 for what they attend to, of the 36 ms that a step has left beside the 14 of an empty one.
const SECONDS: f64 = (55.0 + 0.75 + 2.6 + 4.62) / 1e3 / (1.0 - 14.0 / 50.0);

/// So many requests a second for a while, each over at once, with its tokens as late as `late` says of the number of each.
fn traffic(
    world: &mut World,
    (per_second, seconds): (u64, u64),
    late: impl Fn(u64) -> bool,
    build: impl Fn(&mut Request),
) {
    for number in 0..per_second * seconds {
        let id = world.arrive(&build);
        let end = |last_token_at| End {
            id,
            kind: EndKind::Complete,
            output_tokens: Some(100),
            events: 100,
            prompt_tokens: None,
            last_token_at,
        };
        world.send(Event::FirstToken(id));
        let took = Duration::from_millis(if late(number) { 99 * 60 } else { 99 * 10 });
        let last = world.now.plus(took);
        world.send(Event::End(end(Some(last))));
        world.now = world.now.plus(Duration::from_micros(1_000_000 / per_second));
    }
}

fn world(pods: u32) -> World {
    World::new(SchedulerConfig::default(), pods)
}

#[test]
fn load_is_the_work_of_what_comes_over_what_the_open_pods_hold() {
    let mut world = world(2);
    assert_eq!(
        (world.scheduler.need(world.now).load, world.scheduler.need(world.now).pods),
        (0.0, 0)
    );
    traffic(&mut world, (40, 600), |_| false, |_| {});
    let need = world.scheduler.need(world.now);
    let load = 40.0 * SECONDS / 2.0;
    assert!((need.load / load - 1.0).abs() < 0.02, "{need:?}, {load}");
    assert_eq!(need.load, need.load_of_all);
    assert_eq!(need.pods, (2.0 * need.load / need.held).ceil() as u32);
    world.send(Event::PodPhase(PodId(1), Phase::Draining));
    let one = world.scheduler.need(world.now);
    assert!((one.load / need.load - 2.0).abs() < 1e-9, "the one that is left has it all: {one:?}");
    assert_eq!(one.pods, need.pods);
    world.send(Event::PodPhase(PodId(0), Phase::Broken));
    assert_eq!(world.scheduler.need(world.now).pods, need.pods, "as many as if one were there");
}

#[test]
fn a_pace_that_no_pod_keeps_needs_no_more_of_them() {
    let [mut usual, mut world] = [world(2), world(2)];
    traffic(&mut usual, (10, 60), |_| false, |_| {});
    traffic(&mut world, (10, 60), |_| false, |request| request.slo = slo(2000, 1));
    assert_eq!(world.scheduler.need(world.now).load, usual.scheduler.need(usual.now).load);
}

#[test]
fn nothing_is_needed_where_nothing_came_for_a_while() {
    let mut world = world(2);
    traffic(&mut world, (10, 60), |_| false, |_| {});
    assert_eq!(world.scheduler.need(world.now).pods, 2);
    world.now = world.now.plus(Duration::from_secs(1200));
    assert_eq!(world.scheduler.need(world.now).pods, 0);
}

#[test]
fn what_may_be_shed_is_counted_apart() {
    let mut world = world(1);
    traffic(&mut world, (20, 300), |_| false, |request| request.band = Band(-1));
    let need = world.scheduler.need(world.now);
    assert_eq!((need.load, need.pods), (0.0, 0));
    assert!(need.load_of_all > 0.5 && need.pods_for_all > 0, "{need:?}");
}

#[test]
fn too_many_that_are_late_at_a_load_below_it_say_that_less_is_held() {
    let mut world = world(4);
    traffic(&mut world, (10, 900), |number| number % 20 == 0, |_| {});
    let less = world.scheduler.need(world.now);
    assert!(less.held < 0.5, "{less:?}");
    // What of it is asked again needs more pods.
    assert!(less.pods > (4.0 * less.load / 0.7).ceil() as u32, "{less:?}");
}

#[test]
fn late_requests_that_no_pod_could_serve_in_time_or_that_are_promised_nothing_say_nothing() {
    let hopeless = |request: &mut Request| request.slo = slo(2000, 5);
    let nothing = |request: &mut Request| request.slo = Slo::default();
    let sheddable = |request: &mut Request| request.band = Band(-1);
    let changes: [&dyn Fn(&mut Request); 3] = [&hopeless, &nothing, &sheddable];
    for change in changes {
        let mut world = world(4);
        traffic(&mut world, (10, 300), |_| true, change);
        assert_eq!(world.scheduler.need(world.now).held, 0.7);
    }
}

#[test]
fn it_is_not_learned_where_it_is_not_to_be_and_begins_anew_with_another_configuration() {
    let need = NeedConfig { load: 0.4, learn: false, ..NeedConfig::default() };
    let mut world = World::new(SchedulerConfig { need, ..SchedulerConfig::default() }, 4);
    traffic(&mut world, (10, 300), |number| number % 20 == 0, |_| {});
    assert_eq!(world.scheduler.need(world.now).held, 0.4);
    let learns = NeedConfig { load: 0.6, ..NeedConfig::default() };
    let config = SchedulerConfig { need: learns, ..SchedulerConfig::default() };
    world.send(Event::Reconfigure(Box::new(config)));
    assert_eq!(world.scheduler.need(world.now).held, 0.6);
}

#[test]
fn engines_behind_a_port_are_started_and_stopped_as_one() {
    let classes = vec![PodClass { data_parallel_size: 4, ..PodClass::default() }];
    let mut engines = World::new(SchedulerConfig { classes, ..SchedulerConfig::default() }, 8);
    let mut pods = world(8);
    let need = |world: &mut World| {
        traffic(world, (200, 120), |_| false, |_| {});
        world.scheduler.need(world.now)
    };
    let (engines_need, pods_need) = (need(&mut engines), need(&mut pods));
    assert_eq!(engines_need.load, pods_need.load, "each of them holds as much");
    assert!(pods_need.pods > 4, "{pods_need:?}");
    assert_eq!(engines_need.pods, pods_need.pods.div_ceil(4));
    for id in 0..8 {
        engines.send(Event::PodDown(PodId(id)));
    }
    assert_eq!(engines.scheduler.need(engines.now).pods, engines_need.pods, "without any of them");
}
