//! A pool under a policy, or under one of which parts are replaced.

use weir_core::{Event, PodId, Policy, Rules, SchedulerConfig, Scrape};

use crate::world::World;

/// A pool under a preset as it is.
pub fn preset(policy: Policy, pods: u32) -> World {
    changed(policy, pods, |_| {})
}

/// A pool under a policy of which parts are replaced.
pub fn changed(policy: Policy, pods: u32, change: impl FnOnce(&mut Rules)) -> World {
    let mut rules = policy.rules();
    change(&mut rules);
    let config = SchedulerConfig { policy, rules: Some(rules), ..SchedulerConfig::default() };
    World::new(config, pods)
}

/// Tells the scheduler of a scrape, thrice: what was sent between two scrapes counts on top.
pub fn scraped(world: &mut World, pod: u32, waiting: u32, kv_usage: f32) {
    let scrape = Scrape { waiting, kv_usage, ..Scrape::default() };
    for _ in 0..3 {
        world.send(Event::Scraped(PodId(pod), scrape));
    }
}
