//! The bundle: one directory per version, published by an atomic rename.
//!
//! ```text
//! bundles/
//!   v000000000007/          a bundle; never changed after it appeared
//!     model.onnx            input `features` f32 [n, FEATURE_COUNT], output `latency_ms` f32 [n, 2]
//!     manifest.json         this module's Manifest
//!   current                 text: the name of the bundle to serve, replaced by rename
//!   pinned                  the same, by an operator; not there while nothing is pinned
//!   serving                 names, one a line, of others that dispatchers serve or may go back to
//!   round.json              the trainer's last round: crate::LastRound
//! ```
//! The two outputs are the median TTFT and TPOT in milliseconds, that is the row's priors times the
//! learned ratios; a reader needs to know nothing about how they were learned.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::Row;

/// File name of the graph inside a bundle.
pub const MODEL_FILE: &str = "model.onnx";
/// File name of the manifest inside a bundle.
pub const MANIFEST_FILE: &str = "manifest.json";
/// File name of the pointer to the bundle to serve.
pub const CURRENT_FILE: &str = "current";
/// File name of the pointer to the bundle that an operator has pinned: it serves whatever `current` names.
pub const PINNED_FILE: &str = "pinned";
/// File name of the list of bundles that some dispatcher serves or may go back to, though no pointer names them.
pub const SERVING_FILE: &str = "serving";
/// Largest manifest that is read, in bytes. Golden rows take most of it, 200 bytes each.
pub const MANIFEST_CAP: u64 = 4 << 20;
/// Largest graph that is read, in bytes; 300 trees of depth 6 per target take 2 MB.
pub const MODEL_CAP: u64 = 64 << 20;
/// Largest pointer or list that is read, in bytes.
const CURRENT_CAP: u64 = 4096;
/// Name of the graph's input.
pub const INPUT_NAME: &str = "features";
/// Name of the graph's output.
pub const OUTPUT_NAME: &str = "latency_ms";

/// The directory name of a bundle.
pub fn bundle_name(version: u64) -> String {
    format!("v{version:012}")
}

/// The version of a bundle directory, if the name is one.
pub fn bundle_version(name: &str) -> Option<u64> {
    name.strip_prefix('v')?.parse().ok()
}

/// The directory of the bundle that `current` names; `None` when there is no pointer.
///
/// # Errors
/// When the pointer cannot be read or does not name a bundle.
pub fn current_bundle(bundles: &Path) -> io::Result<Option<PathBuf>> {
    Ok(pointed_at(bundles, CURRENT_FILE)?.map(|(name, _)| bundles.join(name)))
}

/// The version that `pinned` names; `None` when nothing is pinned.
///
/// # Errors
/// When the pointer cannot be read or does not name a bundle.
pub fn pinned_version(bundles: &Path) -> io::Result<Option<u64>> {
    Ok(pointed_at(bundles, PINNED_FILE)?.map(|(_, version)| version))
}

/// The versions that dispatchers say in `serving` that they serve or may go back to; lines that name no bundle are passed over.
///
/// # Errors
/// When the list cannot be read.
pub fn serving_versions(bundles: &Path) -> io::Result<BTreeSet<u64>> {
    let bytes = match read_capped(&bundles.join(SERVING_FILE), CURRENT_CAP) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(|line| bundle_version(line.trim())).collect())
}

/// The name and the version of the bundle that a pointer names.
fn pointed_at(bundles: &Path, pointer: &str) -> io::Result<Option<(String, u64)>> {
    let bytes = match read_capped(&bundles.join(pointer), CURRENT_CAP) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes);
    let name = text.trim();
    let Some(version) = bundle_version(name) else {
        let message = format!("{pointer} names {name:?}, which is no bundle");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    };
    Ok(Some((name.to_owned(), version)))
}

/// The bytes of one of the files here.
///
/// # Errors
/// When it cannot be read, is no regular file, or is larger than `cap` bytes ([`io::ErrorKind::FileTooLarge`]).
pub fn read_capped(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    // Asked before opening: opening a pipe would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > cap {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than any sound one"));
    }
    Ok(bytes)
}

/// Error of one target on the holdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetError {
    /// Rows measured.
    pub rows: usize,
    /// Mean absolute relative error as [`crate::relative_error`] counts it, as a fraction.
    pub mape: f64,
    /// Root of the mean squared error of the logarithm.
    pub rmse_log: f64,
    /// The same of the prior on the same rows.
    pub prior_mape: f64,
    /// 90th percentile of measured / predicted.
    pub ratio_p90: f64,
}

/// Errors on the newest slice of the window, which was not trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holdout {
    /// Error of TTFT.
    pub ttft: TargetError,
    /// Error of TPOT.
    pub tpot: TargetError,
}

/// A row and what the graph must answer for it, within 1e-4 relative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoldenRow {
    /// The features; a missing value is `null`.
    pub row: Vec<Option<f32>>,
    /// Expected median TTFT in milliseconds.
    pub ttft_ms: f32,
    /// Expected median TPOT in milliseconds.
    pub tpot_ms: f32,
}

impl GoldenRow {
    /// The features as a row, if their number is right.
    pub fn features(&self) -> Option<Row> {
        let row: Vec<f32> = self.row.iter().map(|value| value.unwrap_or(f32::NAN)).collect();
        row.try_into().ok()
    }
}

/// How much of what the trees explain is due to one feature, as shares of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FeatureGain {
    /// Its name.
    pub feature: String,
    /// Its share for TTFT; 0 when TTFT is not learned.
    pub ttft: f64,
    /// Its share for TPOT; 0 when TPOT is not learned.
    pub tpot: f64,
}

/// What a bundle says of itself; read and checked before its graph is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version, one more than that of the bundle before it.
    pub version: u64,
    /// [`crate::schema_hash`] of the trainer.
    pub schema: String,
    /// SHA-256 of `model.onnx`, in hexadecimal.
    pub sha256: String,
    /// Wall-clock time of the training, in milliseconds since 1970.
    pub trained_at_unix_ms: u64,
    /// Names of the features in column order, for people.
    pub features: Vec<String>,
    /// Names of the pod classes, by the index that rows have of them; empty where it is not known, as in bundles of before this was
    /// kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Rows trained on, for TTFT and TPOT.
    pub rows: [usize; 2],
    /// Trees per target.
    pub trees: usize,
    /// Errors on the newest slice.
    pub holdout: Holdout,
    /// Rows with their expected outputs.
    pub golden: Vec<GoldenRow>,
    /// What each feature brings, in column order, for people; empty in bundles of before this was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<FeatureGain>,
}

impl Manifest {
    /// Whether rows mean the same pod classes by their indices where those of the configuration are called like this: one that
    /// was added or left out at the end changes no other.
    pub fn fits(&self, classes: &[String]) -> bool {
        self.classes.iter().zip(classes).all(|(learned, configured)| learned == configured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_from_before_gains_were_kept_is_read() {
        let old = r#"{"version": 3, "schema": "s", "sha256": "x", "trained_at_unix_ms": 5,
            "features": [], "rows": [1, 2], "trees": 4, "golden": [], "holdout": {
            "ttft": {"rows": 1, "mape": 0.1, "rmse_log": 0.1, "prior_mape": 0.2, "ratio_p90": 1.1},
            "tpot": {"rows": 1, "mape": 0.1, "rmse_log": 0.1, "prior_mape": 0.2, "ratio_p90": 1.1}}}"#;
        let manifest: Manifest = serde_json::from_str(old).unwrap();
        assert_eq!((manifest.version, manifest.gains.len()), (3, 0));
        assert!(manifest.fits(&["any".to_owned()]));
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let learned = Manifest { classes: of(&["h100", "a100"]), ..manifest.clone() };
        assert!(learned.fits(&of(&["h100"])) && learned.fits(&of(&["h100", "a100", "h200"])));
        assert!(!learned.fits(&of(&["h200", "h100", "a100"])) && !learned.fits(&of(&["a100"])));
        let text = serde_json::to_string(&manifest).unwrap();
        assert!(!text.contains("gains"), "{text}");
    }
}
