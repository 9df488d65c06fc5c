//! How wrong predictions were lately.
//!
//! Owned by whatever is graded: a pod by the scheduler, a model version by the program. It holds a mean and a
//! count, whatever it has seen.

/// Largest relative error that counts; one hiccup must not drown all other outcomes.
const CAP: f64 = 3.0;

/// Mean absolute relative error of predictions, looking back over some `WINDOW` outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentError<const WINDOW: u32> {
    mean: f64,
    count: u64,
}

impl<const WINDOW: u32> RecentError<WINDOW> {
    /// Learns from an outcome, if there were a prediction and a measurement. An error that is no number changes
    /// nothing.
    pub fn learn(&mut self, predicted_ms: Option<f32>, measured_ms: Option<f32>) {
        let Some((predicted_ms, measured_ms)) = predicted_ms.zip(measured_ms) else { return };
        let (predicted_ms, measured_ms) = (f64::from(predicted_ms), f64::from(measured_ms));
        let error = (predicted_ms - measured_ms).abs() / measured_ms;
        if !error.is_finite() {
            return;
        }
        self.count += 1;
        let weight = (1.0 / self.count as f64).max(1.0 / f64::from(WINDOW));
        self.mean += weight * (error.min(CAP) - self.mean);
    }

    /// The error, as a fraction; `None` before any outcome.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// Outcomes learned from, forgotten ones included.
    pub const fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_outcomes_count_alike_and_the_old_are_forgotten() {
        let mut error = RecentError::<10>::default();
        assert_eq!((error.mean(), error.count()), (None, 0));
        error.learn(Some(100.0), Some(200.0));
        error.learn(Some(100.0), Some(100.0));
        error.learn(None, Some(100.0));
        error.learn(Some(100.0), None);
        assert_eq!((error.mean(), error.count()), (Some(0.25), 2));
        (0..100).for_each(|_| error.learn(Some(300.0), Some(100.0)));
        assert!(error.mean().is_some_and(|mean| (mean - 2.0).abs() < 0.01), "{error:?}");
    }

    #[test]
    fn one_hiccup_is_capped_and_what_is_no_number_is_left_out() {
        let mut error = RecentError::<10>::default();
        for measured_ms in [0.0, f32::NAN, f32::INFINITY] {
            error.learn(Some(100.0), Some(measured_ms));
        }
        assert_eq!(error.count(), 0);
        error.learn(Some(1e6), Some(1.0));
        assert_eq!(error.mean(), Some(CAP));
    }
}
