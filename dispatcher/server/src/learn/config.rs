//! What learning is told: where samples go, where bundles come from, and whether to train.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_predict::{Choice, forest::DEEPEST};
use weir_train::TrainConfig;

use crate::{config::Problems, fleet::config::RawClass};

/// Where bundles come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawModel {
    /// Folder of the bundles. Need not exist yet.
    pub bundles: PathBuf,
    /// The ONNX Runtime library, or its folder; searched for when left out.
    pub onnxruntime: Option<PathBuf>,
    /// What evaluates bundles.
    pub evaluator: RawEvaluator,
}

impl Default for RawModel {
    fn default() -> Self {
        let evaluator = RawEvaluator::Auto;
        Self { bundles: PathBuf::from(".weir/bundles"), onnxruntime: None, evaluator }
    }
}

/// What evaluates bundles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawEvaluator {
    /// The bundle's flattened trees where they are understood and agree with ONNX Runtime, else ONNX Runtime.
    #[default]
    Auto,
    /// ONNX Runtime.
    Ort,
    /// The flattened trees; a bundle that cannot be flattened is refused.
    Forest,
}

impl From<RawEvaluator> for Choice {
    fn from(raw: RawEvaluator) -> Self {
        match raw {
            RawEvaluator::Auto => Self::Auto,
            RawEvaluator::Ort => Self::Ort,
            RawEvaluator::Forest => Self::Forest,
        }
    }
}

/// Where samples go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawSpool {
    /// Folder of the segments. Need not exist yet.
    pub dir: PathBuf,
    /// Bytes after which a new segment is begun.
    #[schemars(range(min = 4096))]
    pub segment_bytes: u64,
    /// Bytes of all segments above which the oldest is removed; at least twice `segment_bytes`.
    pub max_bytes: u64,
}

impl Default for RawSpool {
    /// A sample takes about 600 bytes: 400,000 of them, a few hours of a busy pool.
    fn default() -> Self {
        Self { dir: PathBuf::from(".weir/spool"), segment_bytes: 8 << 20, max_bytes: 256 << 20 }
    }
}

/// How models are trained, by `weir train` or by a trainer that `weir serve` starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RawTrainer {
    /// Whether `weir serve` starts `weir train` and keeps it running.
    pub run: bool,
    /// Seconds from the start of a round to that of the next.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_s: u64,
    /// Samples a target needs before it is learned.
    #[schemars(range(min = 10))]
    pub min_samples: usize,
    /// New samples that make another round worth it; at most `max_samples`.
    pub min_new_samples: usize,
    /// The XGBoost library, or its folder; searched for when left out.
    pub xgboost: Option<PathBuf>,
    /// Trees per target.
    #[schemars(range(min = 1, max = 10000))]
    pub trees: usize,
    /// Depth of a tree; at most 8 where `model.evaluator` is `forest`.
    #[schemars(range(min = 1, max = 16))]
    pub depth: usize,
    /// Learning rate; above 0.
    #[schemars(range(max = 1))]
    pub eta: f32,
    /// Samples that are trained on, the newest of each bucket; at least `min_samples`.
    pub max_samples: usize,
    /// Hours after which a sample is dropped.
    #[schemars(range(min = 1))]
    pub max_age_h: u64,
    /// Bundles that are kept.
    #[schemars(range(min = 1))]
    pub keep_bundles: usize,
}

impl Default for RawTrainer {
    fn default() -> Self {
        let train = TrainConfig::default();
        Self {
            run: false,
            interval_s: train.interval.as_secs(),
            min_samples: train.min_samples,
            min_new_samples: train.min_new_samples,
            xgboost: None,
            trees: train.trees,
            depth: train.depth,
            eta: train.eta,
            max_samples: train.window.max_samples,
            max_age_h: train.window.max_age.as_secs() / 3600,
            keep_bundles: train.keep_bundles,
        }
    }
}

/// What learning is told.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnConfig {
    /// Folder of the bundles.
    pub bundles: PathBuf,
    /// The ONNX Runtime library; searched for when `None`.
    pub onnxruntime: Option<PathBuf>,
    /// What evaluates bundles.
    pub evaluator: Choice,
    /// Where samples go.
    pub spool: SpoolConfig,
    /// Whether a trainer is started and kept running.
    pub run_trainer: bool,
    /// How models are trained.
    pub train: TrainConfig,
}

/// Where samples go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolConfig {
    /// Folder of the segments.
    pub dir: PathBuf,
    /// Bytes after which a new segment is begun.
    pub segment_bytes: u64,
    /// Bytes of all segments above which the oldest is removed.
    pub max_bytes: u64,
}

impl LearnConfig {
    /// The validated form.
    pub fn check(
        model: &RawModel,
        spool: &RawSpool,
        trainer: &RawTrainer,
        classes: &[RawClass],
        problems: &mut Problems,
    ) -> Self {
        let named = !model.bundles.as_os_str().is_empty();
        problems.require(named, "model.bundles", "must name a folder");
        problems.require(!spool.dir.as_os_str().is_empty(), "spool.dir", "must name a folder");
        let some = spool.segment_bytes >= 4096;
        problems.require(some, "spool.segment_bytes", "must be at least 4096");
        let room = spool.max_bytes / 2 >= spool.segment_bytes;
        problems.require(room, "spool.max_bytes", "must be at least twice spool.segment_bytes");
        let sane = (1..=86_400).contains(&trainer.interval_s);
        problems.require(sane, "trainer.interval_s", "must be from 1 to 86400");
        // Every bundle would be refused.
        if model.evaluator == RawEvaluator::Forest && (DEEPEST + 1..=16).contains(&trainer.depth) {
            let wanted = format!("must be at most {DEEPEST} where model.evaluator is forest");
            problems.add("trainer.depth", wanted);
        }
        let mut train = train_config(model, spool, trainer);
        train.classes = classes.iter().map(|class| class.name.clone()).collect();
        for (name, why) in train.problems() {
            // The one that is written in hours.
            let name = if name == "max_age" { "max_age_h" } else { name };
            problems.add(&format!("trainer.{name}"), why);
        }
        Self {
            bundles: model.bundles.clone(),
            onnxruntime: model.onnxruntime.clone(),
            evaluator: model.evaluator.into(),
            spool: SpoolConfig {
                dir: spool.dir.clone(),
                segment_bytes: spool.segment_bytes,
                max_bytes: spool.max_bytes,
            },
            run_trainer: trainer.run,
            train,
        }
    }
}

fn train_config(model: &RawModel, spool: &RawSpool, trainer: &RawTrainer) -> TrainConfig {
    let mut train = TrainConfig {
        spool: spool.dir.clone(),
        bundles: model.bundles.clone(),
        xgboost_library: trainer.xgboost.clone(),
        interval: Duration::from_secs(trainer.interval_s),
        min_samples: trainer.min_samples,
        min_new_samples: trainer.min_new_samples,
        trees: trainer.trees,
        depth: trainer.depth,
        eta: trainer.eta,
        keep_bundles: trainer.keep_bundles,
        ..TrainConfig::default()
    };
    train.window.max_samples = trainer.max_samples;
    train.window.max_age = Duration::from_secs(trainer.max_age_h.saturating_mul(3600));
    train
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(evaluator: RawEvaluator, depth: usize, min_new_samples: usize) -> String {
        let model = RawModel { evaluator, ..RawModel::default() };
        let trainer = RawTrainer { depth, min_new_samples, ..RawTrainer::default() };
        let mut problems = Problems::default();
        LearnConfig::check(&model, &RawSpool::default(), &trainer, &[], &mut problems);
        problems.to_string()
    }

    #[test]
    fn trees_that_the_forest_would_refuse_are_refused_where_nothing_else_evaluates() {
        assert_eq!(problems(RawEvaluator::Forest, 8, 20), "");
        assert_eq!(problems(RawEvaluator::Auto, 16, 20), "");
        let said = "trainer.depth: must be at most 8 where model.evaluator is forest";
        for depth in [9, 16] {
            assert_eq!(problems(RawEvaluator::Forest, depth, 20), said);
        }
        assert_eq!(problems(RawEvaluator::Forest, 17, 20), "trainer.depth: must be from 1 to 16");
    }

    #[test]
    fn more_new_samples_than_are_kept_would_never_come() {
        assert_eq!(problems(RawEvaluator::Auto, 4, 50_000), "");
        let said = "trainer.min_new_samples: must be at most max_samples";
        assert_eq!(problems(RawEvaluator::Auto, 4, 50_001), said);
    }
}
