//! How a pod is picked by its score.

use std::cmp::Ordering;

use crate::{
    PodId,
    decide::{pick::Fit, scorer::Score},
    policy::{Dice, Picker},
};

/// The place in `fits` that is picked; `None` when there is none. `last` is the pod picked before.
pub fn pick(
    picker: Picker,
    fits: &[Fit],
    scores: &[Score],
    last: Option<PodId>,
    dice: &mut Dice,
) -> Option<usize> {
    if fits.is_empty() {
        return None;
    }
    match picker {
        Picker::Best => best(fits, scores, 0..fits.len()),
        Picker::TopRandom { k } => {
            let mut places: Vec<usize> = (0..fits.len()).collect();
            places.sort_by(|a, b| order(fits, scores, *b, *a));
            let drawn = dice.below(k.min(places.len()));
            places.get(drawn).copied()
        }
        Picker::WeightedRandom => {
            let weights: Vec<f64> = scores.iter().map(|score| score.main).collect();
            weighted(&weights, dice)
        }
        Picker::Random => Some(dice.below(fits.len())),
        Picker::RoundRobin => {
            let next = fits.iter().position(|fit| last.is_none_or(|last| fit.outlook.pod > last));
            Some(next.unwrap_or(0))
        }
        Picker::PowerOfTwo => {
            let first = dice.below(fits.len());
            // One of the others, all alike.
            let second = (first + 1 + dice.below(fits.len().saturating_sub(1))) % fits.len();
            best(fits, scores, [first, second].into_iter())
        }
    }
}

/// Weighted draw of one place by A-Res (Efraimidis and Spirakis): the largest U^(1/w), here as
/// ln(U)/w, which does not underflow for small weights. Without a positive weight, any place.
pub fn weighted(weights: &[f64], dice: &mut Dice) -> Option<usize> {
    let mut drawn: Option<(usize, f64)> = None;
    for (place, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        let key = dice.uniform().ln() / weight;
        if drawn.is_none_or(|(_, largest)| key > largest) {
            drawn = Some((place, key));
        }
    }
    let any = (!weights.is_empty()).then(|| dice.below(weights.len()));
    drawn.map(|(place, _)| place).or(any)
}

fn best(fits: &[Fit], scores: &[Score], places: impl Iterator<Item = usize>) -> Option<usize> {
    places.max_by(|a, b| order(fits, scores, *a, *b))
}

/// By score, then by its tie-break, then the pod that joined first: never by chance.
fn order(fits: &[Fit], scores: &[Score], a: usize, b: usize) -> Ordering {
    let score = |place: usize| scores.get(place).copied().unwrap_or_default();
    let pod = |place: usize| fits.get(place).map(|fit| fit.outlook.pod);
    let (one, other) = (score(a), score(b));
    one.order(&other).then_with(|| pod(b).cmp(&pod(a)))
}
