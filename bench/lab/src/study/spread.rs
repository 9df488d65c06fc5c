//! Means, percentiles and intervals.

/// 97.5 % quantiles of Student's t with 1 to 30 degrees of freedom, as in any table of it.
const T975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The mean; `None` of nothing.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Half width of the 95 % interval of the mean; `None` below two values.
pub(crate) fn half_width(values: &[f64]) -> Option<f64> {
    let (count, mean) = (values.len(), mean(values)?);
    let freedom = count.checked_sub(1).filter(|freedom| *freedom > 0)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    // Beyond the table it nears that of the normal distribution.
    let t = T975.get(freedom - 1).copied().unwrap_or(1.96 + 2.4 / freedom as f64);
    Some(t * (squares / freedom as f64 / count as f64).sqrt())
}

/// What is said of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

impl Quantiles {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        // The value that this share of them does not exceed.
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied()
        };
        Self {
            mean: mean(&values),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: values.last().copied(),
        }
    }
}

/// Jain's index of fairness; `None` of nothing, 1 when all are zero alike.
pub(super) fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    let count = values.len() as f64;
    (count > 0.0).then(|| if squares > 0.0 { sum * sum / (count * squares) } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // Standard deviation 1, three values: 4.303 / sqrt(3).
        let width = half_width(&[1.0, 2.0, 3.0]).unwrap();
        assert!((width - 4.303 / 3_f64.sqrt()).abs() < 1e-9, "{width}");
        assert_eq!(half_width(&[1.0]), None);
        let many: Vec<f64> = (0..61).map(|number| f64::from(number % 2)).collect();
        let normal = 2.0 * (0.25 * 61.0 / 60.0 / 61.0_f64).sqrt();
        assert!((half_width(&many).unwrap() - normal).abs() < 1e-3);
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let of = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((of.p50, of.p95, of.p99, of.max), (Some(50.), Some(95.), Some(99.), Some(100.)));
        assert_eq!(of.mean, Some(50.5));
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
        assert_eq!(Quantiles::of(vec![7.0]).p99, Some(7.0));
    }

    #[test]
    fn fairness_is_one_for_equals_and_one_over_their_number_for_a_favourite() {
        assert_eq!(jain(&[0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!((jain(&[0.0, 0.0]), jain(&[])), (Some(1.0), None));
    }
}
