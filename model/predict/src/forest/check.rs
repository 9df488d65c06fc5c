//! A forest beside ONNX Runtime on rows that would show a difference.
//!
//! Called by the loader thread when a bundle is loaded: some thousand rows, a few milliseconds. Values are
//! drawn for each column from the thresholds that the trees have for it, on them and on the floats right
//! beside them, so that every one comes up where a column has no more than some hundred; some are missing,
//! some far outside. A tree asked in another order, a `<` taken for a `<=`, or a missing value sent the
//! other way changes an answer by as much as a leaf, that is a percent; rounding by a millionth.

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::SliceRandom};
use weir_schema::{FEATURE_COUNT, Row, Target};

use super::{Forest, Unfit};
use crate::onnx::OnnxEvaluator;

/// Rows that are compared besides those given.
const LEAST_ROWS: usize = 512;
const MOST_ROWS: usize = 2048;
/// Rows of one call of ONNX Runtime.
const BATCH: usize = 128;
/// Largest relative difference: ten times what the last bits of a hundred sums and of an exponential make.
const TOLERANCE: f32 = 1e-5;

/// Compares on `golden` and on drawn rows.
///
/// # Errors
/// The first difference, or why there was nothing to compare with.
pub(crate) fn agrees(
    forest: &mut Forest,
    onnx: &mut OnnxEvaluator,
    golden: &[Row],
) -> Result<(), Unfit> {
    let drawn = rows(forest);
    // One by one too, as they may take another way than in a block.
    let few = golden.iter().chain(drawn.iter().take(32));
    let single = few.map(std::slice::from_ref);
    for rows in golden.chunks(BATCH).chain(drawn.chunks(BATCH)).chain(single) {
        let expected =
            onnx.evaluate(rows).map_err(|error| Unfit::NoComparison(error.to_string()))?;
        for (got, expected) in forest.evaluate(rows).iter().zip(expected) {
            for ((target, forest), onnx) in Target::ALL.iter().zip(got).zip(expected) {
                if !equal(*forest, *onnx) {
                    let (forest, onnx) = (*forest, *onnx);
                    return Err(Unfit::Differs { target: target.name(), forest, onnx });
                }
            }
        }
    }
    Ok(())
}

fn equal(forest: f32, onnx: f32) -> bool {
    forest == onnx
        || (forest.is_nan() && onnx.is_nan())
        || (forest - onnx).abs() <= TOLERANCE * onnx.abs()
}

/// Rows on and beside the thresholds; the same for the same forest.
pub(super) fn rows(forest: &Forest) -> Vec<Row> {
    let mut random = SmallRng::seed_from_u64(0);
    let mut lists = forest.thresholds();
    let longest = lists.iter().map(Vec::len).max().unwrap_or_default();
    let count = (3 * longest).clamp(LEAST_ROWS, MOST_ROWS);
    for list in &mut lists {
        list.shuffle(&mut random);
    }
    (0..count).map(|index| row(index, &lists, &mut random)).collect()
}

fn row(index: usize, lists: &[Vec<f32>; FEATURE_COUNT], random: &mut SmallRng) -> Row {
    let mut columns = lists.iter().enumerate();
    std::array::from_fn(|_| {
        let Some((column, list)) = columns.next() else { return f32::NAN };
        let is_prior = Target::ALL.iter().any(|target| target.prior() as usize == column);
        let threshold = list.get((index / 3) % list.len().max(1)).copied();
        // A prior that is missing or nothing would leave nothing to compare.
        let value = match threshold {
            _ if is_prior && random.random_bool(0.7) => random.random_range(1.0..1000.0),
            Some(at) if random.random_bool(0.8) => {
                [at, at.next_up(), at.next_down()].get(index % 3).copied().unwrap_or(at)
            }
            _ => anything(random),
        };
        if random.random_bool(if is_prior { 0.01 } else { 0.1 }) { f32::NAN } else { value }
    })
}

fn anything(random: &mut SmallRng) -> f32 {
    const ODD: [f32; 8] =
        [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, f32::MIN_POSITIVE];
    match random.random_range(0..4) {
        0 => ODD.get(random.random_range(0..ODD.len())).copied().unwrap_or_default(),
        _ => 10.0_f32.powf(random.random_range(-2.0..5.0)),
    }
}
