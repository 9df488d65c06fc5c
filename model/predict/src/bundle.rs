//! Reading and verifying a bundle.
//!
//! Called by the loader thread, off the hot path: some tens of milliseconds for a usual bundle. A bundle
//! that comes out of [`Bundle::load_by`] was trained for this feature schema, is the file its manifest
//! describes, holds no operator that a tree model does not need and nothing that takes more than one does, and reproduces its own golden
//! rows in good time with the evaluator that will serve it. Anything else is a [`BundleError`] with a reason, and what serves
//! goes on serving.

mod bounds;
mod error;
mod scan;
#[cfg(test)]
mod tests;

use std::path::Path;

use sha2::{Digest, Sha256};
use weir_schema::manifest::{MANIFEST_CAP, MANIFEST_FILE, MODEL_CAP, MODEL_FILE, read_capped};
use weir_schema::{BundleEvaluator, Manifest, Source, schema_hash};

pub use self::error::BundleError;
use crate::evaluator::{Choice, Evaluator, Evaluators};
use crate::forest::Unfit;
use crate::runtime::Runtime;

/// A verified bundle, ready to serve.
#[derive(Debug)]
pub struct Bundle {
    /// What the bundle says of itself.
    pub manifest: Manifest,
    pub(crate) evaluator: Evaluator,
}

impl Bundle {
    /// Reads and verifies the bundle in `dir` and builds its session, to be evaluated by ONNX Runtime.
    ///
    /// # Errors
    /// One variant for each way in which a bundle can be unfit.
    pub fn load(runtime: &Runtime, dir: &Path) -> Result<Self, BundleError> {
        Self::load_by(&Evaluators { choice: Choice::Ort, runtime: Some(runtime.clone()) }, dir)
    }

    /// Reads and verifies the bundle in `dir`, to be evaluated by what is wanted and proven.
    ///
    /// # Errors
    /// One variant for each way in which a bundle can be unfit.
    pub fn load_by(evaluators: &Evaluators, dir: &Path) -> Result<Self, BundleError> {
        let manifest = read_manifest(&dir.join(MANIFEST_FILE))?;
        let model = read(&dir.join(MODEL_FILE), MODEL_CAP)?;
        let found = format!("{:x}", Sha256::digest(&model));
        if !found.eq_ignore_ascii_case(&manifest.sha256) {
            return Err(BundleError::Sha256Mismatch { manifest: manifest.sha256, found });
        }
        scan::check(&model)?;
        bounds::check(&model)?;
        let evaluator = Evaluator::proven(evaluators, &model, &manifest.golden)?;
        Ok(Self { manifest, evaluator })
    }

    /// What evaluates it, and why that is not the forest.
    pub fn evaluator(&self) -> BundleEvaluator {
        let unfit = self.evaluator.unfit();
        BundleEvaluator {
            source: self.evaluator.source(),
            reason: unfit.map(Unfit::reason).unwrap_or_default().to_owned(),
            detail: unfit.map(ToString::to_string).unwrap_or_default(),
        }
    }

    /// What its numbers are called.
    pub(crate) const fn source(&self) -> Source {
        self.evaluator.source()
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
        std::io::ErrorKind::FileTooLarge => {
            BundleError::TooLarge { path: path.to_owned(), cap_bytes: cap }
        }
        _ => BundleError::Unreadable { path: path.to_owned(), source },
    };
    read_capped(path, cap).map_err(failed)
}

fn read_manifest(path: &Path) -> Result<Manifest, BundleError> {
    let corrupt = |detail: String| BundleError::CorruptManifest { path: path.to_owned(), detail };
    let bytes = read(path, MANIFEST_CAP)?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))?;
    if manifest.schema != schema_hash() {
        return Err(BundleError::SchemaMismatch {
            bundle: manifest.schema,
            ours: schema_hash().to_owned(),
        });
    }
    if manifest.version == 0 {
        return Err(corrupt("version 0 means no bundle".to_owned()));
    }
    Ok(manifest)
}
