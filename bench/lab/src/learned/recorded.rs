//! A bundle as it is, without training.

use std::path::Path;

use anyhow::{Context, Result};
use weir_predict::{Bundle, Chain, Choice, Evaluators, Runtime};
use weir_schema::manifest::{MANIFEST_FILE, current_bundle};

/// A predictor that serves the bundle in `dir`, which is a bundle or a folder of bundles with a current one, through ONNX
/// Runtime. Step times and 90th percentiles are learned as in service.
///
/// # Errors
/// When ONNX Runtime is missing, or there is no bundle that can be verified.
pub fn recorded(dir: &Path) -> Result<Chain> {
    recorded_by(dir, Choice::Ort)
}

/// The same, by the evaluator that is chosen.
///
/// # Errors
/// When ONNX Runtime is missing, or there is no bundle that can be verified and evaluated so.
pub fn recorded_by(dir: &Path, choice: Choice) -> Result<Chain> {
    let bundle = if dir.join(MANIFEST_FILE).is_file() {
        dir.to_owned()
    } else {
        let current = current_bundle(dir).with_context(|| format!("{}", dir.display()))?;
        current.with_context(|| format!("{} holds no bundle", dir.display()))?
    };
    let evaluators = Evaluators { choice, runtime: Some(Runtime::load(None)?) };
    let bundle =
        Bundle::load_by(&evaluators, &bundle).with_context(|| format!("{}", bundle.display()))?;
    let mut chain = Chain::new();
    chain.set_bundle(bundle);
    Ok(chain)
}
