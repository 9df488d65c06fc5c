//! What a pod is believed to have cached counts for as much as its engine finds of it.

#[expect(dead_code, reason = "shared with tests that use all of it")]
mod world;

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use weir_core::{
    CacheUse, EndKind, Event, PodClass, PodId, PodView, PromptSize, Request, SchedulerConfig,
    Scrape,
};
use world::World;

const TOKENS: u32 = 4000;

/// A pod whose engine counts what it looks up.
struct Pool {
    world: World,
    counted: CacheUse,
}

impl Pool {
    fn of(class: PodClass) -> Self {
        let config = SchedulerConfig { classes: vec![class], ..SchedulerConfig::default() };
        Self { world: World::new(config, 1), counted: CacheUse::default() }
    }

    /// The same prompt, once a second so often, of which the engine finds that share.
    fn serve(&mut self, times: u32, finds: f64, change: impl Fn(&mut Request)) -> PodView {
        for _ in 0..times {
            let id = self.world.arrive(|request| {
                request.prompt = PromptSize::Tokens(TOKENS);
                request.blocks = (1..=125).collect();
                change(request);
            });
            assert_eq!(self.world.pod_of(id), Some(PodId(0)));
            self.counted.queried += u64::from(TOKENS);
            self.counted.found += (finds * f64::from(TOKENS)) as u64;
            self.world.send(Event::FirstToken(id));
            self.world.end(id, EndKind::Complete);
            self.world.now = self.world.now.plus(Duration::from_secs(1));
            let scrape = Scrape { cache_use: Some(self.counted), ..Scrape::default() };
            self.world.send(Event::Scraped(PodId(0), scrape));
        }
        self.world.scheduler.snapshot(self.world.now).pods.remove(0)
    }
}

/// Tokens that were thought cached between two looks.
fn thought_cached(before: &PodView, after: &PodView) -> u64 {
    after.cached_tokens - before.cached_tokens
}

#[test]
fn what_is_not_found_does_not_count_as_cached() {
    let mut pool = Pool::of(PodClass::default());
    let first = pool.serve(1, 0.0, |_| ());
    // What strides have taught until then was of prompts that were thought cached.
    pool.world.strides.store(7, Relaxed);
    let before = pool.serve(100, 0.0, |_| ());
    assert_eq!((first.cache_found, before.cache_found), (1.0, 0.01));
    assert_eq!(pool.world.strides.swap(7, Relaxed), 0);
    let after = pool.serve(10, 0.0, |_| ());
    assert_eq!(thought_cached(&before, &after), u64::from(10 * TOKENS / 100));
    assert_eq!(pool.world.strides.load(Relaxed), 7, "it is known by now");

    // It finds everything again.
    let before = pool.serve(200, 1.0, |_| ());
    assert_eq!(before.cache_found, 1.0);
    let after = pool.serve(10, 1.0, |_| ());
    // Of a prompt one token is always computed.
    assert_eq!(thought_cached(&before, &after), u64::from(10 * (TOKENS - 1)));
}

#[test]
fn what_comes_from_elsewhere_is_not_missed_in_the_cache() {
    let mut offloads = Pool::of(PodClass { offload_tokens: 1000, ..PodClass::default() });
    assert_eq!(offloads.serve(200, 0.0, |_| ()).cache_found, 1.0);
    let mut loads = Pool::of(PodClass::default());
    assert_eq!(loads.serve(200, 0.0, |request| request.prefilled = true).cache_found, 1.0);
}

#[test]
fn a_pod_that_joins_anew_is_believed_anew() {
    let mut pool = Pool::of(PodClass::default());
    assert_eq!(pool.serve(100, 0.0, |_| ()).cache_found, 0.01);
    pool.world.send(Event::PodDown(PodId(0)));
    pool.world.join(0, 1);
    pool.counted = CacheUse::default();
    let before = pool.serve(2, 1.0, |_| ());
    assert_eq!(before.cache_found, 1.0);
    let after = pool.serve(1, 1.0, |_| ());
    assert_eq!(thought_cached(&before, &after), u64::from(TOKENS - 1));
}
