//! Counters of a trainer, for whoever exports them.

use std::time::Duration;

use serde::Serialize;
use weir_schema::Holdout;

use crate::{Round, Skipped, TrainError};

/// What a trainer has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrainMetrics {
    /// Rounds begun.
    pub rounds: u64,
    /// Rounds that published a bundle.
    pub published: u64,
    /// Rounds whose candidate was worse than the serving bundle.
    pub refused_by_gate: u64,
    /// Rounds with too few samples to train.
    pub not_enough: u64,
    /// Rounds with too few new samples to train again.
    pub unchanged: u64,
    /// Rounds that ended in an error.
    pub failed: u64,
    /// Version of the bundle published last; 0 is none since the trainer was opened.
    pub published_version: u64,
    /// What was skipped in the spool.
    pub skipped: Skipped,
    /// Samples in the window.
    pub window_samples: usize,
    /// Rows of the last bundle's training, for TTFT and TPOT.
    pub rows: [usize; 2],
    /// Errors of the last candidate, published or not.
    pub candidate: Option<Holdout>,
    /// Errors of the serving bundle on the same rows, when there was one to compare with.
    pub serving: Option<Holdout>,
    /// How long the last round took, whatever it came to.
    pub last_round: Duration,
}

impl TrainMetrics {
    /// Counts a round that has ended.
    pub(crate) fn record(&mut self, outcome: &Result<Round, TrainError>, took: Duration) {
        self.rounds += 1;
        self.last_round = took;
        match outcome {
            Ok(Round::Published { version, rows, holdout, serving, .. }) => {
                self.published += 1;
                self.published_version = *version;
                self.rows = *rows;
                self.candidate = Some(*holdout);
                self.serving = *serving;
            }
            Ok(Round::NotBetter { candidate, serving, .. }) => {
                self.refused_by_gate += 1;
                self.candidate = Some(*candidate);
                self.serving = Some(*serving);
            }
            Ok(Round::NotEnough { .. }) => self.not_enough += 1,
            Ok(Round::Unchanged { .. }) => self.unchanged += 1,
            Err(_) => self.failed += 1,
        }
    }
}
