//! Prompts that no engine computes, requests that nobody serves, and pauses: what is left of them says nothing to others.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    Band, Control, EndKind, Event, Gate, Phase, PodClass, PodId, PodSpec, PromptSize, Reason,
    RequestId, SchedulerConfig, Scrape, Slo, queue::LaneKey,
};
use world::{World, slo, steps_are_shared};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An engine refuses a prompt that is too long as soon as it has read it.
fn refused_by_its_engine(world: &mut World, tokens: u32) {
    let id = world.arrive(|request| {
        (request.prompt, request.slo) = (PromptSize::Tokens(tokens), Slo::default());
        request.blocks = (0..u64::from(tokens) / 16).map(|block| 77_000_000_000 + block).collect();
    });
    assert!(world.pod_of(id).is_some(), "for its engine to say so");
    world.pass(ms(10));
    world.end(id, EndKind::PodError);
}

#[test]
fn a_prompt_that_an_engine_refuses_slows_nobody_down() {
    let longest_wait = |refused: bool| {
        let mut world = World::new(SchedulerConfig::default(), 4);
        let mut streams: Vec<(RequestId, u32)> = Vec::new();
        for step in 0..300_u32 {
            if refused && step == 150 {
                refused_by_its_engine(&mut world, 400_000);
            }
            let id = world.arrive(|request| {
                request.prompt = PromptSize::Tokens(800);
                (request.max_output_tokens, request.slo) = (Some(300), slo(2000, 30));
            });
            streams.push((id, 0));
            world.pass(ms(100));
            for (id, tokens) in &mut streams {
                if *tokens == 0 && world.pod_of(*id).is_some() {
                    world.send(Event::FirstToken(*id));
                }
                *tokens += 6 * u32::from(world.pod_of(*id).is_some());
            }
            let events = streams.iter().filter(|(_, tokens)| *tokens > 0).copied().collect();
            world.send(Event::Progress(weir_core::Progress { events, pulses: vec![] }));
            streams.retain(|(id, tokens)| {
                let over = *tokens >= 300;
                if over {
                    world.end(*id, EndKind::Complete);
                }
                !over
            });
        }
        world.dispatched.iter().map(|one| one.waited).max().unwrap()
    };
    assert_eq!(longest_wait(true), longest_wait(false));
}

#[test]
fn a_prompt_that_no_cache_holds_makes_nobody_forget_what_is_cached() {
    let mut world = World::new(SchedulerConfig::default(), 1);
    let kept = |world: &mut World| {
        let before = world.scheduler.snapshot(world.now).pods[0].cached_tokens;
        let id = world.arrive(|request| {
            request.prompt = PromptSize::Tokens(10_000);
            (request.blocks, request.slo) = ((0..312).collect::<Arc<[u64]>>(), Slo::default());
        });
        world.pass(ms(1000));
        world.send(Event::FirstToken(id));
        world.end(id, EndKind::Complete);
        world.scheduler.snapshot(world.now).pods[0].cached_tokens - before
    };
    assert_eq!(kept(&mut world), 0);
    let again = kept(&mut world);
    assert!(again > 9000, "{again}");
    refused_by_its_engine(&mut world, 400_000);
    assert_eq!(kept(&mut world), again);
}

/// Three pods with seven tenths of their caches full, and one more that is as `fourth` says; a long prompt without objectives that
/// has no room there waits. The longest that small requests wait meanwhile.
fn longest_wait_beside_a_long_prompt(fourth: impl FnOnce(&mut World) -> RequestId) -> Duration {
    let small = PodClass { name: "small".into(), kv_blocks: 5000, ..PodClass::default() };
    let classes = vec![PodClass::default(), small];
    let mut world = World::new(SchedulerConfig { classes, ..SchedulerConfig::default() }, 3);
    for pod in 0..3 {
        for other in 0..3 {
            let phase = if other == pod { Phase::Ready } else { Phase::Cordoned };
            world.send(Event::PodPhase(PodId(other), phase));
        }
        let resident = world.arrive(|request| {
            (request.slo, request.max_output_tokens) = (Slo::default(), None);
        });
        world.pass(ms(100));
        world.send(Event::FirstToken(resident));
        world.send(Event::PodPhase(PodId(pod), Phase::Cordoned));
    }
    scrape(&mut world);
    let big = fourth(&mut world);
    open(&mut world);
    world.pass(ms(500));
    assert!(world.scheduler.reason(big).is_some(), "it waits");
    let mut longest = Duration::ZERO;
    for _ in 0..100 {
        let id = world.arrive(|request| {
            (request.slo, request.prompt) = (Slo::default(), PromptSize::Tokens(100));
        });
        world.pass(ms(200));
        let went = world.dispatched.iter().find(|one| one.id == id).map(|one| one.waited);
        longest = longest.max(went.unwrap_or(ms(200)));
        world.send(Event::FirstToken(id));
        world.end(id, EndKind::Complete);
        scrape(&mut world);
    }
    longest
}

fn scrape(world: &mut World) {
    for pod in 0..3 {
        let full = Scrape { kv_usage: 0.7, running: 5, ..Scrape::default() };
        world.send(Event::Scraped(PodId(pod), full));
    }
}

fn open(world: &mut World) {
    (0..3).for_each(|pod| world.send(Event::PodPhase(PodId(pod), Phase::Ready)));
}

fn long_prompt(world: &mut World) -> RequestId {
    world.arrive(|request| {
        (request.slo, request.prompt) = (Slo::default(), PromptSize::Tokens(120_000));
    })
}

#[test]
fn a_request_that_may_not_use_every_pod_keeps_no_more_of_them_than_another() {
    assert_eq!(longest_wait_beside_a_long_prompt(long_prompt), Duration::ZERO, "to compare with");
    let joins = |world: &mut World, class| {
        world.send(Event::PodUp(PodSpec {
            id: PodId(3),
            name: "fourth".into(),
            class,
            group: None,
        }));
    };
    let failed = |gone: bool| {
        move |world: &mut World| {
            joins(world, 0);
            let big = long_prompt(world);
            assert_eq!(world.pod_of(big), Some(PodId(3)));
            world.send(Event::PodPhase(PodId(3), Phase::Broken));
            if gone {
                world.send(Event::PodDown(PodId(3)));
            }
            world.send(Event::Undelivered(big));
            big
        }
    };
    assert_eq!(longest_wait_beside_a_long_prompt(failed(false)), Duration::ZERO);
    assert_eq!(longest_wait_beside_a_long_prompt(failed(true)), Duration::ZERO);
    let too_small = |phase| {
        move |world: &mut World| {
            open(world);
            joins(world, 1);
            world.send(Event::PodPhase(PodId(3), phase));
            long_prompt(world)
        }
    };
    assert_eq!(longest_wait_beside_a_long_prompt(too_small(Phase::Cordoned)), Duration::ZERO);
    assert_eq!(longest_wait_beside_a_long_prompt(too_small(Phase::Ready)), Duration::ZERO);
}

#[test]
fn what_runs_on_a_pod_that_comes_back_under_another_number_runs_on_there() {
    let mut world = World::new(SchedulerConfig::default(), 2);
    let ids = [0, 1].map(|_| world.arrive(|request| request.slo = Slo::default()));
    world.pass(ms(50));
    ids.into_iter().for_each(|id| world.send(Event::FirstToken(id)));
    let pods = |world: &World| world.scheduler.snapshot(world.now).pods;
    let of = |world: &World, name: &str| {
        let pod = pods(world).into_iter().find(|pod| pod.name == name).unwrap();
        (pod.residents, pod.kv_tokens)
    };
    let before = of(&world, "pod-0");
    assert_eq!(before.0, 1);
    world.send(Event::PodDown(PodId(0)));
    world.send(Event::PodUp(PodSpec { id: PodId(7), name: "pod-0".into(), class: 0, group: None }));
    assert_eq!(of(&world, "pod-0").0, 0);
    world.scheduler.carry_over(PodId(0), PodId(7));
    assert_eq!(of(&world, "pod-0"), before);
    ids.into_iter().for_each(|id| world.end(id, EndKind::Complete));
    assert!(pods(&world).iter().all(|pod| (pod.residents, pod.kv_tokens) == (0, 0)));
    assert_eq!(world.samples.len(), 1, "the other one's row may be of another class");
}

#[test]
fn what_is_paused_constrains_nobody() {
    let lane = LaneKey::parse("b5/i1024/o256", &SchedulerConfig::default().buckets).unwrap();
    for gate in [Gate::Band(Band(5)), Gate::Lane(lane), Gate::Pool] {
        let mut world = World::new(steps_are_shared(), 1);
        let both = |world: &mut World, slo: Slo| {
            [1000, 2000].map(|tokens| {
                let prompt = PromptSize::Tokens(tokens);
                let id = world.arrive(|request| (request.prompt, request.slo) = (prompt, slo));
                world.pod_of(id).is_some()
            })
        };
        world.send(Event::Control(Control::Pause(gate)));
        let held = world.arrive(|request| {
            (request.band, request.max_output_tokens) = (Band(5), None);
        });
        assert_eq!(world.scheduler.reason(held), Some(Reason::Paused));
        if gate == Gate::Pool {
            world.send(Event::Control(Control::Resume(gate)));
            assert!(world.pod_of(held).is_some());
            assert_eq!(both(&mut world, slo(20_000, 1000)), [true, false], "beside its pace");
            continue;
        }
        assert_eq!(both(&mut world, slo(20_000, 1000)), [true; 2], "{gate:?}");
        let mut world = World::new(steps_are_shared(), 1);
        world.send(Event::Control(Control::Pause(gate)));
        let moved = world.arrive(|request| request.band = Band(4));
        world.end(moved, EndKind::Complete);
        let held = world.arrive(|request| {
            (request.band, request.max_output_tokens) = (Band(5), None);
        });
        assert_eq!(both(&mut world, Slo::default()), [true; 2], "{gate:?}");
        // What goes leaves nothing behind, whichever way.
        world.send(Event::Control(Control::Move(held, Band(4))));
        world.send(Event::Control(Control::Resume(gate)));
        world.pass(ms(10));
        world.end(held, EndKind::Complete);
    }
}

#[test]
fn what_is_not_to_wait_says_nothing_of_how_long_others_do() {
    let spent_share = |immediate: u32| {
        let mut world = World::new(steps_are_shared(), 1);
        for _ in 0..100 {
            world.send(Event::PodPhase(PodId(0), Phase::Cordoned));
            for _ in 0..immediate {
                world.arrive(|request| request.immediate = true);
            }
            let id = world.arrive(|_| {});
            world.pass(ms(1900));
            world.send(Event::PodPhase(PodId(0), Phase::Ready));
            if world.pod_of(id).is_some() {
                world.end(id, EndKind::Complete);
            }
        }
        world.scheduler.snapshot(world.now).spent_share
    };
    assert_eq!(spent_share(9), spent_share(0));
}

#[test]
fn it_is_told_when_what_is_paused_is_refused() {
    let mut world = World::new(steps_are_shared(), 1);
    world.send(Event::Control(Control::Pause(Gate::Pool)));
    let id = world.arrive(|_| {});
    world.pass(Duration::from_secs(70));
    let inspected = world.scheduler.inspect(world.now, id).unwrap();
    assert!(inspected.explanation.contains("in 50.0 s"), "{}", inspected.explanation);
    world.pass(Duration::from_secs(51));
    assert_eq!(world.refused[0].waited.as_secs(), 120);
}
