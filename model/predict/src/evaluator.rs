//! Which of the two evaluators of a bundle serves, and what shows that it may.
//!
//! A bundle's graph is evaluated by its flattened trees ([`Forest`]) or by ONNX Runtime
//! ([`OnnxEvaluator`]). Both must reproduce the bundle's golden rows, which XGBoost itself answered. The
//! forest must besides agree with ONNX Runtime wherever that is there; without it the golden rows are the
//! proof, so that a bundle of known form serves without any native library. Whichever serves, a decision waits
//! for it: one that takes longer than any sound graph is refused.

use std::time::{Duration, Instant};

use weir_schema::{GoldenRow, PredictError, Row, Source, Target};

use crate::bundle::BundleError;
use crate::forest::{Forest, Unfit, check};
use crate::onnx::OnnxEvaluator;
use crate::prior::measurable;
use crate::runtime::Runtime;

/// Largest relative difference on a golden row: ten times what sums of f32 in another order differ by.
const GOLDEN_TOLERANCE: f32 = 1e-4;

/// Rows that are evaluated at once to see how long one takes.
const PACE_ROWS: usize = 16;
/// Times that it is looked at: what the machine does besides spoils some of them.
const LOOKS: usize = 5;
/// What a row takes at most. A row of the trainer's graphs takes some microseconds, in a build without optimisation some dozens; at
/// this much a decision among 24 pods would hold its pool's other requests up for a tenth of a second.
const LONGEST_ROW: Duration = Duration::from_millis(5);

/// Which evaluator is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The forest where it understands the graph and agrees with ONNX Runtime, else ONNX Runtime.
    #[default]
    Auto,
    /// ONNX Runtime.
    Ort,
    /// The forest; a bundle that it cannot take is refused.
    Forest,
}

/// What bundles may be evaluated by.
#[derive(Clone, Debug, Default)]
pub struct Evaluators {
    /// Which one is wanted.
    pub choice: Choice,
    /// ONNX Runtime, where it was found.
    pub runtime: Option<Runtime>,
}

/// The evaluator of one bundle.
#[derive(Debug)]
pub(crate) enum Evaluator {
    Forest(Forest),
    Onnx {
        onnx: OnnxEvaluator,
        /// Why it is not the forest.
        unfit: Unfit,
    },
}

impl Evaluator {
    /// The evaluator of a graph, once it has shown that it computes what was trained.
    pub(crate) fn proven(
        by: &Evaluators,
        model: &[u8],
        golden: &[GoldenRow],
    ) -> Result<Self, BundleError> {
        let rows = golden_rows(golden)?;
        let wanted = by.choice != Choice::Ort;
        let forest = if wanted { Forest::build(model) } else { Err(Unfit::Configured) };
        let Some(runtime) = &by.runtime else {
            let mut forest = Self::Forest(forest.map_err(BundleError::NoEvaluator)?);
            forest.check_pace(&rows)?;
            forest.check_golden(golden, &rows)?;
            return Ok(forest);
        };
        let onnx = OnnxEvaluator::new(runtime, model)?;
        // Nothing is wrong with the bundle yet when the forest cannot take it.
        let mut onnx = Self::Onnx { onnx, unfit: Unfit::Configured };
        onnx.check_pace(&rows)?;
        onnx.check_golden(golden, &rows)?;
        let Self::Onnx { mut onnx, .. } = onnx else { return Ok(onnx) };
        let agreed = forest.and_then(|mut forest| {
            check::agrees(&mut forest, &mut onnx, &rows)?;
            Ok(forest)
        });
        match agreed {
            Ok(forest) => Ok(Self::Forest(forest)),
            Err(unfit) if by.choice == Choice::Forest => Err(BundleError::ForestRefused(unfit)),
            Err(unfit) => Ok(Self::Onnx { onnx, unfit }),
        }
    }

    /// Median TTFT and TPOT of each row, in milliseconds.
    ///
    /// # Errors
    /// When ONNX Runtime fails; the forest cannot.
    pub(crate) fn evaluate(&mut self, rows: &[Row]) -> Result<&[[f32; 2]], PredictError> {
        match self {
            Self::Forest(forest) => Ok(forest.evaluate(rows)),
            Self::Onnx { onnx, .. } => onnx.evaluate(rows),
        }
    }

    /// What its numbers are called.
    pub(crate) const fn source(&self) -> Source {
        match self {
            Self::Forest(_) => Source::Forest,
            Self::Onnx { .. } => Source::Onnx,
        }
    }

    /// Why it is not the forest.
    pub(crate) const fn unfit(&self) -> Option<&Unfit> {
        match self {
            Self::Forest(_) => None,
            Self::Onnx { unfit, .. } => Some(unfit),
        }
    }

    /// Before anything else is asked of it: there may be thousands of golden rows.
    fn check_pace(&mut self, golden: &[Row]) -> Result<(), BundleError> {
        let rows = golden.get(..PACE_ROWS).unwrap_or(golden);
        check_pace(rows.len(), || {
            let started = Instant::now();
            let answered = self.evaluate(rows).map(drop);
            answered.map_err(|error| BundleError::Evaluation { detail: error.to_string() })?;
            Ok(started.elapsed())
        })
    }

    fn check_golden(&mut self, golden: &[GoldenRow], rows: &[Row]) -> Result<(), BundleError> {
        let medians = self
            .evaluate(rows)
            .map_err(|error| BundleError::Evaluation { detail: error.to_string() })?;
        for (row, (expected, got)) in golden.iter().zip(medians).enumerate() {
            let [ttft_ms, tpot_ms] = *got;
            check_value(row, Target::Ttft, expected.ttft_ms, ttft_ms)?;
            check_value(row, Target::Tpot, expected.tpot_ms, tpot_ms)?;
        }
        Ok(())
    }
}

fn golden_rows(golden: &[GoldenRow]) -> Result<Vec<Row>, BundleError> {
    if golden.is_empty() {
        return Err(BundleError::NoGoldenRows);
    }
    let rows: Option<Vec<Row>> = golden.iter().map(GoldenRow::features).collect();
    rows.ok_or(BundleError::GoldenWidth)
}

fn check_value(row: usize, target: Target, expected: f32, got: f32) -> Result<(), BundleError> {
    let target = target.name();
    if measurable(got).is_none() {
        return Err(BundleError::NotFinite { row, target, got });
    }
    let close = (got - expected).abs() <= GOLDEN_TOLERANCE * expected.abs();
    if close { Ok(()) } else { Err(BundleError::GoldenMismatch { row, target, expected, got }) }
}

/// Whether most looks at so many rows are in time; the others are left out.
fn check_pace(
    rows: usize,
    mut look: impl FnMut() -> Result<Duration, BundleError>,
) -> Result<(), BundleError> {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX).max(1);
    let (mut in_time, mut slow) = (0, 0);
    loop {
        let took = look()? / rows;
        let count = if took <= LONGEST_ROW { &mut in_time } else { &mut slow };
        *count += 1;
        if in_time > LOOKS / 2 {
            return Ok(());
        }
        if slow > LOOKS / 2 {
            return Err(BundleError::TooSlow { took, most: LONGEST_ROW });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_too_slow_when_most_looks_at_it_are() {
        let paced = |looks_ms: &[u64]| {
            let mut looks = looks_ms.iter();
            let paced = check_pace(10, || Ok(Duration::from_millis(*looks.next().unwrap())));
            (paced.err().map(|error| error.reason()), looks.count())
        };
        assert_eq!(paced(&[50, 1, 50, 9]), (None, 1), "the rest need not be seen");
        assert_eq!(paced(&[9000, 3, 9000, 3, 3]), (None, 0), "the machine was busy twice");
        assert_eq!(paced(&[51, 51, 51]), (Some("too_slow"), 0));
    }
}
