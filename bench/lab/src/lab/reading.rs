//! A figure of a policy with what it would have been without each of the seeds.

use crate::study::half_width;

/// A figure over seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// Over all seeds.
    pub(super) value: f64,
    /// Over all seeds but one, for each.
    pub(super) without: Vec<f64>,
}

impl Reading {
    /// A mean over seeds.
    pub(super) fn mean(values: &[f64]) -> Self {
        let (sum, count) = (values.iter().sum::<f64>(), values.len() as f64);
        let without = values.iter().map(|value| (sum - value) / (count - 1.0).max(1.0)).collect();
        Self { value: sum / count.max(1.0), without }
    }

    /// Another figure than the mean of the seeds' own, which say how it scatters.
    pub(super) fn about(value: f64, of_seeds: &[f64]) -> Self {
        let Self { value: mean, without } = Self::mean(of_seeds);
        let scale = if mean == 0.0 { 0.0 } else { value / mean };
        Self { value, without: without.into_iter().map(|one| one * scale).collect() }
    }

    /// Half width of the 95 % interval of this over another, by the jackknife: seeds are paired, for they bring the same
    /// requests to both. `None` below three seeds.
    pub(super) fn over(&self, other: &Self) -> Option<f64> {
        let pairs = self.without.iter().zip(&other.without);
        let ratios: Vec<f64> = pairs.filter(|(_, b)| **b > 0.0).map(|(a, b)| a / b).collect();
        self.spread(&ratios)
    }

    /// Half width of its own interval.
    pub(super) fn interval(&self) -> Option<f64> {
        self.spread(&self.without)
    }

    fn spread(&self, without: &[f64]) -> Option<f64> {
        let count = self.without.len();
        // Leaving one out moves a mean by 1/(n-1) of what the left one is off.
        (count >= 3 && without.len() == count)
            .then(|| half_width(without).map(|half| half * (count as f64 - 1.0)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_that_of_student() {
        let values = [1.0, 2.0, 3.0, 4.0];
        let reading = Reading::mean(&values);
        assert_eq!(reading.value, 2.5);
        let (jackknife, student) = (reading.interval().unwrap(), half_width(&values).unwrap());
        assert!((jackknife - student).abs() < 1e-9, "{jackknife} {student}");
    }

    #[test]
    fn what_both_have_in_common_does_not_widen_their_ratio() {
        let weir = Reading::mean(&[2.0, 4.0, 6.0]);
        let rival = Reading::mean(&[1.0, 2.0, 3.0]);
        assert!(weir.over(&rival).unwrap() < 1e-9);
        assert!(weir.interval().unwrap() > 1.0);
        assert_eq!(Reading::mean(&[1.0, 2.0]).interval(), None);
    }
}
