//! What a graph takes, followed before ONNX Runtime gets it.
//!
//! ONNX Runtime reads a tree by a call within a call for each of its levels, and makes every value as large as the graph says: a
//! megabyte could end the process by its stack, two kilobytes by its memory. So the shape of every value is followed from the inputs,
//! as an upper bound for a batch of [`ROWS`] rows, and so is the depth of every tree. What cannot be followed is refused: a graph that
//! a trainer writes has nothing of the kind.

use std::collections::HashMap;

use weir_schema::onnx::{
    Attribute, GraphParts, NodeParts,
    graph::{INT64, read},
};

use super::BundleError;

/// Questions from the root of a tree to a leaf: four times what a trainer may be told to ask.
const DEEPEST: usize = 64;
/// Rows of the batch that shapes are followed for; more than any that is asked for.
const ROWS: u64 = 4096;
/// Columns of all values of a graph together. The trainer's takes some thirty.
const MOST_COLUMNS: u64 = 4096;
/// Operators of a graph; the trainer's has nine.
const MOST_OPERATORS: usize = 1024;
/// Dimensions of a value.
const MOST_DIMENSIONS: usize = 8;
/// Targets of an ensemble of trees; a bundle has two.
const MOST_TARGETS: i64 = 16;
/// Elements of all values of a graph together.
pub(super) const MOST_ELEMENTS: u64 = ROWS * MOST_COLUMNS;

/// Upper bounds of a value's dimensions.
type Shape = Vec<u64>;

/// Checks that a graph takes no more than one may.
///
/// # Errors
/// [`BundleError::TooDeep`] and [`BundleError::TooMuch`], and [`BundleError::CorruptModel`] when it cannot be followed.
pub(super) fn check(model: &[u8]) -> Result<(), BundleError> {
    let parts = read(model).map_err(|_| corrupt("torn or no protobuf"))?;
    if parts.nodes.len() > MOST_OPERATORS {
        return Err(BundleError::TooMuch { what: "operators", most: MOST_OPERATORS as u64 });
    }
    let mut values = Values::default();
    for input in &parts.inputs {
        let dims =
            input.dims.iter().map(|size| size.map_or(Some(ROWS), |size| u64::try_from(size).ok()));
        values.put(&input.name, dims.collect::<Option<_>>().ok_or(NEGATIVE)?)?;
    }
    values.take_constants(&parts)?;
    for node in &parts.nodes {
        let [output] = node.outputs.as_slice() else {
            return Err(corrupt("a node with other than one output"));
        };
        let shape = values.made(node)?;
        values.put(output, shape)?;
    }
    Ok(())
}

const NEGATIVE: BundleError = corrupt("a value of a negative size");
const UNFOLLOWED: BundleError = corrupt("a value whose size cannot be told before it is made");

const fn corrupt(detail: &'static str) -> BundleError {
    BundleError::CorruptModel { detail }
}

#[derive(Default)]
struct Values<'a> {
    shapes: HashMap<&'a str, Shape>,
    /// What shapes and axes are read from.
    integers: HashMap<&'a str, &'a [i64]>,
    elements: u64,
}

impl<'a> Values<'a> {
    fn put(&mut self, name: &'a str, shape: Shape) -> Result<(), BundleError> {
        let most = MOST_COLUMNS;
        let too_much = BundleError::TooMuch { what: "columns of all values", most };
        let size = size(&shape).filter(|_| shape.len() <= MOST_DIMENSIONS);
        let elements = size.and_then(|size| self.elements.checked_add(size));
        self.elements = elements.filter(|all| *all <= MOST_ELEMENTS).ok_or(too_much)?;
        match self.shapes.insert(name, shape) {
            None => Ok(()),
            Some(_) => Err(corrupt("a value that is made twice")),
        }
    }

    fn take_constants(&mut self, parts: &'a GraphParts) -> Result<(), BundleError> {
        for (name, constant) in &parts.constants {
            self.put(name, constant_shape(&constant.dims)?)?;
            if constant.data_type == INT64 {
                self.integers.insert(name, &constant.ints);
            }
        }
        Ok(())
    }

    fn shape(&self, name: &str) -> Result<&Shape, BundleError> {
        self.shapes.get(name).ok_or(corrupt("a node reads what nothing made before"))
    }

    fn list(&self, name: Option<&String>) -> Option<&'a [i64]> {
        self.integers.get(name?.as_str()).copied()
    }

    /// The shape of what a node makes.
    fn made(&mut self, node: &'a NodeParts) -> Result<Shape, BundleError> {
        if node.operator == "Constant" {
            return self.constant(node);
        }
        let inputs = node.inputs.iter().filter(|name| !name.is_empty());
        let shapes = inputs.map(|name| self.shape(name)).collect::<Result<Vec<_>, _>>()?;
        let axis = |default| match node.attributes.get("axis").map(|axis| axis.ints.as_slice()) {
            None => default,
            Some([axis]) => Some(*axis),
            Some(_) => None,
        };
        let made = match (node.operator.as_str(), shapes.as_slice()) {
            ("TreeEnsembleRegressor", [rows]) => return trees(&node.attributes, rows),
            ("Identity" | "Exp" | "Cast", [whole]) => Some((*whole).clone()),
            // Of a part no more is said than that it is one.
            ("Slice", [whole, ..]) => Some((*whole).clone()),
            ("Mul", [one, other]) => Some(broadcast(one, other)),
            ("Gather", [from, picked]) => gathered(from, picked, axis(Some(0))),
            ("Concat", all) => joined(all, axis(None)),
            ("Unsqueeze", [whole, ..]) => {
                let said = node.attributes.get("axes").map(|axes| axes.ints.as_slice());
                said.or_else(|| self.list(node.inputs.get(1))).and_then(|axes| with(whole, axes))
            }
            ("Reshape", [whole, _]) => {
                self.list(node.inputs.get(1)).and_then(|wanted| reshaped(whole, wanted))
            }
            _ => None,
        };
        made.ok_or(UNFOLLOWED)
    }

    fn constant(&mut self, node: &'a NodeParts) -> Result<Shape, BundleError> {
        let mut attributes = node.attributes.iter();
        let (Some((name, value)), None) = (attributes.next(), attributes.next()) else {
            return Err(UNFOLLOWED);
        };
        let output = node.outputs.first().map(String::as_str).unwrap_or_default();
        match (name.as_str(), &value.tensor) {
            ("value", Some(tensor)) => {
                if tensor.data_type == INT64 {
                    self.integers.insert(output, &tensor.ints);
                }
                constant_shape(&tensor.dims)
            }
            ("value_float" | "value_int" | "value_string", None) => Ok(Shape::new()),
            ("value_floats", None) => Ok(vec![value.floats.len() as u64]),
            ("value_ints", None) => {
                self.integers.insert(output, &value.ints);
                Ok(vec![value.ints.len() as u64])
            }
            _ => Err(UNFOLLOWED),
        }
    }
}

fn size(shape: &[u64]) -> Option<u64> {
    shape.iter().try_fold(1_u64, |size, dim| size.checked_mul(*dim))
}

fn constant_shape(dims: &[i64]) -> Result<Shape, BundleError> {
    dims.iter().map(|dim| u64::try_from(*dim).ok()).collect::<Option<_>>().ok_or(NEGATIVE)
}

/// The place that an axis names in a shape of so many dimensions; a negative one counts from the end.
fn place(axis: i64, dimensions: usize) -> Option<usize> {
    let dimensions = i64::try_from(dimensions).ok()?;
    let axis = if axis < 0 { axis.checked_add(dimensions)? } else { axis };
    usize::try_from(axis).ok().filter(|_| axis < dimensions)
}

/// The larger of each two dimensions, counted from the last.
fn broadcast(one: &[u64], other: &[u64]) -> Shape {
    let (long, short) = if one.len() < other.len() { (other, one) } else { (one, other) };
    let missing = std::iter::repeat_n(&1, long.len() - short.len());
    long.iter().zip(missing.chain(short)).map(|(one, other)| *one.max(other)).collect()
}

fn gathered(from: &[u64], picked: &[u64], axis: Option<i64>) -> Option<Shape> {
    let at = place(axis?, from.len())?;
    Some([from.get(..at)?, picked, from.get(at + 1..)?].concat())
}

fn joined(all: &[&Shape], axis: Option<i64>) -> Option<Shape> {
    let (first, others) = all.split_first()?;
    let at = place(axis?, first.len())?;
    let mut made = (*first).clone();
    for shape in others {
        if shape.len() != made.len() {
            return None;
        }
        for (index, (dim, other)) in made.iter_mut().zip(*shape).enumerate() {
            *dim = if index == at { dim.checked_add(*other)? } else { (*dim).max(*other) };
        }
    }
    Some(made)
}

/// A shape with dimensions of one at these places of the whole.
fn with(shape: &[u64], axes: &[i64]) -> Option<Shape> {
    let dimensions = shape.len() + axes.len();
    if dimensions > MOST_DIMENSIONS {
        return None;
    }
    let axes = axes.iter().map(|axis| place(*axis, dimensions)).collect::<Option<Vec<_>>>()?;
    let mut rest = shape.iter();
    (0..dimensions)
        .map(|at| if axes.contains(&at) { Some(1) } else { rest.next().copied() })
        .collect()
}

/// The dimensions that are wanted: 0 is the one in its place, -1 what is left.
fn reshaped(shape: &[u64], wanted: &[i64]) -> Option<Shape> {
    let known = wanted.iter().enumerate().map(|(at, dim)| match dim {
        -1 => Some(None),
        0 => shape.get(at).copied().map(Some),
        dim => u64::try_from(*dim).ok().map(Some),
    });
    let known = known.collect::<Option<Vec<Option<u64>>>>()?;
    if known.iter().filter(|dim| dim.is_none()).count() > 1 {
        return None;
    }
    let taken = size(&known.iter().copied().flatten().collect::<Vec<_>>())?;
    let left = size(shape)?.div_ceil(taken.max(1));
    Some(known.into_iter().map(|dim| dim.unwrap_or(left)).collect())
}

/// The shape of the sums of an ensemble of trees, none of which is too deep.
fn trees(attributes: &HashMap<String, Attribute>, rows: &[u64]) -> Result<Shape, BundleError> {
    let targets = attributes.get("n_targets").map(|targets| targets.ints.as_slice());
    let (Some([targets @ 1..=MOST_TARGETS]), [rows, _]) = (targets, rows) else {
        return Err(corrupt("trees of other rows or targets than agreed"));
    };
    let depth = depth(attributes)?;
    if depth > DEEPEST {
        return Err(BundleError::TooDeep { depth, most: DEEPEST });
    }
    Ok(vec![*rows, targets.unsigned_abs()])
}

/// The depth of the deepest tree. Every node has a name of its own and is asked after one other at most, and none after itself:
/// else it would be read again and again.
fn depth(attributes: &HashMap<String, Attribute>) -> Result<usize, BundleError> {
    const FORM: BundleError = corrupt("tree lists that do not fit together");
    let ints = |name: &str| attributes.get(name).map(|found| found.ints.as_slice()).ok_or(FORM);
    let (trees, ids) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
    let children = [ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?];
    let modes = attributes.get("nodes_modes").map(|found| found.texts.as_slice()).ok_or(FORM)?;
    let lengths = [ids.len(), modes.len(), children[0].len(), children[1].len()];
    let names = trees.iter().copied().zip(ids.iter().copied());
    let places: HashMap<(i64, i64), usize> = names.zip(0..).collect();
    if lengths != [trees.len(); 4] || places.len() != trees.len() {
        return Err(FORM);
    }
    let mut after = vec![None; trees.len()];
    for (at, (tree, mode)) in trees.iter().zip(modes).enumerate() {
        for list in children.iter().filter(|_| mode != "LEAF") {
            let child = list.get(at).and_then(|id| places.get(&(*tree, *id)));
            let parent = child.and_then(|child| after.get_mut(*child)).ok_or(FORM)?;
            if parent.replace(at).is_some() {
                return Err(FORM);
            }
        }
    }
    deepest(&after).ok_or(FORM)
}

/// The longest way to a node from one that is asked after none; `None` when some are asked after each other in a circle.
fn deepest(after: &[Option<usize>]) -> Option<usize> {
    let mut depths: Vec<Option<usize>> = vec![None; after.len()];
    let mut way = Vec::new();
    for node in 0..after.len() {
        let mut at = Some(node);
        // Upwards as far as nothing is known, and back.
        while let Some(here) = at.filter(|here| depths.get(*here) == Some(&None)) {
            if way.len() == after.len() {
                return None;
            }
            way.push(here);
            at = *after.get(here)?;
        }
        let mut next = at.and_then(|known| *depths.get(known)?).map_or(0, |depth| depth + 1);
        while let Some(here) = way.pop() {
            *depths.get_mut(here)? = Some(next);
            next += 1;
        }
    }
    Some(depths.into_iter().flatten().max().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_operators_or_unknown() {
        assert_eq!(broadcast(&[9, 1], &[4]), [9, 4]);
        assert_eq!(gathered(&[9, 20], &[3, 2], Some(-1)), Some(vec![9, 3, 2]));
        assert_eq!((gathered(&[9, 20], &[3], Some(2)), gathered(&[9], &[3], None)), (None, None));
        let (one, other) = (vec![9, 20], vec![9, 1]);
        assert_eq!(joined(&[&one, &other], Some(1)), Some(vec![9, 21]));
        assert_eq!((joined(&[&one, &vec![9]], Some(0)), joined(&[&one], None)), (None, None));
        assert_eq!(with(&[9, 20], &[0, -1]), Some(vec![1, 9, 20, 1]));
        assert_eq!((with(&[9], &[0, 0]), with(&[9], &[0; 8])), (None, None));
        assert_eq!(reshaped(&[9, 20], &[0, -1, 2]), Some(vec![9, 10, 2]));
        assert_eq!(reshaped(&[9, 20], &[-1, 7]), Some(vec![26, 7]), "no less than there is");
        assert_eq!((reshaped(&[9], &[-1, -1]), reshaped(&[9], &[i64::MIN])), (None, None));
    }

    #[test]
    fn a_way_is_as_long_as_it_is_and_a_circle_has_no_length() {
        assert_eq!(deepest(&[]), Some(0));
        // Node 3 before 1 before 0, and 3 before 2.
        assert_eq!(deepest(&[Some(1), Some(3), Some(3), None]), Some(2));
        assert_eq!(deepest(&[Some(1), Some(0), None]), None);
        assert_eq!(deepest(&[Some(0)]), None);
        let chain: Vec<_> = (0..100_000_usize).map(|node| node.checked_sub(1)).collect();
        assert_eq!(deepest(&chain), Some(99_999));
    }

    #[test]
    fn nodes_that_are_no_trees_are_refused() {
        let list = |ints: &[i64]| Attribute { ints: ints.to_vec(), ..Attribute::default() };
        let found = |ids: &[i64], yes: &[i64], no: &[i64], modes: &[&str]| {
            let texts = modes.iter().map(|mode| (*mode).to_owned()).collect();
            let attributes = [
                ("nodes_treeids", list(&[0; 3])),
                ("nodes_nodeids", list(ids)),
                ("nodes_truenodeids", list(yes)),
                ("nodes_falsenodeids", list(no)),
                ("nodes_modes", Attribute { texts, ..Attribute::default() }),
            ];
            let attributes = attributes.map(|(name, list)| (name.to_owned(), list));
            depth(&HashMap::from(attributes)).ok()
        };
        let (split, leaf) = ("BRANCH_LT", "LEAF");
        assert_eq!(found(&[0, 1, 2], &[1, 0, 0], &[2, 0, 0], &[split, leaf, leaf]), Some(1));
        assert_eq!(found(&[0, 1, 1], &[1, 0, 0], &[1, 0, 0], &[split, leaf, leaf]), None, "names");
        assert_eq!(found(&[0, 1, 2], &[1, 0, 0], &[1, 0, 0], &[split, leaf, leaf]), None, "shared");
        assert_eq!(found(&[0, 1, 2], &[1, 0, 0], &[7, 0, 0], &[split, leaf, leaf]), None, "nobody");
        assert_eq!(found(&[0, 1, 2], &[1, 0, 0], &[2, 0, 0], &[split, leaf]), None, "too few");
        assert_eq!(
            found(&[0, 1, 2], &[2, 2, 0], &[1, 0, 0], &[split, split, leaf]),
            None,
            "circle"
        );
    }
}
