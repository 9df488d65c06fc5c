//! How every pod looks to one waiting request.
//!
//! A look asks the predictor about every pod, which costs as much as one decision. It changes no
//! decision: draws and notes are put back.

use std::collections::BTreeMap;

use crate::{
    Phase, PodId, Reason, RequestId, Time,
    decide::{Floor, filter, pick::Fit},
    fleet::PodState,
    headroom::{Outlook, judge, risk},
    inspect::{Against, Look, Out},
    policy::Mode,
    queue::{Head, Rank, Waiting},
    scheduler::Scheduler,
};

impl Scheduler {
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
        let outlooks: Vec<Outlook> = match floor.board.get(id) {
            Some(waiting) => floor.pods.values().map(|pod| floor.outlook(waiting, pod)).collect(),
            None => Vec::new(),
        };
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
        let own = (waiting.pattern.band, Rank::new(waiting.due, waiting.request.id));
        let heads = self.board.heads().into_iter();
        let before = heads.take_while(|head| waiting.late || *head > own);
        let claim = |(_, head): Head| {
            let (head, waiting) = (head.id(), self.board.get(head.id())?);
            let behind = matches!(waiting.reason(), Reason::BehindHead { .. });
            Some((waiting.claim().filter(|_| !behind)?, head))
        };
        // The first of them has it.
        before.filter_map(claim).fold(BTreeMap::new(), |mut claims, (pod, head)| {
            claims.entry(pod).or_insert(head);
            claims
        })
    }
}

/// What stands against each pod, in the order in which the decision asks.
fn verdicts(
    floor: &mut Floor<'_>,
    id: RequestId,
    fits: &[Fit],
    claims: &BTreeMap<PodId, RequestId>,
) -> Vec<Option<Against>> {
    let gated = floor.rules.gated();
    let left_to_others = floor.board.get(id).is_some_and(|waiting| floor.leaves_pods(waiting));
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
        if left_to_others {
            return Some(Against::Out(Out::LeftToOthers));
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
    if filter::is_outsized(waiting) || f64::from(waiting.input_tokens) > pod.longest_prompt {
        return Some(Out::PromptTooLong);
    }
    if waiting.excluded().contains(&pod.spec.id) {
        return Some(Out::FailedBefore);
    }
    if pod.is_full() {
        return Some(Out::PodFull);
    }
    let has_slot = waiting.adapter.is_none_or(|adapter| pod.has_slot(adapter));
    (!has_slot).then_some(Out::AdaptersFull)
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
    let sequences = filter::at_once(pod, waiting);
    let growth = pull.kv_growth * f64::from(waiting.output_tokens) * sequences;
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
        stall_budget_ms: risk::budget_ms(&pod.ledger, outlook, floor.bearable(waiting), floor.now),
        claimed_by,
    }
}
