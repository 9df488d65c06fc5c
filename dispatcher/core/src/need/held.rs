//! The load at which a share of the requests is in time, learned from what became of them.
//!
//! Looked at in windows. In one in which too many were late less is held than the load that it had, or than was thought where that is
//! more; in one in which fewer were than may be though the load was about what is thought to be held, more is. Late requests at a load
//! far above that say nothing: there are too few pods, as was known. So a crowd that comes at once, for which pods are still starting,
//! teaches nothing wrong.

use super::NeedConfig;
use crate::Time;

/// Shortest window, in seconds.
const WINDOW_S: f64 = 30.0;
/// A window is long enough to have so many late ones where as many are as may be: fewer would be chance.
const EXPECTED_LATE: f64 = 4.0;
/// So many late ones are no chance, however few requests there were.
const SURELY_LATE: u32 = 20;
/// Less is held than the load of a window by this power of how many times as many were late as may be: 7 % for twice as many, 21 % for
/// ten times.
const DOWN: f64 = 0.1;
/// And by no more in one window than to this share of it.
const MOST_DOWN: f64 = 0.75;
/// It grows by no more than this share.
const MOST_UP: f64 = 0.02;
/// A window tells that more is held where its load was at least this share of what was thought to be.
const NEAR: f64 = 0.85;
/// Least and largest load that is ever believed.
const BOUNDS: [f64; 2] = [0.02, 2.0];

/// The load that is held.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    load: f64,
    since: Option<Time>,
    /// Load when the window began.
    first_load: f64,
    late: u32,
    over: u32,
}

impl Held {
    /// Before anything was seen.
    pub const fn new(config: &NeedConfig) -> Self {
        Self { load: config.load, since: None, first_load: 0.0, late: 0, over: 0 }
    }

    /// What is believed.
    pub const fn load(&self) -> f64 {
        self.load
    }

    /// Goes on from what another has learned of a pool of which the same was asked; ignores what cannot be.
    pub fn recall(&mut self, load: f64) {
        let [least, most] = BOUNDS;
        if (least..=most).contains(&load) {
            self.load = load;
        }
    }

    /// A request that may not be shed and could have been in time is over. `load` is asked for when a window begins and ends.
    pub fn over(
        &mut self,
        now: Time,
        in_time: bool,
        config: &NeedConfig,
        load: impl FnOnce() -> f64,
    ) {
        let Some(since) = self.since else {
            (self.since, self.first_load) = (Some(now), load());
            return;
        };
        self.over += 1;
        self.late += u32::from(!in_time);
        let may_be_late = (1.0 - config.attained).max(1e-3);
        let enough =
            f64::from(self.over) >= EXPECTED_LATE / may_be_late || self.late >= SURELY_LATE;
        if !enough || now.since(since).as_secs_f64() < WINDOW_S {
            return;
        }
        let last_load = load();
        let late = f64::from(self.late) / f64::from(self.over);
        self.learn(late / may_be_late, (self.first_load + last_load) / 2.0);
        (self.since, self.first_load, self.late, self.over) = (Some(now), last_load, 0, 0);
    }

    /// A window with so many times as many late ones as may be.
    fn learn(&mut self, times: f64, load: f64) {
        let held = if times > 1.0 {
            let less = self.load.max(load) * times.powf(-DOWN);
            less.clamp(MOST_DOWN * self.load, self.load)
        } else if load >= NEAR * self.load {
            self.load * (1.0 + MOST_UP * (1.0 - times))
        } else {
            self.load
        };
        let [least, most] = BOUNDS;
        self.load = held.clamp(least, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: NeedConfig = NeedConfig { attained: 0.99, load: 0.7, learn: true };

    /// An hour of ten requests a second, of which so many of each thousand are late, at a load.
    fn hour(held: &mut Held, late_of_1000: impl Fn(f64) -> u64, load: impl Fn(f64) -> f64) {
        for tenth in 0..36_000_u64 {
            let (now, at) = (Time::from_millis(tenth * 100), load(held.load()));
            let in_time = tenth * 7919 % 1000 >= late_of_1000(at);
            held.over(now, in_time, &CONFIG, || at);
        }
    }

    #[test]
    fn it_comes_to_the_load_beyond_which_too_many_are_late() {
        for limit in [0.3, 0.9] {
            let mut held = Held::new(&CONFIG);
            let late = |load: f64| if load > limit { 60 } else { 0 };
            // Pods are as many as are asked for.
            (0..3).for_each(|_| hour(&mut held, late, |held| held));
            assert!((0.8..1.05).contains(&(held.load() / limit)), "{} of {limit}", held.load());
        }
    }

    #[test]
    fn a_crowd_for_which_pods_are_missing_teaches_nothing() {
        let mut held = Held::new(&CONFIG);
        hour(&mut held, |_| 400, |held| 2.0 * held);
        assert_eq!(held.load(), 0.7);
    }

    #[test]
    fn late_requests_a_little_above_it_count_as_far_as_they_say_less() {
        let mut held = Held::new(&CONFIG);
        held.learn(10.0, 0.8);
        assert!((held.load() - 0.8 * 10.0_f64.powf(-DOWN)).abs() < 1e-9);
        held.learn(10.0, 2.0 * held.load());
        assert!((held.load() - 0.8 * 10.0_f64.powf(-DOWN)).abs() < 1e-9, "far above it");
        held.learn(100.0, 0.01);
        assert!((held.load() - MOST_DOWN * 0.8 * 10.0_f64.powf(-DOWN)).abs() < 1e-9, "at most");
    }

    #[test]
    fn an_idle_pool_says_nothing_of_what_is_held() {
        let mut held = Held::new(&CONFIG);
        hour(&mut held, |_| 0, |held| 0.5 * held);
        assert_eq!(held.load(), 0.7);
    }

    #[test]
    fn few_requests_are_looked_at_for_longer() {
        let mut held = Held::new(&CONFIG);
        let mut second = |late: bool, at_s: u64| {
            held.over(Time::from_millis(at_s * 1000), !late, &CONFIG, || 0.1);
            held.load()
        };
        let fell_at = (0..1000).find(|at_s| second(at_s % 25 == 0, *at_s) < 0.7);
        assert_eq!(fell_at, Some(400), "four of a hundred are late");
        let fell_at = (1000..2000).find(|at_s| second(true, *at_s) < 0.6);
        assert!(fell_at.is_some_and(|at_s| at_s < 1200), "all are: {fell_at:?}");
    }
}
