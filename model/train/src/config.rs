//! What a trainer is told: where to read and publish, and how to learn.
//!
//! The caller builds it from its own configuration file; [`TrainConfig::check`] runs when a trainer
//! is opened, so that a bad value is refused before the first round and not in the middle of one.

use std::{path::PathBuf, time::Duration};

use crate::TrainError;

/// How a trainer reads, learns and publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// Directory of the spool's segments. It may not exist yet.
    pub spool: PathBuf,
    /// Names of the pod classes of the configuration, in its order; none takes the indices in samples as they are.
    pub classes: Vec<String>,
    /// Directory of the bundles; created when missing.
    pub bundles: PathBuf,
    /// The library to load; `None` looks in the environment, beside the binary and in `.native/`.
    pub xgboost_library: Option<PathBuf>,
    /// From the start of a round to that of the next, for whoever calls [`crate::Trainer::run_once`] in a loop.
    pub interval: Duration,
    /// Samples that a target needs before it is learned. Below it the target answers its prior.
    pub min_samples: usize,
    /// Samples that must have arrived since the last trained round before another one is worth it.
    pub min_new_samples: usize,
    /// Which samples are kept and which of them are held out.
    pub window: WindowConfig,
    /// Trees per target.
    pub trees: usize,
    /// Depth of a tree.
    pub depth: usize,
    /// Learning rate.
    pub eta: f32,
    /// Bundles kept, the one being served not counted when it is older than these.
    pub keep_bundles: usize,
}

impl Default for TrainConfig {
    /// 50 trees of depth 4 at eta 0.2 were as accurate as 100 at 0.15, and those as 200 of depth 6, on
    /// the features used here: docs/decisions/002-learning-the-ratio.md.
    fn default() -> Self {
        Self {
            spool: PathBuf::from("spool"),
            bundles: PathBuf::from("bundles"),
            classes: Vec::new(),
            xgboost_library: None,
            interval: Duration::from_secs(30),
            min_samples: 200,
            min_new_samples: 20,
            window: WindowConfig::default(),
            trees: 50,
            depth: 4,
            eta: 0.2,
            keep_bundles: 5,
        }
    }
}

/// Which samples are kept, and which of them are held out.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowConfig {
    /// Samples kept over all buckets.
    pub max_samples: usize,
    /// Samples kept in one bucket. Without it a steady load would push every rare state out.
    pub per_bucket_cap: usize,
    /// Age at which a sample is dropped: three days, so that a weekday's peak outlives a weekend.
    pub max_age: Duration,
    /// Share of the window, its newest part, that is held out.
    pub holdout_fraction: f64,
    /// Largest number of samples held out. More would not sharpen the error, and a model learns
    /// nothing of what is held out.
    pub max_holdout: usize,
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self {
            max_samples: 50_000,
            per_bucket_cap: 1_000,
            max_age: Duration::from_secs(3 * 24 * 3600),
            holdout_fraction: 0.15,
            max_holdout: 5_000,
        }
    }
}

impl TrainConfig {
    /// Refuses values that no round could work with.
    ///
    /// # Errors
    /// [`TrainError::Config`] with the first value that is out of range.
    pub fn check(&self) -> Result<(), TrainError> {
        match self.problems().into_iter().next() {
            Some((key, why)) => Err(TrainError::Config { key, why }),
            None => Ok(()),
        }
    }

    /// Every value that no round could work with, by its name, and what it must be.
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let window = &self.window;
        let fraction = window.holdout_fraction;
        let rules = [
            (self.min_samples >= 10, "min_samples", "must be at least 10"),
            (
                self.min_new_samples <= window.max_samples,
                "min_new_samples",
                "must be at most max_samples",
            ),
            ((1..=10_000).contains(&self.trees), "trees", "must be from 1 to 10000"),
            ((1..=16).contains(&self.depth), "depth", "must be from 1 to 16"),
            (self.eta > 0.0 && self.eta <= 1.0, "eta", "must be above 0, and at most 1"),
            (self.keep_bundles >= 1, "keep_bundles", "must be at least 1"),
            (window.max_samples >= self.min_samples, "max_samples", "must be at least min_samples"),
            (window.per_bucket_cap >= 1, "per_bucket_cap", "must be at least 1"),
            (
                fraction > 0.0 && fraction <= 0.5,
                "holdout_fraction",
                "must be above 0, and at most 0.5",
            ),
            (window.max_holdout >= 1, "max_holdout", "must be at least 1"),
            (!window.max_age.is_zero(), "max_age", "must be above 0"),
        ];
        let broken = rules.into_iter().filter(|(holds, ..)| !holds);
        broken.map(|(_, key, why)| (key, why)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_a_value_out_of_range_is_named() {
        assert!(TrainConfig::default().check().is_ok());
        let wrong = TrainConfig { eta: f32::NAN, ..TrainConfig::default() };
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.contains("eta must be above 0, and at most 1"), "{error}");
        let wrong = TrainConfig { trees: 0, depth: 17, min_new_samples: 50_001, ..wrong };
        let keys: Vec<_> = wrong.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["min_new_samples", "trees", "depth", "eta"]);
    }
}
