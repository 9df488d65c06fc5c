//! Reading and verifying a bundle.
//!
//! Called by the loader thread, off the hot path: 10 to 30 ms for a usual bundle. A bundle that comes
//! out of [`Bundle::load`] was trained for this feature schema, is the file its manifest describes,
//! holds no operator that a tree model does not need, and reproduces its own golden rows. Anything
//! else is a [`BundleError`] with a reason, and what serves goes on serving.

mod error;
mod scan;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};
use weir_schema::manifest::{MANIFEST_FILE, MODEL_FILE};
use weir_schema::{GoldenRow, Manifest, Row, Target, schema_hash};

pub use self::error::BundleError;
use crate::onnx::OnnxEvaluator;
use crate::prior::measurable;
use crate::runtime::Runtime;

/// Largest manifest that is read, in bytes. Golden rows take most of it, 200 bytes each.
const MANIFEST_CAP: u64 = 4 << 20;
/// Largest graph that is read, in bytes; 300 trees of depth 6 per target take 2 MB.
const MODEL_CAP: u64 = 64 << 20;
/// Largest relative difference on a golden row: ten times what sums of f32 in another order differ by.
const GOLDEN_TOLERANCE: f32 = 1e-4;

/// A verified bundle, ready to serve.
#[derive(Debug)]
pub struct Bundle {
    /// What the bundle says of itself.
    pub manifest: Manifest,
    pub(crate) evaluator: OnnxEvaluator,
}

impl Bundle {
    /// Reads and verifies the bundle in `dir`, and builds its session.
    ///
    /// # Errors
    /// One variant for each way in which a bundle can be unfit.
    pub fn load(runtime: &Runtime, dir: &Path) -> Result<Self, BundleError> {
        let manifest = read_manifest(&dir.join(MANIFEST_FILE))?;
        let model = read(&dir.join(MODEL_FILE), MODEL_CAP)?;
        let found = format!("{:x}", Sha256::digest(&model));
        if !found.eq_ignore_ascii_case(&manifest.sha256) {
            return Err(BundleError::Sha256Mismatch { manifest: manifest.sha256, found });
        }
        scan::check(&model)?;
        let mut evaluator = OnnxEvaluator::new(runtime, &model)?;
        check_golden(&manifest.golden, &mut evaluator)?;
        Ok(Self { manifest, evaluator })
    }

    /// The bundle's version.
    pub const fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Whether both are the same version of the same graph.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.version() == other.version() && self.manifest.sha256 == other.manifest.sha256
    }
}

fn read(path: &Path, cap: u64) -> Result<Vec<u8>, BundleError> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::NotFound => BundleError::Missing { path: path.to_owned() },
        _ => BundleError::Unreadable { path: path.to_owned(), source },
    };
    // Asked before opening: opening a pipe would wait for its writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(cap + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > cap {
        return Err(BundleError::TooLarge { path: path.to_owned(), cap_bytes: cap });
    }
    Ok(bytes)
}

fn read_manifest(path: &Path) -> Result<Manifest, BundleError> {
    let corrupt = |detail: String| BundleError::CorruptManifest { path: path.to_owned(), detail };
    let bytes = read(path, MANIFEST_CAP)?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if manifest.schema != schema_hash() {
        return Err(BundleError::SchemaMismatch { bundle: manifest.schema, ours: schema_hash() });
    }
    if manifest.version == 0 {
        return Err(corrupt("version 0 means no bundle".to_owned()));
    }
    Ok(manifest)
}

fn check_golden(golden: &[GoldenRow], evaluator: &mut OnnxEvaluator) -> Result<(), BundleError> {
    if golden.is_empty() {
        return Err(BundleError::NoGoldenRows);
    }
    let rows: Option<Vec<Row>> = golden.iter().map(GoldenRow::features).collect();
    let rows = rows.ok_or(BundleError::GoldenWidth)?;
    let medians = evaluator
        .evaluate(&rows)
        .map_err(|error| BundleError::Evaluation { detail: error.to_string() })?;
    for (row, (expected, got)) in golden.iter().zip(medians).enumerate() {
        let [ttft_ms, tpot_ms] = *got;
        check_value(row, Target::Ttft, expected.ttft_ms, ttft_ms)?;
        check_value(row, Target::Tpot, expected.tpot_ms, tpot_ms)?;
    }
    Ok(())
}

fn check_value(row: usize, target: Target, expected: f32, got: f32) -> Result<(), BundleError> {
    let target = target.name();
    if measurable(got).is_none() {
        return Err(BundleError::NotFinite { row, target, got });
    }
    let close = (got - expected).abs() <= GOLDEN_TOLERANCE * expected.abs();
    if close { Ok(()) } else { Err(BundleError::GoldenMismatch { row, target, expected, got }) }
}
