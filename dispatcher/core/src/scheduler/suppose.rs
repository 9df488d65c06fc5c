//! What would become of a request that nobody sent.
//!
//! It is put on the board, looked at by the very pass that would decide, and taken off again. Nothing is
//! counted, no state stays behind: draws, notes and claims are put back.

use std::sync::Arc;

use crate::{
    PromptSize, Reason, RefusalReason, Request, RequestId, Time,
    decide::{Choice, pull},
    explain::span,
    inspect::{Supposed, Supposition, Would},
    queue::{Head, bounds::FAR},
    scheduler::{Scheduler, tell::would_fit},
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
        let wait_ms = self.drain_ms(now, what.band);
        self.alive.enter(&request);
        let waiting = self.waiting_entry(request);
        let (lane, output_tokens) = (self.name_of(waiting.key()).into(), waiting.output_tokens);
        self.board.insert(waiting);
        let slots = self.slots_as_they_are();
        self.allot_slots(now);
        let pods = self.looks(now, NOBODY);
        let said = match shut.or_else(|| self.floor(now).denied(NOBODY)) {
            Some(reason) => Said::Refuse(reason),
            None => self.would(now),
        };
        if let Some(waiting) = self.board.remove(NOBODY) {
            self.alive.leave(&waiting.request);
        }
        self.put_back_slots(slots);
        (self.dice, self.last_picked) = kept;
        let blank = Supposed {
            would: Would::Refuse,
            pod: None,
            reason: "fits",
            waits_for: None,
            explanation: String::new(),
            lane,
            output_tokens,
            queue_ahead,
            predicted_wait_ms: None,
            pods,
        };
        let mut supposed = self.supposed(said, wait_ms, blank);
        if supposed.would == Would::Dispatch && self.pods.hold_nowhere(what.input_tokens.into()) {
            supposed.explanation +=
                " No pod's KV cache holds the prompt: its engine will refuse it.";
        }
        supposed
    }

    /// Puts into words what was said of it. `blank` has what is so whatever becomes of it.
    fn supposed(&self, said: Said, wait_ms: Option<f64>, blank: Supposed) -> Supposed {
        match said {
            Said::Refuse(reason) => {
                let explanation = format!("It would be refused: {}.", reason.text());
                Supposed { reason: reason.name(), explanation, ..blank }
            }
            Said::Go(choice) => {
                let pod = self.pod_name(choice.pod);
                let (would, explanation) = (Would::Dispatch, goes(&pod, &choice));
                let pod = Some(pod);
                Supposed { would, pod, explanation, predicted_wait_ms: Some(0.0), ..blank }
            }
            Said::Wait(reason) => {
                let predicted_wait_ms = wait_ms.filter(|_| reason != Reason::Paused);
                let why = reason.text(|id| self.called(id));
                let how_long = self.how_long(reason, blank.queue_ahead, predicted_wait_ms);
                let fits = would_fit(&blank.pods);
                Supposed {
                    would: Would::Wait,
                    reason: reason.name(),
                    waits_for: Some(reason),
                    explanation: format!("It would wait: {why}. {how_long}{fits}"),
                    predicted_wait_ms,
                    ..blank
                }
            }
        }
    }

    /// A sentence: how long a newcomer that waits for `reason` would wait, as far as that can be said.
    fn how_long(&self, reason: Reason, ahead: usize, wait_ms: Option<f64>) -> String {
        let ahead = match ahead {
            0 => "Nothing waits in its band and above".to_owned(),
            1 => "One request waits in its band and above".to_owned(),
            many => format!("{many} requests wait in its band and above"),
        };
        match (reason, wait_ms) {
            (Reason::Paused, _) => format!("{ahead}; it would wait until that is resumed."),
            (Reason::NoPodReady, _) | (_, None) if self.no_pod_since.is_some() => {
                let most = self.homeless_most();
                format!("{ahead}; it would wait until a pod is ready, and be refused after {most}.")
            }
            (Reason::NoPodReady, _) => {
                let most = self.homeless_most();
                format!(
                    "{ahead}; it would wait until a pod that takes it is ready, and be refused after {most}."
                )
            }
            (_, Some(wait_ms)) if wait_ms >= FAR.as_secs_f64() * 1e3 => {
                format!(
                    "{ahead}; at the pace of the last seconds a newcomer waits more than an hour."
                )
            }
            (_, Some(wait_ms)) => format!("{ahead}; a newcomer waits about {}.", span(wait_ms)),
            (_, None) => format!("{ahead}."),
        }
    }

    /// The longest that one waits for a pod where none is ready for it.
    fn homeless_most(&self) -> String {
        let most = self.config.bounds.max_wait.min(self.config.bounds.max_wait_no_pods);
        span(most.as_secs_f64() * 1e3)
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
        let note = |(_, head): Head| {
            let id = head.id();
            let standing = self.board.get(id)?.standing.as_deref();
            Some((id, standing.map(|standing| (standing.reason, standing.claim, standing.wait))))
        };
        let notes: Vec<_> = heads.filter_map(note).collect();
        let choice = pull::pass(&mut self.floor(now));
        // What found no pod may be lost by the next pass, which comes within a tick.
        let lost = if choice.is_none() { self.lost(now) } else { None };
        let reason = self.reason(NOBODY).unwrap_or_default();
        for (id, noted) in notes {
            if let Some(standing) = self.board.standing_of(id) {
                (standing.reason, standing.claim, standing.wait) = noted.unwrap_or_default();
            }
        }
        // What it found of pods was found beside one that is not there.
        self.pods.touch_all();
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
        let waiting = self.board.get(NOBODY)?;
        if self.refuses_hopeless(waiting) {
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
        adapter: what.adapter.clone(),
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
