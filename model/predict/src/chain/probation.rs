//! Whether a newcomer is worse than the bundle it replaced.
//!
//! The predecessor's last live error is no fair measure: traffic changes, and an hour with longer
//! prompts would make any newcomer look bad. So the predecessor is asked about the very row of each
//! outcome that the newcomer predicted, and both errors are means over the same outcomes. That costs
//! one single-row evaluation (10 us) per outcome, for the first few hundred after a swap.
//!
//! The rule: after 100 such outcomes of a target, an error above 1.25 times the predecessor's and at
//! least one percentage point above it is worse, on either target. Paired errors of two sound models
//! of the same traffic differ by far less. Whether the prior is better than both does not matter: the
//! better bundle is still the better one to go on with. After 400 outcomes the newcomer has passed, and
//! not before a target has a hundred that has any: where few responses have the tokens that a TPOT needs,
//! those of all would be over before those of TPOT can say anything. After 10,000 it has passed in any case.

use weir_schema::{Sample, Target, relative_error};

use super::serving::Serving;
use crate::both::Both;
use crate::live::LiveMean;
use crate::prior::measurable;

/// Outcomes of a target before it can be found worse.
const LEAST_OUTCOMES: u64 = 100;
/// Outcomes after which the newcomer has passed, if each target that has any has enough of them.
const ALL_OUTCOMES: u64 = 400;
/// Outcomes after which it has passed with fewer: so many are enough where one in a hundred counts.
const MOST_OUTCOMES: u64 = 10_000;
/// Share of the predecessor's error above which the newcomer is worse.
const WORSE: f64 = 1.25;
/// Difference below which it is not, as a fraction: both are excellent then.
const LEAST_DIFFERENCE: f64 = 0.01;

#[derive(Debug)]
pub(super) struct Probation {
    /// The bundle to go back to.
    pub(super) predecessor: Serving,
    /// Outcomes seen, whether or not the predecessor could be asked.
    outcomes: u64,
    /// Whether a target had outcomes under the predecessor, so that some are to come.
    expected: Both<bool>,
    newcomer_error: Both<LiveMean>,
    predecessor_error: Both<LiveMean>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    Passed,
    /// With the reason.
    Worse(String),
}

impl Probation {
    pub(super) fn new(predecessor: Serving) -> Self {
        let expected = predecessor.model.map(|error| error.count() > 0);
        Self {
            predecessor,
            outcomes: 0,
            expected,
            newcomer_error: Both::default(),
            predecessor_error: Both::default(),
        }
    }

    /// Whether the newcomer has had enough outcomes to be found worse and was not.
    pub(super) fn is_established(&self) -> bool {
        let heard = |target: Target| {
            let outcomes = self.newcomer_error.get(target).count();
            outcomes >= LEAST_OUTCOMES || (outcomes == 0 && !self.expected.get(target))
        };
        self.outcomes >= LEAST_OUTCOMES && Target::ALL.into_iter().all(heard)
    }

    /// Learns from an outcome that the newcomer had predicted.
    pub(super) fn observe(&mut self, sample: &Sample, measured: Both<Option<f32>>) -> Verdict {
        self.outcomes += 1;
        let predicted = &sample.predicted;
        let newcomer = Both { ttft: predicted.model_ttft_ms, tpot: predicted.model_tpot_ms };
        let medians = self.predecessor.evaluate(std::slice::from_ref(&sample.row));
        if let Ok([[ttft_ms, tpot_ms]]) = medians {
            let predecessor = Both { ttft: *ttft_ms, tpot: *tpot_ms };
            for target in Target::ALL {
                let newcomer_ms = newcomer.get(target).and_then(measurable);
                if let (Some(newcomer_ms), Some(ms)) = (newcomer_ms, *measured.get(target)) {
                    let error = relative_error(*predecessor.get(target), ms);
                    self.predecessor_error.get_mut(target).add(error);
                    self.newcomer_error.get_mut(target).add(relative_error(newcomer_ms, ms));
                }
            }
        }
        if let Some(reason) = Target::ALL.into_iter().find_map(|target| self.worse(target)) {
            return Verdict::Worse(reason);
        }
        let heard = self.outcomes >= ALL_OUTCOMES && self.is_established();
        if heard || self.outcomes >= MOST_OUTCOMES { Verdict::Passed } else { Verdict::Open }
    }

    fn worse(&self, target: Target) -> Option<String> {
        let (newcomer, predecessor) =
            (self.newcomer_error.get(target), self.predecessor_error.get(target));
        if newcomer.count() < LEAST_OUTCOMES {
            return None;
        }
        let (new, old) = (newcomer.mean()?, predecessor.mean()?);
        let worse = new > WORSE * old && new > old + LEAST_DIFFERENCE;
        worse.then(|| {
            let (name, version) = (target.name(), self.predecessor.bundle.version());
            format!("{name} error {new:.3} against {old:.3} of v{version}")
        })
    }
}
