//! Turns the spool into verified model bundles.
//!
//! Owned and driven by `weir train`, a process of its own: [`Trainer::run_once`] reads what the
//! dispatcher appended to the spool, trains XGBoost on a stratified window of it, writes one ONNX
//! graph for both latencies, proves that the graph answers as XGBoost does, and publishes it when
//! it is not worse on the newest samples than the bundle being served. Whatever fails, the bundle
//! being served stays what it was, whole.
//!
//! ```no_run
//! use weir_train::{Round, TrainConfig, Trainer};
//!
//! let config = TrainConfig { spool: "spool".into(), ..TrainConfig::default() };
//! let mut trainer = Trainer::open(config)?;
//! if let Round::Published { version, .. } = trainer.run_once()? {
//!     println!("version {version} serves");
//! }
//! # Ok::<(), weir_train::TrainError>(())
//! ```
//!
//! # Layout
//! - [`config`]: what a trainer is told
//! - [`trainer`]: one round, from the spool to the bundle
//! - [`spool`]: what is new in the spool, and what was skipped of it
//! - [`example`]: what of a sample teaches TTFT and TPOT
//! - [`window`]: buckets, age and the newest slice
//! - [`learn`]: training, and what the trained model answers
//! - [`library`], [`xgboost`]: finding libxgboost, and the only unsafe code
//! - [`tree`], [`onnx`]: XGBoost's trees, and the graph they are written as
//! - [`gains`]: what each feature brings
//! - [`parity`]: proof that graph and XGBoost are equal; golden rows
//! - [`holdout`]: errors on the newest slice, and the gate
//! - [`bundles`]: atomic publishing
//! - [`metrics`], [`error`]: what a caller can export and report
#![expect(rustdoc::private_intra_doc_links, reason = "the layout is for readers of the source")]

mod bundles;
mod config;
mod error;
mod example;
mod gains;
mod holdout;
mod learn;
mod library;
mod metrics;
mod onnx;
mod parity;
mod spool;
#[cfg(test)]
mod synthetic;
mod trainer;
mod tree;
mod window;
mod xgboost;

pub use config::{TrainConfig, WindowConfig};
pub use error::TrainError;
pub use metrics::TrainMetrics;
pub use spool::Skipped;
pub use trainer::{Round, Trainer};
