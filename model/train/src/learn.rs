//! Training of the two targets, and what the trained model answers.
//!
//! Deterministic: one thread, a fixed seed, no sampling. The same examples in the same order give
//! the same trees.

use weir_schema::{FEATURE_COUNT, FeatureGain, FeatureSpec, Row, Target, feature_specs};

use crate::{
    TrainConfig, TrainError,
    example::Example,
    gains::shares,
    tree::{Tree, trees},
    xgboost::{Booster, Matrix, Xgboost},
};

/// One target's trees with the booster they came from.
struct Learned {
    booster: Booster,
    trees: Vec<Tree>,
    gains: [f64; FEATURE_COUNT],
    rows: usize,
}

/// A trained model that may become a bundle. A target with too few samples answers its prior.
pub(crate) struct Candidate {
    xgboost: Xgboost,
    learned: [Option<Learned>; 2],
}

impl Candidate {
    /// Trains each of the targets that is to be learned.
    pub(crate) fn train(
        xgboost: &Xgboost,
        config: &TrainConfig,
        examples: &[Example],
        targets: &[Target],
    ) -> Result<Self, TrainError> {
        let mut laid = None;
        let learned = |target: Target| match targets.contains(&target) {
            true => learn(xgboost, config, target, examples, &mut laid).map(Some),
            false => Ok(None),
        };
        let [ttft, tpot] = Target::ALL.map(learned);
        Ok(Self { xgboost: xgboost.clone(), learned: [ttft?, tpot?] })
    }

    /// Rows that each target was trained on.
    pub(crate) fn rows(&self) -> [usize; 2] {
        self.learned.each_ref().map(|learned| learned.as_ref().map_or(0, |found| found.rows))
    }

    /// The trees of each target; none when it answers its prior.
    pub(crate) fn trees(&self) -> [&[Tree]; 2] {
        self.learned.each_ref().map(|learned| match learned {
            Some(found) => found.trees.as_slice(),
            None => &[],
        })
    }

    /// What each feature brings, in column order.
    pub(crate) fn gains(&self) -> Vec<FeatureGain> {
        let [ttft, tpot] = self
            .learned
            .each_ref()
            .map(|learned| learned.as_ref().map_or([0.0; FEATURE_COUNT], |found| found.gains));
        let gains = feature_specs().iter().zip(ttft).zip(tpot);
        let gain = |((spec, ttft), tpot): ((&FeatureSpec, f64), f64)| FeatureGain {
            feature: spec.name.to_owned(),
            ttft,
            tpot,
        };
        gains.map(gain).collect()
    }

    /// What XGBoost itself answers for rows: prior x exp(trees), in milliseconds.
    pub(crate) fn latency_ms(&self, rows: &[Row]) -> Result<Vec<[f32; 2]>, TrainError> {
        let mut answers = vec![[0.0; 2]; rows.len()];
        if rows.is_empty() {
            return Ok(answers);
        }
        let matrix = self.xgboost.matrix(rows.as_flattened(), FEATURE_COUNT)?;
        for (column, (target, learned)) in Target::ALL.iter().zip(&self.learned).enumerate() {
            let sums = match learned {
                Some(found) => found.booster.predict(&matrix)?,
                None => vec![0.0; rows.len()],
            };
            for ((answer, row), sum) in answers.iter_mut().zip(rows).zip(sums) {
                let prior_ms = row.get(target.prior() as usize).copied().unwrap_or(f32::NAN);
                if let Some(answer) = answer.get_mut(column) {
                    *answer = prior_ms * sum.exp();
                }
            }
        }
        Ok(answers)
    }
}

/// The rows that teach a target, as a matrix. Where they teach the next target too, which they nearly always do, it takes
/// the same matrix with other labels: XGBoost sorts the columns of each matrix into bins, a tenth of a training.
struct Laid {
    /// Places of the examples.
    places: Vec<usize>,
    matrix: Matrix,
}

fn learn(
    xgboost: &Xgboost,
    config: &TrainConfig,
    target: Target,
    examples: &[Example],
    laid: &mut Option<Laid>,
) -> Result<Learned, TrainError> {
    let labelled = examples.iter().enumerate();
    let labelled = labelled.filter_map(|(place, found)| Some((place, found.label(target)?)));
    let (places, labels): (Vec<usize>, Vec<f32>) = labelled.unzip();
    let laid = match laid.take().filter(|laid| laid.places == places) {
        Some(same) => laid.insert(same),
        None => {
            let rows: Vec<Row> =
                places.iter().filter_map(|place| Some(examples.get(*place)?.row)).collect();
            let matrix = xgboost.matrix(rows.as_flattened(), FEATURE_COUNT)?;
            laid.insert(Laid { places, matrix })
        }
    };
    laid.matrix.label(&labels)?;
    let booster = xgboost.booster(&laid.matrix, &parameters(config))?;
    for iteration in 0..config.trees {
        booster.update(iteration, &laid.matrix)?;
    }
    let saved = booster.save()?;
    Ok(Learned { trees: trees(&saved)?, gains: shares(&saved), booster, rows: labels.len() })
}

fn parameters(config: &TrainConfig) -> [(&'static str, String); 9] {
    [
        // The median of the ratio, which a rare long stall does not move; measured against the
        // squared error in docs/decisions/002-learning-the-ratio.md.
        ("objective", "reg:absoluteerror".into()),
        // Set, or XGBoost estimates it from the labels and the graph would have to add it.
        ("base_score", "0".into()),
        ("tree_method", "hist".into()),
        ("max_depth", config.depth.to_string()),
        ("eta", config.eta.to_string()),
        ("nthread", "1".into()),
        ("seed", "0".into()),
        ("verbosity", "0".into()),
        ("validate_parameters", "true".into()),
    ]
}
