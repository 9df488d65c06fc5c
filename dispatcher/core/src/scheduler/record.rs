//! What is remembered of decisions and of requests that ended, and counted of them by band.

use crate::{
    Band, End, EndKind, RefusalReason, Request, RequestId, Time,
    decide::Choice,
    decisions::{Decision, Ended, Outcome, Verdict},
    inspect::Tally,
    queue::Waiting,
    scheduler::{Scheduler, flight::Flight},
};

impl Scheduler {
    /// What became of each band's requests since the start.
    pub fn tallies(&self) -> impl Iterator<Item = (Band, Tally)> {
        self.tallies.iter().map(|(band, tally)| (*band, *tally))
    }

    /// A request goes to a pod; the pods that lost against it are known from the pick.
    pub(super) fn note_dispatch(&mut self, now: Time, waiting: &Waiting, choice: &Choice) {
        let wait_ms = now.ms_since(waiting.request.arrived);
        let verdict = if choice.spreads { Verdict::Spread } else { Verdict::Dispatch };
        let mut alternatives = self.losers.take();
        alternatives.iter_mut().for_each(|one| one.ttft_ms += wait_ms);
        self.decisions.push(Decision {
            waited_for: Some(waiting.reason()),
            pod: Some(choice.pod),
            ttft_ms: Some(wait_ms + f64::from(choice.prediction.ttft_ms.p50)),
            tpot_ms: Some(f64::from(choice.prediction.tpot_ms.p50)),
            alternatives,
            ..Decision::of(now, &waiting.request, verdict)
        });
    }

    /// A request is refused, before it waited or after.
    pub(super) fn note_refusal(
        &mut self,
        now: Time,
        request: &Request,
        reason: RefusalReason,
        waiting: Option<&Waiting>,
    ) {
        self.decisions.push(Decision {
            waited_for: waiting.map(Waiting::reason),
            ..Decision::of(now, request, Verdict::Refuse(reason))
        });
        self.note_unserved(now, request, reason, waiting);
        let tally = self.tallies.entry(request.band).or_default();
        tally.sent += 1;
        tally.refused += 1;
        self.forget(request, waiting, Ended::unserved(now, request, Outcome::Refused(reason)));
    }

    /// The client of a waiting request left.
    pub(super) fn note_cancel(&mut self, now: Time, waiting: &Waiting) {
        let request = &waiting.request;
        self.decisions.push(Decision {
            waited_for: Some(waiting.reason()),
            ..Decision::of(now, request, Verdict::Cancel)
        });
        self.forget(request, Some(waiting), Ended::unserved(now, request, Outcome::Cancelled));
    }

    fn forget(&mut self, request: &Request, waiting: Option<&Waiting>, mut ended: Ended) {
        self.names.leave(request);
        if let Some(waiting) = waiting {
            ended.input_tokens = waiting.input_tokens;
            ended.attempts = waiting.attempts();
        }
        self.ended.push(ended);
    }

    /// A request is put behind those that can still make it.
    pub(super) fn note_demotion(&mut self, now: Time, id: RequestId) {
        let Some(waiting) = self.board.get(id) else { return };
        let decision = Decision {
            waited_for: Some(waiting.reason()),
            ..Decision::of(now, &waiting.request, Verdict::Demote)
        };
        self.decisions.push(decision);
    }

    /// Nothing of a request reached its pod.
    pub(super) fn note_requeue(&mut self, now: Time, flight: &Flight) {
        self.decisions.push(Decision {
            pod: Some(flight.pod),
            ..Decision::of(now, &flight.request, Verdict::Requeue)
        });
    }

    /// A dispatched request is over.
    pub(super) fn note_end(&mut self, now: Time, flight: &Flight, end: &End) {
        self.names.leave(&flight.request);
        let ended = flight.ended(now, end);
        if end.kind == EndKind::Complete {
            self.note_served(now, flight, &ended);
        }
        // Whose client left, or asked for what no engine does, was promised nothing.
        if !matches!(end.kind, EndKind::ClientGone | EndKind::BadRequest) {
            let tally = self.tallies.entry(flight.request.band).or_default();
            tally.sent += 1;
            tally.attained += u64::from(ended.attained);
        }
        self.ended.push(ended);
    }
}
