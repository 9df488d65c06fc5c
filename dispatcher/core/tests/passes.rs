//! A blocked head lets those of its band pass that fit while requests wait for long, or while it is promised nothing and not due.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Band, EndKind, Event, Phase, PodId, PromptSize, Reason, RequestId, SchedulerConfig, Slo,
};
use world::{World, steps_are_shared};

const PODS: [PodId; 2] = [PodId(0), PodId(1)];

fn world(config: SchedulerConfig) -> World {
    World::new(config, 2)
}

/// Requests that wait for three quarters of what they have.
fn strain(world: &mut World) {
    let phase = |world: &mut World, phase| PODS.map(|pod| world.send(Event::PodPhase(pod, phase)));
    for _ in 0..100 {
        phase(world, Phase::Cordoned);
        let id = world.arrive(|_| {});
        world.pass(Duration::from_millis(1500));
        phase(world, Phase::Ready);
        assert!(world.pod_of(id).is_some());
        world.end(id, EndKind::Complete);
    }
    assert!(world.scheduler.snapshot(world.now).spent_share > 0.5);
}

/// A prompt of 1,000 tokens pending on each pod, and a head that no longer fits there.
fn blocked(world: &mut World, slo: Option<Slo>, tokens: u32) -> RequestId {
    let mut one = |tokens: u32| {
        world.arrive(|request| {
            request.prompt = PromptSize::Tokens(tokens);
            request.slo = slo.unwrap_or(request.slo);
        })
    };
    let pending = [0; 2].map(|_| one(1000));
    let head = one(tokens);
    assert_eq!(pending.map(|id| world.pod_of(id)), PODS.map(Some));
    assert_eq!(world.scheduler.reason(head), Some(Reason::PendingFull));
    head
}

/// Whether a prompt goes that would fit and is more than half as large as the head.
fn goes(world: &mut World, slo: Option<Slo>, (tokens, band): (u32, Band)) -> bool {
    let id = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(tokens);
        request.slo = slo.unwrap_or(request.slo);
        request.band = band;
    });
    world.pod_of(id).is_some()
}

#[test]
fn a_head_is_passed_while_requests_wait_for_long() {
    let own = (900, Band::default());
    let mut calm = world(steps_are_shared());
    blocked(&mut calm, None, 1500);
    assert!(!goes(&mut calm, None, own));

    let mut strained = world(steps_are_shared());
    strain(&mut strained);
    blocked(&mut strained, None, 1500);
    assert!(!goes(&mut strained, None, (100, Band(-1))), "nobody of a lower band");
    assert!(goes(&mut strained, None, own));

    let mut config = steps_are_shared();
    config.pull.hold_share = 1.0;
    let mut always = world(config);
    strain(&mut always);
    blocked(&mut always, None, 1500);
    assert!(!goes(&mut always, None, own));
}

#[test]
fn a_head_that_is_promised_nothing_is_passed_until_it_is_due() {
    let none = Some(Slo::default());
    let own = (3000, Band::default());
    let mut world = world(steps_are_shared());
    let head = blocked(&mut world, none, 4200);
    assert!(!goes(&mut world, none, (100, Band(-1))), "nobody of a lower band");
    // It is due after 24.7 s.
    world.pass(Duration::from_secs(20));
    assert!(goes(&mut world, none, own));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.scheduler.reason(head), Some(Reason::PendingFull));
    assert!(!goes(&mut world, none, own));
}
