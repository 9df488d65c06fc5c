use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_schema::{FEATURE_COUNT, Feature, Row, Sample, Target, onnx::WireError};

use super::{Graph, GraphError, write};
use crate::{
    TrainConfig,
    example::Example,
    learn::Candidate,
    parity,
    synthetic::{self, World},
    tree::{Node, Tree},
};

fn row(changes: &[(Feature, f32)]) -> Row {
    let mut row = [1.0; FEATURE_COUNT];
    for (feature, value) in changes {
        row[*feature as usize] = *value;
    }
    row
}

#[test]
fn a_graph_without_trees_answers_the_priors() {
    let graph = Graph::decode(&write([&[], &[]])).unwrap();
    let rows = [
        row(&[(Feature::PriorTtftMs, 120.0), (Feature::PriorTpotMs, 15.0)]),
        row(&[(Feature::PriorTtftMs, 7.5), (Feature::PriorTpotMs, f32::NAN)]),
    ];
    let answers = graph.latency_ms(&rows).unwrap();
    assert_eq!(answers[0], [120.0, 15.0]);
    assert!(answers[1][0] == 7.5 && answers[1][1].is_nan());
    assert_eq!(graph.latency_ms(&[]).unwrap(), Vec::<[f32; 2]>::new());
}

#[test]
fn a_value_at_the_threshold_goes_to_no_and_a_missing_one_where_it_is_told() {
    let tree = |missing_yes| {
        let feature = Feature::KvUsage as usize;
        let split = Node::Split { feature, below: 0.5, yes: 1, no: 2, missing_yes };
        Tree(vec![split, Node::Leaf(2.0_f32.ln()), Node::Leaf(3.0_f32.ln())])
    };
    let graph = Graph::decode(&write([&[tree(true)], &[tree(false)]])).unwrap();
    let below = 0.5_f32.next_down();
    for (usage, expected) in [(below, [2.0, 2.0]), (0.5, [3.0, 3.0]), (f32::NAN, [2.0, 3.0])] {
        let answer = graph.latency_ms(&[row(&[(Feature::KvUsage, usage)])]).unwrap()[0];
        assert!((answer[0] - expected[0]).abs() < 1e-6, "{usage}: {answer:?}");
        assert!((answer[1] - expected[1]).abs() < 1e-6, "{usage}: {answer:?}");
    }
}

#[test]
fn a_graph_cut_anywhere_is_refused_or_answers_and_never_panics() {
    let split = Node::Split { feature: 1, below: 0.5, yes: 1, no: 2, missing_yes: true };
    let tree = Tree(vec![split, Node::Leaf(1.0), Node::Leaf(2.0)]);
    let whole = write([std::slice::from_ref(&tree), std::slice::from_ref(&tree)]);
    let rows = [row(&[])];
    for end in 0..whole.len() {
        let _ = Graph::decode(&whole[..end]).map(|graph| graph.latency_ms(&rows));
        let mut changed = whole.clone();
        changed[end] ^= 0x15;
        let _ = Graph::decode(&changed).map(|graph| graph.latency_ms(&rows));
    }
    assert_eq!(Graph::decode(b"no graph").unwrap_err(), GraphError::Wire(WireError));
    assert!(matches!(Graph::decode(b""), Err(GraphError::Part(_))));
}

#[test]
fn an_operator_of_another_writer_is_refused_by_name() {
    let mut bytes = write([&[], &[]]);
    let place = bytes.windows(3).position(|found| found == b"Exp").unwrap();
    bytes[place..place + 3].copy_from_slice(b"Abs");
    assert_eq!(Graph::decode(&bytes).unwrap_err(), GraphError::Operator("Abs".into()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_written_graph_answers_as_xgboost_does(
        seed in any::<u64>(),
        missing in prop_oneof![Just(0.0), 0.01..0.9_f64],
        trees in 1..40_usize,
        depth in 1..7_usize,
        noise in 0.01..1.0_f32,
        // Coarse values fall on the very thresholds.
        coarse in any::<bool>(),
    ) {
        let mut world = World::new(seed);
        (world.missing, world.noise) = (missing, noise);
        let mut random = SmallRng::seed_from_u64(seed);
        let rounded = |mut row: Row| {
            for value in row.iter_mut().filter(|_| coarse) {
                *value = (*value * 4.0).round() / 4.0;
            }
            row
        };
        let examples: Vec<Example> = (0..300)
            .map(|_| world.next())
            .map(|sample| Example::of(&Sample { row: rounded(sample.row), ..sample }).unwrap())
            .collect();
        let config = TrainConfig { trees, depth, eta: 0.4, ..TrainConfig::default() };
        let xgboost = synthetic::xgboost();
        let candidate = Candidate::train(&xgboost, &config, &examples, &Target::ALL).unwrap();
        let mut rows: Vec<Row> = examples.iter().map(|example| example.row).collect();
        rows.extend((0..300).map(|_| rounded(world.row())));
        // Values from far outside, and the edges of what a float holds.
        for row in rows.iter_mut().step_by(5) {
            let place = random.random_range(0..FEATURE_COUNT);
            row[place] = [f32::NAN, 0.0, -0.0, 1e30, -1e30, f32::MIN_POSITIVE][place % 6];
        }
        let graph = Graph::decode(&write(candidate.trees())).unwrap();
        let checked = parity::check(&graph, &candidate, &rows);
        prop_assert!(checked.is_ok(), "{:?}", checked.err());
    }
}
