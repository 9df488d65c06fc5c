//! One request, looked at closely: where it is, what was decided of it, how it ended.

use std::sync::Arc;

use crate::{
    PodId, Reason, RequestId, Time,
    decisions::{Decision, Ended, Outcome},
    headroom::judge,
    inspect::{AlternativeView, DecisionView, EndedView, Inspection, State},
    scheduler::{Scheduler, tell::explain_ended},
};

impl Scheduler {
    /// The request that a client calls so, if it waits, is in flight, or ended a moment ago; of several the youngest, those that
    /// wait first.
    pub fn find(&self, name: &str) -> Option<RequestId> {
        let runs = |id: &RequestId| {
            self.flights.get(id).is_some_and(|flight| &*flight.request.name == name)
        };
        let waiting = self.waiting_called(name).next();
        let alive = waiting.or_else(|| self.names.find(name).find(runs));
        let ended = || self.ended.newest().find(|(_, ended)| &*ended.name == name);
        alive.or_else(|| ended().map(|(_, ended)| ended.id))
    }

    /// The waiting requests that clients call so, the youngest first. Of a name that very many have the oldest are not known.
    pub fn waiting_called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = RequestId> + 'a {
        let waits =
            move |id: &RequestId| self.board.get(*id).is_some_and(|one| &*one.request.name == name);
        self.names.find(name).filter(waits)
    }

    /// Everything known of a request; `None` when it is not known, or ended too long ago.
    pub fn inspect(&mut self, now: Time, id: RequestId) -> Option<Inspection> {
        let pods = self.looks(now, id);
        let history = self.history(now, id);
        let decision = self.decisions(now, 0, 1, |decision| decision.id == id).pop();
        let blank = Inspection {
            state: State::Waiting,
            waiting: None,
            running: None,
            pod: None,
            ended: None,
            explanation: String::new(),
            pods,
            history,
            decision,
        };
        if let Some(waiting) = self.board.get(id) {
            let explanation = self.explain_waiting(now, waiting, &blank.pods);
            let waiting = Some(self.view_of(now, waiting));
            return Some(Inspection { waiting, explanation, ..blank });
        }
        if let Some(flight) = self.flights.get(&id) {
            let pod = self.pods.get(&flight.pod);
            let decoding = pod
                .is_some_and(|pod| pod.ledger.residents().iter().any(|resident| resident.id == id));
            return Some(Inspection {
                state: State::Running,
                running: Some(flight.view(now, decoding)),
                pod: Some(self.pod_name(flight.pod)),
                explanation: self.explain_running(now, flight, decoding),
                ..blank
            });
        }
        let (number, ended) = self.ended.newest().find(|(_, ended)| ended.id == id)?;
        Some(Inspection {
            state: State::Recent,
            pod: ended.pod.map(|pod| self.pod_name(pod)),
            explanation: explain_ended(now, ended, |pod| self.pod_name(pod)),
            ended: Some(self.ended_view(now, number, ended)),
            ..blank
        })
    }

    /// The newest decisions that `wanted` picks, newest first: of those numbered `since` or later at
    /// most `limit`.
    pub fn decisions(
        &self,
        now: Time,
        since: u64,
        limit: usize,
        wanted: impl Fn(&Decision) -> bool,
    ) -> Vec<DecisionView> {
        let kept = self.decisions.newest().take_while(|(number, _)| *number >= since);
        let wanted = kept.filter(|(_, decision)| wanted(decision)).take(limit);
        wanted.map(|(number, decision)| self.decision_view(now, number, decision)).collect()
    }

    /// The requests that ended last, newest first: of those numbered `since` or later at most `limit`.
    pub fn ended(&self, now: Time, since: u64, limit: usize) -> Vec<EndedView> {
        let kept = self.ended.newest().take_while(|(number, _)| *number >= since).take(limit);
        kept.map(|(number, ended)| self.ended_view(now, number, ended)).collect()
    }

    /// The number that the next request to end will have.
    pub const fn next_ended(&self) -> u64 {
        self.ended.count()
    }

    /// What a request is called: by its client, or else by its number.
    pub(super) fn called(&self, id: RequestId) -> String {
        let waiting = self.board.get(id).map(|waiting| &waiting.request.name);
        let name = waiting.or_else(|| self.flights.get(&id).map(|flight| &flight.request.name));
        match name.filter(|name| !name.is_empty()) {
            Some(name) => format!("request {name}"),
            None => format!("request {}", id.0),
        }
    }

    pub(super) fn pod_name(&self, id: PodId) -> Arc<str> {
        if let Some(pod) = self.pods.get(&id) {
            return pod.spec.name.clone();
        }
        match self.gone.newest().find(|(_, gone)| gone.id == id) {
            Some((_, gone)) => format!("{} (gone)", gone.name).into(),
            None => format!("pod {} (gone)", id.0).into(),
        }
    }

    fn decision_view(&self, now: Time, number: u64, decision: &Decision) -> DecisionView {
        let alternatives = decision.alternatives.iter().map(|one| AlternativeView {
            pod: self.pod_name(one.pod),
            verdict: one.verdict,
            ttft_ms: one.ttft_ms,
            uncached_tokens: one.uncached_tokens as u32,
            kept: one.kept,
        });
        DecisionView {
            number,
            at_ms: now.ms_since(decision.at),
            id: decision.id,
            request_id: decision.name.clone(),
            band: decision.band,
            kind: decision.verdict.kind(),
            reason: decision.verdict.why(),
            waited_for: decision.waited_for.filter(|reason| *reason != Reason::NotConsidered),
            pod: decision.pod.map(|pod| self.pod_name(pod)),
            wait_ms: decision.waited.as_secs_f64() * 1e3,
            ttft_ms: decision.ttft_ms,
            tpot_ms: decision.tpot_ms,
            alternatives: alternatives.collect(),
        }
    }

    fn ended_view(&self, now: Time, number: u64, ended: &Ended) -> EndedView {
        EndedView {
            number,
            at_ms: now.ms_since(ended.at),
            id: ended.id,
            request_id: ended.name.clone(),
            band: ended.band,
            tenant: ended.tenant.clone(),
            outcome: ended.outcome.name(),
            refused: matches!(ended.outcome, Outcome::Refused(_)),
            ttft_slo_ms: judge::ttft_slo_ms(&ended.slo),
            tpot_slo_ms: judge::tpot_slo_ms(&ended.slo),
            input_tokens: ended.input_tokens,
            output_tokens: ended.output_tokens,
            attempts: ended.attempts,
            pod: ended.pod.map(|pod| self.pod_name(pod)),
            wait_ms: ended.waited.as_secs_f64() * 1e3,
            total_ms: ended.at.ms_since(ended.arrived),
            ttft_ms: ended.ttft_ms,
            tpot_ms: ended.tpot_ms,
            predicted_ttft_ms: ended.predicted_ttft_ms,
            predicted_tpot_ms: ended.predicted_tpot_ms,
            attained: ended.attained,
        }
    }
}
