//! What a row costs by either evaluator of the same bundle.

use std::{fs, hint::black_box, path::Path};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use weir_predict::{Forest, OnnxEvaluator, Runtime};
use weir_schema::{Row, Sample, manifest::MODEL_FILE};

use super::clock::took;

/// Rows of a call.
pub(super) const BATCHES: [usize; 4] = [1, 8, 100, 1000];
/// Measurements of each, taken in turns; the smallest is what it costs undisturbed.
const TURNS: usize = 15;
/// Rows of a measurement, at least.
const ROWS: usize = 1000;

/// Nanoseconds per row on a processor, in calls of so many rows.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RowCost {
    pub rows: usize,
    pub forest_ns: f64,
    pub onnx_ns: f64,
}

impl RowCost {
    /// How many times as much ONNX Runtime takes.
    pub(super) fn ratio(&self) -> f64 {
        self.onnx_ns / self.forest_ns
    }
}

/// Every batch size on the rows of samples.
pub(super) fn costs(bundle: &Path, samples: &[Sample]) -> Result<Vec<RowCost>> {
    let model = fs::read(bundle.join(MODEL_FILE))?;
    let mut forest = Forest::build(&model).context("the trainer's graph is not a forest")?;
    let mut onnx = OnnxEvaluator::new(&Runtime::load(None)?, &model)?;
    let most = BATCHES.iter().copied().max().unwrap_or_default();
    let rows: Vec<Row> = samples.iter().map(|sample| sample.row).take(most).collect();
    ensure!(rows.len() == most, "fewer than {most} samples");
    let cost = |batch: usize| {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..TURNS {
            least[0] = least[0].min(per_row_ns(&rows, batch, |rows| {
                black_box(forest.evaluate(rows));
                Ok(())
            })?);
            least[1] = least[1].min(per_row_ns(&rows, batch, |rows| {
                black_box(onnx.evaluate(rows)?);
                Ok(())
            })?);
        }
        Ok(RowCost { rows: batch, forest_ns: least[0], onnx_ns: least[1] })
    };
    BATCHES.into_iter().map(cost).collect()
}

/// Goes through the rows in batches.
fn per_row_ns(
    rows: &[Row],
    batch: usize,
    mut evaluate: impl FnMut(&[Row]) -> Result<()>,
) -> Result<f64> {
    let turns = ROWS.div_ceil(rows.len().max(1));
    let (done, took) = took(|| {
        let mut done = 0;
        for _ in 0..turns {
            for rows in rows.chunks_exact(batch) {
                evaluate(black_box(rows))?;
                done += rows.len();
            }
        }
        anyhow::Ok(done)
    });
    Ok(took.cpu_s * 1e9 / done?.max(1) as f64)
}
