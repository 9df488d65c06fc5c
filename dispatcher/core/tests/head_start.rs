//! A long prompt is due sooner than by its deadline alone, while requests hardly wait.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{EndKind, Event, Phase, PodId, PromptSize, Reason, SchedulerConfig, policy::Order};
use world::{World, slo, steps_are_shared};

const POD: PodId = PodId(0);

/// A pool of one pod with rules of its own order.
fn world(order: Order) -> World {
    let config = steps_are_shared();
    let mut rules = config.rules();
    rules.order = order;
    World::new(SchedulerConfig { rules: Some(rules), ..config }, 1)
}

/// Which of two goes first when the pod gets free: a long prompt, or a short one that is due a fifth of a second sooner.
fn first(world: &mut World) -> &'static str {
    // What came before does not count in the rate of prompts.
    world.pass(Duration::from_secs(60));
    let busy = [0; 2].map(|_| world.arrive(|_| {}));
    assert_eq!(busy.map(|id| world.pod_of(id)), [Some(POD); 2], "its buffer is full");
    let mut wait = |tokens: u32, ttft_ms: u64| {
        let id = world.arrive(|request| {
            request.prompt = PromptSize::Tokens(tokens);
            request.slo = slo(ttft_ms, 1000);
        });
        assert_ne!(world.scheduler.reason(id), None, "it waits");
        id
    };
    let (long, short) = (wait(8000, 5000), wait(100, 4800));
    let begin = world.dispatched.len();
    busy.iter().for_each(|id| world.end(*id, EndKind::Complete));
    let mut order = Vec::new();
    while let Some(id) = world.dispatched.get(begin + order.len()).map(|one| one.id) {
        world.end(id, EndKind::Complete);
        order.push(id);
    }
    if order == [long, short] { "long" } else { "short" }
}

/// Requests that wait for three quarters of what they have.
fn strain(world: &mut World, requests: usize) {
    for _ in 0..requests {
        world.send(Event::PodPhase(POD, Phase::Cordoned));
        let id = world.arrive(|_| {});
        assert_eq!(world.scheduler.reason(id), Some(Reason::NoPodReady));
        world.pass(Duration::from_millis(1500));
        world.send(Event::PodPhase(POD, Phase::Ready));
        assert_eq!(world.pod_of(id), Some(POD));
        world.end(id, EndKind::Complete);
    }
}

#[test]
fn a_long_prompt_goes_before_a_short_one_that_is_due_little_sooner() {
    assert_eq!(first(&mut world(Order::HeadStart)), "long");
    assert_eq!(first(&mut world(Order::Deadline)), "short");
}

#[test]
fn under_strain_the_deadline_alone_counts_and_after_it_the_head_start_is_back() {
    let mut world = world(Order::HeadStart);
    strain(&mut world, 100);
    assert!(world.scheduler.snapshot(world.now).spent_share > 0.5);
    assert_eq!(first(&mut world), "short");
    for _ in 0..300 {
        let id = world.arrive(|_| {});
        world.end(id, EndKind::Complete);
    }
    assert!(world.scheduler.snapshot(world.now).spent_share < 0.01);
    assert_eq!(first(&mut world), "long");
}

#[test]
fn what_is_refused_while_it_waits_strains_too() {
    let mut world = world(Order::HeadStart);
    world.send(Event::PodPhase(POD, Phase::Cordoned));
    let before = world.scheduler.snapshot(world.now).spent_share;
    world.arrive(|request| request.expires = request.arrived.plus(Duration::from_secs(1)));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.refused.len(), 1);
    assert!(world.scheduler.snapshot(world.now).spent_share > before);
}

/// How many residents a prompt may cost their pace that has waited for 300 of its 2,000 ms.
fn bearable(world: &mut World, tokens: u32) -> f64 {
    // What answers with the first token of the last one is early in an answer that is to keep a tight pace.
    let resident = world.arrive(|request| request.slo = slo(2000, 20));
    world.pass(Duration::from_millis(100));
    world.send(Event::FirstToken(resident));
    let id = world.arrive(|request| request.prompt = PromptSize::Tokens(tokens));
    world.pass(Duration::from_millis(300));
    match world.scheduler.reason(id) {
        Some(Reason::StallOverBudget { bearable, .. }) => bearable,
        _ => f64::NAN,
    }
}

#[test]
fn what_a_prompt_takes_is_no_part_of_the_time_in_which_it_becomes_urgent() {
    let [eager, patient] = [Order::HeadStart, Order::Deadline];
    let of = |order, tokens| bearable(&mut world(order), tokens);
    // A prompt of 20,000 tokens takes more than a second there.
    assert!(of(eager, 20_000) > 3.0 * of(patient, 20_000));
    assert!(of(eager, 20_000) > 3.0 * of(eager, 1000));
    assert_eq!(of(patient, 20_000), of(patient, 1000));
    let mut strained = world(eager);
    strain(&mut strained, 100);
    assert!((bearable(&mut strained, 20_000) - of(patient, 20_000)).abs() < 0.005);
}
