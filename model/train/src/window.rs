//! The samples that are learned from: recent ones of every state that a pod was seen in.
//!
//! Owned by the trainer and filled by every look at the spool. A pod spends most of its time in a
//! few states; a window of the last so many samples would forget the rare ones, which are those
//! that a bad prediction costs most in. So samples are kept in buckets by the state they were
//! decided in, each with a cap and an age limit, and when the window is full the fullest buckets
//! give way first.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use weir_schema::{Feature, Features};

use crate::{config::WindowConfig, example::Example, spool::MAX_AHEAD_MS};

/// The state that a sample was decided in, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Bucket {
    /// KV usage in steps of 10 %.
    kv: u8,
    /// Prefix match in steps of 0.25; a full match stands alone.
    prefix: u8,
    /// Queue depth in powers of two.
    queue: u8,
    /// Running requests in powers of two.
    running: u8,
    /// Index of the pod class.
    class: u16,
}

impl Bucket {
    fn of(example: &Example) -> Self {
        let features = Features(example.row);
        let step = |feature, width: f32, last: f32| {
            let value = features.get(feature);
            if value.is_nan() { u8::MAX } else { (value / width).floor().min(last) as u8 }
        };
        let power = |feature| {
            let value = features.get(feature);
            if value.is_nan() { u8::MAX } else { (value + 1.0).log2() as u8 }
        };
        Self {
            kv: step(Feature::KvUsage, 0.1, 9.0),
            prefix: step(Feature::PrefixMatch, 0.25, 4.0),
            queue: power(Feature::QueueDepth),
            running: power(Feature::RunningRequests),
            class: features.get(Feature::PodClass) as u16,
        }
    }
}

/// The samples of one round.
#[derive(Debug, Default)]
pub(crate) struct Split {
    /// What is trained on, oldest first.
    pub train: Vec<Example>,
    /// The newest slice, which is not trained on.
    pub newest: Vec<Example>,
    /// How many came after what the bundle being served has seen.
    pub unseen: usize,
}

/// Samples in buckets.
#[derive(Debug)]
pub(crate) struct Window {
    config: WindowConfig,
    /// Each bucket in the order of arrival, with a number that orders samples of the same time.
    buckets: HashMap<Bucket, VecDeque<(u64, Example)>>,
    arrived: u64,
    len: usize,
}

impl Window {
    /// An empty window.
    pub(crate) fn new(config: WindowConfig) -> Self {
        Self { config, buckets: HashMap::new(), arrived: 0, len: 0 }
    }

    /// Samples in all buckets.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Takes a sample unless it is too old, and says whether it did.
    pub(crate) fn offer(&mut self, example: Example, now_unix_ms: u64) -> bool {
        if example.at_unix_ms < oldest(now_unix_ms, self.config.max_age) {
            return false;
        }
        let bucket = self.buckets.entry(Bucket::of(&example)).or_default();
        bucket.push_back((self.arrived, example));
        self.arrived += 1;
        self.len += 1;
        if bucket.len() > self.config.per_bucket_cap {
            bucket.pop_front();
            self.len -= 1;
        }
        // Levelling takes a pass over the buckets, so it waits until it is worth one.
        if self.len > self.config.max_samples + self.config.max_samples / 8 {
            self.level();
        }
        true
    }

    /// Drops what is too old, too much, or dated so far ahead that it would not be admitted: the clock has been set back since.
    /// Called between the filling and the training.
    pub(crate) fn settle(&mut self, now_unix_ms: u64) {
        let newest = now_unix_ms.saturating_add(MAX_AHEAD_MS);
        let times = oldest(now_unix_ms, self.config.max_age)..=newest;
        for bucket in self.buckets.values_mut() {
            bucket.retain(|(_, example)| times.contains(&example.at_unix_ms));
        }
        self.buckets.retain(|_, bucket| !bucket.is_empty());
        self.len = self.buckets.values().map(VecDeque::len).sum();
        self.level();
    }

    /// Cuts the fullest buckets down to the one size at which the window fits.
    fn level(&mut self) {
        if self.len <= self.config.max_samples {
            return;
        }
        let mut sizes: Vec<usize> = self.buckets.values().map(VecDeque::len).collect();
        sizes.sort_unstable();
        let mut room = self.config.max_samples;
        let mut level = 0;
        for (taken, size) in sizes.iter().enumerate() {
            level = room / (sizes.len() - taken);
            if *size > level {
                break;
            }
            room -= size;
        }
        for bucket in self.buckets.values_mut() {
            bucket.drain(..bucket.len().saturating_sub(level.max(1)));
        }
        if self.buckets.len() > self.config.max_samples {
            self.keep_newest_buckets();
        }
        self.len = self.buckets.values().map(VecDeque::len).sum();
    }

    /// Keeps one bucket per sample that fits, by the time of its newest sample.
    fn keep_newest_buckets(&mut self) {
        let newest = |bucket: &VecDeque<(u64, Example)>| {
            bucket.back().map_or((0, 0), |(arrived, example)| (example.at_unix_ms, *arrived))
        };
        let mut order: Vec<_> = self.buckets.values().map(newest).collect();
        order.sort_unstable_by(|one, other| other.cmp(one));
        let Some(last) = order.get(self.config.max_samples.saturating_sub(1)).copied() else {
            return;
        };
        self.buckets.retain(|_, bucket| newest(bucket) >= last);
    }

    /// Every sample by time, cut into what is trained on and the newest slice. With `seen_until`
    /// nothing older is held out: the bundle being served was trained on that.
    pub(crate) fn split(&self, seen_until_unix_ms: Option<u64>) -> Split {
        let mut all: Vec<&(u64, Example)> = self.buckets.values().flatten().collect();
        all.sort_unstable_by_key(|(arrived, example)| (example.at_unix_ms, *arrived));
        let share = (all.len() as f64 * self.config.holdout_fraction).ceil() as usize;
        let seen = seen_until_unix_ms
            .map_or(0, |until| all.partition_point(|(_, example)| example.at_unix_ms <= until));
        let unseen = all.len() - seen;
        let held_out = share.min(self.config.max_holdout).min(unseen);
        let (train, newest) = all.split_at(all.len() - held_out);
        let copied = |part: &[&(u64, Example)]| part.iter().map(|(_, example)| *example).collect();
        Split { train: copied(train), newest: copied(newest), unseen }
    }
}

/// The oldest time that is kept.
fn oldest(now_unix_ms: u64, max_age: Duration) -> u64 {
    now_unix_ms.saturating_sub(u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use weir_schema::{Row, Sample};

    use super::*;
    use crate::synthetic::{NOW_UNIX_MS, sample};

    fn placed(row: Row, at_unix_ms: u64) -> Example {
        Example::of(&Sample { row, at_unix_ms, ..sample() }).unwrap()
    }

    fn example(kv_usage: f32, at_unix_ms: u64) -> Example {
        let mut features = Features(sample().row);
        features.set(Feature::KvUsage, kv_usage);
        placed(features.0, at_unix_ms)
    }

    fn window(max_samples: usize, per_bucket_cap: usize) -> Window {
        Window::new(WindowConfig { max_samples, per_bucket_cap, ..WindowConfig::default() })
    }

    fn kv_usages(window: &Window) -> Vec<f32> {
        let Split { train, newest, .. } = window.split(None);
        train.iter().chain(&newest).map(|kept| Features(kept.row).get(Feature::KvUsage)).collect()
    }

    #[test]
    fn a_steady_state_does_not_push_a_rare_one_out() {
        let mut window = window(1000, 50);
        window.offer(example(0.95, NOW_UNIX_MS - 10_000), NOW_UNIX_MS);
        for at in 0..5000 {
            window.offer(example(0.15, NOW_UNIX_MS - 5000 + at), NOW_UNIX_MS);
        }
        let kept = kv_usages(&window);
        assert_eq!((window.len(), kept.len()), (51, 51));
        assert_eq!(kept[0], 0.95);
        assert_eq!(window.split(None).newest.last().unwrap().at_unix_ms, NOW_UNIX_MS - 1);
    }

    #[test]
    fn what_a_clock_dated_ahead_leaves_when_that_was_set_back() {
        let mut window = window(1000, 50);
        let ahead = NOW_UNIX_MS + 3_600_000;
        window.offer(example(0.95, ahead), ahead);
        window.offer(example(0.15, NOW_UNIX_MS), ahead);
        window.settle(NOW_UNIX_MS);
        assert_eq!(kv_usages(&window), [0.15]);
    }

    #[test]
    fn a_full_window_takes_from_the_fullest_buckets_and_keeps_their_newest() {
        let mut window = window(100, 1000);
        for at in 0..10 {
            window.offer(example(0.95, at + NOW_UNIX_MS - 5000), NOW_UNIX_MS);
        }
        for at in 0..2000 {
            let kv = if at % 2 == 0 { 0.15 } else { 0.55 };
            window.offer(example(kv, at + NOW_UNIX_MS - 4000), NOW_UNIX_MS);
        }
        assert!(window.len() <= 112, "{}", window.len());
        window.settle(NOW_UNIX_MS);
        let count = |kv| kv_usages(&window).iter().filter(|found| **found == kv).count();
        assert_eq!((count(0.95), count(0.15), count(0.55)), (10, 45, 45));
        assert_eq!(window.split(None).train[10].at_unix_ms, NOW_UNIX_MS - 4000 + 1910);
    }

    #[test]
    fn more_states_than_room_leave_the_newest_of_them() {
        let mut window = window(50, 1000);
        for class in 0..200_u16 {
            let mut features = Features(sample().row);
            features.set(Feature::PodClass, f32::from(class));
            let at_unix_ms = NOW_UNIX_MS - 1000 + u64::from(class);
            let example = placed(features.0, at_unix_ms);
            window.offer(example, NOW_UNIX_MS);
        }
        window.settle(NOW_UNIX_MS);
        let Split { train, newest, .. } = window.split(None);
        assert_eq!((window.len(), train.len() + newest.len()), (50, 50));
        assert_eq!(train[0].at_unix_ms, NOW_UNIX_MS - 850);
    }

    #[test]
    fn samples_leave_at_their_age_limit() {
        let mut window = window(100, 100);
        let age_ms = window.config.max_age.as_millis() as u64;
        assert!(!window.offer(example(0.1, NOW_UNIX_MS - age_ms - 1), NOW_UNIX_MS));
        assert!(window.offer(example(0.1, NOW_UNIX_MS - age_ms), NOW_UNIX_MS));
        window.settle(NOW_UNIX_MS + 1);
        assert_eq!((window.len(), window.buckets.len()), (0, 0));
    }

    #[test]
    fn the_newest_slice_is_the_newest_by_time_and_not_by_arrival() {
        let mut window = window(100, 100);
        for back in 1..=20 {
            window.offer(example(0.1 * (back % 9) as f32, NOW_UNIX_MS - back), NOW_UNIX_MS);
        }
        let Split { train, newest, .. } = window.split(None);
        let times: Vec<u64> = newest.iter().map(|kept| NOW_UNIX_MS - kept.at_unix_ms).collect();
        assert_eq!((train.len(), times), (17, vec![3, 2, 1]));
    }

    #[test]
    fn buckets_follow_usage_prefix_queue_running_and_class() {
        let bucket = |changes: &[(Feature, f32)]| {
            let mut features = Features(sample().row);
            for (feature, value) in changes {
                features.set(*feature, *value);
            }
            Bucket::of(&placed(features.0, NOW_UNIX_MS))
        };
        let distinct = |feature, values: &[f32]| {
            let found: std::collections::HashSet<Bucket> =
                values.iter().map(|value| bucket(&[(feature, *value)])).collect();
            found.len()
        };
        assert_eq!(distinct(Feature::KvUsage, &[0.0, 0.09, 0.1, 0.95, 1.0, f32::NAN]), 4);
        assert_eq!(distinct(Feature::PrefixMatch, &[0.0, 0.24, 0.25, 1.0]), 3);
        assert_eq!(distinct(Feature::QueueDepth, &[0.0, 1.0, 2.0, 3.0, 6.0]), 3);
        assert_eq!(distinct(Feature::RunningRequests, &[100.0, 120.0, 127.0]), 2);
        assert_eq!(distinct(Feature::PodClass, &[0.0, 1.0]), 2);
        assert_eq!(distinct(Feature::StepGapMs, &[0.0, 1.0, 200.0]), 1);
    }

    /// llm-d's bucket keys (vectors, bucket_key_queue_cache_prefix) and Weir's tell the same states apart,
    /// but for two differences on purpose: KV usage is in steps of 10 %, as llm-d documents it and not of
    /// 5 % as in its code, and a full prefix match stands alone.
    #[test]
    fn states_are_told_apart_as_llm_ds_bucket_keys_do() {
        let Ok(folder) = std::env::var("WEIR_VECTORS") else {
            println!("skipped: WEIR_VECTORS does not name the folder of llmd_vectors.json");
            return;
        };
        let file = std::path::Path::new(&folder).join("llmd_vectors.json");
        let vectors: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let both = |case: &serde_json::Value| {
            let number = |name: &str| case["input"][name].as_f64().unwrap() as f32;
            let mut features = Features(sample().row);
            features.set(Feature::KvUsage, number("kv_cache_percentage"));
            features.set(Feature::PrefixMatch, number("prefix_cache_score"));
            features.set(Feature::QueueDepth, number("num_request_waiting"));
            let ours = Bucket::of(&placed(features.0, NOW_UNIX_MS));
            let theirs = [0, 1, 2].map(|at| {
                u8::try_from(case["bucket_key_queue_cache_prefix"][at].as_u64().unwrap()).unwrap()
            });
            (ours, theirs)
        };
        let cases: Vec<_> =
            vectors["feature_vectors"].as_array().unwrap().iter().map(both).collect();
        assert!(cases.len() > 1);
        for (ours, [queue, kv, prefix]) in &cases {
            assert_eq!((ours.kv, ours.prefix.min(3)), (kv / 2, *prefix), "{ours:?}");
            for (other, [other_queue, ..]) in &cases {
                assert_eq!(
                    ours.queue.cmp(&other.queue),
                    queue.cmp(other_queue),
                    "{ours:?} {other:?}"
                );
            }
        }
    }
}
