//! Every way in which a bundle can be unfit to serve.

use std::path::PathBuf;

use crate::forest::Unfit;

/// Why a bundle was refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bundle or one of its files is not there.
    #[error("no file {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file is there and cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is larger than any sound one.
    #[error("{} is larger than {cap_bytes} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that would have been read.
        cap_bytes: u64,
    },
    /// The manifest is not one.
    #[error("corrupt manifest {}: {detail}", path.display())]
    CorruptManifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The bundle was trained for other features.
    #[error("bundle has feature schema {bundle}, this program {ours}")]
    SchemaMismatch {
        /// Schema hash in the manifest.
        bundle: String,
        /// Schema hash of this program.
        ours: String,
    },
    /// Its rows mean other pod classes by their indices.
    #[error("bundle is of the pod classes {bundle:?}, configured are {ours:?}")]
    OtherClasses {
        /// Names in the manifest.
        bundle: Vec<String>,
        /// Names in the configuration.
        ours: Vec<String>,
    },
    /// The graph is not the file that the manifest describes.
    #[error("sha-256 of the graph is {found}, the manifest says {manifest}")]
    Sha256Mismatch {
        /// Sum in the manifest.
        manifest: String,
        /// Sum of the file.
        found: String,
    },
    /// The graph is no ONNX protobuf.
    #[error("corrupt graph: {detail}")]
    CorruptModel {
        /// What is wrong with it.
        detail: &'static str,
    },
    /// The graph wants to read other files.
    #[error("graph keeps data in other files")]
    ExternalData,
    /// The graph holds something that a tree model does not need.
    #[error("graph holds {op}, which is not allowed")]
    DisallowedOp {
        /// The operator with its domain, or what else was found.
        op: String,
    },
    /// A tree would take ONNX Runtime's stack.
    #[error("graph holds a tree of depth {depth}, of at most {most}")]
    TooDeep {
        /// Questions from the root to a leaf.
        depth: usize,
        /// Questions that one may have.
        most: usize,
    },
    /// The graph would take memory and time.
    #[error("graph has more than {most} {what}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// Decisions would wait for it.
    #[error("graph takes {} us for a row, of at most {}", took.as_micros(), most.as_micros())]
    TooSlow {
        /// What a row takes.
        took: std::time::Duration,
        /// What one may take.
        most: std::time::Duration,
    },
    /// Only the forest is wanted, and it cannot take the graph.
    #[error("the forest is wanted and cannot take the graph: {0}")]
    ForestRefused(Unfit),
    /// The forest cannot take the graph, and there is no ONNX Runtime.
    #[error("the forest cannot take the graph and there is no onnx runtime: {0}")]
    NoEvaluator(Unfit),
    /// ONNX Runtime refuses the graph.
    #[error("onnx runtime refuses the graph: {detail}")]
    Session {
        /// What it said.
        detail: String,
    },
    /// The graph has other inputs or outputs than agreed.
    #[error("wrong signature: {detail}")]
    Signature {
        /// Wanted and found.
        detail: String,
    },
    /// Without golden rows nothing shows that the graph computes what was trained.
    #[error("manifest has no golden rows")]
    NoGoldenRows,
    /// A golden row has too few or too many features.
    #[error("a golden row has the wrong number of features")]
    GoldenWidth,
    /// The graph cannot be run.
    #[error("golden rows cannot be evaluated: {detail}")]
    Evaluation {
        /// What ONNX Runtime said.
        detail: String,
    },
    /// A golden row does not give a latency.
    #[error("golden row {row} gives {target} {got}")]
    NotFinite {
        /// Index of the golden row.
        row: usize,
        /// Target of the value.
        target: &'static str,
        /// The value.
        got: f32,
    },
    /// A golden row gives another latency than in training.
    #[error("golden row {row} gives {target} {got} instead of {expected}")]
    GoldenMismatch {
        /// Index of the golden row.
        row: usize,
        /// Target of the value.
        target: &'static str,
        /// Value in the manifest, in milliseconds.
        expected: f32,
        /// Value of the graph, in milliseconds.
        got: f32,
    },
}

impl BundleError {
    /// One stable word for metrics and tests.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Unreadable { .. } => "unreadable",
            Self::TooLarge { .. } => "too_large",
            Self::CorruptManifest { .. } => "corrupt_manifest",
            Self::SchemaMismatch { .. } => "schema_mismatch",
            Self::OtherClasses { .. } => "other_classes",
            Self::Sha256Mismatch { .. } => "sha256_mismatch",
            Self::CorruptModel { .. } => "corrupt_model",
            Self::ExternalData => "external_data",
            Self::DisallowedOp { .. } => "disallowed_op",
            Self::TooDeep { .. } => "too_deep",
            Self::TooMuch { .. } => "too_much",
            Self::TooSlow { .. } => "too_slow",
            Self::ForestRefused(_) => "forest_refused",
            Self::NoEvaluator(_) => "no_evaluator",
            Self::Session { .. } => "session_refused",
            Self::Signature { .. } => "signature_mismatch",
            Self::NoGoldenRows => "no_golden_rows",
            Self::GoldenWidth => "golden_width",
            Self::Evaluation { .. } => "evaluation_failed",
            Self::NotFinite { .. } => "not_finite",
            Self::GoldenMismatch { .. } => "golden_mismatch",
        }
    }
}
