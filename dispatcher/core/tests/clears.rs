//! A pod gets clear for a large prompt: smaller ones that come first use the others while they fit there.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use weir_core::{Band, Event, HeadRule, Phase, PodId, PromptSize, Reason, RequestId};
use world::{World, slo, steps_are_shared};

const CLAIMED: PodId = PodId(0);
const OTHER: PodId = PodId(1);

/// Two pods with a prompt pending on each, and a large one of a band that waits for the first of them with much time left.
fn world(band: Band) -> World {
    let mut config = steps_are_shared();
    config.pull.head_rule = HeadRule::Claims;
    let mut world = World::new(config, 2);
    let pending = [0; 2].map(|_| world.arrive(|_| {}));
    assert_eq!(pending.map(|id| world.pod_of(id)), [Some(CLAIMED), Some(OTHER)]);
    let large = world.arrive(|request| {
        request.band = band;
        request.prompt = PromptSize::Tokens(1500);
        request.slo = slo(20_000, 50);
    });
    assert_eq!(world.scheduler.reason(large), Some(Reason::PendingFull));
    world
}

/// A prompt that fits on both pods and is due first.
fn prompt(world: &mut World, tokens: u32) -> RequestId {
    world.arrive(|request| request.prompt = PromptSize::Tokens(tokens))
}

#[test]
fn a_small_prompt_that_comes_first_leaves_the_claimed_pod_alone() {
    let mut world = world(Band::default());
    let small = prompt(&mut world, 500);
    assert_eq!(world.pod_of(small), Some(OTHER));
}

#[test]
fn it_is_not_held_back_where_it_fits_on_no_other() {
    let mut world = world(Band::default());
    world.send(Event::PodPhase(OTHER, Phase::Cordoned));
    let small = prompt(&mut world, 500);
    assert_eq!(world.pod_of(small), Some(CLAIMED));
}

#[test]
fn one_that_is_not_much_smaller_goes_where_it_likes() {
    let mut world = world(Band::default());
    let next = prompt(&mut world, 900);
    assert_eq!(world.pod_of(next), Some(CLAIMED));
}

#[test]
fn one_of_a_higher_band_goes_where_it_likes() {
    let mut world = world(Band(-1));
    let small = prompt(&mut world, 500);
    assert_eq!(world.pod_of(small), Some(CLAIMED));
}
