//! What is predicted, from what, and how a measured outcome is recorded.
//!
//! Everything that the dispatcher, the trainer and the files must agree on lives here and nowhere
//! else: the dispatcher logs the very row it decided with, the trainer learns from that row, and
//! [`schema_hash`] ties both to the bundle that is served.
//!
//! # Layout
//! - [`features`]: the feature row, with name, unit, range and meaning of each column
//! - [`predict`]: [`Prediction`] with quantiles, and the trait every evaluator implements
//! - [`profile`]: profile files of AIBrix and Llumnix, read as they are
//! - [`quality`]: how good the stated numbers are
//! - [`target`]: the two latencies that are predicted
//! - [`step`]: the step-time formula and the strides it is fitted from
//! - [`sample`]: one served request as a line of the spool
//! - [`spool`]: the names of the spool's segment files
//! - [`manifest`]: the bundle's manifest and the names of its files
//! - [`round`]: what a trainer says of its rounds
//! - [`onnx`]: the bundle's graph as bytes and as parts

pub mod features;
pub mod manifest;
pub mod onnx;
pub mod predict;
pub mod profile;
pub mod quality;
pub mod round;
pub mod sample;
pub mod spool;
pub mod step;
pub mod target;

pub use features::{
    FEATURE_COUNT, Feature, FeatureSpec, Features, Row, feature_specs, schema_hash,
};
pub use manifest::{FeatureGain, GoldenRow, Holdout, Manifest, TargetError};
pub use predict::{
    BundleEvaluator, Predict, PredictError, Prediction, ProfileStatus, Quantiles, Source, Status,
};
pub use profile::{Profile, ProfileError};
pub use quality::{
    ClassQuality, Drift, Grade, Grades, PatternQuality, Rollback, TargetQuality, VersionQuality,
    relative_error,
};
pub use round::LastRound;
pub use sample::{Sample, SampleOutcome};
pub use step::{FirstToken, LEAST_STEP_MS, StepTime, StepsLearned, Stride, prefill_pairs};
pub use target::Target;
