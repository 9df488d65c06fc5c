//! From the nodes of a graph to one product per latency.
//!
//! Every value of the graph is followed column by column: a column is a sum of leaves, or a product of a
//! number, at most one feature, and at most one exponential of a sum. Whatever is put together otherwise
//! is refused, for only what is understood may be computed in another way.

use std::collections::HashMap;

use weir_schema::{
    FEATURE_COUNT,
    manifest::{INPUT_NAME, OUTPUT_NAME},
    onnx::{
        GraphParts, NodeParts, TensorParts, ValueParts,
        graph::{FLOAT, INT64},
    },
};

use super::{Unfit, ensemble::Ensemble};

/// Widest value that is followed, in columns: a graph that doubles its width again and again is hostile.
const WIDEST: usize = 1024;
/// The operator set in which `Mul` began to broadcast.
const OLDEST_OPSET: i64 = 7;
/// The last operator set with `TreeEnsembleRegressor`.
const NEWEST_ML_OPSET: i64 = 4;

/// The sum of the leaves that a row reaches, for one target of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    /// Index in [`Plan::ensembles`].
    pub ensemble: usize,
    pub target: usize,
}

/// `scale x column x exp(ratio)`, each where it is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    pub scale: f32,
    pub column: Option<usize>,
    pub ratio: Option<Sum>,
}

impl Product {
    const ONE: Self = Self { scale: 1.0, column: None, ratio: None };

    fn times(self, other: Self) -> Option<Self> {
        let either = |one: Option<usize>, other: Option<usize>| match (one, other) {
            (Some(_), Some(_)) => None,
            (one, other) => Some(one.or(other)),
        };
        if self.ratio.is_some() && other.ratio.is_some() {
            return None;
        }
        let column = either(self.column, other.column)?;
        Some(Self { scale: self.scale * other.scale, column, ratio: self.ratio.or(other.ratio) })
    }
}

/// What a column of a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    Sum(Sum),
    Product(Product),
}

/// The two latencies, and the trees that they need.
#[derive(Debug)]
pub(super) struct Plan {
    pub ensembles: Vec<Ensemble>,
    /// TTFT and TPOT.
    pub latencies: [Product; 2],
}

impl Plan {
    pub(super) fn of(parts: &GraphParts) -> Result<Self, Unfit> {
        check_frame(parts)?;
        let mut reader = Reader { parts, known: HashMap::new(), ensembles: Vec::new() };
        let features = (0..FEATURE_COUNT)
            .map(|column| Term::Product(Product { column: Some(column), ..Product::ONE }));
        reader.known.insert(INPUT_NAME, features.collect());
        for node in &parts.nodes {
            reader.follow(node)?;
        }
        let output =
            reader.known.get(OUTPUT_NAME).ok_or(Unfit::Form("nothing makes the output"))?;
        let products = output.iter().map(|term| match term {
            Term::Product(product) => Ok(*product),
            Term::Sum(_) => Err(Unfit::Form("a latency is a bare sum of leaves")),
        });
        let latencies = products.collect::<Result<Vec<_>, _>>()?.try_into();
        let latencies = latencies.map_err(|_| Unfit::Form("the output has not two columns"))?;
        Ok(Self { ensembles: reader.ensembles, latencies })
    }

    /// Questions from a root to a leaf, at most.
    pub(super) fn depth(&self) -> usize {
        self.ensembles.iter().map(|ensemble| ensemble.depth).max().unwrap_or_default()
    }
}

/// Inputs, outputs and operator sets are those that the rest relies on.
fn check_frame(parts: &GraphParts) -> Result<(), Unfit> {
    let is = |values: &[ValueParts], name: &str, columns: i64| {
        matches!(values, [only] if only.name == name && only.element == FLOAT
            && matches!(only.dims[..], [None, Some(width)] if width == columns))
    };
    if !is(&parts.inputs, INPUT_NAME, FEATURE_COUNT as i64) || !is(&parts.outputs, OUTPUT_NAME, 2) {
        return Err(Unfit::Form("other inputs or outputs than agreed"));
    }
    let version = |domain: &str| parts.opsets.get(domain).copied();
    let known = version("").is_none_or(|version| version >= OLDEST_OPSET)
        && version("ai.onnx.ml").is_none_or(|version| (1..=NEWEST_ML_OPSET).contains(&version));
    if known { Ok(()) } else { Err(Unfit::Form("an operator set of another time")) }
}

struct Reader<'a> {
    parts: &'a GraphParts,
    known: HashMap<&'a str, Vec<Term>>,
    ensembles: Vec<Ensemble>,
}

impl<'a> Reader<'a> {
    fn follow(&mut self, node: &'a NodeParts) -> Result<(), Unfit> {
        let [output] = node.outputs.as_slice() else {
            return Err(Unfit::Form("a node with other than one output"));
        };
        let made = self.made(node)?;
        if made.len() > WIDEST {
            return Err(Unfit::Form("a value of too many columns"));
        }
        match self.known.insert(output, made) {
            None => Ok(()),
            Some(_) => Err(Unfit::Form("a value that is made twice")),
        }
    }

    fn made(&mut self, node: &NodeParts) -> Result<Vec<Term>, Unfit> {
        let inputs: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
        let along_columns =
            || node.attributes.get("axis").is_some_and(|axis| !axis.foreign && axis.ints == [1]);
        match (node.domain.as_str(), node.operator.as_str(), inputs.as_slice()) {
            ("ai.onnx.ml", "TreeEnsembleRegressor", [input]) => self.sums(node, input),
            ("" | "ai.onnx", operator, inputs) => match (operator, inputs) {
                ("Identity", [input]) => Ok(self.value(input)?.to_vec()),
                ("Exp", [input]) => self.value(input)?.iter().map(exp).collect(),
                ("Mul", [one, other]) => product(&self.operand(one)?, &self.operand(other)?),
                ("Gather", [input, columns]) if along_columns() => self.gather(input, columns),
                ("Concat", inputs) if along_columns() => {
                    let parts = inputs.iter().map(|input| self.value(input));
                    Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
                }
                _ => Err(Unfit::Operator(operator.to_owned())),
            },
            (_, operator, _) => Err(Unfit::Operator(operator.to_owned())),
        }
    }

    /// A value that was made before.
    fn value(&self, name: &str) -> Result<&[Term], Unfit> {
        let found = self.known.get(name).map(Vec::as_slice);
        found.ok_or(Unfit::Form("a node reads what nothing made before"))
    }

    /// A value that was made before, or a constant.
    fn operand(&self, name: &str) -> Result<Vec<Term>, Unfit> {
        match self.parts.constants.get(name) {
            Some(constant) => numbers(constant),
            None => self.value(name).map(<[Term]>::to_vec),
        }
    }

    fn gather(&self, input: &str, columns: &str) -> Result<Vec<Term>, Unfit> {
        const FORM: Unfit = Unfit::Form("Gather by something else than a list of columns");
        let (input, columns) = (self.value(input)?, self.parts.constants.get(columns).ok_or(FORM)?);
        let is_list = matches!(columns.dims[..], [length] if usize::try_from(length) == Ok(columns.ints.len()));
        if columns.data_type != INT64 || !is_list {
            return Err(FORM);
        }
        let picked = columns.ints.iter().map(|column| {
            let column = usize::try_from(*column).ok();
            column.and_then(|column| input.get(column)).copied().ok_or(FORM)
        });
        picked.collect()
    }

    fn sums(&mut self, node: &NodeParts, input: &str) -> Result<Vec<Term>, Unfit> {
        let columns = self.value(input)?.iter().map(|term| match term {
            Term::Product(Product { scale: 1.0, column: Some(column), ratio: None }) => Ok(*column),
            _ => Err(Unfit::Form("trees that ask of something else than features")),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let made = Ensemble::of(&node.attributes, &columns)?;
        let (ensemble, targets) = (self.ensembles.len(), made.base.len());
        self.ensembles.push(made);
        Ok((0..targets).map(|target| Term::Sum(Sum { ensemble, target })).collect())
    }
}

fn exp(term: &Term) -> Result<Term, Unfit> {
    match term {
        Term::Sum(sum) => Ok(Term::Product(Product { ratio: Some(*sum), ..Product::ONE })),
        Term::Product(_) => Err(Unfit::Form("Exp of something else than a sum of leaves")),
    }
}

/// Column by column; a single column meets every column of the other.
fn product(one: &[Term], other: &[Term]) -> Result<Vec<Term>, Unfit> {
    const FORM: Unfit =
        Unfit::Form("Mul of what does not make a product of one feature and one sum");
    let width = one.len().max(other.len());
    let column = |of: &[Term], index: usize| match of {
        [only] => Some(*only),
        all if all.len() == width => all.get(index).copied(),
        _ => None,
    };
    let times = |index| match (column(one, index)?, column(other, index)?) {
        (Term::Product(one), Term::Product(other)) => one.times(other).map(Term::Product),
        _ => None,
    };
    (0..width).map(|index| times(index).ok_or(FORM)).collect()
}

/// A constant that is the same for every row.
fn numbers(constant: &TensorParts) -> Result<Vec<Term>, Unfit> {
    let width = match constant.dims[..] {
        [] => Some(1),
        [width] | [1, width] => usize::try_from(width).ok(),
        _ => None,
    };
    if constant.data_type != FLOAT || width != Some(constant.floats.len()) {
        return Err(Unfit::Form("a constant of another shape than a row's"));
    }
    let number = |scale: &f32| Term::Product(Product { scale: *scale, ..Product::ONE });
    Ok(constant.floats.iter().map(number).collect())
}
