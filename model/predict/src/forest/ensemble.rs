//! The trees of one `TreeEnsembleRegressor`, from its parallel lists.
//!
//! Every node is turned into one question, "is the value below this?", which a missing value answers as
//! the node says. For finite thresholds all four orders of ONNX can be said so without a difference:
//! `x <= t` is `x < next_up(t)`, and `>` and `>=` are the same questions with the answers exchanged.
//! What comes out are trees: every node is reached once, from the root of its tree.

use std::collections::{HashMap, HashSet};

use weir_schema::onnx::Attribute;

use super::Unfit;

/// Attributes that are known; hit rates mean nothing for the answer.
const KNOWN: [&str; 17] = [
    "aggregate_function",
    "base_values",
    "n_targets",
    "nodes_falsenodeids",
    "nodes_featureids",
    "nodes_hitrates",
    "nodes_missing_value_tracks_true",
    "nodes_modes",
    "nodes_nodeids",
    "nodes_treeids",
    "nodes_truenodeids",
    "nodes_values",
    "post_transform",
    "target_ids",
    "target_nodeids",
    "target_treeids",
    "target_weights",
];
/// Most targets of an ensemble; a bundle has two.
const MOST_TARGETS: i64 = 16;

const LISTS: Unfit = Unfit::Form("tree lists that do not fit together");

/// A node of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    /// An end; its weights are in [`Ensemble::weights`].
    Leaf,
    /// A question.
    Split {
        /// Column asked about.
        column: usize,
        /// A smaller value goes to `yes`.
        below: f32,
        /// Place of the node for a smaller value.
        yes: usize,
        /// Place of the node for another value.
        no: usize,
        /// Whether a missing value goes to `yes`.
        missing_yes: bool,
    },
}

/// An ensemble of trees.
#[derive(Debug)]
pub(super) struct Ensemble {
    pub nodes: Vec<Node>,
    /// Place of each tree's first node.
    pub roots: Vec<usize>,
    /// What a leaf adds, by its place and the target.
    pub weights: HashMap<(usize, usize), f32>,
    /// What is added to the sum of each target.
    pub base: Vec<f32>,
    /// Questions from a root to a leaf, at most.
    pub depth: usize,
}

impl Ensemble {
    /// The ensemble in a node's attributes; its features are these columns.
    pub(super) fn of(
        attributes: &HashMap<String, Attribute>,
        columns: &[usize],
    ) -> Result<Self, Unfit> {
        let lists = Lists(attributes);
        lists.check()?;
        let (trees, ids) = (lists.ints("nodes_treeids")?, lists.ints("nodes_nodeids")?);
        let places: HashMap<(i64, i64), usize> =
            trees.iter().copied().zip(ids.iter().copied()).zip(0..).collect();
        if places.len() != trees.len() || ids.len() != trees.len() || trees.is_empty() {
            return Err(LISTS);
        }
        let nodes = lists.nodes(trees, columns, &places)?;
        let roots = roots(trees)?;
        let depth = depth(&nodes, &roots)?;
        let base = lists.base()?;
        let weights = lists.weights(&nodes, &places, base.len())?;
        let ensemble = Self { nodes, roots, weights, base, depth };
        let reached = (0..ensemble.base.len()).all(|target| ensemble.always_reaches(target));
        if reached {
            Ok(ensemble)
        } else {
            Err(Unfit::Form("a target that rows may get nothing for"))
        }
    }

    /// Whether every row comes to a leaf with a weight for a target. To one that does not, ONNX Runtime answers 0 and leaves
    /// the base out, which is not what the operator says.
    fn always_reaches(&self, target: usize) -> bool {
        let ends = self.roots.iter().skip(1).copied().chain([self.nodes.len()]);
        let weighs = |place: usize| {
            self.nodes.get(place) != Some(&Node::Leaf)
                || self.weights.contains_key(&(place, target))
        };
        self.roots.iter().zip(ends).any(|(root, end)| (*root..end).all(weighs))
    }
}

/// The first node of each tree; the nodes of a tree stand together.
fn roots(trees: &[i64]) -> Result<Vec<usize>, Unfit> {
    let mut seen = HashSet::new();
    let mut roots = Vec::new();
    let mut last = None;
    for (place, tree) in trees.iter().enumerate() {
        if last.replace(tree) != Some(tree) {
            if !seen.insert(tree) {
                return Err(LISTS);
            }
            roots.push(place);
        }
    }
    Ok(roots)
}

/// The depth of the deepest tree, if they are trees: every node is met exactly once.
fn depth(nodes: &[Node], roots: &[usize]) -> Result<usize, Unfit> {
    const FORM: Unfit = Unfit::Form("nodes that are no trees");
    let mut met = vec![false; nodes.len()];
    let (mut deepest, mut count) = (0, 0);
    let mut open: Vec<(usize, usize)> = roots.iter().map(|root| (*root, 0)).collect();
    while let Some((place, depth)) = open.pop() {
        let again = met.get_mut(place).map(|met| std::mem::replace(met, true));
        if again != Some(false) {
            return Err(FORM);
        }
        (deepest, count) = (deepest.max(depth), count + 1);
        if let Some(Node::Split { yes, no, .. }) = nodes.get(place) {
            open.extend([(*yes, depth + 1), (*no, depth + 1)]);
        }
    }
    if count == nodes.len() { Ok(deepest) } else { Err(FORM) }
}

/// The parallel lists of an ensemble's attributes.
struct Lists<'a>(&'a HashMap<String, Attribute>);

impl<'a> Lists<'a> {
    /// Nothing is in them that is not known, and sums are what is wanted.
    fn check(&self) -> Result<(), Unfit> {
        let known =
            |(name, found): (&String, &Attribute)| KNOWN.contains(&name.as_str()) && !found.foreign;
        if !self.0.iter().all(known) {
            return Err(Unfit::Form("a tree attribute that is not known"));
        }
        let says =
            |name: &str, wanted: &str| self.0.get(name).is_none_or(|found| found.texts == [wanted]);
        if says("aggregate_function", "SUM") && says("post_transform", "NONE") {
            Ok(())
        } else {
            Err(Unfit::Form("trees whose leaves are not just added"))
        }
    }

    fn ints(&self, name: &str) -> Result<&'a [i64], Unfit> {
        self.0.get(name).map(|found| found.ints.as_slice()).ok_or(LISTS)
    }

    fn floats(&self, name: &str) -> Result<&'a [f32], Unfit> {
        self.0.get(name).map(|found| found.floats.as_slice()).ok_or(LISTS)
    }

    fn base(&self) -> Result<Vec<f32>, Unfit> {
        let [targets @ 1..=MOST_TARGETS] = *self.ints("n_targets")? else { return Err(LISTS) };
        let targets = usize::try_from(targets).map_err(|_| LISTS)?;
        match self.0.get("base_values").map(|found| found.floats.as_slice()) {
            None | Some([]) => Ok(vec![0.0; targets]),
            Some(base) if base.len() == targets => Ok(base.to_vec()),
            Some(_) => Err(LISTS),
        }
    }

    fn nodes(
        &self,
        trees: &[i64],
        columns: &[usize],
        places: &HashMap<(i64, i64), usize>,
    ) -> Result<Vec<Node>, Unfit> {
        let modes = self.0.get("nodes_modes").map(|found| found.texts.as_slice()).ok_or(LISTS)?;
        let values = self.floats("nodes_values")?;
        let [features, yes, no] =
            ["nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids"].map(|of| self.ints(of));
        let (features, yes, no) = (features?, yes?, no?);
        let missing = self.ints("nodes_missing_value_tracks_true").unwrap_or_default();
        let fits = |length: usize| length == trees.len();
        let fit = [modes.len(), values.len(), features.len(), yes.len(), no.len()].map(fits);
        if fit.contains(&false) || !(missing.is_empty() || fits(missing.len())) {
            return Err(LISTS);
        }
        let node = |(place, mode): (usize, &String)| {
            if mode == "LEAF" {
                return Some(Ok(Node::Leaf));
            }
            let tree = *trees.get(place)?;
            let child = |of: &[i64]| places.get(&(tree, *of.get(place)?)).copied();
            let feature = usize::try_from(*features.get(place)?).ok()?;
            let said = Said {
                column: *columns.get(feature)?,
                value: *values.get(place)?,
                children: [child(yes)?, child(no)?],
                missing_true: missing.get(place).is_some_and(|told| *told != 0),
            };
            Some(said.asked(mode))
        };
        modes.iter().enumerate().map(|one| node(one).unwrap_or(Err(LISTS))).collect()
    }

    fn weights(
        &self,
        nodes: &[Node],
        places: &HashMap<(i64, i64), usize>,
        targets: usize,
    ) -> Result<HashMap<(usize, usize), f32>, Unfit> {
        let [trees, ids, of] =
            ["target_treeids", "target_nodeids", "target_ids"].map(|name| self.ints(name));
        let (trees, ids, of, weights) = (trees?, ids?, of?, self.floats("target_weights")?);
        if [trees.len(), ids.len(), of.len()] != [weights.len(); 3] {
            return Err(LISTS);
        }
        let mut found = HashMap::with_capacity(weights.len());
        for (((tree, id), target), weight) in trees.iter().zip(ids).zip(of).zip(weights) {
            let place = *places.get(&(*tree, *id)).ok_or(LISTS)?;
            let target = usize::try_from(*target).ok().filter(|target| *target < targets);
            let key = (place, target.ok_or(LISTS)?);
            if nodes.get(place) != Some(&Node::Leaf) || found.insert(key, *weight).is_some() {
                return Err(LISTS);
            }
        }
        Ok(found)
    }
}

/// A question in the words of ONNX.
struct Said {
    column: usize,
    value: f32,
    /// Where it goes when what the mode says is true, and when it is not.
    children: [usize; 2],
    missing_true: bool,
}

impl Said {
    fn asked(self, mode: &str) -> Result<Node, Unfit> {
        let Self { column, value, children: [if_true, if_false], missing_true } = self;
        if !value.is_finite() {
            return Err(Unfit::Form("a threshold that is not finite"));
        }
        let (below, exchanged) = match mode {
            "BRANCH_LT" => (value, false),
            "BRANCH_LEQ" => (value.next_up(), false),
            "BRANCH_GTE" => (value, true),
            "BRANCH_GT" => (value.next_up(), true),
            _ => return Err(Unfit::Form("a node that asks something else than an order")),
        };
        let (yes, no) = if exchanged { (if_false, if_true) } else { (if_true, if_false) };
        Ok(Node::Split { column, below, yes, no, missing_yes: missing_true != exchanged })
    }
}
