//! What pods are judged by.

use std::time::Duration;

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{Band, Time, scheduler::Scheduler};

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

impl Scheduler {
    /// Notes what all pods are judged by; when it has changed, nothing that was found of them stands.
    pub(super) fn note_basis(&mut self, now: Time) {
        if self.asked.steps(now).is_none() {
            self.asked.note(now, self.steps());
        }
        let steps = self.steps_in_use(now);
        let basis = Basis {
            tightest_tpot_ms: self.tightest_tpot_ms(&steps),
            steps,
            top_band: self.top_band(),
            open_classes: self.open_classes.clone(),
        };
        if self.basis != basis {
            self.basis = basis;
            self.pods.touch_all();
        }
    }

    /// The smallest TPOT objective alive that a pod keeps for a request alone. One that none keeps, whoever asked for it, is no
    /// reason to judge the steps of others by it.
    pub(super) fn tightest_tpot_ms(&self, steps: &[StepTime]) -> Option<f64> {
        self.alive.tightest_tpot_ms(self.least_tpot_ms(steps), self.board.held())
    }

    /// The smallest TPOT objective that an open pod keeps for a request alone; 0 where none is open.
    pub(super) fn least_tpot_ms(&self, steps: &[StepTime]) -> f64 {
        let of_class = |class: &u16| steps.get(usize::from(*class));
        let alone_ms =
            self.open_classes.iter().filter_map(of_class).map(|one| one.pace_ms(1.0, 0.0));
        alone_ms.reduce(f64::min).unwrap_or_default() / self.config.pull.tpot_margin
    }

    /// The step times that pods are judged by.
    pub(super) fn steps_in_use(&self, now: Time) -> Steps {
        self.asked.steps(now).cloned().unwrap_or_else(|| self.steps())
    }

    /// The predictor's step times of the configuration's classes.
    pub(super) fn steps(&self) -> Steps {
        let class = |class| u16::try_from(class).unwrap_or(u16::MAX);
        let classes = 0..self.config.classes.len();
        classes.map(|index| self.step_time(class(index))).collect()
    }

    /// The predictor's step time of a class, with what a step brings.
    pub(super) fn step_time(&self, class: u16) -> StepTime {
        let steps_per_token = 1.0 / self.per_event.tokens_per_step(class);
        StepTime { steps_per_token, ..self.predictor.step_time(class) }
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
