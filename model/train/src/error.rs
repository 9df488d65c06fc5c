//! Why a round, or the opening of a trainer, failed.
//!
//! Nothing here leaves a half-published bundle behind, and every one of them may be retried: a
//! trainer that returned an error keeps its window and tries again in its next round.

use std::{io, path::PathBuf};

/// Why a trainer could not be opened or a round could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A configured value is out of range.
    #[error("invalid training configuration: {key} {why}")]
    Config {
        /// Its name.
        key: &'static str,
        /// What it must be.
        why: &'static str,
    },
    /// No usable libxgboost.
    #[error("libxgboost cannot be used: {reason}; `make native` fetches it (looked at {looked})")]
    Library {
        /// What was wrong.
        reason: String,
        /// The paths that were tried.
        looked: String,
    },
    /// A call into libxgboost failed.
    #[error("{call} failed: {reason}")]
    Xgboost {
        /// The function.
        call: &'static str,
        /// What the library said.
        reason: String,
    },
    /// The trained model is not of the form that the graph is written from.
    #[error("the model that xgboost saved is not understood: {0}")]
    Model(String),
    /// The written graph cannot be read back.
    #[error("the written graph cannot be read back: {0}")]
    Graph(String),
    /// The written graph differs from XGBoost.
    #[error(
        "the written graph answers {graph} ms {target} where xgboost answers {xgboost} (row {row})"
    )]
    Parity {
        /// Target of the value.
        target: &'static str,
        /// Row of the check.
        row: usize,
        /// What the graph answers, in milliseconds.
        graph: f32,
        /// What XGBoost answers, in milliseconds.
        xgboost: f32,
    },
    /// Another trainer holds the directory.
    #[error("another trainer publishes into {}: {by}", .dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// Which process that is, as far as it has said.
        by: String,
    },
    /// The bundle could not be written; the bundle served before is still the current one.
    #[error("cannot {action} {}: {reason}", .path.display())]
    Publish {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
}
