//! One request, looked at closely: where it is, what it waits for, and how every pod looks to it.
//!
//! A look asks the predictor about every pod, which costs as much as one decision. It changes no
//! decision: draws and notes are put back.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    EndKind, Phase, PodId, Reason, RequestId, Role, Time,
    decide::{Floor, affinity, pick::Fit, score},
    decisions::{Decision, Ended, Outcome, Verdict},
    explain::span,
    fleet::PodState,
    headroom::{Outlook, judge},
    inspect::{
        Against, AlternativeView, DecisionView, EndedView, Inspection, Look, Moment, Out,
        PodDetail, State,
    },
    policy::Mode,
    queue::Waiting,
    scheduler::{Scheduler, flight::Flight},
};

impl Scheduler {
    /// The request that a client calls so, if it waits, is in flight, or ended a moment ago.
    pub fn find(&self, name: &str) -> Option<RequestId> {
        let alive = self.names.find(name).filter(|id| {
            let waiting = self.board.get(*id).map(|waiting| &waiting.request);
            let request = waiting.or_else(|| self.flights.get(id).map(|flight| &flight.request));
            request.is_some_and(|request| &*request.name == name)
        });
        let ended = || self.ended.newest().find(|(_, ended)| &*ended.name == name);
        alive.or_else(|| ended().map(|(_, ended)| ended.id))
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

    /// The number that the next decision will have.
    pub const fn next_decision(&self) -> u64 {
        self.decisions.count()
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
        let known = self.pods.get(&id).map(|pod| pod.spec.name.clone());
        known.unwrap_or_else(|| format!("pod {} (gone)", id.0).into())
    }

    /// Every pod as a waiting request sees it; empty when it does not wait.
    pub(super) fn looks(&mut self, now: Time, id: RequestId) -> Vec<Look> {
        let Some(claims) = self.board.get(id).map(|waiting| self.claims(waiting)) else {
            return Vec::new();
        };
        let kept = (self.dice, self.last_picked);
        let names: BTreeMap<RequestId, String> =
            claims.values().map(|claimer| (*claimer, self.called(*claimer))).collect();
        let mut floor = self.floor(now);
        floor.turn_to(id);
        // Brings what pods have cached of it up to date.
        floor.look(id);
        let outlooks = every_outlook(&floor, id);
        let fits = floor.predict(id, &outlooks);
        let against = verdicts(&mut floor, id, &fits, &claims);
        let called = |id: RequestId| names.get(&id).cloned().unwrap_or_default();
        let mut looks = Vec::with_capacity(fits.len());
        if let Some(waiting) = floor.board.get(id) {
            for (fit, against) in fits.iter().zip(against) {
                let Some(pod) = floor.pods.get(&fit.outlook.pod) else { continue };
                let claimed_by = claims.get(&fit.outlook.pod).copied();
                looks.push(look(&floor, waiting, pod, fit, against, claimed_by, called));
            }
        }
        (self.dice, self.last_picked) = kept;
        looks
    }

    /// The pods that requests before this one wait for.
    fn claims(&self, waiting: &Waiting) -> BTreeMap<PodId, RequestId> {
        let own = (waiting.pattern.band, waiting.rank);
        let id = waiting.request.id;
        let heads = self.board.heads().into_iter();
        let before = heads.take_while(|(band, rank, head)| {
            *head != id && (waiting.late || (*band, *rank) >= own)
        });
        let claim = |(_, _, head)| {
            let waiting = self.board.get(head)?;
            let behind = matches!(waiting.reason, Reason::BehindHead { .. });
            Some((waiting.claim.filter(|_| !behind)?, head))
        };
        // The first of them has it.
        before.filter_map(claim).fold(BTreeMap::new(), |mut claims, (pod, head)| {
            claims.entry(pod).or_insert(head);
            claims
        })
    }

    fn explain_waiting(&self, now: Time, waiting: &Waiting, looks: &[Look]) -> String {
        let request = &waiting.request;
        let age_ms = now.ms_since(request.arrived);
        let lane = waiting.key().name(&self.config.buckets);
        let due = match request.deadline().map(|due| due.ms_until(now)) {
            None => "It has no objective for its first token.".to_owned(),
            Some(left_ms) if left_ms >= 0.0 => {
                format!("Its first token is due in {}.", span(left_ms))
            }
            Some(left_ms) => format!("Its first token was due {} ago.", span(-left_ms)),
        };
        let reason = self.reason_of(waiting);
        let why = reason.text(|id| self.called(id));
        let called = self.called(request.id);
        let mut text =
            format!("{called} has waited {} in lane {lane}. {due} It waits: {why}.", span(age_ms));
        if let Some(first) = self.before(waiting, reason) {
            let why = self.reason_of(first).text(|id| self.called(id));
            text += &format!(" Before it, {} waits: {why}.", self.called(first.request.id));
        }
        let open = looks.iter().filter(|look| look.fits).count();
        if !looks.is_empty() && reason != Reason::Paused {
            text += &match open {
                0 => format!(" None of {} pods would take it now.", looks.len()),
                open => format!(" By itself it would fit on {open} of {} pods.", looks.len()),
            };
        }
        let bounds = &self.config.bounds;
        let most = request.ttl.map_or(bounds.max_wait, |ttl| ttl.min(bounds.max_wait));
        let left = most.saturating_sub(now.since(request.arrived));
        text + &format!(" It is refused if it still waits in {}.", span(left.as_secs_f64() * 1e3))
    }

    /// The waiting request that a reason points to: the head of its lane, or the head that is first.
    fn before(&self, waiting: &Waiting, reason: Reason) -> Option<&Waiting> {
        let first = match reason {
            Reason::BehindItsLane => self.board.lane(waiting.key())?.head()?.0,
            Reason::BehindHead { head } => head,
            _ => return None,
        };
        self.board.get(first).filter(|first| first.request.id != waiting.request.id)
    }

    fn explain_running(&self, now: Time, flight: &Flight, decoding: bool) -> String {
        let (request, pod) = (&flight.request, self.pod_name(flight.pod));
        let wait_ms = flight.sent.ms_since(request.arrived);
        let view = flight.view(now, decoding);
        let promised = |slo_ms: Option<f64>| {
            slo_ms.map_or_else(|| "nothing promised".to_owned(), |ms| span(ms) + " promised")
        };
        let mut text = format!(
            "{} waited {} and went to {pod}, where its first token was predicted after {}.",
            self.called(request.id),
            span(wait_ms),
            span(view.predicted_ttft_ms.into()),
        );
        match flight.first_token {
            Some(first) => {
                let ttft_ms = first.ms_since(request.arrived);
                let slo = promised(view.ttft_slo_ms);
                text += &format!(" It came {} after the arrival ({slo}).", span(ttft_ms));
            }
            None if request.streamed => text += " It has not come yet.",
            None => text += " The response is not streamed, so that nothing is seen until its end.",
        }
        if let Some(tpot_ms) = view.tpot_ms {
            let slo = promised(view.tpot_slo_ms);
            text +=
                &format!(" {} tokens so far, one every {} ({slo}).", view.tokens, span(tpot_ms));
        }
        text
    }

    /// What happened to a request, as far as it is remembered.
    fn history(&self, now: Time, id: RequestId) -> Vec<Moment> {
        let mut moments = Vec::new();
        let mut add = |at: Time, what: String| moments.push((at, what));
        let flight = self.flights.get(&id);
        let waiting = self.board.get(id).map(|waiting| waiting.request.arrived);
        let running = flight.map(|flight| flight.request.arrived);
        let ended = self.ended.newest().find(|(_, ended)| ended.id == id).map(|(_, ended)| ended);
        let arrived = waiting.or(running).or_else(|| Some(ended?.arrived));
        arrived.into_iter().for_each(|at| add(at, "arrived".to_owned()));
        let mut sent = false;
        for (_, decision) in self.decisions.newest().filter(|(_, one)| one.id == id) {
            sent |= decision.verdict == Verdict::Dispatch;
            add(decision.at, told(decision, |pod| self.pod_name(pod)));
        }
        if let Some(flight) = flight {
            if !sent {
                let (pod, attempt) = (self.pod_name(flight.pod), flight.attempts);
                add(flight.sent, format!("sent to {pod}, attempt {attempt}"));
            }
            flight.first_token.into_iter().for_each(|at| add(at, "first token".to_owned()));
        }
        if let Some(ended) = ended.filter(|ended| matches!(ended.outcome, Outcome::Ended(_))) {
            if let Some(ttft_ms) = ended.ttft_ms {
                let first = std::time::Duration::from_secs_f64(ttft_ms.max(0.0) / 1e3);
                add(ended.arrived.plus(first), "first token".to_owned());
            }
            add(ended.at, format!("ended: {}", ended.outcome.name()));
        }
        moments.sort_by_key(|(at, _)| *at);
        let moment = |(at, what): (Time, String)| Moment { at_ms: Some(now.ms_since(at)), what };
        moments.into_iter().map(moment).collect()
    }

    fn decision_view(&self, now: Time, number: u64, decision: &Decision) -> DecisionView {
        let alternatives = decision.alternatives.iter().map(|one| AlternativeView {
            pod: self.pod_name(one.pod),
            verdict: one.verdict,
            ttft_ms: one.ttft_ms,
            uncached_tokens: one.uncached_tokens as u32,
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

    /// A pod, looked at closely, with at most `requests` of what it serves.
    pub(super) fn pod_detail(&self, now: Time, pod: &PodState, requests: usize) -> PodDetail {
        let mut view = self.pod_view(now, pod);
        view.requests = self.request_views(now, &pod.ledger, requests);
        let stale = self.config.pull.stale_after_ms;
        let beyond = pod.fresh_scrape(now, stale).map(|scrape| {
            pod.ledger.decodes_to_come() - f64::from(scrape.running) - f64::from(scrape.waiting)
        });
        let leaving = matches!(pod.phase, Phase::Cordoned | Phase::Draining);
        PodDetail {
            id: pod.spec.id,
            errors: pod.accuracy.errors(),
            ledger_minus_scrape: beyond,
            empty_in_ms: leaving.then(|| self.empty_in_ms(pod, view.step_ms)),
            view,
        }
    }

    /// How long until everything on a pod is over: the longest of the responses, each at its median
    /// length and the pace of now.
    fn empty_in_ms(&self, pod: &PodState, step_ms: f64) -> f64 {
        let pending = pod.ledger.pending().iter().map(|pending| &pending.resident);
        let left_ms = pod.ledger.residents().iter().chain(pending).map(|one| {
            let left = self.length.remaining(
                one.tenant.as_ref(),
                one.input_tokens,
                one.max_output_tokens,
                one.generated,
                0.5,
            );
            f64::from(left) * step_ms
        });
        let prefill_ms = self.predictor.step_time(pod.spec.class).per_prefill_ms;
        left_ms.fold(0.0, f64::max) + prefill_ms.max(0.0) * pod.ledger.pending_tokens()
    }
}

/// A request on every pod, whether or not it may use it.
fn every_outlook(floor: &Floor<'_>, id: RequestId) -> Vec<Outlook> {
    let Some(waiting) = floor.board.get(id) else { return Vec::new() };
    let demand = score::demand(waiting);
    let stale = floor.config.pull.stale_after_ms;
    let outlook = |pod: &PodState| {
        let steps = floor.predictor.step_time(pod.spec.class);
        let share = affinity::cached_share(waiting, pod.spec.id);
        let others = pod.others(floor.now, stale);
        Outlook::of(pod, &steps, demand, share, pod.prefill_rate(floor.now), others)
    };
    floor.pods.values().map(outlook).collect()
}

/// What stands against each pod, in the order in which the decision asks.
fn verdicts(
    floor: &mut Floor<'_>,
    id: RequestId,
    fits: &[Fit],
    claims: &BTreeMap<PodId, RequestId>,
) -> Vec<Option<Against>> {
    let gated = floor.rules.gated();
    let first = |fit: &Fit| {
        let waiting = floor.board.get(id)?;
        let pod = floor.pods.get(&fit.outlook.pod)?;
        if let Some(out) = out(waiting, pod) {
            return Some(Against::Out(out));
        }
        let claim = claims.get(&pod.spec.id).filter(|_| floor.rules.dispatch != Mode::Push);
        if let Some(by) = claim {
            return Some(Against::Out(Out::Claimed { by: *by }));
        }
        let gate = || floor.cheap(waiting, &fit.outlook).and_then(|()| floor.judge(id, fit));
        gated.then(gate)?.err().map(Against::Reason)
    };
    let mut against: Vec<Option<Against>> = fits.iter().map(first).collect();
    let mut left: Vec<Fit> =
        fits.iter().zip(&against).filter(|(_, no)| no.is_none()).map(|(fit, _)| *fit).collect();
    let rules = floor.rules;
    for filter in &rules.filters {
        let before: Vec<PodId> = left.iter().map(|fit| fit.outlook.pod).collect();
        let reason = floor.apply(id, filter, &mut left);
        let stays = |pod: PodId| left.iter().any(|fit| fit.outlook.pod == pod);
        for (fit, against) in fits.iter().zip(&mut against) {
            let pod = fit.outlook.pod;
            if left.len() < before.len() && before.contains(&pod) && !stays(pod) {
                *against = Some(Against::Reason(reason));
            }
        }
    }
    against
}

fn out(waiting: &Waiting, pod: &PodState) -> Option<Out> {
    match pod.phase {
        Phase::Broken => return Some(Out::PodBroken),
        Phase::Cordoned => return Some(Out::PodCordoned),
        Phase::Draining => return Some(Out::PodDraining),
        Phase::Ready => {}
    }
    if pod.class.role == Role::Decode {
        return Some(Out::WrongRole);
    }
    waiting.excluded.contains(&pod.spec.id).then_some(Out::FailedBefore)
}

fn look(
    floor: &Floor<'_>,
    waiting: &Waiting,
    pod: &PodState,
    fit: &Fit,
    against: Option<Against>,
    claimed_by: Option<RequestId>,
    called: impl Fn(RequestId) -> String,
) -> Look {
    let (outlook, pull) = (&fit.outlook, &floor.config.pull);
    let ttft_ms =
        floor.now.ms_since(waiting.request.arrived) + f64::from(fit.prediction.ttft_ms.p50);
    let growth =
        pull.kv_growth * f64::from(waiting.output_tokens) * f64::from(waiting.request.sequences);
    let kv_tokens = pod.kv_tokens(floor.now, pull.stale_after_ms) + outlook.uncached_tokens;
    let uncached_tokens = outlook.uncached_tokens as u32;
    Look {
        pod: pod.spec.name.clone(),
        phase: pod.phase,
        fits: against.is_none(),
        text: against.map_or_else(|| "it fits here".to_owned(), |against| against.text(called)),
        verdict: against,
        ttft_ms,
        tpot_ms: f64::from(fit.prediction.tpot_ms.p50),
        headroom_ms: judge::ttft_slo_ms(&waiting.request.slo).map(|slo_ms| slo_ms - ttft_ms),
        cached_tokens: waiting.input_tokens.saturating_sub(uncached_tokens),
        uncached_tokens,
        backlog_tokens: outlook.backlog_tokens as u32,
        pending: outlook.pending,
        residents: pod.ledger.residents().len(),
        kv_after: (kv_tokens + growth) / pod.kv_capacity_tokens().max(1.0),
        stall_ms: outlook.stall_ms,
        stall_budget_ms: judge::stall_budget_ms(&pod.ledger, outlook, floor.now, pull),
        claimed_by,
    }
}

/// A decision in words.
fn told(decision: &Decision, name: impl Fn(PodId) -> Arc<str>) -> String {
    let pod = decision.pod.map(name);
    let pod = pod.as_deref().unwrap_or("a pod");
    match decision.verdict {
        Verdict::Dispatch => format!("sent to {pod}"),
        Verdict::Refuse(reason) => format!("refused: {}", reason.text()),
        Verdict::Demote => "put behind those that can still make it".to_owned(),
        Verdict::Cancel => "its client left".to_owned(),
        Verdict::Requeue => format!("nothing of it reached {pod}; back in its lane"),
        Verdict::Move => format!("moved to band {} by an operator", decision.band.0),
    }
}

fn explain_ended(now: Time, ended: &Ended, name: impl Fn(PodId) -> Arc<str>) -> String {
    let ago = span(now.ms_since(ended.at));
    let waited = span(ended.waited.as_secs_f64() * 1e3);
    let called = if ended.name.is_empty() {
        format!("request {}", ended.id.0)
    } else {
        format!("request {}", ended.name)
    };
    let pod = ended.pod.map(name);
    let pod = pod.as_deref().unwrap_or("a pod");
    let kind = match ended.outcome {
        Outcome::Refused(reason) => {
            return format!("{called} was refused {ago} ago after {waited}: {}.", reason.text());
        }
        Outcome::Cancelled => {
            return format!("{called}: its client left {ago} ago, while it waited ({waited}).");
        }
        Outcome::Ended(kind) => kind,
    };
    let how = match kind {
        EndKind::Complete => "was served completely",
        EndKind::ClientGone => "lost its client during the response",
        EndKind::PodError => "got an error of the pod's own",
        EndKind::PodFailed => "was lost by the pod",
    };
    let mut text = format!("{called} {how} by {pod}; it ended {ago} ago. It waited {waited}.");
    if let Some(ttft_ms) = ended.ttft_ms {
        let slo = judge::ttft_slo_ms(&ended.slo);
        text += &format!(" First token after {}{}.", span(ttft_ms), promised(slo));
    }
    if let Some(tpot_ms) = ended.tpot_ms {
        let slo = judge::tpot_slo_ms(&ended.slo);
        text += &format!(" One token every {}{}.", span(tpot_ms), promised(slo));
    }
    text
}

fn promised(slo_ms: Option<f64>) -> String {
    slo_ms.map_or_else(String::new, |slo_ms| format!(" ({} promised)", span(slo_ms)))
}
