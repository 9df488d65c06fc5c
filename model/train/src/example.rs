//! What of a sample teaches the two targets.
//!
//! The label of a target is `ln(measured / prior)`: the step-time prior carries the scale, and the
//! trees learn by which factor the pod's state makes it wrong.

use weir_schema::{Features, Row, Sample, SampleOutcome, Target};

/// A prior below a microsecond is no time: the logarithm of what is divided by it would be far from every other.
const LEAST_PRIOR_MS: f32 = 1e-3;

/// What of a sample is learned from. A time that was not measured, or may not be used, is NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// Wall-clock time of the end, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The features, as logged.
    pub row: Row,
    /// Measured TTFT in milliseconds.
    ttft_ms: f32,
    /// Measured TPOT in milliseconds.
    tpot_ms: f32,
}

impl Example {
    /// The example in a sample; `None` when it teaches neither target.
    pub(crate) fn of(sample: &Sample) -> Option<Self> {
        // Whoever leaves early has seen its first token all the same, but its TPOT is that of the
        // part before the end. A pod that failed was not in a state to learn from.
        let complete = sample.outcome == SampleOutcome::Complete;
        let ttft = complete || sample.outcome == SampleOutcome::ClientGone;
        let measured = |usable: bool, target: Target| {
            sample.measured_ms(target).filter(|_| usable).unwrap_or(f32::NAN)
        };
        let example = Self {
            at_unix_ms: sample.at_unix_ms,
            row: sample.row,
            ttft_ms: measured(ttft, Target::Ttft),
            tpot_ms: measured(complete, Target::Tpot),
        };
        Target::ALL.iter().any(|target| example.measured_ms(*target).is_some()).then_some(example)
    }

    /// What was measured of a target, in milliseconds, if it can be learned from.
    pub(crate) fn measured_ms(&self, target: Target) -> Option<f32> {
        let measured_ms = match target {
            Target::Ttft => self.ttft_ms,
            Target::Tpot => self.tpot_ms,
        };
        let usable = !measured_ms.is_nan() && prior_ms(&self.row, target).is_some();
        usable.then_some(measured_ms)
    }

    /// What the trees are fitted to.
    pub(crate) fn label(&self, target: Target) -> Option<f32> {
        Some((self.measured_ms(target)? / prior_ms(&self.row, target)?).ln())
    }
}

/// The row's prior in milliseconds, if there is one to multiply.
pub(crate) fn prior_ms(row: &Row, target: Target) -> Option<f32> {
    Some(Features(*row).get(target.prior())).filter(|ms| *ms >= LEAST_PRIOR_MS)
}

#[cfg(test)]
mod tests {
    use weir_schema::Feature;

    use super::*;
    use crate::synthetic::sample;

    fn teaches(sample: &Sample) -> [bool; 2] {
        let example = Example::of(sample);
        Target::ALL.map(|target| example.is_some_and(|found| found.label(target).is_some()))
    }

    #[test]
    fn only_what_was_measured_on_a_stream_is_learned() {
        assert_eq!(teaches(&sample()), [true, true]);
        assert_eq!(teaches(&Sample { streamed: false, ..sample() }), [false, false]);
        assert_eq!(teaches(&Sample { ttft_ms: None, ..sample() }), [false, true]);
        for tpot_ms in [0.0, 0.019, f32::NAN, f32::INFINITY] {
            let faster_than_a_step = Sample { tpot_ms: Some(tpot_ms), ..sample() };
            assert_eq!(teaches(&faster_than_a_step), [true, false], "{tpot_ms}");
        }
    }

    #[test]
    fn a_response_cut_short_teaches_ttft_only_and_a_failed_pod_nothing() {
        let ended = |outcome| Sample { outcome, ..sample() };
        assert_eq!(teaches(&ended(SampleOutcome::ClientGone)), [true, false]);
        assert_eq!(teaches(&ended(SampleOutcome::PodFailed)), [false, false]);
        assert_eq!(teaches(&Sample { output_tokens: 7, ..sample() }), [true, false]);
    }

    #[test]
    fn a_row_without_a_prior_teaches_nothing_of_its_target() {
        for prior in [f32::NAN, 0.0] {
            let mut features = Features(sample().row);
            features.set(Feature::PriorTtftMs, prior);
            assert_eq!(teaches(&Sample { row: features.0, ..sample() }), [false, true]);
        }
    }
}
