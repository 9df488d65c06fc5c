//! The proof that a written graph answers as XGBoost does, and the rows that carry it further.
//!
//! The graph is evaluated from its bytes. The golden rows go into the manifest, so that whoever
//! loads the bundle can repeat the proof with the runtime that will serve it.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_schema::{Features, GoldenRow, Row, Target};

use crate::{
    TrainError,
    example::{Example, prior_ms},
    learn::Candidate,
    onnx::Graph,
};

/// Largest relative difference; the same as the manifest promises of its golden rows.
const TOLERANCE: f32 = 1e-4;
/// Held-out rows that are checked; every one also with values left out.
const CHECKED_ROWS: usize = 1_000;
/// Golden rows of a bundle.
const GOLDEN_ROWS: usize = 16;
/// Every so many golden rows one with values left out.
const GOLDEN_STRIDE: usize = 4;

/// Refuses a graph that differs from XGBoost on any of the rows.
pub(crate) fn check(graph: &Graph, candidate: &Candidate, rows: &[Row]) -> Result<(), TrainError> {
    let expected = candidate.latency_ms(rows)?;
    let answers = graph.latency_ms(rows).map_err(|error| TrainError::Graph(error.to_string()))?;
    for (row, (answer, expected)) in answers.iter().zip(&expected).enumerate() {
        for (target, (graph, xgboost)) in Target::ALL.iter().zip(answer.iter().zip(expected)) {
            if !equal(*graph, *xgboost) {
                let (graph, xgboost) = (*graph, *xgboost);
                return Err(TrainError::Parity { target: target.name(), row, graph, xgboost });
            }
        }
    }
    Ok(())
}

/// Equal within the tolerance; a missing prior makes both answers NaN.
fn equal(graph: f32, xgboost: f32) -> bool {
    let both_missing = graph.is_nan() && xgboost.is_nan();
    both_missing || graph == xgboost || (graph - xgboost).abs() <= TOLERANCE * xgboost.abs()
}

/// The rows to check a candidate on: held-out ones as they are, and with values left out, because
/// a row without missing values never takes the default way.
pub(crate) fn rows_to_check(newest: &[Example]) -> Vec<Row> {
    let mut random = SmallRng::seed_from_u64(0);
    let stride = newest.len().div_ceil(CHECKED_ROWS).max(1);
    let real: Vec<Row> = newest.iter().step_by(stride).map(|example| example.row).collect();
    let holed: Vec<Row> = real.iter().map(|row| with_holes(row, &mut random)).collect();
    [real, holed].concat()
}

/// Golden rows from the held-out ones, with what XGBoost answers for them.
pub(crate) fn golden(
    candidate: &Candidate,
    newest: &[Example],
) -> Result<Vec<GoldenRow>, TrainError> {
    let mut random = SmallRng::seed_from_u64(1);
    let stride = newest.len().div_ceil(GOLDEN_ROWS).max(1);
    let picked = newest.iter().step_by(stride).enumerate();
    let rows: Vec<Row> = picked
        .map(|(index, example)| match index % GOLDEN_STRIDE {
            1 => with_holes(&example.row, &mut random),
            _ => example.row,
        })
        .map(with_priors)
        .collect();
    let golden = candidate.latency_ms(&rows)?.into_iter().zip(&rows);
    Ok(golden
        .map(|([ttft_ms, tpot_ms], row)| GoldenRow {
            row: row.iter().map(|value| Some(*value).filter(|value| !value.is_nan())).collect(),
            ttft_ms,
            tpot_ms,
        })
        .collect())
}

/// A row with about a quarter of its values left out, but for the priors.
fn with_holes(row: &Row, random: &mut SmallRng) -> Row {
    let priors = Target::ALL.map(|target| target.prior() as usize);
    let mut holed = *row;
    for (column, value) in holed.iter_mut().enumerate() {
        if random.random_bool(0.25) && !priors.contains(&column) {
            *value = f32::NAN;
        }
    }
    holed
}

/// A row whose priors are numbers to multiply: without one the answer would be NaN, which JSON
/// cannot say.
fn with_priors(row: Row) -> Row {
    let mut features = Features(row);
    for target in Target::ALL {
        features.set(target.prior(), prior_ms(&row, target).unwrap_or(1.0));
    }
    features.0
}

#[cfg(test)]
mod tests {
    use weir_schema::Feature;

    use super::*;
    use crate::{
        TrainConfig,
        onnx::write,
        synthetic::{self, World},
        tree::Node,
    };

    fn candidate(newest: &[Example]) -> Candidate {
        let config = TrainConfig { trees: 10, ..TrainConfig::default() };
        Candidate::train(&synthetic::xgboost(), &config, newest, &Target::ALL).unwrap()
    }

    fn examples() -> Vec<Example> {
        let mut world = World::new(3);
        (0..400).map(|_| Example::of(&world.next()).unwrap()).collect()
    }

    #[test]
    fn a_graph_that_differs_in_one_leaf_or_one_direction_is_refused() {
        let examples = examples();
        let candidate = candidate(&examples);
        let rows = rows_to_check(&examples);
        let [ttft, tpot] = candidate.trees();
        let graph = Graph::decode(&write([ttft, tpot])).unwrap();
        assert!(check(&graph, &candidate, &rows).is_ok());

        let mut other = tpot.to_vec();
        let leaf = other[7].0.iter_mut().find(|node| matches!(node, Node::Leaf(_))).unwrap();
        *leaf = Node::Leaf(0.5);
        let graph = Graph::decode(&write([ttft, &other])).unwrap();
        let error = check(&graph, &candidate, &rows).unwrap_err();
        assert!(matches!(error, TrainError::Parity { target: "tpot", .. }), "{error}");

        let mut other = ttft.to_vec();
        for node in other.iter_mut().flat_map(|tree| &mut tree.0) {
            if let Node::Split { missing_yes, .. } = node {
                *missing_yes = !*missing_yes;
            }
        }
        let graph = Graph::decode(&write([&other, tpot])).unwrap();
        assert!(check(&graph, &candidate, &rows).is_err(), "only rows with holes tell them apart");
    }

    #[test]
    fn golden_rows_are_finite_and_some_have_missing_values() {
        let mut examples = examples();
        for example in &mut examples {
            example.row[Feature::PriorTpotMs as usize] = f32::NAN;
        }
        let candidate = Candidate::train(
            &synthetic::xgboost(),
            &TrainConfig::default(),
            &examples,
            &[Target::Ttft],
        )
        .unwrap();
        let golden = golden(&candidate, &examples).unwrap();
        assert_eq!(golden.len(), GOLDEN_ROWS);
        // Columns that the synthetic world never fills stand at zero, not missing.
        let holed = golden.iter().filter(|found| found.row.contains(&None)).count();
        assert_eq!(holed, GOLDEN_ROWS / GOLDEN_STRIDE);
        for found in &golden {
            assert!(found.ttft_ms.is_finite() && found.ttft_ms > 0.0, "{found:?}");
            assert_eq!(found.tpot_ms, 1.0);
        }
        let text = serde_json::to_string(&golden).unwrap();
        assert_eq!(serde_json::from_str::<Vec<GoldenRow>>(&text).unwrap(), golden);
    }
}
