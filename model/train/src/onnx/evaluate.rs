//! Evaluates a bundle's graph by the words of the ONNX specification.
//!
//! It knows the operators that [`super::write()`] uses and refuses every other. Speed is no aim: a
//! round evaluates a few thousand rows.

use std::collections::HashMap;

use weir_schema::{
    FEATURE_COUNT, Row,
    manifest::{INPUT_NAME, OUTPUT_NAME},
    onnx::{Attribute, GraphParts, NodeParts, TensorParts, WireError, graph::read},
};

/// Columns of a table. The trainer's graphs have those of the features; one that doubles its width again and again is hostile.
const MOST_COLUMNS: usize = 1024;

/// Why a graph cannot be read or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    /// The bytes are no protobuf, or end early.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// An operator that a bundle's graph does not use.
    #[error("operator {0} is not one that a trainer writes")]
    Operator(String),
    /// A part of the graph that another part refers to.
    #[error("{0} is missing or does not fit")]
    Part(&'static str),
}

/// A graph that can be evaluated.
#[derive(Debug)]
pub(crate) struct Graph {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    operator: Operator,
    inputs: Vec<String>,
    output: String,
}

#[derive(Debug)]
enum Operator {
    Trees(Ensemble),
    Exp,
    Mul,
    Gather(Vec<usize>),
    Concat,
}

/// A matrix of floats; each row has `columns` of them.
#[derive(Clone, Debug)]
struct Table {
    columns: usize,
    values: Vec<f32>,
}

impl Table {
    fn rows(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks(self.columns.max(1))
    }

    /// A table of a value per value.
    fn map(&self, each: impl FnMut(f32) -> f32) -> Self {
        Self { columns: self.columns, values: self.values.iter().copied().map(each).collect() }
    }
}

impl Graph {
    /// The graph in the bytes of `model.onnx`.
    pub(crate) fn decode(model: &[u8]) -> Result<Self, GraphError> {
        let GraphParts { nodes, constants, outputs, .. } = read(model)?;
        if outputs.len() != 1 || outputs.iter().any(|output| output.name != OUTPUT_NAME) {
            return Err(GraphError::Part("output latency_ms"));
        }
        let steps = nodes.into_iter().map(|node| step(node, &constants)).collect::<Result<_, _>>();
        Ok(Self { steps: steps? })
    }

    /// Both latencies of every row, in milliseconds.
    pub(crate) fn latency_ms(&self, rows: &[Row]) -> Result<Vec<[f32; 2]>, GraphError> {
        let input = Table { columns: FEATURE_COUNT, values: rows.as_flattened().to_vec() };
        let mut known = HashMap::from([(INPUT_NAME, input)]);
        for step in &self.steps {
            let inputs: Option<Vec<&Table>> =
                step.inputs.iter().map(|name| known.get(name.as_str())).collect();
            let output =
                step.operator.apply(&inputs.ok_or(GraphError::Part("input of a node"))?)?;
            if output.columns > MOST_COLUMNS {
                return Err(GraphError::Part("width of a table"));
            }
            known.insert(&step.output, output);
        }
        let output = known.get(OUTPUT_NAME).ok_or(GraphError::Part("output latency_ms"))?;
        let pairs: Option<Vec<[f32; 2]>> = output.rows().map(|row| row.try_into().ok()).collect();
        pairs
            .filter(|pairs| pairs.len() == rows.len())
            .ok_or(GraphError::Part("shape of the output"))
    }
}

fn step(mut node: NodeParts, constants: &HashMap<String, TensorParts>) -> Result<Step, GraphError> {
    let axis = node.attributes.get("axis").map(|axis| axis.ints.as_slice());
    let along_columns = axis == Some(&[1]);
    let operator = match node.operator.as_str() {
        "TreeEnsembleRegressor" => Operator::Trees(Ensemble::of(&node.attributes)?),
        "Exp" => Operator::Exp,
        "Mul" => Operator::Mul,
        "Concat" if along_columns => Operator::Concat,
        "Gather" if along_columns => {
            let name = node.inputs.pop().unwrap_or_default();
            let columns = constants.get(&name).ok_or(GraphError::Part("columns of Gather"))?;
            let columns = columns.ints.iter().map(|column| usize::try_from(*column).ok());
            Operator::Gather(columns.collect::<Option<_>>().ok_or(GraphError::Part("column"))?)
        }
        other => return Err(GraphError::Operator(other.to_owned())),
    };
    let output = node.outputs.pop().ok_or(GraphError::Part("output of a node"))?;
    Ok(Step { operator, inputs: node.inputs, output })
}

impl Operator {
    fn apply(&self, inputs: &[&Table]) -> Result<Table, GraphError> {
        match (self, inputs) {
            (Self::Trees(ensemble), [features]) => {
                let values = features.rows().map(|row| ensemble.sum(row));
                Ok(Table { columns: 1, values: values.collect::<Result<_, _>>()? })
            }
            (Self::Exp, [table]) => Ok(table.map(f32::exp)),
            (Self::Mul, [one, other]) if one.values.len() == other.values.len() => {
                let mut others = other.values.iter();
                Ok(one.map(|value| value * others.next().copied().unwrap_or(f32::NAN)))
            }
            (Self::Gather(columns), [table]) => {
                let picked = |row: &[f32]| -> Option<Vec<f32>> {
                    columns.iter().map(|column| row.get(*column).copied()).collect()
                };
                let rows: Option<Vec<Vec<f32>>> = table.rows().map(picked).collect();
                let values = rows.ok_or(GraphError::Part("column of Gather"))?.concat();
                Ok(Table { columns: columns.len(), values })
            }
            (Self::Concat, [one, other]) if one.values.len() == other.values.len() => {
                let pairs = one.rows().zip(other.rows());
                let values = pairs.flat_map(|(one, other)| [one, other].concat()).collect();
                Ok(Table { columns: one.columns + other.columns, values })
            }
            _ => Err(GraphError::Part("input of an operator")),
        }
    }
}

/// The trees of a `TreeEnsembleRegressor` with one target.
#[derive(Debug)]
struct Ensemble {
    nodes: Vec<TreeNode>,
    /// The first node of each tree.
    roots: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum TreeNode {
    Leaf(f32),
    Below { feature: usize, value: f32, yes: usize, no: usize, missing_yes: bool },
}

impl Ensemble {
    fn of(attributes: &HashMap<String, Attribute>) -> Result<Self, GraphError> {
        let lists = Lists(attributes);
        let trees = lists.ints("nodes_treeids")?;
        let ids = lists.ints("nodes_nodeids")?;
        let places: HashMap<(i64, i64), usize> =
            trees.iter().copied().zip(ids.iter().copied()).zip(0..).collect();
        if places.len() != trees.len() || ids.len() != trees.len() {
            return Err(GraphError::Part("node ids"));
        }
        let nodes = (0..trees.len()).map(|place| lists.node(place, &places));
        let mut nodes = nodes.collect::<Option<Vec<_>>>().ok_or(GraphError::Part("tree node"))?;
        lists.weigh_leaves(&mut nodes, &places).ok_or(GraphError::Part("leaf weights"))?;
        let starts = trees.iter().enumerate().filter(|(place, tree)| {
            place.checked_sub(1).and_then(|before| trees.get(before)) != Some(*tree)
        });
        let roots = starts.map(|(place, _)| place).collect();
        Ok(Self { nodes, roots })
    }

    /// The sum of the leaves that a row reaches.
    fn sum(&self, row: &[f32]) -> Result<f32, GraphError> {
        self.roots.iter().map(|root| self.leaf(*root, row)).sum()
    }

    fn leaf(&self, root: usize, row: &[f32]) -> Result<f32, GraphError> {
        let mut place = root;
        // A path longer than all nodes is a circle.
        for _ in 0..self.nodes.len() {
            place = match self.nodes.get(place) {
                Some(TreeNode::Leaf(weight)) => return Ok(*weight),
                Some(TreeNode::Below { feature, value, yes, no, missing_yes }) => {
                    let asked = row.get(*feature).ok_or(GraphError::Part("feature of a node"))?;
                    let holds = if asked.is_nan() { *missing_yes } else { asked < value };
                    if holds { *yes } else { *no }
                }
                None => break,
            };
        }
        Err(GraphError::Part("path to a leaf"))
    }
}

/// The parallel lists of an ensemble's attributes.
struct Lists<'a>(&'a HashMap<String, Attribute>);

impl<'a> Lists<'a> {
    fn ints(&self, name: &'static str) -> Result<&'a [i64], GraphError> {
        let found = self.0.get(name).map(|attribute| attribute.ints.as_slice());
        found.ok_or(GraphError::Part(name))
    }

    fn int(&self, name: &'static str, place: usize) -> Option<i64> {
        self.0.get(name)?.ints.get(place).copied()
    }

    fn node(&self, place: usize, places: &HashMap<(i64, i64), usize>) -> Option<TreeNode> {
        match self.0.get("nodes_modes")?.texts.get(place)?.as_str() {
            "LEAF" => Some(TreeNode::Leaf(0.0)),
            "BRANCH_LT" => {
                let tree = self.int("nodes_treeids", place)?;
                let child = |name| places.get(&(tree, self.int(name, place)?)).copied();
                Some(TreeNode::Below {
                    feature: usize::try_from(self.int("nodes_featureids", place)?).ok()?,
                    value: self.0.get("nodes_values")?.floats.get(place).copied()?,
                    yes: child("nodes_truenodeids")?,
                    no: child("nodes_falsenodeids")?,
                    missing_yes: self.int("nodes_missing_value_tracks_true", place)? != 0,
                })
            }
            _ => None,
        }
    }

    /// Adds every weight to the leaf it names.
    fn weigh_leaves(
        &self,
        nodes: &mut [TreeNode],
        places: &HashMap<(i64, i64), usize>,
    ) -> Option<()> {
        let weights = &self.0.get("target_weights")?.floats;
        for (index, weight) in weights.iter().enumerate() {
            let leaf = (self.int("target_treeids", index)?, self.int("target_nodeids", index)?);
            match nodes.get_mut(*places.get(&leaf)?)? {
                TreeNode::Leaf(sum) => *sum += weight,
                TreeNode::Below { .. } => return None,
            }
        }
        Some(())
    }
}
