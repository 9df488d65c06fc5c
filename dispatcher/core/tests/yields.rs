//! Who can wait leaves memory to who cannot: a lower band, and what is late already.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Band, Control, Event, PodClass, PodId, PromptSize, PullConfig, Reason, RequestId,
    SchedulerConfig, Scrape,
};
use world::{World, slo};

const HIGH: Band = Band(1);
const LOW: Band = Band(-1);

/// A pod whose cache is filled to a share, with a request of a band on it.
fn world(kv_usage: f32, band: Band, pull: PullConfig) -> World {
    let mut world = World::new(SchedulerConfig { pull, ..SchedulerConfig::default() }, 1);
    let first = world.arrive(|request| request.band = band);
    world.send(Event::FirstToken(first));
    fill(&mut world, kv_usage);
    world
}

fn fill(world: &mut World, kv_usage: f32) {
    let scrape = Scrape { kv_usage, running: 1, ..Scrape::default() };
    (0..3).for_each(|_| world.send(Event::Scraped(PodId(0), scrape)));
}

/// Long enough that nothing else holds it back: it may be late, and its pace may be anything.
fn patient(world: &mut World, band: Band) -> RequestId {
    world.arrive(|request| (request.band, request.slo) = (band, slo(30_000, 500)))
}

#[test]
fn a_lower_band_leaves_room_in_the_cache_beside_a_higher_one() {
    let mut world = world(0.8, HIGH, PullConfig::default());
    let low = patient(&mut world, LOW);
    assert_eq!(world.scheduler.reason(low), Some(Reason::KvKept));
    let high = patient(&mut world, HIGH);
    assert!(world.pod_of(high).is_some(), "the higher band uses what is left");
    world.send(Event::FirstToken(high));
    fill(&mut world, 0.3);
    world.pass(Duration::from_millis(20));
    assert!(world.pod_of(low).is_some(), "and the lower one what is not needed");
}

#[test]
fn a_band_fills_the_cache_where_there_is_no_higher_one() {
    for resident in [LOW, Band(-2)] {
        let mut world = world(0.8, resident, PullConfig::default());
        let low = patient(&mut world, LOW);
        assert!(world.pod_of(low).is_some(), "beside band {resident:?}");
    }
}

#[test]
fn nothing_is_left_where_the_share_is_one() {
    let pull = PullConfig { yield_share: 1.0, ..PullConfig::default() };
    let mut world = world(0.8, HIGH, pull);
    let low = patient(&mut world, LOW);
    assert!(world.pod_of(low).is_some());
}

#[test]
fn what_is_moved_to_a_higher_band_has_no_one_to_give_way_to() {
    let mut world = world(0.8, HIGH, PullConfig::default());
    let low = patient(&mut world, LOW);
    assert_eq!(world.scheduler.reason(low), Some(Reason::KvKept));
    world.send(Event::Control(Control::Move(low, HIGH)));
    assert!(world.pod_of(low).is_some());
}

#[test]
fn what_is_late_leaves_room_for_those_that_can_be_in_time() {
    let mut world = world(0.8, HIGH, PullConfig::default());
    let late = world.arrive(|request| (request.band, request.slo) = (HIGH, slo(1, 500)));
    world.pass(Duration::from_millis(20));
    assert_eq!(world.pod_of(late), None);
    let soon = patient(&mut world, HIGH);
    assert!(world.pod_of(soon).is_some());
    fill(&mut world, 0.3);
    world.pass(Duration::from_millis(100));
    assert!(world.pod_of(late).is_some(), "it goes where there is plenty");
}

#[test]
fn what_is_late_leaves_room_for_the_prompts_of_those_that_can_be_in_time() {
    let small = PodClass { chunk_tokens: 512, ..PodClass::default() };
    let config = SchedulerConfig { classes: vec![small], ..SchedulerConfig::default() };
    let mut world = World::new(config, 1);
    let asks = |world: &mut World, tokens, ttft_ms| {
        world.arrive(|request| {
            (request.prompt, request.slo) = (PromptSize::Tokens(tokens), slo(ttft_ms, 200));
        })
    };
    let first = asks(&mut world, 1800, 2000);
    assert!(world.pod_of(first).is_some());
    let late = asks(&mut world, 500, 1);
    world.pass(Duration::from_millis(20));
    assert_eq!((world.pod_of(late), world.scheduler.reason(late)), (None, Some(Reason::Late)));
    let soon = asks(&mut world, 500, 2000);
    assert!(world.pod_of(soon).is_some());
    world.send(Event::FirstToken(first));
    world.send(Event::FirstToken(soon));
    assert!(world.pod_of(late).is_some(), "it goes once little is pending");
}
