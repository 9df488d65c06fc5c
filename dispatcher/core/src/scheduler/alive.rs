//! What pods are judged by.

use std::time::Duration;

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{Band, Time};

/// For so long the predictor is not asked for its step times again. Every first token teaches it something, and were that to count at
/// once nothing that was found of the pods would stand until the next one.
const ASKED_EVERY: Duration = Duration::from_millis(10);

/// Step times of the configuration's classes, in their order.
pub(super) type Steps = SmallVec<[StepTime; 4]>;

/// What all pods are judged by.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Basis {
    pub(super) steps: Steps,
    pub(super) tightest_tpot_ms: Option<f64>,
    pub(super) top_band: Band,
    /// Classes of the pods that take requests, each once.
    pub(super) open_classes: SmallVec<[u16; 4]>,
}

/// What the predictor said of step times when it was asked last, if it was.
#[derive(Debug, Default)]
pub(super) struct Asked(Option<(Time, Steps)>);

impl Asked {
    /// The step times, unless it is to be asked again.
    pub(super) fn steps(&self, now: Time) -> Option<&Steps> {
        let known = self.0.as_ref().filter(|(at, _)| now.since(*at) < ASKED_EVERY);
        known.map(|(_, steps)| steps)
    }

    /// Notes what it said.
    pub(super) fn note(&mut self, now: Time, steps: Steps) {
        self.0 = Some((now, steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_predictor_said_is_gone_by_for_a_moment() {
        let mut asked = Asked::default();
        assert!(asked.steps(Time::ZERO).is_none(), "it was never asked");
        let noted = Time::ZERO.plus(Duration::from_secs(1));
        let steps = Steps::from_elem(StepTime { api_ms: 7.0, ..StepTime::default() }, 1);
        asked.note(noted, steps.clone());
        let after = |wait: Duration| asked.steps(noted.plus(wait)).cloned();
        assert_eq!(after(Duration::ZERO), Some(steps.clone()));
        assert_eq!(after(ASKED_EVERY.saturating_sub(Duration::from_micros(1))), Some(steps));
        assert_eq!(after(ASKED_EVERY), None, "by now it may know better");
    }
}
