//! Where pods run only so many LoRA adapters at once, a request goes where its own runs or has a slot, and they give way to each other.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use weir_core::{
    Control, EndKind, Event, Gate, Phase, PodClass, PodId, Policy, PromptSize, Reason, RequestId,
    SchedulerConfig, Scrape, Slo,
    inspect::{Supposition, Would},
};
use world::{World, steps_are_shared};

/// Pods of which each runs so many adapters at once.
fn pool(pods: u32, max_loras: u32) -> World {
    let class = PodClass { max_loras, ..PodClass::default() };
    World::new(SchedulerConfig { classes: vec![class], ..steps_are_shared() }, pods)
}

fn ask(world: &mut World, adapter: &str) -> RequestId {
    world.arrive(|request| {
        request.prompt = PromptSize::Tokens(100);
        request.adapter = (!adapter.is_empty()).then(|| Arc::from(adapter));
    })
}

/// What each pod runs, and of how many requests, with a star where it gives way.
fn running(world: &World) -> Vec<String> {
    let pods = world.scheduler.snapshot(world.now).pods.into_iter();
    let adapter = |one: &weir_core::AdapterView| {
        format!("{}{}{}", one.name, one.requests, if one.gives_way { "*" } else { "" })
    };
    pods.map(|pod| pod.adapters.iter().map(adapter).collect::<Vec<_>>().join(" ")).collect()
}

/// Lets half a minute pass, for no longer than which an adapter may keep its only slot from all others.
fn stay(world: &mut World) {
    world.pass(Duration::from_secs(30));
    let pods = world.scheduler.snapshot(world.now).pods.len() as u32;
    (0..pods).for_each(|pod| world.send(Event::Scraped(PodId(pod), Scrape::default())));
}

#[test]
fn a_request_goes_where_its_adapter_runs_or_has_a_slot_and_one_without_goes_anywhere() {
    let mut world = pool(2, 1);
    let [sql, tax] = ["sql", "tax"].map(|name| ask(&mut world, name));
    assert_ne!(world.pod_of(sql), world.pod_of(tax));
    for _ in 0..4 {
        let again = ask(&mut world, "tax");
        assert_eq!(world.pod_of(again), world.pod_of(tax));
    }
    let waits = ask(&mut world, "law");
    assert_eq!(world.scheduler.reason(waits), Some(Reason::AdaptersFull));
    let plain = ask(&mut world, "");
    assert!(world.pod_of(plain).is_some());
    let lanes = world.scheduler.snapshot(world.now).lanes;
    assert_eq!(lanes.iter().map(|lane| lane.depth).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_adapter_that_is_soonest_done_gives_way_and_comes_back_behind() {
    let mut world = pool(2, 1);
    let [sql, tax] = ["sql", "tax"].map(|name| ask(&mut world, name));
    world.send(Event::FirstToken(tax));
    stay(&mut world);
    let law = ask(&mut world, "law");
    assert_eq!(running(&world), ["sql1", "tax1*"], "tax has begun with its answer");
    let back = ask(&mut world, "tax");
    assert_eq!(world.scheduler.reason(back), Some(Reason::AdaptersFull));
    stay(&mut world);
    world.end(tax, EndKind::Complete);
    assert_eq!(world.pod_of(law), Some(PodId(1)));
    assert_eq!(running(&world), ["sql1*", "law1"], "and now one gives way to tax");
    world.end(sql, EndKind::Complete);
    assert_eq!(world.pod_of(back), Some(PodId(0)));
    assert_eq!(running(&world), ["tax1", "law1"]);
    assert_eq!(world.scheduler.snapshot(world.now).counters.adapter_turns, 2);
}

#[test]
fn where_steps_are_longer_the_same_answer_takes_longer() {
    let mut world = pool(2, 1);
    let both = ["sql", "tax"].map(|name| ask(&mut world, name));
    both.iter().for_each(|id| world.send(Event::FirstToken(*id)));
    world.send(Event::PodPhase(PodId(1), Phase::Cordoned));
    for _ in 0..20 {
        let plain = ask(&mut world, "");
        assert_eq!(world.pod_of(plain), Some(PodId(0)));
        world.send(Event::FirstToken(plain));
    }
    world.send(Event::PodPhase(PodId(1), Phase::Ready));
    stay(&mut world);
    ask(&mut world, "law");
    assert_eq!(running(&world), ["sql1", "tax1*"]);
}

#[test]
fn a_slot_that_gets_free_is_kept_for_who_waited_for_it() {
    let mut world = pool(1, 2);
    let [sql, tax] = ["sql", "tax"].map(|name| ask(&mut world, name));
    world.send(Event::FirstToken(sql));
    stay(&mut world);
    let law = ask(&mut world, "law");
    assert_eq!(running(&world), ["sql1* tax1"]);
    // The other one ends first: then nobody need give way any more.
    world.end(tax, EndKind::Complete);
    assert_eq!((world.pod_of(law), running(&world)), (Some(PodId(0)), vec!["law1 sql1".into()]));
    let ben = ask(&mut world, "ben");
    let again = ask(&mut world, "tax");
    assert_eq!(running(&world), ["law1 sql1*"], "law has only just come");
    world.end(sql, EndKind::Complete);
    assert_eq!(world.pod_of(ben), Some(PodId(0)));
    assert_eq!(world.pod_of(again), None, "it came later, and has the next");
}

#[test]
fn an_adapter_keeps_its_only_slot_for_as_long_as_changing_is_worth_it() {
    let mut world = pool(1, 1);
    let first = ask(&mut world, "sql");
    // They come in turn, and are served by adapter.
    let others = ["tax", "sql", "tax", "sql", "tax"].map(|name| ask(&mut world, name));
    assert_eq!(running(&world), ["sql3"]);
    assert_eq!(world.scheduler.reason(others[0]), Some(Reason::AdaptersFull));
    world.send(Event::FirstToken(first));
    world.end(first, EndKind::Complete);
    assert_eq!(running(&world), ["sql2"], "it is there for no longer than its answers take");
    stay(&mut world);
    assert_eq!(running(&world), ["sql2*"]);
    let late = ask(&mut world, "sql");
    [1, 3].iter().for_each(|at| world.end(others[*at], EndKind::Complete));
    assert_eq!(running(&world), ["tax3"]);
    assert_eq!(world.scheduler.reason(late), Some(Reason::AdaptersFull));
    assert_eq!(world.scheduler.snapshot(world.now).counters.adapter_turns, 1);
}

#[test]
fn nobody_gives_way_to_who_is_gone() {
    let mut world = pool(1, 1);
    ask(&mut world, "sql");
    stay(&mut world);
    let law = ask(&mut world, "law");
    assert_eq!(running(&world), ["sql1*"]);
    world.send(Event::Cancel(law));
    world.send(Event::Tick);
    let again = ask(&mut world, "sql");
    assert_eq!(world.pod_of(again), Some(PodId(0)));
    assert_eq!(running(&world), ["sql2"]);
}

/// The KV cache of a pod is full, for so many milliseconds.
fn full(world: &mut World, pod: PodId, ms: u64) {
    for _ in 0..ms / 100 {
        world.send(Event::Scraped(pod, Scrape { kv_usage: 1.0, ..Scrape::default() }));
        world.pass(Duration::from_millis(100));
    }
}

#[test]
fn an_adapter_that_waits_long_gets_a_further_slot_and_at_once_where_there_are_plenty() {
    let mut world = pool(2, 1);
    let law = ask(&mut world, "law");
    let [home, other] = [0, 1].map(PodId);
    assert_eq!(world.pod_of(law), Some(home));
    full(&mut world, home, 100);
    let more = ask(&mut world, "law");
    full(&mut world, home, 1400);
    assert_eq!(world.scheduler.reason(more), Some(Reason::KvFull), "others may come for the slot");
    full(&mut world, home, 200);
    assert_eq!(world.pod_of(more), Some(other));

    let mut world = pool(3, 1);
    ask(&mut world, "law");
    full(&mut world, home, 100);
    let more = ask(&mut world, "law");
    assert_eq!(world.pod_of(more), Some(other), "one is left for others");
    let more = ask(&mut world, "law");
    full(&mut world, other, 100);
    assert_ne!(world.pod_of(more), Some(PodId(2)));
}

#[test]
fn one_that_is_promised_nothing_waits_a_second_and_a_half_for_a_further_slot() {
    let mut world = pool(2, 1);
    ask(&mut world, "law");
    full(&mut world, PodId(0), 100);
    let more = world.arrive(|request| {
        request.adapter = Some(Arc::from("law"));
        request.slo = Slo::default();
    });
    full(&mut world, PodId(0), 1400);
    assert_eq!(world.pod_of(more), None);
    full(&mut world, PodId(0), 200);
    assert_eq!(world.pod_of(more), Some(PodId(1)));
}

#[test]
fn what_nobody_sends_is_told_where_its_adapter_would_run_and_moves_nobody() {
    let mut world = pool(1, 2);
    ask(&mut world, "sql");
    let would = |world: &mut World, adapter: &str| {
        let adapter = Some(Arc::from(adapter));
        let what = Supposition { input_tokens: 100, adapter, ..Supposition::default() };
        let supposed = world.scheduler.suppose(world.now, &what);
        (supposed.would, supposed.reason)
    };
    assert_eq!(would(&mut world, "tax"), (Would::Dispatch, "fits"));
    ask(&mut world, "tax");
    assert_eq!(would(&mut world, "tax"), (Would::Dispatch, "fits"));
    assert_eq!(would(&mut world, "law"), (Would::Wait, "adapters_full"));
    assert_eq!(running(&world), ["sql1 tax1"]);
    assert_eq!(world.scheduler.snapshot(world.now).counters.adapter_turns, 0);
}

#[test]
fn one_that_runs_elsewhere_too_gives_way_before_one_that_would_have_no_pod() {
    let mut world = pool(3, 1);
    let [sql, _] = ["sql", "tax"].map(|name| ask(&mut world, name));
    full(&mut world, PodId(1), 100);
    let tax = ask(&mut world, "tax");
    full(&mut world, PodId(1), 1600);
    assert_eq!(world.pod_of(tax), Some(PodId(2)));
    world.send(Event::FirstToken(sql));
    let law = ask(&mut world, "law");
    assert_eq!(running(&world).iter().filter(|pod| *pod == "tax1*").count(), 1);
    assert_eq!((running(&world)[0].as_str(), world.pod_of(law)), ("sql1", None));
}

#[test]
fn a_pod_that_takes_nothing_any_more_is_not_waited_for() {
    let mut world = pool(2, 1);
    let [sql, tax] = ["sql", "tax"].map(|name| ask(&mut world, name));
    world.send(Event::FirstToken(sql));
    stay(&mut world);
    let law = ask(&mut world, "law");
    assert_eq!(running(&world), ["sql1*", "tax1"]);
    world.send(Event::PodPhase(PodId(0), Phase::Cordoned));
    assert_eq!(running(&world), ["sql1*", "tax1*"]);
    world.end(tax, EndKind::Complete);
    assert_eq!(world.pod_of(law), Some(PodId(1)));
    assert_eq!(running(&world), ["sql1", "law1"]);
}

#[test]
fn a_pod_says_how_many_it_runs_and_until_then_nothing_bounds_them() {
    let mut world = pool(1, 0);
    let many: Vec<RequestId> = (0..5).map(|n| ask(&mut world, &n.to_string())).collect();
    assert!(many.iter().all(|id| world.pod_of(*id).is_some()));
    let told = Scrape { max_loras: Some(3), ..Scrape::default() };
    world.send(Event::Scraped(PodId(0), told));
    // One that does not say it any more is believed to be as it was.
    world.send(Event::Scraped(PodId(0), Scrape::default()));
    let waits = ask(&mut world, "5");
    assert_eq!(world.scheduler.reason(waits), Some(Reason::AdaptersFull));
    assert_eq!(world.scheduler.snapshot(world.now).pods[0].max_loras, Some(3));
    let sheds: Vec<RequestId> = many.into_iter().take(3).collect();
    sheds.iter().for_each(|id| world.end(*id, EndKind::Complete));
    assert_eq!(world.pod_of(waits), Some(PodId(0)));
}

#[test]
fn what_is_held_by_its_adapter_stays_so_whether_pods_have_slots_or_not() {
    let mut world = pool(1, 1);
    ask(&mut world, "sql");
    let law = ask(&mut world, "law");
    let lane = world.scheduler.name_of(world.scheduler.lanes()[0]);
    let other = |world: &mut World, max_loras: u32| {
        let told = Scrape { max_loras: Some(max_loras), ..Scrape::default() };
        world.send(Event::Scraped(PodId(0), told));
        world.pass(Duration::from_millis(10));
    };
    let gate = |world: &World, name: &str| Gate::Lane(world.scheduler.lane_called(name).unwrap());
    let by_adapter = gate(&world, &lane);
    world.send(Event::Control(Control::Pause(by_adapter)));
    other(&mut world, 0);
    assert_eq!(world.scheduler.reason(law), Some(Reason::Paused));
    let tax = ask(&mut world, "tax");
    assert!(world.pod_of(tax).is_some(), "nobody holds that one");
    world.send(Event::Control(Control::Resume(by_adapter)));
    assert_eq!(world.pod_of(law), Some(PodId(0)));

    // And what is held with all adapters.
    let of_all = gate(&world, lane.split("/a").next().unwrap());
    world.send(Event::Control(Control::Pause(of_all)));
    let ben = ask(&mut world, "ben");
    for max_loras in [4, 0] {
        other(&mut world, max_loras);
        assert_eq!(world.scheduler.reason(ben), Some(Reason::Paused), "{max_loras}");
    }
    world.send(Event::Control(Control::Resume(of_all)));
    assert!(world.pod_of(ben).is_some());
}

#[test]
fn a_policy_that_lets_nobody_wait_asks_for_no_slot() {
    let class = PodClass { max_loras: 1, ..PodClass::default() };
    let config = SchedulerConfig {
        classes: vec![class],
        policy: Policy::LeastRequest,
        ..SchedulerConfig::default()
    };
    let mut world = World::new(config, 1);
    let all = ["sql", "tax", "law"].map(|name| ask(&mut world, name));
    assert_eq!(all.map(|id| world.pod_of(id)), [Some(PodId(0)); 3]);
}

#[test]
fn a_request_without_objectives_waits_for_a_slot_too_and_gets_one() {
    let mut world = pool(1, 1);
    let sql = ask(&mut world, "sql");
    stay(&mut world);
    let law = world.arrive(|request| {
        request.adapter = Some(Arc::from("law"));
        request.slo = Slo::default();
    });
    assert_eq!(world.scheduler.reason(law), Some(Reason::AdaptersFull));
    assert_eq!(running(&world), ["sql1*"]);
    world.end(sql, EndKind::Complete);
    assert_eq!(world.pod_of(law), Some(PodId(0)));
}

#[derive(Clone, Debug)]
enum Step {
    Ask(u8, bool),
    FirstToken(u8),
    End(u8),
    Undelivered(u8),
    Cancel(u8),
    Restart(u32),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..6u8, any::<bool>()).prop_map(|(adapter, promised)| Step::Ask(adapter, promised)),
        4 => any::<u8>().prop_map(Step::FirstToken),
        5 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Undelivered),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => (0..2u32).prop_map(Step::Restart),
        3 => (1..300u16).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn no_pod_has_more_adapters_than_it_runs_and_nobody_waits_for_ever(
        pods in 1..4u32,
        max_loras in 1..4u32,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = pool(pods, max_loras);
        let mut over: Vec<RequestId> = Vec::new();
        let mut adapters: BTreeMap<RequestId, u8> = BTreeMap::new();
        let flying = |world: &World, over: &[RequestId]| {
            let ids = world.dispatched.iter().map(|one| one.id);
            ids.filter(|id| !over.contains(id)).collect::<Vec<RequestId>>()
        };
        let one_of = |all: Vec<RequestId>, which: u8| all.get(usize::from(which) % all.len().max(1)).copied();
        for step in steps {
            let some = |world: &World, which| one_of(flying(world, &over), which);
            match step {
                Step::Ask(adapter, promised) => {
                    let name = if adapter == 0 { String::new() } else { adapter.to_string() };
                    let id = world.arrive(|request| {
                        request.prompt = PromptSize::Tokens(100);
                        request.adapter = (!name.is_empty()).then(|| Arc::from(&*name));
                        if !promised {
                            request.slo = Slo::default();
                        }
                    });
                    adapters.insert(id, adapter);
                }
                Step::FirstToken(which) => {
                    some(&world, which).into_iter().for_each(|id| world.send(Event::FirstToken(id)));
                }
                Step::End(which) => {
                    if let Some(id) = some(&world, which) {
                        over.push(id);
                        world.end(id, EndKind::Complete);
                    }
                }
                Step::Undelivered(which) => {
                    if let Some(id) = some(&world, which) {
                        world.dispatched.retain(|one| one.id != id);
                        world.send(Event::Undelivered(id));
                    }
                }
                Step::Cancel(which) => {
                    let all: Vec<RequestId> = adapters.keys().copied().collect();
                    let waits = |id: &RequestId| world.scheduler.reason(*id).is_some();
                    let id = one_of(all, which).filter(waits);
                    id.into_iter().for_each(|id| world.send(Event::Cancel(id)));
                }
                Step::Restart(pod) if pod < pods => {
                    world.send(Event::PodDown(PodId(pod)));
                    world.join(pod, 1);
                }
                Step::Restart(_) => {}
                Step::Pass(ms) => world.pass(Duration::from_millis(ms.into())),
            }
            for pod in world.scheduler.snapshot(world.now).pods {
                prop_assert!(pod.adapters.len() <= max_loras as usize, "{pod:?}");
            }
        }
        // Whatever waits gets its turn as the others end.
        world.pass(Duration::from_millis(300));
        (0..pods).for_each(|pod| world.send(Event::Scraped(PodId(pod), Scrape::default())));
        world.send(Event::Tick);
        for _ in 0..1000 {
            let Some(id) = flying(&world, &over).first().copied() else { break };
            over.push(id);
            world.end(id, EndKind::Complete);
        }
        let snapshot = world.scheduler.snapshot(world.now);
        prop_assert_eq!((snapshot.waiting, snapshot.in_flight), (0, 0));
        prop_assert!(running(&world).concat().is_empty());
    }
}
