//! What each feature brings: the loss that the splits on it take away, as XGBoost saves it with the
//! trees. For people who ask what a model looks at; nothing is decided by it.

use serde::Deserialize;
use weir_schema::FEATURE_COUNT;

#[derive(Deserialize)]
struct Saved {
    learner: Learner,
}

#[derive(Deserialize)]
struct Learner {
    gradient_booster: GradientBooster,
}

#[derive(Deserialize)]
struct GradientBooster {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    trees: Vec<SavedTree>,
}

/// One entry per node; a leaf has no child on the left.
#[derive(Deserialize)]
struct SavedTree {
    left_children: Vec<i64>,
    split_indices: Vec<usize>,
    #[serde(default)]
    loss_changes: Vec<f64>,
}

/// The share of each feature in all that the splits take away. Zeros when the file does not say: a model
/// is as good without it.
pub(crate) fn shares(json: &[u8]) -> [f64; FEATURE_COUNT] {
    let mut gains = [0.0; FEATURE_COUNT];
    let Ok(saved) = serde_json::from_slice::<Saved>(json) else { return gains };
    for tree in &saved.learner.gradient_booster.model.trees {
        let nodes = tree.left_children.iter().zip(&tree.split_indices).zip(&tree.loss_changes);
        for ((_, feature), gain) in
            nodes.filter(|((left, _), gain)| **left >= 0 && gain.is_finite())
        {
            if let Some(sum) = gains.get_mut(*feature) {
                *sum += gain.max(0.0);
            }
        }
    }
    let all: f64 = gains.iter().sum();
    if all > 0.0 {
        gains.iter_mut().for_each(|gain| *gain /= all);
    }
    gains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_of_splits_add_up_to_one_and_leaves_have_none() {
        let tree = r#"{"left_children": [1, -1, 3, -1, -1], "split_indices": [3, 0, 1, 0, 0],
            "loss_changes": [30, 99, 10, 99, 99]}"#;
        let json =
            format!(r#"{{"learner": {{"gradient_booster": {{"model": {{"trees": [{tree}]}}}}}}}}"#);
        let shares = shares(json.as_bytes());
        assert_eq!((shares[3], shares[1]), (0.75, 0.25));
        assert_eq!(shares.iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn a_file_that_says_nothing_of_it_gives_zeros() {
        assert_eq!(shares(b"{}"), [0.0; FEATURE_COUNT]);
    }
}
