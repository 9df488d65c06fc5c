use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use weir_schema::{
    FEATURE_COUNT, Feature, Row,
    manifest::{INPUT_NAME, OUTPUT_NAME},
    onnx::Message,
};

use super::{Forest, Unfit, check};
use crate::fixture::{Fixture, model, node, row, scaled_graph, tensor};
use crate::onnx::OnnxEvaluator;
use crate::runtime::tests::loaded;

/// What the nodes of a random ensemble are like.
#[derive(Clone, Copy)]
struct Shape {
    trees: usize,
    depth: usize,
    /// Whether the ensemble has both targets, or there is one for each.
    both: bool,
    /// Whether the nodes say where a missing value goes.
    says_missing: bool,
}

/// The parallel lists of an ensemble.
#[derive(Default)]
struct Lists {
    trees: Vec<i64>,
    ids: Vec<i64>,
    features: Vec<i64>,
    values: Vec<f32>,
    modes: Vec<&'static str>,
    yes: Vec<i64>,
    no: Vec<i64>,
    missing: Vec<i64>,
    leaves: Vec<(i64, i64, i64, f32)>,
}

impl Lists {
    fn random(shape: Shape, random: &mut SmallRng) -> Self {
        let mut lists = Self::default();
        for tree in 0..shape.trees {
            lists.grow(tree as i64, shape, shape.depth, random);
        }
        lists
    }

    fn push(&mut self, tree: i64, id: i64, mode: &'static str, asked: (i64, f32, i64)) {
        self.trees.push(tree);
        self.ids.push(id);
        self.modes.push(mode);
        self.features.push(asked.0);
        self.values.push(asked.1);
        self.missing.push(asked.2);
        self.yes.push(0);
        self.no.push(0);
    }

    fn grow(&mut self, tree: i64, shape: Shape, depth: usize, random: &mut SmallRng) -> i64 {
        let here = self.trees.len();
        let id = self.trees.iter().rev().take_while(|of| **of == tree).count() as i64;
        if depth == 0 || random.random_bool(0.1) {
            self.push(tree, id, "LEAF", (0, 0.0, 0));
            let targets = if shape.both { 2 } else { 1 };
            for target in 0..targets {
                // Those of the first tree have a weight for every target, as a forest asks of one tree.
                let is_given = random.random_bool(0.9);
                if tree == 0 || is_given {
                    self.leaves.push((tree, id, target, random.random_range(-0.1..0.1)));
                }
            }
            return id;
        }
        const MODES: [&str; 4] = ["BRANCH_LT", "BRANCH_LEQ", "BRANCH_GT", "BRANCH_GTE"];
        let feature = random.random_range(0..FEATURE_COUNT as i64);
        let value = (random.random_range(-8.0..40.0_f32)).round() / 4.0;
        let missing = i64::from(random.random_bool(0.5));
        self.push(tree, id, MODES[random.random_range(0..4)], (feature, value, missing));
        self.yes[here] = self.grow(tree, shape, depth - 1, random);
        self.no[here] = self.grow(tree, shape, depth - 1, random);
        id
    }

    fn attributes(&self, targets: i64, says_missing: bool) -> Vec<Vec<u8>> {
        let named = |name: &str, kind: i64| {
            let mut attribute = Message::default();
            attribute.text(1, name).int(20, kind);
            attribute
        };
        let ints = |name: &str, values: &[i64]| {
            let mut attribute = named(name, 7);
            attribute.ints(8, values.iter().copied());
            attribute.into_bytes()
        };
        let floats = |name: &str, values: &[f32]| {
            let mut attribute = named(name, 6);
            attribute.floats(7, values.iter().copied());
            attribute.into_bytes()
        };
        let mut modes = named("nodes_modes", 8);
        for mode in &self.modes {
            modes.text(9, mode);
        }
        let mut count = named("n_targets", 2);
        count.int(3, targets);
        let of = |pick: fn(&(i64, i64, i64, f32)) -> i64| -> Vec<i64> {
            self.leaves.iter().map(pick).collect()
        };
        let weights: Vec<f32> = self.leaves.iter().map(|leaf| leaf.3).collect();
        let base: Vec<f32> = (0..targets).map(|target| 0.25 * target as f32 - 0.1).collect();
        let mut all = vec![
            modes.into_bytes(),
            count.into_bytes(),
            ints("nodes_treeids", &self.trees),
            ints("nodes_nodeids", &self.ids),
            ints("nodes_featureids", &self.features),
            floats("nodes_values", &self.values),
            ints("nodes_truenodeids", &self.yes),
            ints("nodes_falsenodeids", &self.no),
            ints("target_treeids", &of(|leaf| leaf.0)),
            ints("target_nodeids", &of(|leaf| leaf.1)),
            ints("target_ids", &of(|leaf| leaf.2)),
            floats("target_weights", &weights),
            floats("base_values", &base),
        ];
        if says_missing {
            all.push(ints("nodes_missing_value_tracks_true", &self.missing));
        }
        all
    }
}

fn trees_node(lists: &Lists, shape: Shape, targets: i64, output: &str) -> Vec<u8> {
    let attributes = lists.attributes(targets, shape.says_missing);
    node("TreeEnsembleRegressor", "ai.onnx.ml", &[INPUT_NAME], output, &attributes)
}

fn axis() -> Vec<u8> {
    let mut axis = Message::default();
    axis.text(1, "axis").int(20, 2).int(3, 1);
    axis.into_bytes()
}

fn columns(name: &str, values: &[i64]) -> Vec<u8> {
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    tensor(name, 7, &[values.len() as u64], &raw)
}

const PRIORS: [i64; 2] = [Feature::PriorTtftMs as i64, Feature::PriorTpotMs as i64];

/// Priors times exp of the trees, in one ensemble or in one for each target.
fn graph(shape: Shape, seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut nodes = vec![node("Gather", "", &[INPUT_NAME, "columns"], "priors", &[axis()])];
    if shape.both {
        nodes.push(trees_node(&Lists::random(shape, &mut random), shape, 2, "logs"));
    } else {
        for output in ["one", "other"] {
            nodes.push(trees_node(&Lists::random(shape, &mut random), shape, 1, output));
        }
        nodes.push(node("Concat", "", &["one", "other"], "logs", &[axis()]));
    }
    nodes.push(node("Exp", "", &["logs"], "ratios", &[]));
    nodes.push(node("Mul", "", &["priors", "ratios"], OUTPUT_NAME, &[]));
    model(&nodes, &[columns("columns", &PRIORS)])
}

const USUAL: Shape = Shape { trees: 20, depth: 4, both: false, says_missing: true };

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forest_answers_as_onnx_runtime_does(
        seed in any::<u64>(),
        trees in 1..40_usize,
        depth in 0..=8_usize,
        both in any::<bool>(),
        says_missing in any::<bool>(),
    ) {
        let model = graph(Shape { trees, depth, both, says_missing }, seed);
        let mut forest = Forest::build(&model).unwrap();
        let mut onnx = OnnxEvaluator::new(&loaded(), &model).unwrap();
        let agreed = check::agrees(&mut forest, &mut onnx, &[]);
        prop_assert!(agreed.is_ok(), "{agreed:?}");
    }

    #[test]
    fn any_number_of_rows_comes_to_what_each_comes_to_alone(
        seed in any::<u64>(), depth in 0..=8_usize, count in 0..70_usize,
    ) {
        let mut forest = Forest::build(&graph(Shape { depth, ..USUAL }, seed)).unwrap();
        let rows: Vec<Row> = check::rows(&forest).into_iter().take(count).collect();
        let bits = |medians: &[[f32; 2]]| -> Vec<[u32; 2]> {
            medians.iter().map(|both| both.map(f32::to_bits)).collect()
        };
        let together = bits(forest.evaluate(&rows));
        prop_assert_eq!(together.len(), count);
        for (row, expected) in rows.iter().zip(together) {
            prop_assert_eq!(bits(forest.evaluate(std::slice::from_ref(row))), [expected]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_bytes_are_refused_or_answer_and_never_panic(
        seed in any::<u64>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let shape = Shape { trees: 2, depth: 2, both: seed % 2 == 0, says_missing: seed % 3 == 0 };
        let mut bytes = graph(shape, seed % 8);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(mut forest) = Forest::build(&bytes) {
            let rows = [row(100.0, 20.0, 500.0); 19];
            prop_assert_eq!(forest.evaluate(&rows).len(), 19);
        }
    }
}

#[test]
fn a_graph_cut_anywhere_is_refused() {
    let whole = graph(Shape { trees: 2, depth: 2, ..USUAL }, 1);
    for end in 0..whole.len() - 40 {
        assert!(Forest::build(&whole[..end]).is_err(), "{end}");
    }
    assert!(Forest::build(&whole).is_ok());
}

#[test]
fn the_same_buffer_serves_every_batch() {
    let mut forest = Forest::build(&graph(USUAL, 1)).unwrap();
    let rows = [row(100.0, 20.0, 500.0); 100];
    let first = forest.evaluate(&rows).as_ptr();
    for count in [1, 7, 100, 33] {
        assert_eq!(forest.evaluate(&rows[..count]).as_ptr(), first);
    }
}

#[test]
fn a_bundle_without_trees_is_a_forest_too() {
    let mut forest = Forest::build(&scaled_graph(1.5, 2.0)).unwrap();
    assert_eq!(forest.evaluate(&[row(100.0, 20.0, 1.0); 20]), [[150.0, 40.0]; 20]);
}

/// Priors times exp of these trees, which are for both targets.
fn graph_of(lists: &Lists) -> Vec<u8> {
    let nodes = [
        node("Gather", "", &[INPUT_NAME, "columns"], "priors", &[axis()]),
        trees_node(lists, USUAL, 2, "logs"),
        node("Exp", "", &["logs"], "ratios", &[]),
        node("Mul", "", &["priors", "ratios"], OUTPUT_NAME, &[]),
    ];
    model(&nodes, &[columns("columns", &PRIORS)])
}

/// What a forest of other bytes comes to beside ONNX Runtime with the usual graph.
fn compared(mut change: impl FnMut(&mut Lists)) -> Result<(), Unfit> {
    let shape = Shape { both: true, ..USUAL };
    let mut lists = Lists::random(shape, &mut SmallRng::seed_from_u64(4));
    let mut onnx = OnnxEvaluator::new(&loaded(), &graph_of(&lists)).unwrap();
    change(&mut lists);
    check::agrees(&mut Forest::build(&graph_of(&lists)).unwrap(), &mut onnx, &[])
}

#[test]
fn trees_that_leave_a_target_out_for_some_rows_are_refused() {
    let shape = Shape { trees: 1, both: true, ..USUAL };
    let mut lists = Lists::random(shape, &mut SmallRng::seed_from_u64(4));
    assert!(Forest::build(&graph_of(&lists)).is_ok());
    lists.leaves.remove(0);
    let error = Forest::build(&graph_of(&lists)).unwrap_err();
    assert_eq!(error.to_string(), "a target that rows may get nothing for");
}

#[test]
fn the_rows_of_the_check_show_every_kind_of_mistake() {
    compared(|_| {}).unwrap();
    for leaf in [0, 100, 200, 300] {
        let changed = compared(|lists| lists.leaves[leaf].3 += 0.01);
        assert!(matches!(changed, Err(Unfit::Differs { .. })), "{leaf}: {changed:?}");
    }
    let split = |lists: &Lists| lists.modes.iter().position(|mode| *mode == "BRANCH_LT").unwrap();
    let order = compared(|lists| {
        let place = split(lists);
        lists.modes[place] = "BRANCH_LEQ";
    });
    assert!(order.is_err(), "a value on the threshold");
    let missing = compared(|lists| {
        let place = split(lists);
        lists.missing[place] = 1 - lists.missing[place];
    });
    assert!(missing.is_err(), "a missing value");
    let feature = compared(|lists| {
        let place = split(lists);
        lists.features[place] = (lists.features[place] + 1) % FEATURE_COUNT as i64;
    });
    assert!(feature.is_err(), "another feature");
}

/// The reason for which a graph with this way from the trees to the output is refused.
fn refused(nodes: &[Vec<u8>], constants: &[Vec<u8>]) -> &'static str {
    Forest::build(&model(nodes, constants)).unwrap_err().reason()
}

#[test]
fn what_is_not_understood_is_refused_by_kind() {
    let trees = |lists: &Lists| trees_node(lists, USUAL, 1, "logs");
    let lists = || Lists::random(USUAL, &mut SmallRng::seed_from_u64(4));
    let spoiled = |spoil: &dyn Fn(&mut Lists)| {
        let mut lists = lists();
        spoil(&mut lists);
        refused(&[trees(&lists)], &[])
    };
    let split = lists().modes.iter().position(|mode| *mode != "LEAF").unwrap();
    assert_eq!(spoiled(&|_| {}), "form", "nothing makes the output");
    assert_eq!(spoiled(&|lists| lists.modes[split] = "BRANCH_EQ"), "form");
    assert_eq!(spoiled(&|lists| lists.values[split] = f32::NAN), "form");
    assert_eq!(spoiled(&|lists| lists.features[split] = 20), "form");
    assert_eq!(spoiled(&|lists| lists.yes[split] = lists.ids[split]), "form");
    assert_eq!(spoiled(&|lists| lists.no[split] = 99_999), "form");
    assert_eq!(spoiled(&|lists| lists.leaves[0].2 = 1), "form");
    assert_eq!(spoiled(&|lists| lists.ids[1] = lists.ids[0]), "form");
    assert_eq!(spoiled(&|lists| lists.values.truncate(3)), "form");
    assert_eq!(refused(&[node("Cast", "", &[INPUT_NAME], OUTPUT_NAME, &[])], &[]), "operator");
    assert_eq!(refused(&[node("Exp", "", &[INPUT_NAME], OUTPUT_NAME, &[])], &[]), "form");
    assert_eq!(Forest::build(&Fixture::by_kv_usage(1).model).unwrap_err().reason(), "form");
    assert_eq!(Forest::build(b"no graph").unwrap_err().reason(), "unreadable");
    assert_eq!(Forest::build(&vec![0; super::MODEL_CAP + 1]).unwrap_err().reason(), "too_large");
    let deep = Forest::build(&graph(Shape { trees: 4, depth: 9, ..USUAL }, 3)).unwrap_err();
    assert_eq!(
        (deep.reason(), deep.to_string().as_str()),
        ("too_deep", "a tree of depth 9, of at most 8")
    );
}

#[test]
fn a_value_that_is_doubled_again_and_again_is_refused() {
    let mut nodes = vec![];
    let mut last = INPUT_NAME.to_owned();
    for turn in 0..40 {
        let next = format!("twice_{turn}");
        nodes.push(node("Concat", "", &[&last, &last], &next, &[axis()]));
        last = next;
    }
    assert_eq!(refused(&nodes, &[]), "form");
}
