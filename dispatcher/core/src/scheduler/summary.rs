//! A pool in a few numbers: what is looked at every second, whatever waits in it.

use std::time::Duration;

use weir_schema::Status;

use crate::{
    Phase, RefusalReason, Time,
    inspect::{Summary, Tally},
    scheduler::Scheduler,
};

impl Scheduler {
    /// The predictor takes up what it was given, if there is something new: its state is what it would serve with then.
    pub fn take_up(&mut self) {
        self.predictor.take_up();
    }

    /// The longest that anything waits.
    pub const fn max_wait(&self) -> Duration {
        self.config.bounds.max_wait
    }

    /// What the predictor says of itself.
    pub fn predictor(&self) -> Status {
        self.predictor.status()
    }

    /// The pool in a few numbers. Costs a look at bands and pods, not at what they hold.
    pub fn summary(&self, now: Time) -> Summary {
        let paused = self.board.paused();
        let refused = |reason: &RefusalReason| {
            (*reason, self.refused.get(reason).copied().unwrap_or_default())
        };
        let all = self.tallies.values().fold(Tally::default(), |all, one| Tally {
            sent: all.sent + one.sent,
            attained: all.attained + one.attained,
            refused: all.refused + one.refused,
        });
        Summary {
            policy: self.config.policy,
            waiting: self.board.len(),
            waiting_bytes: self.board.bytes(),
            late: self.board.late_len(),
            oldest_wait_ms: self.board.oldest().map_or(0.0, |(at, _)| now.ms_since(at)),
            drain_ms: self.pool_drain_ms(now),
            in_flight: self.flights.len(),
            paused: paused.gates().into_iter().map(|gate| self.gate_name(gate)).collect(),
            pods: self.pods.len(),
            pods_ready: self.pods.values().filter(|pod| pod.phase == Phase::Ready).count(),
            need: self.need(now),
            refused: RefusalReason::ALL.iter().map(refused).collect(),
            tally: all,
            bands: self.tallies().collect(),
        }
    }
}
