//! `pull.bind_share`: a blocked head holds lower bands back once it has waited that share of its TTFT objective, and not before.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{Band, HeadRule, PodId, PromptSize, Reason, RequestId, SchedulerConfig};
use world::{World, slo, steps_are_shared};

/// A pod with a prompt pending, and a large one of the band above that waits for it, with 20 s to its first token.
fn world(change: impl FnOnce(&mut SchedulerConfig)) -> (World, RequestId) {
    let mut config = steps_are_shared();
    (config.pull.head_rule, config.pull.bind_share) = (HeadRule::Claims, 0.1);
    change(&mut config);
    let mut world = World::new(config, 1);
    let pending = world.arrive(|_| {});
    assert_eq!(world.pod_of(pending), Some(PodId(0)));
    let large = world.arrive(|request| {
        request.band = Band(1);
        request.prompt = PromptSize::Tokens(1500);
        request.slo = slo(20_000, 50);
    });
    assert_eq!(world.scheduler.reason(large), Some(Reason::PendingFull));
    (world, large)
}

/// A small prompt that fits on the pod.
fn small(world: &mut World, band: Band) -> RequestId {
    world.arrive(|request| {
        request.band = band;
        request.prompt = PromptSize::Tokens(500);
        request.slo = slo(60_000, 50);
    })
}

#[test]
fn a_lower_band_goes_past_a_head_that_has_hardly_waited() {
    let (mut world, _) = world(|_| {});
    world.pass(Duration::from_millis(1900));
    let below = small(&mut world, Band(0));
    assert_eq!(world.pod_of(below), Some(PodId(0)));
}

#[test]
fn and_stays_behind_one_that_has_waited_a_tenth_of_its_objective() {
    let (mut world, head) = world(|_| {});
    world.pass(Duration::from_millis(2000));
    let below = small(&mut world, Band(0));
    assert_eq!(world.scheduler.reason(below), Some(Reason::BehindHead { head }));
}

#[test]
fn one_that_is_promised_no_first_token_holds_lower_bands_back_at_once() {
    let mut world = world(|_| {}).0;
    let head = world.arrive(|request| {
        request.band = Band(2);
        request.prompt = PromptSize::Tokens(1500);
        request.slo.ttft = None;
    });
    let below = small(&mut world, Band(0));
    assert_eq!(world.scheduler.reason(below), Some(Reason::BehindHead { head }));
}

#[test]
fn a_share_of_nothing_holds_lower_bands_back_at_once() {
    let (mut world, head) = world(|config| config.pull.bind_share = 0.0);
    let below = small(&mut world, Band(0));
    assert_eq!(world.scheduler.reason(below), Some(Reason::BehindHead { head }));
}

#[test]
fn a_strict_head_lets_lower_bands_go_no_later_than_one_that_claims() {
    let strict = |config: &mut SchedulerConfig| config.pull.head_rule = HeadRule::Strict;
    let (mut world, head) = world(strict);
    let above = small(&mut world, Band(1));
    assert_eq!(world.pod_of(above), None, "of its own band nothing goes past");
    let below = small(&mut world, Band(0));
    assert_eq!(world.pod_of(below), Some(PodId(0)));
    world.pass(Duration::from_millis(2000));
    let late = small(&mut world, Band(0));
    assert_eq!(world.scheduler.reason(late), Some(Reason::BehindHead { head }));
}
