//! Waits for the pod that has a request's prompt.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::Arc, time::Duration};

use weir_core::{
    CacheInfo, EndKind, Event, PodClass, PodId, Policy, Progress, PromptSize, Reason, Request,
    RequestId, SchedulerConfig, Scrape, policy::Scorer,
};
use world::{World, slo, steps_are_shared};

fn world(pods: u32) -> World {
    World::new(steps_are_shared(), pods)
}

fn shares_a_prompt(request: &mut Request) {
    request.prompt = PromptSize::Tokens(4000);
    request.slo = slo(10_000, 50);
    request.blocks = (1..=250).collect();
}

#[test]
fn a_head_waits_for_the_pod_that_has_its_prefix_while_it_has_slack() {
    let mut world = world(2);
    let blocks: Arc<[u64]> = (1..=250).collect();
    let prompt = |request: &mut Request| {
        request.prompt = PromptSize::Tokens(4000);
        request.slo = slo(10_000, 50);
        request.blocks = blocks.clone();
    };
    let first = world.arrive(prompt);
    let warm = world.pod_of(first).unwrap();
    let second = world.arrive(prompt);
    assert_eq!(world.pod_of(second), None, "its warm pod is busy, the other would start cold");
    assert_eq!(world.scheduler.reason(second), Some(Reason::WaitsForWarmPod));
    let other = world.arrive(|_| {});
    assert_ne!(world.pod_of(other), Some(warm), "the claim holds only its own pod");
    world.send(Event::FirstToken(first));
    assert_eq!(world.pod_of(second), Some(warm));
}

#[test]
fn what_a_pod_keeps_outside_of_its_cache_is_found_again_too() {
    let cached_of_the_first = |offload_tokens| {
        let mut config = steps_are_shared();
        config.classes = vec![PodClass { kv_blocks: 300, offload_tokens, ..PodClass::default() }];
        let mut world = World::new(config, 1);
        let names: [fn(u64) -> u64; 3] = [|name| name, |name| name + 1000, |name| name];
        for name in names {
            let id = world.arrive(|request| {
                shares_a_prompt(request);
                request.blocks = (1..=250).map(name).collect();
            });
            world.end(id, EndKind::Complete);
        }
        world.scheduler.snapshot(world.now).pods[0].cached_tokens
    };
    // The cache holds 4,800 tokens: one prompt, and the beginning of the other.
    assert!(cached_of_the_first(0) < 1000);
    assert_eq!(cached_of_the_first(4000), 3999);
}

/// A pod whose cache holds 4,800 tokens, 300 blocks of prompts.
fn small_pod() -> World {
    let mut config = steps_are_shared();
    config.classes = vec![PodClass { kv_blocks: 300, ..PodClass::default() }];
    World::new(config, 1)
}

/// A prompt of so many blocks of its own.
fn sends(world: &mut World, name: u64, blocks: u32) -> RequestId {
    let id = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(16 * blocks);
        request.slo = slo(10_000, 50);
        request.blocks = (1..=u64::from(blocks)).map(|block| 1000 * name + block).collect();
    });
    assert!(world.pod_of(id).is_some());
    id
}

/// Tokens that are found of a prompt.
fn found_of(world: &mut World, name: u64, blocks: u32) -> u64 {
    let cached = |world: &World| {
        let pods = world.scheduler.snapshot(world.now).pods;
        pods.first().map_or(0, |pod| pod.cached_tokens)
    };
    let before = cached(world);
    let id = sends(world, name, blocks);
    world.end(id, EndKind::Complete);
    cached(world) - before
}

#[test]
fn a_prompt_stays_where_it_is_in_use_and_until_others_were_used_since() {
    let mut world = small_pod();
    let long = sends(&mut world, 1, 200);
    world.send(Event::FirstToken(long));
    for name in 2..=5 {
        assert_eq!(found_of(&mut world, name, 60), 0);
    }
    assert_eq!(found_of(&mut world, 5, 60), 60 * 16 - 1);
    assert_eq!(found_of(&mut world, 3, 60), 0, "there is room for one beside it");
    world.end(long, EndKind::Complete);
    assert_eq!(found_of(&mut world, 6, 60), 0);
    assert_eq!(found_of(&mut world, 1, 200), 200 * 16 - 1);
}

#[test]
fn answers_take_the_room_of_prompts() {
    for answered in [false, true] {
        let mut world = small_pod();
        assert_eq!(found_of(&mut world, 2, 40), 0);
        let long = sends(&mut world, 1, 200);
        world.send(Event::FirstToken(long));
        if answered {
            world.send(Event::Progress(Progress { events: vec![(long, 1000)], pulses: vec![] }));
        }
        assert_eq!(found_of(&mut world, 3, 10), 0);
        // 62 blocks of the answer, and 6 of one that nobody saw and its end told.
        let found = found_of(&mut world, 2, 40);
        assert_eq!(found, if answered { 22 * 16 } else { 40 * 16 - 1 });
    }
}

#[test]
fn what_was_sent_to_a_pod_and_what_of_it_was_thought_cached_is_counted() {
    let mut world = world(1);
    for _ in 0..3 {
        let id = world.arrive(shares_a_prompt);
        world.end(id, EndKind::Complete);
    }
    let pod = &world.scheduler.snapshot(world.now).pods[0];
    // The last token of a prompt is always computed.
    assert_eq!((pod.dispatched, pod.prompt_tokens, pod.cached_tokens), (3, 12_000, 2 * 3999));
}

#[test]
fn nobody_waits_for_a_pod_that_finds_no_prompt_again() {
    let mut world = world(2);
    let tells = |world: &mut World, pod, prefix_caching| {
        let cache = CacheInfo { prefix_caching, ..CacheInfo::default() };
        world.send(Event::Scraped(pod, Scrape { cache, engines: 1, ..Scrape::default() }));
    };
    let first = world.arrive(shares_a_prompt);
    let warm = world.pod_of(first).unwrap();
    let second = world.arrive(shares_a_prompt);
    assert_eq!(world.scheduler.reason(second), Some(Reason::WaitsForWarmPod));
    // It is told after the first prompt was sent.
    tells(&mut world, warm, Some(false));
    world.pass(weir_core::TICK);
    let other = world.pod_of(second).unwrap();
    assert_ne!(other, warm);
    // What is sent there from now on is not believed to be found again either.
    tells(&mut world, other, Some(false));
    let prefixes = |world: &World| {
        let pods = world.scheduler.snapshot(world.now).pods;
        [PodId(0), PodId(1)].map(|pod| pods[pod.0 as usize].prefix_capacity_tokens)
    };
    assert_eq!(prefixes(&world), [0, 0]);
    // A pod that says nothing of it any more has said so before.
    tells(&mut world, warm, None);
    assert_eq!(prefixes(&world), [0, 0]);
    let third = world.arrive(shares_a_prompt);
    assert_eq!(world.pod_of(third), None);
    assert_ne!(world.scheduler.reason(third), Some(Reason::WaitsForWarmPod));
    tells(&mut world, warm, Some(true));
    assert_eq!(prefixes(&world).iter().filter(|tokens| **tokens > 0).count(), 1);
}

#[test]
fn a_head_that_waits_for_its_warm_pod_looks_at_the_others_once_in_a_tick() {
    let mut world = world(2);
    let first = world.arrive(shares_a_prompt);
    let second = world.arrive(shares_a_prompt);
    // Of another lane, and not to wait.
    let third = world.arrive(|request| {
        shares_a_prompt(request);
        request.prompt = PromptSize::Tokens(5000);
        request.immediate = true;
    });
    let other = world.pod_of(third);
    assert!(other.is_some() && other != world.pod_of(first), "{other:?}");
    world.end(third, EndKind::Complete);
    assert_eq!(world.pod_of(second), None, "another pod is free and has its prompt now");
    world.pass(weir_core::TICK);
    assert_eq!(world.pod_of(second), other);
}

#[test]
fn what_is_not_to_wait_starts_cold_rather_than_wait_for_its_warm_pod() {
    let mut world = world(2);
    let blocks: Arc<[u64]> = (1..=250).collect();
    let prompt = |immediate| {
        let blocks = blocks.clone();
        move |request: &mut Request| {
            request.prompt = PromptSize::Tokens(4000);
            request.slo = slo(10_000, 50);
            request.blocks = blocks;
            request.immediate = immediate;
        }
    };
    let first = world.arrive(prompt(false));
    let second = world.arrive(prompt(true));
    assert!(world.pod_of(second).is_some());
    assert_ne!(world.pod_of(second), world.pod_of(first));
}

#[test]
fn several_heads_wait_for_the_same_warm_pod() {
    let mut world = world(2);
    let first = world.arrive(shares_a_prompt);
    let warm = world.pod_of(first).unwrap();
    let second = world.arrive(shares_a_prompt);
    let longer = world.arrive(|request| {
        shares_a_prompt(request);
        request.prompt = PromptSize::Tokens(5000);
    });
    for id in [second, longer] {
        assert_eq!(world.scheduler.reason(id), Some(Reason::WaitsForWarmPod), "{id:?}");
    }
    world.send(Event::FirstToken(first));
    assert_eq!(world.pod_of(second), Some(warm));
}

#[test]
fn a_prefix_that_too_many_share_gets_a_second_pod_before_its_requests_are_late() {
    let mut world = world(2);
    // Too long for anybody to join it before its first token.
    let first = world.arrive(|request| {
        shares_a_prompt(request);
        request.prompt = PromptSize::Tokens(45_000);
    });
    let other = world.arrive(|request| request.slo = slo(10_000, 50));
    world.send(Event::FirstToken(other));
    let second = world.arrive(shares_a_prompt);
    world.pass(Duration::from_secs(6));
    assert_eq!(world.scheduler.reason(second), Some(Reason::WaitsForWarmPod));
    world.pass(Duration::from_millis(3500));
    let cold = world.pod_of(second);
    assert!(cold.is_some() && cold != world.pod_of(first), "{:?}", world.scheduler.reason(second));
}

#[test]
fn where_a_cold_start_may_as_well_be_late_a_head_waits_for_its_warm_pod_to_the_end() {
    // Cold it takes 272 ms.
    for (ttft_ms, joins) in [(280, false), (290, true)] {
        let mut world = world(2);
        let first = world.arrive(shares_a_prompt);
        let warm = world.pod_of(first);
        world.pass(Duration::from_millis(100));
        let second = world.arrive(|request| {
            shares_a_prompt(request);
            request.slo = slo(ttft_ms, 50);
        });
        assert_eq!(world.pod_of(second), warm.filter(|_| joins));
        world.pass(Duration::from_millis(200));
        world.send(Event::FirstToken(first));
        assert_eq!(world.pod_of(second), warm, "{ttft_ms}");
    }
}

#[test]
fn before_a_cold_start_is_too_late_a_head_joins_what_is_pending_on_its_warm_pod() {
    let mut world = world(2);
    let first = world.arrive(shares_a_prompt);
    let warm = world.pod_of(first);
    let second = world.arrive(|request| {
        shares_a_prompt(request);
        request.slo = slo(500, 50);
    });
    world.pass(Duration::from_millis(150));
    assert_eq!(world.scheduler.reason(second), Some(Reason::WaitsForWarmPod));
    world.pass(Duration::from_millis(50));
    assert_eq!(world.pod_of(second), warm);
}

#[test]
fn a_head_that_cannot_join_waits_on_for_a_warm_pod_that_leaves_it_much_time() {
    // Cold it takes 272 ms, and less than 10 with its prompt.
    for (ttft_ms, waits_on) in [(600, true), (1000, false)] {
        let mut config = steps_are_shared();
        config.classes = vec![PodClass { max_sequences: 1, ..PodClass::default() }];
        let mut world = World::new(config, 2);
        let first = world.arrive(shares_a_prompt);
        let warm = world.pod_of(first);
        world.send(Event::FirstToken(first));
        let head = world.arrive(|request| {
            shares_a_prompt(request);
            request.slo = slo(ttft_ms, 50);
        });
        assert_eq!(world.scheduler.reason(head), Some(Reason::WaitsForWarmPod));
        let would_go_cold = ttft_ms - 272 - 15;
        world.pass(Duration::from_millis(would_go_cold));
        assert_eq!(world.pod_of(head).is_none(), waits_on, "{:?}", world.scheduler.reason(head));
        if waits_on {
            world.end(first, EndKind::Complete);
            assert_eq!(world.pod_of(head), warm);
        }
    }
}

#[test]
fn a_late_request_waits_for_its_warm_pod_unless_another_is_empty() {
    let mut world = world(2);
    let first = world.arrive(shares_a_prompt);
    let warm = world.pod_of(first).unwrap();
    let other = world.arrive(|request| request.slo = slo(10_000, 50));
    world.send(Event::FirstToken(other));
    let late = world.arrive(|request| {
        shares_a_prompt(request);
        request.slo = slo(5, 50);
    });
    assert_eq!((world.scheduler.reason(late), world.pod_of(late)), (Some(Reason::Late), None));
    world.end(other, EndKind::Complete);
    let cold = world.pod_of(late);
    assert!(cold.is_some() && cold != Some(warm), "an idle pod is worse than a cold start");
}

#[test]
fn nobody_waits_for_a_pod_that_would_take_it() {
    // However little warmer a pod is, and whatever else the policy goes by.
    let mut least_request = Policy::Weir.rules();
    least_request.scorer = Scorer::LeastRequest;
    for (rules, warm_gap_tokens) in [(None, 0), (None, 256), (Some(least_request), 1024)] {
        let mut config = SchedulerConfig { rules, ..steps_are_shared() };
        config.pull.warm_gap_tokens = warm_gap_tokens;
        let mut world = World::new(config, 2);
        let first = world.arrive(shares_a_prompt);
        world.send(Event::FirstToken(first));
        for _ in 0..3 {
            let next = world.arrive(shares_a_prompt);
            assert!(world.pod_of(next).is_some(), "{:?}", world.scheduler.reason(next));
            world.send(Event::FirstToken(next));
        }
    }
}

/// A pod that has a prompt and is about to begin another one, an empty pod that would be late with it, and who asks for it.
/// That one has so many tokens of its own.
fn late_on_the_empty_pod(tokens: u32) -> Option<(World, PodId, RequestId, RequestId)> {
    let mut world = World::new(SchedulerConfig::default(), 2);
    let prompt = |request: &mut Request| {
        shares_a_prompt(request);
        request.slo = slo(150, 50);
    };
    let first = world.arrive(shares_a_prompt);
    let warm = world.pod_of(first)?;
    world.end(first, EndKind::Complete);
    let before = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(4000 + tokens);
        request.slo = slo(10_000, 50);
        request.blocks = (1..=250).chain((1001..).take(tokens as usize / 16)).collect();
    });
    assert_eq!(world.pod_of(before), Some(warm));
    // To compute it takes 234 ms.
    let id = world.arrive(prompt);
    Some((world, warm, before, id))
}

#[test]
fn where_an_empty_pod_would_be_late_a_head_waits_for_one_that_has_its_prompt() {
    let (mut world, warm, before, id) = late_on_the_empty_pod(600).unwrap();
    assert_eq!(world.pod_of(id), None);
    assert_eq!(world.scheduler.reason(id), Some(Reason::WaitsForFasterPod));
    let other = world.arrive(|request| request.prompt = PromptSize::Tokens(100));
    assert_ne!(world.pod_of(other), None, "the empty pod is not held for it");
    world.send(Event::FirstToken(before));
    assert_eq!(world.pod_of(id), Some(warm));
}

#[test]
fn where_both_would_be_late_it_goes_to_the_empty_one_at_once() {
    let (world, warm, _, id) = late_on_the_empty_pod(5000).unwrap();
    assert!(world.pod_of(id).is_some_and(|pod| pod != warm), "{:?}", world.scheduler.reason(id));
}

#[test]
fn a_wait_for_a_pod_that_another_head_claims_is_over_with_the_claim() {
    let mut world = world(2);
    let prompt = |tokens: u32| {
        move |request: &mut Request| {
            request.prompt = PromptSize::Tokens(tokens);
            request.slo = slo(10_000, 50);
        }
    };
    let shared = |request: &mut Request| {
        prompt(1800)(request);
        request.blocks = (1..=112).collect();
    };
    let first = world.arrive(shared);
    let warm = world.pod_of(first).unwrap();
    world.end(first, EndKind::Complete);
    // Each has a prompt to compute, so that a large one fits on neither, and sooner on the warm one.
    let on_warm = |world: &mut World| {
        let id = world.arrive(|request| {
            prompt(50)(request);
            request.blocks = (1..=3).collect();
        });
        assert_eq!(world.pod_of(id), Some(warm));
    };
    on_warm(&mut world);
    let cold = world.arrive(prompt(100));
    assert_ne!(world.pod_of(cold), Some(warm));
    let large = world.arrive(prompt(3000));
    assert_eq!(world.scheduler.reason(large), Some(Reason::PendingFull));
    let small = world.arrive(shared);
    assert_eq!(world.scheduler.reason(small), Some(Reason::WaitsForWarmPod), "it is claimed");
    world.send(Event::Cancel(large));
    assert_eq!(world.pod_of(small), Some(warm), "no tick later");
}
