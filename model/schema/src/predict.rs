//! Predictions with quantiles, and the trait that every evaluator implements.

use serde::{Deserialize, Serialize};

use crate::{
    FirstToken, Row, Sample, StepTime, StepsLearned, Stride,
    quality::{ClassQuality, Grades, PatternQuality, Rollback, TargetQuality, VersionQuality},
};

/// Median and 90th percentile of a predicted latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median, in milliseconds.
    pub p50: f32,
    /// 90th percentile, in milliseconds.
    pub p90: f32,
}

/// Which evaluator a number came from, in the order of trust.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The served bundle through ONNX Runtime.
    Onnx,
    /// The same bundle by its flattened trees: equal to ONNX Runtime but for the last bits.
    Forest,
    /// A profile file.
    Profile,
    /// The step-time model fitted online.
    #[default]
    Prior,
}

impl Source {
    /// The name used in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Forest => "forest",
            Self::Profile => "profile",
            Self::Prior => "prior",
        }
    }

    /// Whether it is the served bundle, however that is evaluated.
    pub const fn is_bundle(self) -> bool {
        matches!(self, Self::Onnx | Self::Forest)
    }
}

/// What serving one request on one pod is predicted to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Time from dispatch to the first token, in milliseconds. The wait in a lane is not in it.
    pub ttft_ms: Quantiles,
    /// Mean time per output token after the first, in milliseconds.
    pub tpot_ms: Quantiles,
    /// Where `ttft_ms` came from.
    pub ttft_source: Source,
    /// Where `tpot_ms` came from.
    pub tpot_source: Source,
    /// Median TTFT of the served bundle, in milliseconds, whether or not it was chosen.
    pub model_ttft_ms: Option<f32>,
    /// Median TPOT of the served bundle, in milliseconds, whether or not it was chosen.
    pub model_tpot_ms: Option<f32>,
    /// Version of the served bundle that `model_ttft_ms` and `model_tpot_ms` came from; 0 is none.
    pub model_version: u64,
}

/// Why a batch could not be predicted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// The evaluator itself failed.
    #[error("evaluator failed: {0}")]
    Evaluator(String),
    /// The evaluator returned a value that is not finite and positive.
    #[error("evaluator returned {value} for {target} in row {row}")]
    NotANumber {
        /// Row of the batch.
        row: usize,
        /// Target of the value.
        target: &'static str,
        /// The value as text, for it may be NaN.
        value: String,
    },
    /// The batch and the output differ in length.
    #[error("{rows} rows but room for {room} predictions")]
    Room {
        /// Rows given.
        rows: usize,
        /// Predictions that fit.
        room: usize,
    },
}

/// What an evaluator says of itself, for admin pages, metrics and tests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Evaluator that serves TTFT now.
    pub ttft_source: Source,
    /// Evaluator that serves TPOT now.
    pub tpot_source: Source,
    /// Version of the loaded bundle; 0 is none.
    pub model_version: u64,
    /// Version that serves again if the loaded one does worse; `None` once it has shown to be no worse.
    #[serde(default)]
    pub predecessor: Option<u64>,
    /// What evaluates the loaded bundle; `None` without one.
    #[serde(default)]
    pub model_evaluator: Option<BundleEvaluator>,
    /// Why a more trusted evaluator does not serve, if so.
    pub fallback_reason: Option<String>,
    /// Calls that failed and were answered by the next evaluator.
    pub failures: u64,
    /// The profiles of pod classes, by class.
    #[serde(default)]
    pub profiles: Vec<ProfileStatus>,
    /// How good TTFT has been lately.
    pub ttft: TargetQuality,
    /// How good TPOT has been lately.
    pub tpot: TargetQuality,
    /// The newest versions that served, oldest first.
    pub versions: Vec<VersionQuality>,
    /// Pod classes, by name.
    pub classes: Vec<ClassQuality>,
    /// Patterns; a bounded number.
    pub patterns: Vec<PatternQuality>,
    /// All patterns beyond that number together.
    pub other_patterns: Grades,
    /// Bundles taken out of service because the one before was better.
    pub rollbacks: u64,
    /// The last of them.
    pub last_rollback: Option<Rollback>,
}

/// What evaluates a bundle, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEvaluator {
    /// [`Source::Forest`] or [`Source::Onnx`].
    pub source: Source,
    /// Why it is not the forest, as one stable word; empty when it is.
    pub reason: String,
    /// The same in full, for people.
    pub detail: String,
}

/// How the profile of one pod class does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfileStatus {
    /// Name of the class.
    pub class: String,
    /// Whether it serves TTFT there while no bundle does.
    pub preferred_ttft: bool,
    /// Whether it serves TPOT there while no bundle does.
    pub preferred_tpot: bool,
    /// Recent mean absolute relative error of its TTFT, served or not; `None` before any outcome.
    pub live_mape_ttft: Option<f32>,
    /// Recent mean absolute relative error of its TPOT, served or not; `None` before any outcome.
    pub live_mape_tpot: Option<f32>,
    /// Times that its TTFT was read at an edge of its grid.
    pub outside_ttft: u64,
    /// Times that its TPOT was read at an edge of its grid.
    pub outside_tpot: u64,
}

/// Predicts latencies, and learns from what was measured.
///
/// One owner drives it (a pool's scheduler), so every method takes `&mut self` or is cheap to call
/// on a snapshot. An implementation must answer every batch: when its best evaluator fails it falls
/// to the next, says so in [`Status`], and dispatch goes on.
pub trait Predict: Send {
    /// Predicts each row into the same position of `out`, whose length must equal `rows.len()`.
    ///
    /// # Errors
    /// Only when no evaluator at all could answer; the caller then uses the step-time prior in the
    /// rows themselves.
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError>;

    /// Takes up what it was given to predict with, if there is something new: called now and then though nobody asks, so
    /// that an idle dispatcher says of itself what it would serve with. Required: whoever wraps another has to hand it on.
    fn take_up(&mut self);

    /// The step-time model of a pod class as fitted so far.
    fn step_time(&self, pod_class: u16) -> StepTime;

    /// Learns the step time of a pod class from a stretch of its work.
    fn observe_stride(&mut self, stride: &Stride);

    /// Learns from a first token what a request pays outside the steps.
    fn observe_first_token(&mut self, first: &FirstToken);

    /// What strides of a pod class were said to have done was not what its engines did: what they taught may be wrong. Whoever wraps
    /// another has to hand this on.
    fn doubt_steps(&mut self, _pod_class: u16) {}

    /// Learns errors and quantile corrections from a finished request.
    fn observe_sample(&mut self, sample: &Sample);

    /// What was found out of the step times of a pod class, for a later process or another one; `None` where nothing was, or is kept.
    /// Whoever wraps another has to hand this and [`Self::recall_steps`] on.
    fn steps_learned(&self, _pod_class: u16) -> Option<StepsLearned> {
        None
    }

    /// Goes on from what another has found out of the step times of a pod class, if it can be true. Says whether it does.
    fn recall_steps(&mut self, _pod_class: u16, _learned: &StepsLearned) -> bool {
        false
    }

    /// What serves now and how well.
    fn status(&self) -> Status;
}
