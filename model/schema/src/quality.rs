//! How good the stated numbers are, as an evaluator shows it in its [`crate::Status`].
//!
//! Everything here is about the recent past and about what was *stated*: the quantiles that a
//! decision was made with, whichever evaluator they came from. Sizes are bounded, so that a status
//! stays cheap to make and its numbers can be metrics.

use serde::{Deserialize, Serialize};

/// Largest relative error that counts. A client's stall or a pod's hiccup can make one outcome wrong
/// by a factor of a hundred; it must not decide by itself which of two evaluators is the better one.
const ERROR_CAP: f64 = 3.0;

/// Absolute error relative to what was measured, as a fraction, and no more than counts; not finite when the prediction is not.
pub fn relative_error(predicted_ms: f32, measured_ms: f32) -> f64 {
    let (predicted, measured) = (f64::from(predicted_ms), f64::from(measured_ms));
    let error = (predicted - measured).abs() / measured;
    if error.is_finite() { error.min(ERROR_CAP) } else { error }
}

/// What was stated of one latency against what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grade {
    /// Outcomes graded, forgotten ones included.
    pub outcomes: u64,
    /// Mean absolute relative error of the median, as a fraction.
    pub mape: f32,
    /// Share of outcomes at or below the 90th percentile.
    pub coverage: f32,
}

/// Both latencies; `None` before any outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grades {
    /// Of TTFT.
    pub ttft: Option<Grade>,
    /// Of TPOT.
    pub tpot: Option<Grade>,
}

/// Whether the relation between what is stated and what is measured has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Alarms because responses became slower than stated.
    pub slower: u64,
    /// Alarms because responses became faster than stated.
    pub faster: u64,
    /// Evidence for the next alarm as a share of what raises it: 0 is none, 1 is an alarm. `None` while there is nothing to compare
    /// with: too little is known of who states latencies now.
    pub evidence: Option<f32>,
}

/// Quality of one latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetQuality {
    /// Factor from the median to the 90th percentile, of the evaluator that serves now; the largest of
    /// the pod classes.
    pub p90_factor: f32,
    /// What was stated; `None` before any outcome.
    pub stated: Option<Grade>,
    /// Mean absolute relative error of the served bundle, chosen or not, as a fraction.
    pub model_mape: Option<f32>,
    /// The error on the same outcomes by what would serve in its place, as a fraction.
    pub next_mape: Option<f32>,
    /// Whether that has changed.
    pub drift: Drift,
}

/// What was stated while a version served.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionQuality {
    /// The version; 0 is no bundle.
    pub version: u64,
    /// How good it was.
    pub grades: Grades,
}

/// What was stated for one pod class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassQuality {
    /// The class by name.
    pub pod_class: String,
    /// How good it was.
    pub grades: Grades,
}

/// What was stated for requests of one size on one pod class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternQuality {
    /// The class by name.
    pub pod_class: String,
    /// Upper edge of the bucket of input tokens; `None` above the last.
    pub input_tokens: Option<u32>,
    /// Upper edge of the bucket of expected output tokens; `None` above the last.
    pub output_tokens: Option<u32>,
    /// How good it was.
    pub grades: Grades,
}

/// A bundle that was taken out of service because the one before it was better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The version that was taken out.
    pub from: u64,
    /// The version that was put back.
    pub to: u64,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_absurd_outcome_counts_as_no_more_than_the_cap() {
        assert_eq!(relative_error(1e6, 1.0), ERROR_CAP);
        assert!((relative_error(110.0, 100.0) - 0.1).abs() < 1e-6);
        assert!(relative_error(f32::NAN, 100.0).is_nan());
        assert!(relative_error(f32::INFINITY, 100.0).is_infinite());
    }
}
