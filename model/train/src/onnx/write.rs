//! Writes the graph of a bundle.
//!
//! ```text
//! features [n, FEATURE_COUNT] ─┬─ TreeEnsembleRegressor ─ Exp ─┐
//!                              ├─ Gather (the prior's column) ─┴ Mul ─┐
//!                              └─ the same for TPOT ─────────── Mul ──┴ Concat ─ latency_ms [n, 2]
//! ```
//! Operator sets from 2021 (ai.onnx 15, ai.onnx.ml 3): every ONNX Runtime that is in use knows
//! them. The field numbers are those of `onnx.proto`.

use weir_schema::{
    FEATURE_COUNT, Target,
    manifest::{INPUT_NAME, OUTPUT_NAME},
    onnx::{
        Message,
        graph::{FLOAT, INT64},
    },
};

use crate::tree::{Node, Tree};

const IR_VERSION: i64 = 8;
const ONNX_OPSET: i64 = 15;
const ML_DOMAIN: &str = "ai.onnx.ml";
const ML_OPSET: i64 = 3;

/// The bytes of `model.onnx` for the trees of each target; no trees answer the prior.
pub(crate) fn write(trees: [&[Tree]; 2]) -> Vec<u8> {
    let mut graph = Message::default();
    let none = [Tree(vec![Node::Leaf(0.0)])];
    for (target, trees) in Target::ALL.into_iter().zip(trees) {
        let trees = if trees.is_empty() { &none } else { trees };
        for node in target_nodes(target, trees) {
            graph.message(1, &node);
        }
    }
    let latencies = Target::ALL.map(|target| named(target, "ms"));
    let axis = int_attribute("axis", 1);
    graph.message(1, &node("Concat", "", &latencies.each_ref(), OUTPUT_NAME, &[axis]));
    graph.text(2, "weir_latency");
    for target in Target::ALL {
        graph.message(5, &column_tensor(&named(target, "column"), target.prior() as i64));
    }
    graph.message(11, &value_info(INPUT_NAME, FEATURE_COUNT as i64));
    graph.message(12, &value_info(OUTPUT_NAME, Target::ALL.len() as i64));

    let mut model = Message::default();
    model.int(1, IR_VERSION).text(2, "weir").text(3, env!("CARGO_PKG_VERSION")).message(7, &graph);
    for (domain, version) in [("", ONNX_OPSET), (ML_DOMAIN, ML_OPSET)] {
        model.message(8, Message::default().text(1, domain).int(2, version));
    }
    model.into_bytes()
}

fn named(target: Target, what: &str) -> String {
    format!("{}_{what}", target.name())
}

/// The nodes from the features to one target's latency.
fn target_nodes(target: Target, trees: &[Tree]) -> [Message; 4] {
    let [sum, ratio, column, prior, latency] =
        ["log_ratio", "ratio", "column", "prior_ms", "ms"].map(|what| named(target, what));
    [
        node(
            "TreeEnsembleRegressor",
            ML_DOMAIN,
            &[&INPUT_NAME.to_owned()],
            &sum,
            &ensemble_attributes(trees),
        ),
        node("Exp", "", &[&sum], &ratio, &[]),
        node("Gather", "", &[&INPUT_NAME.to_owned(), &column], &prior, &[int_attribute("axis", 1)]),
        node("Mul", "", &[&prior, &ratio], &latency, &[]),
    ]
}

/// `NodeProto`, named after its output.
fn node(
    operator: &str,
    domain: &str,
    inputs: &[&String],
    output: &str,
    attributes: &[Message],
) -> Message {
    let mut node = Message::default();
    for input in inputs {
        node.text(1, input);
    }
    node.text(2, output).text(3, &format!("{output}_node")).text(4, operator);
    for attribute in attributes {
        node.message(5, attribute);
    }
    if !domain.is_empty() {
        node.text(7, domain);
    }
    node
}

/// The trees as parallel lists, one entry per node.
fn ensemble_attributes(trees: &[Tree]) -> Vec<Message> {
    let numbered = || {
        let number = |(tree, found): (usize, &'_ Tree)| (tree as i64, found.0.clone());
        trees.iter().enumerate().map(number).flat_map(|(tree, nodes)| {
            nodes.into_iter().enumerate().map(move |(index, node)| (tree, index as i64, node))
        })
    };
    let ints = |name: &str, value: fn(&Node) -> i64| {
        ints_attribute(name, numbered().map(|(_, _, node)| value(&node)))
    };
    let leaves = || {
        numbered().filter_map(|(tree, index, node)| match node {
            Node::Leaf(weight) => Some((tree, index, weight)),
            Node::Split { .. } => None,
        })
    };
    vec![
        int_attribute("n_targets", 1),
        text_attribute("aggregate_function", "SUM"),
        text_attribute("post_transform", "NONE"),
        ints_attribute("nodes_treeids", numbered().map(|(tree, ..)| tree)),
        ints_attribute("nodes_nodeids", numbered().map(|(_, index, _)| index)),
        ints("nodes_featureids", |node| split(node).map_or(0, |s| s.feature)),
        floats_attribute(
            "nodes_values",
            numbered().map(|(_, _, node)| split(&node).map_or(0.0, |s| s.below)),
        ),
        // XGBoost sends a value to its left child when it is below the condition, not at it.
        modes_attribute(numbered().map(|(_, _, node)| split(&node).is_some())),
        ints("nodes_truenodeids", |node| split(node).map_or(0, |s| s.yes)),
        ints("nodes_falsenodeids", |node| split(node).map_or(0, |s| s.no)),
        ints("nodes_missing_value_tracks_true", |node| split(node).map_or(0, |s| s.missing_yes)),
        ints_attribute("target_treeids", leaves().map(|(tree, ..)| tree)),
        ints_attribute("target_nodeids", leaves().map(|(_, index, _)| index)),
        ints_attribute("target_ids", leaves().map(|_| 0)),
        floats_attribute("target_weights", leaves().map(|(.., weight)| weight)),
    ]
}

/// A split in the numbers of ONNX.
struct Split {
    feature: i64,
    below: f32,
    yes: i64,
    no: i64,
    missing_yes: i64,
}

fn split(node: &Node) -> Option<Split> {
    match *node {
        Node::Leaf(_) => None,
        Node::Split { feature, below, yes, no, missing_yes } => Some(Split {
            feature: feature as i64,
            below,
            yes: yes as i64,
            no: no as i64,
            missing_yes: i64::from(missing_yes),
        }),
    }
}

/// `AttributeProto` with its name and the number of its type.
fn attribute(name: &str, kind: i64) -> Message {
    let mut attribute = Message::default();
    attribute.text(1, name).int(20, kind);
    attribute
}

fn int_attribute(name: &str, value: i64) -> Message {
    let mut attribute = attribute(name, 2);
    attribute.int(3, value);
    attribute
}

fn text_attribute(name: &str, value: &str) -> Message {
    let mut attribute = attribute(name, 3);
    attribute.text(4, value);
    attribute
}

fn floats_attribute(name: &str, values: impl IntoIterator<Item = f32>) -> Message {
    let mut attribute = attribute(name, 6);
    attribute.floats(7, values);
    attribute
}

fn ints_attribute(name: &str, values: impl IntoIterator<Item = i64>) -> Message {
    let mut attribute = attribute(name, 7);
    attribute.ints(8, values);
    attribute
}

fn modes_attribute(splits: impl Iterator<Item = bool>) -> Message {
    let mut attribute = attribute("nodes_modes", 8);
    for split in splits {
        attribute.text(9, if split { "BRANCH_LT" } else { "LEAF" });
    }
    attribute
}

/// `TensorProto` of one column number; one-dimensional, so that Gather keeps the axis.
fn column_tensor(name: &str, column: i64) -> Message {
    let mut tensor = Message::default();
    tensor.ints(1, [1]).int(2, INT64).ints(7, [column]).text(8, name);
    tensor
}

/// `ValueInfoProto` of floats [n, columns].
fn value_info(name: &str, columns: i64) -> Message {
    let mut shape = Message::default();
    shape.message(1, Message::default().text(2, "n"));
    shape.message(1, Message::default().int(1, columns));
    let mut tensor = Message::default();
    tensor.int(1, FLOAT).message(2, &shape);
    let mut info = Message::default();
    info.text(1, name).message(2, Message::default().message(1, &tensor));
    info
}
