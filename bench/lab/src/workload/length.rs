//! How long prompts and answers are.

use rand::{Rng, rngs::SmallRng};
use rand_distr::StandardNormal;

/// A number of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Length {
    /// Always the same.
    Fixed(u32),
    /// Normal, and what falls outside the bounds becomes the bound: the load generators that publish "mean, std, min,
    /// max" clip and do not draw again, which piles up mass at the bounds.
    Normal { mean: f64, std: f64, least: u32, most: u32 },
    /// Lognormal, drawn again until it is inside the bounds: a filtered data set.
    LogNormal { median: f64, sigma: f64, least: u32, most: u32 },
}

impl Length {
    /// Normal between 1 and twice the mean, so that the mean stays the mean.
    pub(super) const fn around(mean: u32, std: u32) -> Self {
        Self::Normal { mean: mean as f64, std: std as f64, least: 1, most: 2 * mean - 1 }
    }

    /// The next one.
    pub(super) fn draw(self, rng: &mut SmallRng) -> u32 {
        match self {
            Self::Fixed(tokens) => tokens,
            Self::Normal { mean, std, least, most } => {
                let normal: f64 = rng.sample(StandardNormal);
                ((mean + std * normal).round() as u32).clamp(least, most)
            }
            Self::LogNormal { median, sigma, least, most } => {
                // Bounded: bounds that hardly anything lies in must not hang the lab.
                for _ in 0..100 {
                    let normal: f64 = rng.sample(StandardNormal);
                    let tokens = (median * (sigma * normal).exp()).round() as u32;
                    if (least..=most).contains(&tokens) {
                        return tokens;
                    }
                }
                (median as u32).clamp(least, most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::draw::stream;

    fn sorted(length: Length, count: usize) -> Vec<u32> {
        let mut rng = stream(1, "length");
        let mut drawn: Vec<u32> = (0..count).map(|_| length.draw(&mut rng)).collect();
        drawn.sort_unstable();
        drawn
    }

    fn mean(drawn: &[u32]) -> f64 {
        drawn.iter().map(|tokens| f64::from(*tokens)).sum::<f64>() / drawn.len() as f64
    }

    #[test]
    fn around_keeps_the_mean() {
        let drawn = sorted(Length::around(30, 9), 20_000);
        assert!((mean(&drawn) / 30.0 - 1.0).abs() < 0.01, "{}", mean(&drawn));
        assert!(drawn[0] >= 1 && drawn[19_999] <= 59);
    }

    #[test]
    fn a_lognormal_stays_inside_its_bounds_without_piling_up_there() {
        let length = Length::LogNormal { median: 100.0, sigma: 1.6, least: 4, most: 1024 };
        let drawn = sorted(length, 20_000);
        assert!(drawn[0] >= 4 && drawn[19_999] <= 1024);
        let at_bound = drawn.iter().filter(|tokens| **tokens == 1024).count();
        assert!(at_bound < 20, "{at_bound}");
    }
}
