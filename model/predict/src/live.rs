//! Recent means: the live error of an evaluator and the live coverage of its quantiles.

/// Observations that an error looks back over, roughly.
const ERROR_WINDOW: u32 = 200;
/// Observations that a coverage looks back over, roughly: at 1000 it is known to two thirds of a
/// percentage point.
pub(crate) const COVERAGE_WINDOW: u32 = 1000;

/// Mean of the recent past: plain up to `WINDOW` observations, exponentially weighted from there on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LiveMean<const WINDOW: u32 = ERROR_WINDOW> {
    mean: f64,
    count: u64,
}

impl<const WINDOW: u32> LiveMean<WINDOW> {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        let weight = (1.0 / self.count as f64).max(1.0 / f64::from(WINDOW));
        self.mean += weight * (value - self.mean);
    }

    /// The same as if it were of no more than so many observations: the next ones count for more.
    pub(crate) fn at_most(self, count: u64) -> Self {
        Self { count: self.count.min(count), ..self }
    }

    /// The mean, once there is an observation.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Observations so far, forgotten ones included.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_plain_at_first_and_forgets_later() {
        let mut mean: LiveMean = LiveMean::default();
        assert_eq!(mean.mean(), None);
        mean.add(1.0);
        mean.add(3.0);
        assert_eq!(mean.mean(), Some(2.0));
        for _ in 0..2000 {
            mean.add(7.0);
        }
        assert!((mean.mean().unwrap() - 7.0).abs() < 0.01);
    }
}
