//! KV caches and batches: who has room for what, in pools whose pods are not alike.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::time::Duration;

use weir_core::{
    Band, CacheInfo, EndKind, Event, PodClass, PodId, PodSpec, PromptSize, Reason, RefusalReason,
    Request, RequestId, Scrape, Slo, inspect::Supposition,
};
use world::{World, slo, steps_are_shared};

const LARGE: PodId = PodId(0);
const SMALL: PodId = PodId(1);

/// A pool of one pod of 304,000 tokens of KV cache and one of 16,000.
fn unlike() -> World {
    let mut config = steps_are_shared();
    let small = PodClass { name: "small".into(), kv_blocks: 1000, ..PodClass::default() };
    config.classes = vec![PodClass::default(), small];
    let mut world = World::new(config, 1);
    world.send(Event::PodUp(PodSpec { id: SMALL, name: "pod-1".into(), class: 1, group: None }));
    world
}

fn prompt(tokens: u32, slo: Slo) -> impl FnOnce(&mut Request) {
    move |request| {
        request.prompt = PromptSize::Tokens(tokens);
        request.slo = slo;
    }
}

/// A stream that runs on a pod, while the others are out.
fn stream_on(world: &mut World, pod: PodId, out: &[PodId]) -> RequestId {
    let phase = |world: &mut World, phase| {
        out.iter().for_each(|one| world.send(Event::PodPhase(*one, phase)));
    };
    phase(world, weir_core::Phase::Cordoned);
    let stream = world.arrive(|_| {});
    phase(world, weir_core::Phase::Ready);
    assert_eq!(world.pod_of(stream), Some(pod));
    world.send(Event::FirstToken(stream));
    stream
}

#[test]
fn a_prompt_goes_where_a_cache_holds_it_whatever_else_is_empty() {
    for objectives in [Slo::default(), slo(60_000, 50), slo(2000, 50)] {
        let mut world = unlike();
        let before = stream_on(&mut world, LARGE, &[SMALL]);
        let long = world.arrive(prompt(100_000, objectives));
        let look = world.scheduler.inspect(world.now, long).unwrap().pods.remove(1);
        assert!(!look.fits && look.text.contains("does not hold the prompt"), "{look:?}");
        world.pass(Duration::from_secs(1));
        assert_ne!(world.pod_of(long), Some(SMALL), "{objectives:?}");
        world.end(before, EndKind::Complete);
        assert_eq!(world.pod_of(long), Some(LARGE), "{objectives:?}");
    }
}

#[test]
fn one_that_waits_for_the_large_cache_holds_nobody_back_from_the_small_one() {
    // Both sizes are of one bucket, and late ones have one lane: only what a pod is too small for tells them apart.
    for (objectives, late) in [(slo(20_000, 50), false), (slo(5, 50), true)] {
        let mut world = unlike();
        let streams = [LARGE, SMALL].map(|pod| stream_on(&mut world, pod, &[PodId(1 - pod.0)]));
        let long = world.arrive(prompt(30_000, objectives));
        world.pass(Duration::from_millis(20));
        let next = world.arrive(prompt(15_000, objectives));
        world.pass(Duration::from_millis(20));
        assert_eq!([long, next].map(|id| world.pod_of(id)), [None; 2], "late: {late}");
        world.end(streams[1], EndKind::Complete);
        assert_eq!([long, next].map(|id| world.pod_of(id)), [None, Some(SMALL)], "late: {late}");
    }
}

#[test]
fn of_three_sizes_of_caches_the_middle_one_does_not_idle_behind_who_waits_for_the_largest() {
    let mut config = steps_are_shared();
    let class =
        |name: &str, kv_blocks| PodClass { name: name.into(), kv_blocks, ..PodClass::default() };
    config.classes = vec![PodClass::default(), class("small", 500), class("middle", 1000)];
    let mut world = World::new(config, 1);
    for id in [1, 2] {
        let spec = PodSpec {
            id: PodId(id),
            name: format!("pod-{id}").into(),
            class: id as u16,
            group: None,
        };
        world.send(Event::PodUp(spec));
    }
    let middle = PodId(2);
    stream_on(&mut world, LARGE, &[SMALL, middle]);
    let full = Scrape { kv_usage: 1.0, running: 1, engines: 1, ..Scrape::default() };
    world.send(Event::Scraped(LARGE, full));
    // Late both, and too long for the small one both.
    let late = |tokens| prompt(tokens, slo(5, 50));
    let (long, next) = (world.arrive(late(20_000)), world.arrive(late(12_000)));
    world.pass(Duration::from_millis(20));
    assert_eq!([long, next].map(|id| world.pod_of(id)), [None, Some(middle)]);
}

#[test]
fn what_waited_before_a_smaller_pod_joined_does_not_hold_back_what_fits_there() {
    let mut world = World::new(
        {
            let mut config = steps_are_shared();
            let small = PodClass { name: "small".into(), kv_blocks: 1000, ..PodClass::default() };
            config.classes = vec![PodClass::default(), small];
            config
        },
        1,
    );
    stream_on(&mut world, LARGE, &[]);
    let late = |tokens| prompt(tokens, slo(5, 50));
    let (long, next) = (world.arrive(late(30_000)), world.arrive(late(15_000)));
    world.pass(Duration::from_millis(20));
    world.send(Event::PodUp(PodSpec { id: SMALL, name: "pod-1".into(), class: 1, group: None }));
    assert_eq!([long, next].map(|id| world.pod_of(id)), [None, Some(SMALL)]);
}

#[test]
fn a_cache_that_a_scrape_finds_small_takes_no_prompt_that_another_holds() {
    let mut world = World::new(steps_are_shared(), 2);
    let scraped = |world: &mut World, kv_blocks| {
        let cache = CacheInfo { blocks: Some(kv_blocks), ..CacheInfo::default() };
        let scrape = Scrape { cache, engines: 1, ..Scrape::default() };
        world.send(Event::Scraped(LARGE, scrape));
    };
    scraped(&mut world, 1000);
    let long = world.arrive(prompt(20_000, slo(20_000, 50)));
    assert_eq!(world.pod_of(long), Some(PodId(1)));
    // A cache of no blocks is none that an engine has.
    scraped(&mut world, 0);
    let short = world.arrive(prompt(10_000, slo(20_000, 50)));
    assert_eq!(world.pod_of(short), Some(LARGE));
}

#[test]
fn a_prompt_that_no_cache_holds_goes_at_once_so_that_its_engine_says_so() {
    for objectives in [Slo::default(), slo(2000, 50)] {
        let mut world = World::new(steps_are_shared(), 1);
        stream_on(&mut world, LARGE, &[]);
        let endless = world.arrive(prompt(500_000, objectives));
        assert_eq!(world.pod_of(endless), Some(LARGE), "{objectives:?}");
        world.end(endless, EndKind::PodError);
        let mut world = unlike();
        let endless = world.arrive(prompt(500_000, objectives));
        assert_eq!(world.pod_of(endless), Some(LARGE), "the largest cache is asked");
    }
}

#[test]
fn a_sheddable_prompt_that_no_cache_holds_is_refused_by_its_engine_and_not_told_to_come_back() {
    let mut world = unlike();
    let endless = world.arrive(|request| {
        prompt(500_000, slo(2000, 50))(request);
        request.band = Band(-1);
    });
    assert_eq!((world.pod_of(endless), world.refused.len()), (Some(LARGE), 0));
    let what = Supposition {
        input_tokens: 500_000,
        output_tokens: None,
        slo: slo(2000, 50),
        band: Band(0),
        tenant: None,
        adapter: None,
    };
    let supposed = world.scheduler.suppose(world.now, &what);
    assert!(supposed.explanation.contains("KV cache holds the prompt"), "{supposed:?}");
}

#[test]
fn a_prompt_that_only_a_pod_that_is_out_holds_waits_for_it_and_is_told_to_come_back() {
    for band in [Band(0), Band(-1)] {
        let long = |request: &mut Request| {
            prompt(100_000, Slo::default())(request);
            request.band = band;
        };
        let mut world = unlike();
        let before = stream_on(&mut world, LARGE, &[SMALL]);
        let full = Scrape { kv_usage: 1.0, running: 1, engines: 1, ..Scrape::default() };
        world.send(Event::Scraped(LARGE, full));
        let waited_before = world.arrive(long);
        assert_eq!(world.pod_of(waited_before), None);
        world.send(Event::PodPhase(LARGE, weir_core::Phase::Broken));
        world.end(before, EndKind::PodFailed);
        let came_then = world.arrive(long);
        let endless = world.arrive(prompt(500_000, Slo::default()));
        assert_eq!(world.pod_of(endless), Some(SMALL), "nobody will hold it");
        world.end(endless, EndKind::PodError);
        let short = world.arrive(prompt(1000, Slo::default()));
        assert_eq!(world.pod_of(short), Some(SMALL), "it waits behind nobody");
        world.pass(Duration::from_secs(10));
        let told = world.arrive(long);
        assert_eq!(world.scheduler.reason(waited_before), Some(Reason::NoPodReady));
        world.pass(Duration::from_secs(6));
        let refused: Vec<_> = world.refused.iter().map(|one| (one.id, one.reason)).collect();
        let no_pods = RefusalReason::NoPods;
        assert_eq!(refused, [(waited_before, no_pods), (came_then, no_pods)], "{band:?}");
        world.send(Event::PodPhase(LARGE, weir_core::Phase::Ready));
        assert_eq!(world.pod_of(told), Some(LARGE), "it is back in time for this one");
    }
}

#[test]
fn a_request_of_many_sequences_need_not_find_a_pod_empty() {
    let mut world = World::new(steps_are_shared(), 1);
    stream_on(&mut world, LARGE, &[]);
    let many = world.arrive(|request| {
        request.prompt = PromptSize::Tokens(100);
        request.sequences = 1024;
        request.slo = Slo::default();
    });
    assert_eq!(world.pod_of(many), Some(LARGE), "the engine keeps what it has no room for");
    let next = world.arrive(|request| request.band = Band(1));
    assert_eq!(world.scheduler.reason(next), Some(Reason::BatchFull));
    world.end(many, EndKind::Complete);
    assert_eq!(world.pod_of(next), Some(LARGE));
}

#[test]
fn what_a_pod_says_of_its_cache_goes_before_its_class() {
    let mut world = World::new(steps_are_shared(), 2);
    let told = |world: &mut World, cache| {
        let scrape = Scrape { cache, engines: 1, ..Scrape::default() };
        world.send(Event::Scraped(LARGE, scrape));
        world.scheduler.snapshot(world.now).pods[0].kv_capacity_tokens
    };
    let nothing = CacheInfo::default();
    assert_eq!(told(&mut world, nothing), 19_000 * 16, "as its class has it");
    let larger = CacheInfo { block_tokens: Some(64), ..nothing };
    assert_eq!(told(&mut world, larger), 19_000 * 64);
    let fewer = CacheInfo { blocks: Some(1000), ..nothing };
    assert_eq!(told(&mut world, fewer), 1000 * 64, "and what it said before");
    // Layers that keep unlike parts of a context: neither blocks nor their size say how much it holds.
    let hybrid = CacheInfo { tokens: Some(900_000), ..nothing };
    assert_eq!(told(&mut world, hybrid), 900_000);
    let absurd = CacheInfo { tokens: Some(0), blocks: Some(0), block_tokens: Some(0), ..nothing };
    assert_eq!(told(&mut world, absurd), 900_000, "none that an engine has");
    // Of two caches the larger one is asked for a prompt that the other does not hold.
    told(&mut world, CacheInfo { tokens: Some(10_000), ..nothing });
    let long = world.arrive(prompt(20_000, slo(20_000, 50)));
    assert_eq!(world.pod_of(long), Some(PodId(1)));
}
