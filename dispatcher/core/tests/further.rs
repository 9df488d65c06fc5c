//! A prompt that many share gets a further pod once the pods that have it have cost as much as that does.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Event, PodId, Policy, PromptSize, Request, SchedulerConfig, Slo, policy::Affinity,
};
use world::{World, slo, steps_are_shared};

/// Requests that a pod has room for.
const MANY: u64 = 40;

/// Of 4,000 tokens, all but the last of its blocks shared by everybody.
fn shares(who: u64, slo: Slo) -> impl FnOnce(&mut Request) {
    move |request| {
        request.prompt = PromptSize::Tokens(4000);
        request.slo = slo;
        request.blocks = (1..=249).chain([1000 + who]).collect();
    }
}

/// Sends requests one after the other, each computed before the next comes and answered for long; the first that goes elsewhere than
/// the one before, how many came before it, and both pods.
fn until_another_pod<R: FnOnce(&mut Request)>(
    world: &mut World,
    ask: impl Fn(u64) -> R,
) -> Option<(u64, [PodId; 2])> {
    let mut before = None;
    for who in 0..MANY {
        let id = world.arrive(ask(who));
        let pod = world.pod_of(id)?;
        world.send(Event::FirstToken(id));
        world.pass(Duration::from_millis(20));
        match before.replace(pod) {
            Some(last) if last != pod => return Some((who, [last, pod])),
            _ => {}
        }
    }
    None
}

fn spread(world: &World) -> u64 {
    world.scheduler.snapshot(world.now).counters.spread
}

#[test]
fn a_prompt_that_many_share_is_computed_on_a_further_pod_once_that_has_paid() {
    for slo in [slo(10_000, 1000), Slo::default()] {
        let mut world = World::new(steps_are_shared(), 2);
        let (came, [_, further]) = until_another_pod(&mut world, |who| shares(who, slo)).unwrap();
        assert!(came >= 8, "{came} are no crowd");
        assert_eq!(spread(&world), 1);
        let decisions = world.scheduler.decisions(world.now, 0, 1, |_| true);
        assert_eq!(decisions.first().map(|one| one.reason), Some("shared_prompt"));
        let next = world.arrive(shares(MANY, slo));
        assert_eq!(world.pod_of(next), Some(further), "which has it now, and less to do");
        assert_eq!(spread(&world), 1);
    }
}

#[test]
fn the_turns_of_one_conversation_are_no_crowd() {
    let mut world = World::new(steps_are_shared(), 2);
    let turn = |who: u64| {
        move |request: &mut Request| {
            request.prompt = PromptSize::Tokens(4000 + 16 * who as u32);
            request.slo = slo(10_000, 1000);
            request.blocks = (1..=250 + who).collect();
        }
    };
    assert_eq!(until_another_pod(&mut world, turn), None);
    assert_eq!(spread(&world), 0);
}

#[test]
fn nobody_starts_cold_who_would_be_late_by_it() {
    let mut world = World::new(steps_are_shared(), 2);
    world.arrive(shares(MANY, slo(10_000, 1000)));
    world.pass(Duration::from_secs(1));
    // Cold it takes 272 ms.
    assert_eq!(until_another_pod(&mut world, |who| shares(who, slo(250, 1000))), None);
}

#[test]
fn with_an_affinity_that_waits_for_no_pod_nothing_is_spread() {
    let mut rules = Policy::Weir.rules();
    rules.affinity = Affinity::None;
    let config = SchedulerConfig { rules: Some(rules), ..steps_are_shared() };
    let mut world = World::new(config, 2);
    until_another_pod(&mut world, |who| shares(who, slo(10_000, 1000)));
    assert_eq!(spread(&world), 0);
}

#[test]
fn a_pod_that_has_more_than_a_quarter_as_much_to_do_is_no_further_one() {
    for (others, goes) in [(1, true), (12, false)] {
        let mut world = World::new(steps_are_shared(), 2);
        let promised = slo(10_000, 1000);
        let first = world.arrive(shares(MANY, promised));
        world.send(Event::FirstToken(first));
        let warm = world.pod_of(first).unwrap();
        let mut elsewhere = 0;
        while elsewhere < others {
            let id = world.arrive(|request| request.slo = promised);
            world.send(Event::FirstToken(id));
            elsewhere += u64::from(world.pod_of(id) != Some(warm));
        }
        let went = until_another_pod(&mut world, |who| shares(who, promised));
        assert_eq!(went.is_some(), goes, "{others} are there");
    }
}
