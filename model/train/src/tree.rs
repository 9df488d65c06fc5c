//! The trees of a trained booster, read from the JSON that XGBoost saves.
//!
//! A tree is renumbered on the way in: root first, the yes branch right after its split, children
//! after parents. So a walk always ends, and a deleted node of the original cannot be reached.

use serde::Deserialize;
use weir_schema::FEATURE_COUNT;

use crate::TrainError;

/// A node of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node {
    /// What the tree adds.
    Leaf(f32),
    /// A question.
    Split {
        /// Column asked about.
        feature: usize,
        /// A smaller value goes to `yes`.
        below: f32,
        /// Where a smaller value goes.
        yes: usize,
        /// Where another value goes.
        no: usize,
        /// Whether a missing value goes to `yes`.
        missing_yes: bool,
    },
}

/// A tree; the first node is its root.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tree(pub Vec<Node>);

#[derive(Deserialize)]
struct Saved {
    learner: Learner,
}

#[derive(Deserialize)]
struct Learner {
    gradient_booster: GradientBooster,
    learner_model_param: ModelParameters,
}

#[derive(Deserialize)]
struct ModelParameters {
    base_score: String,
}

#[derive(Deserialize)]
struct GradientBooster {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    trees: Vec<SavedTree>,
}

/// One entry per node; a leaf has no children and its value stands for the condition.
#[derive(Deserialize)]
struct SavedTree {
    left_children: Vec<i64>,
    right_children: Vec<i64>,
    split_indices: Vec<usize>,
    split_conditions: Vec<f32>,
    default_left: Vec<u8>,
}

/// The trees in what [`crate::xgboost::Booster::save`] gives.
pub(crate) fn trees(json: &[u8]) -> Result<Vec<Tree>, TrainError> {
    let saved: Saved =
        serde_json::from_slice(json).map_err(|error| TrainError::Model(error.to_string()))?;
    // XGBoost 3 writes it as a list of one.
    let base = saved.learner.learner_model_param.base_score;
    if base.trim_matches(['[', ']']).parse() != Ok(0.0_f32) {
        return Err(TrainError::Model(format!("base_score is {base} and not 0")));
    }
    saved.learner.gradient_booster.model.trees.iter().map(renumbered).collect()
}

fn renumbered(saved: &SavedTree) -> Result<Tree, TrainError> {
    let broken = |what: &str| TrainError::Model(format!("tree with {what}"));
    let mut nodes: Vec<Node> = Vec::new();
    // The node to take next, and the split whose `no` it is.
    let mut open: Vec<(usize, Option<usize>)> = vec![(0, None)];
    while let Some((old, no_of)) = open.pop() {
        if nodes.len() >= saved.left_children.len() {
            return Err(broken("a circle"));
        }
        let here = nodes.len();
        if let Some(Node::Split { no, .. }) = no_of.and_then(|parent| nodes.get_mut(parent)) {
            *no = here;
        }
        let node = old_node(saved, old).ok_or_else(|| broken("a node out of range"))?;
        nodes.push(match node {
            // The yes branch is pushed last and so taken next.
            Node::Split { feature, below, yes, no, missing_yes } => {
                open.extend([(no, Some(here)), (yes, None)]);
                Node::Split { feature, below, yes: here + 1, no: here, missing_yes }
            }
            leaf => leaf,
        });
    }
    Ok(Tree(nodes))
}

/// A node with its children as XGBoost numbers them; `None` when it is not a valid one.
fn old_node(saved: &SavedTree, old: usize) -> Option<Node> {
    let below = saved.split_conditions.get(old).copied().filter(|value| value.is_finite())?;
    let (left, right) = (*saved.left_children.get(old)?, *saved.right_children.get(old)?);
    if left == -1 && right == -1 {
        return Some(Node::Leaf(below));
    }
    let feature = saved.split_indices.get(old).copied().filter(|index| *index < FEATURE_COUNT)?;
    let (yes, no) = (usize::try_from(left).ok()?, usize::try_from(right).ok()?);
    let missing_yes = *saved.default_left.get(old)? != 0;
    Some(Node::Split { feature, below, yes, no, missing_yes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(base_score: &str, left: &str) -> String {
        format!(
            r#"{{"learner": {{"learner_model_param": {{"base_score": "{base_score}"}},
            "gradient_booster": {{"model": {{"trees": [{{"left_children": {left},
            "right_children": [2, -1, 4, -1, -1], "split_indices": [3, 0, 1, 0, 0],
            "split_conditions": [0.5, 1, 0.25, 2, 3], "default_left": [1, 0, 0, 0, 0]}}]}}}}}}}}"#
        )
    }

    #[test]
    fn a_saved_tree_is_renumbered_with_the_yes_branch_first() {
        let split = |feature, below, yes, no, missing_yes| Node::Split {
            feature,
            below,
            yes,
            no,
            missing_yes,
        };
        let expected = Tree(vec![
            split(3, 0.5, 1, 2, true),
            Node::Leaf(1.0),
            split(1, 0.25, 3, 4, false),
            Node::Leaf(2.0),
            Node::Leaf(3.0),
        ]);
        for base in ["0E0", "[0E0]", "0"] {
            let found = trees(saved(base, "[1, -1, 3, -1, -1]").as_bytes()).unwrap();
            assert_eq!(found, std::slice::from_ref(&expected));
        }
    }

    #[test]
    fn a_model_of_another_form_is_refused() {
        for (base, left, reason) in [
            ("5E-1", "[1, -1, 3, -1, -1]", "base_score"),
            ("0", "[0, -1, 3, -1, -1]", "circle"),
            ("0", "[1, -1, 9, -1, -1]", "out of range"),
        ] {
            let error = trees(saved(base, left).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(trees(b"{}").is_err());
    }
}
