//! Who predicts: a bundle trained on the load's own samples behind ONNX Runtime or as a forest, or the prior alone.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use weir_predict::{Bundle, Chain, Choice, Evaluators, Runtime};
use weir_schema::{
    FirstToken, Predict, PredictError, Prediction, Row, Sample, Status, StepTime, Stride,
    manifest::current_bundle, spool::segment_name,
};
use weir_train::{TrainConfig, Trainer};

/// Who predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Evaluator {
    /// A bundle through ONNX Runtime
    Ort,
    /// The same bundle's trees, flattened
    Forest,
    /// The step-time model alone
    Prior,
}

impl Evaluator {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ort => "ort",
            Self::Forest => "forest",
            Self::Prior => "prior",
        }
    }

    /// The predictor; `bundles` is where a bundle was published, for those that need one.
    pub(super) fn predictor(self, bundles: &Path) -> Result<Box<dyn Predict>> {
        Ok(match self {
            Self::Prior => Box::new(Chain::new()),
            Self::Ort => Box::new(serving(bundles, Choice::Ort)?),
            Self::Forest => Box::new(serving(bundles, Choice::Forest)?),
        })
    }
}

/// A chain that serves the bundle published in a folder by one of the bundle's two evaluators.
fn serving(bundles: &Path, choice: Choice) -> Result<Chain> {
    let bundle = current_bundle(bundles)?.context("no bundle was published")?;
    let evaluators = Evaluators { choice, runtime: Some(Runtime::load(None)?) };
    let mut chain = Chain::new();
    chain.set_bundle(Bundle::load_by(&evaluators, &bundle)?);
    Ok(chain)
}

/// Trains a bundle on samples and publishes it in a folder, the name of which is returned.
pub(crate) fn train(samples: &[Sample], folder: &Path) -> Result<std::path::PathBuf> {
    let (spool, bundles) = (folder.join("spool"), folder.join("bundles"));
    fs::create_dir_all(&spool)?;
    let mut lines = Vec::new();
    for (at_unix_ms, sample) in (1u64..).zip(samples) {
        serde_json::to_writer(&mut lines, &Sample { at_unix_ms, ..sample.clone() })?;
        lines.push(b'\n');
    }
    fs::write(spool.join(segment_name(1)), lines)?;
    let config = TrainConfig { spool, bundles: bundles.clone(), ..TrainConfig::default() };
    let mut trainer = Trainer::open(config).context("training a bundle for the measurement")?;
    trainer.run_at(samples.len() as u64 + 1)?;
    Ok(bundles)
}

/// A predictor, with the rows it was asked counted.
pub(super) struct Counted {
    inner: Box<dyn Predict>,
    rows: Arc<AtomicU64>,
}

impl Counted {
    /// The predictor, and where its rows are counted.
    pub(super) fn new(inner: Box<dyn Predict>) -> (Self, Arc<AtomicU64>) {
        let rows = Arc::new(AtomicU64::new(0));
        (Self { inner, rows: Arc::clone(&rows) }, rows)
    }
}

impl Predict for Counted {
    fn predict(&mut self, rows: &[Row], out: &mut [Prediction]) -> Result<(), PredictError> {
        self.rows.fetch_add(rows.len() as u64, Relaxed);
        self.inner.predict(rows, out)
    }

    fn take_up(&mut self) {
        self.inner.take_up();
    }

    fn step_time(&self, pod_class: u16) -> StepTime {
        self.inner.step_time(pod_class)
    }

    fn observe_stride(&mut self, stride: &Stride) {
        self.inner.observe_stride(stride);
    }

    fn observe_first_token(&mut self, first: &FirstToken) {
        self.inner.observe_first_token(first);
    }

    fn doubt_steps(&mut self, pod_class: u16) {
        self.inner.doubt_steps(pod_class);
    }

    fn observe_sample(&mut self, sample: &Sample) {
        self.inner.observe_sample(sample);
    }

    fn status(&self) -> Status {
        self.inner.status()
    }
}
