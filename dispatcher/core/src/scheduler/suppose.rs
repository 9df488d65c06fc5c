//! What would become of a request that nobody sent.
//!
//! It is put on the board, looked at by the very pass that would decide, and taken off again. Nothing is
//! counted, no state stays behind: draws, notes and claims are put back.

use std::sync::Arc;

use crate::{
    PodId, PromptSize, Reason, RefusalReason, Request, RequestId, Time,
    decide::{Choice, pull},
    explain::span,
    inspect::{Look, Supposed, Supposition, Would},
    policy::Hopeless,
    scheduler::Scheduler,
};

/// The name of a request that does not exist. Numbers are given from 1 on, and this one is never reached.
const NOBODY: RequestId = RequestId(u64::MAX);

/// What the pass would say.
enum Said {
    Refuse(RefusalReason),
    Go(Choice),
    Wait(Reason),
}

impl Scheduler {
    /// What would become of a request, and how every pod would look to it. Changes nothing.
    pub fn suppose(&mut self, now: Time, what: &Supposition) -> Supposed {
        let request = Box::new(request(now, what));
        let kept = (self.dice, self.last_picked);
        let shut = self.shut(now, &request);
        let queued = self.board.bands().filter(|(band, _)| *band >= what.band);
        let queue_ahead = queued.map(|(_, count)| count).sum();
        let wait = self.predicted_wait(now, what.band);
        self.alive.enter(&request);
        let waiting = self.waiting_entry(request);
        let (lane, output_tokens) = (self.name_of(waiting.key()).into(), waiting.output_tokens);
        self.board.insert(waiting);
        let pods = self.looks(now, NOBODY);
        let said = match shut.or_else(|| self.floor(now).denied(NOBODY)) {
            Some(reason) => Said::Refuse(reason),
            None => self.would(now),
        };
        if let Some(waiting) = self.board.remove(NOBODY) {
            self.alive.leave(&waiting.request);
        }
        (self.dice, self.last_picked) = kept;
        let wait_ms = wait.as_secs_f64() * 1e3;
        let (would, pod, reason, waits_for, explanation) = match said {
            Said::Refuse(reason) => {
                let text = format!("It would be refused: {}.", reason.text());
                (Would::Refuse, None, reason.name(), None, text)
            }
            Said::Go(choice) => {
                let pod = self.pod_name(choice.pod);
                let text = goes(&pod, &choice);
                (Would::Dispatch, Some(pod), "fits", None, text)
            }
            Said::Wait(reason) => {
                let why = reason.text(|id| self.called(id));
                let text = waits(&why, queue_ahead, wait_ms, &pods);
                (Would::Wait, None, reason.name(), Some(reason), text)
            }
        };
        Supposed {
            would,
            pod,
            reason,
            waits_for,
            explanation,
            lane,
            output_tokens,
            queue_ahead,
            predicted_wait_ms: wait_ms,
            pods,
        }
    }

    /// What a pass over everything that waits says of the one that is not there.
    fn would(&mut self, now: Time) -> Said {
        if let Some(reason) = self.lost(now) {
            return Said::Refuse(reason);
        }
        if self.reason(NOBODY) == Some(Reason::Paused) {
            return Said::Wait(Reason::Paused);
        }
        let heads = self.board.heads().into_iter().chain(self.board.late_heads());
        let note = |(_, _, id): (_, _, RequestId)| {
            self.board.get(id).map(|waiting| (id, waiting.reason, waiting.claim))
        };
        let notes: Vec<(RequestId, Reason, Option<PodId>)> = heads.filter_map(note).collect();
        let choice = pull::pass(&mut self.floor(now));
        // What found no pod may be lost by the next pass, which comes within a tick.
        let lost = if choice.is_none() { self.lost(now) } else { None };
        let reason = self.reason(NOBODY).unwrap_or_default();
        for (id, reason, claim) in notes {
            if let Some(waiting) = self.board.get_mut(id) {
                (waiting.reason, waiting.claim) = (reason, claim);
            }
        }
        if let Some(reason) = lost {
            return Said::Refuse(reason);
        }
        match choice {
            Some(choice) if choice.id == NOBODY => Said::Go(choice),
            Some(choice) => Said::Wait(Reason::BehindHead { head: choice.id }),
            None => Said::Wait(reason),
        }
    }

    /// Refuses it, or puts it last, if a pass would find that it cannot meet its objective.
    fn lost(&mut self, now: Time) -> Option<RefusalReason> {
        if !pull::hopeless(&mut self.floor(now)).contains(&NOBODY) {
            return None;
        }
        let sheddable = self.board.get(NOBODY)?.request.band.sheddable();
        if self.rules.hopeless == Hopeless::Refuse || sheddable {
            return Some(RefusalReason::Hopeless);
        }
        self.board.demote(NOBODY);
        None
    }
}

fn request(now: Time, what: &Supposition) -> Request {
    Request {
        max_output_tokens: what.output_tokens,
        slo: what.slo,
        band: what.band,
        tenant: what.tenant.clone(),
        name: Arc::from(""),
        ..Request::new(NOBODY, now, PromptSize::Tokens(what.input_tokens))
    }
}

fn goes(pod: &str, choice: &Choice) -> String {
    let prediction = &choice.prediction;
    format!(
        "It would go to {pod} at once: first token after {}, then one every {}.",
        span(prediction.ttft_ms.p50.into()),
        span(prediction.tpot_ms.p50.into()),
    )
}

fn waits(why: &str, ahead: usize, wait_ms: f64, pods: &[Look]) -> String {
    let open = pods.iter().filter(|look| look.fits).count();
    format!(
        "It would wait: {why}. {ahead} requests wait in its band and above; a newcomer waits about {}. \
         By itself it would fit on {open} of {} pods.",
        span(wait_ms),
        pods.len(),
    )
}
