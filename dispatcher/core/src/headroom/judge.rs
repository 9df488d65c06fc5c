//! Predictions against objectives: the newcomer's own, and those of everyone it would delay.
//!
//! The gate that wins is a budget per resident: how long may it be stalled and still keep its mean
//! pace if it stopped after few more tokens? The remaining length enters as a low quantile, because
//! a median spends slack that is not there (docs/decisions/001-the-pull-loop.md).

use std::time::Duration;

use weir_schema::Prediction;

use crate::{
    PullConfig, Slo, Time,
    explain::Reason,
    fleet::PodState,
    headroom::Outlook,
    ledger::{Ledger, Pace, Pending},
};

/// What is left of every objective if a request is sent to a pod. Negative is a violation; `None`
/// is no objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headroom {
    /// TTFT objective less the wait so far and the predicted TTFT, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// The smaller TPOT objective of newcomer and residents less the predicted pace, in
    /// milliseconds.
    pub tpot_ms: Option<f64>,
    /// What the residents can bear less the stall, in milliseconds.
    pub stall_ms: Option<f64>,
}

impl Headroom {
    /// Headroom of a pod for a newcomer.
    pub fn of(
        slo: &Slo,
        waited_ms: f64,
        outlook: &Outlook,
        prediction: &Prediction,
        ledger: &Ledger,
        now: Time,
    ) -> Self {
        let budget_ms = stall_budget_ms(ledger, outlook, now);
        let tightest = tightest_tpot_ms(ledger).into_iter().chain(tpot_slo_ms(slo));
        Self {
            ttft_ms: ttft_slo_ms(slo)
                .map(|slo_ms| slo_ms - waited_ms - f64::from(prediction.ttft_ms.p50)),
            tpot_ms: tightest.reduce(f64::min).map(|slo_ms| slo_ms - outlook.step_with_ms),
            stall_ms: budget_ms.map(|budget_ms| budget_ms - outlook.stall_ms),
        }
    }
}

/// The TTFT objective in milliseconds.
pub fn ttft_slo_ms(slo: &Slo) -> Option<f64> {
    slo.ttft.map(|ttft| ttft.as_secs_f64() * 1000.0)
}

/// The TPOT objective in milliseconds.
pub fn tpot_slo_ms(slo: &Slo) -> Option<f64> {
    slo.tpot.map(|tpot| tpot.as_secs_f64() * 1000.0)
}

/// The smallest TPOT objective among a pod's residents and pending prompts. One without an
/// objective is not a zero: it leaves the others protected.
pub fn tightest_tpot_ms(ledger: &Ledger) -> Option<f64> {
    let pending = ledger.pending().iter().map(|pending| pending.resident.tpot_slo_ms);
    let residents = ledger.residents().iter().map(|resident| resident.tpot_slo_ms);
    pending.chain(residents).flatten().reduce(f64::min)
}

/// Longest stall that every resident can bear, in milliseconds; `None` when nothing bounds it.
pub fn stall_budget_ms(ledger: &Ledger, outlook: &Outlook, now: Time) -> Option<f64> {
    // Without a branch and without an option in the loop, which is most of what a look at a busy pod costs.
    let now_ms = now.ms_since(Time::ZERO);
    let budgets = ledger.paces().iter().map(|pace| budget_ms(pace, outlook, now_ms));
    let least_ms = budgets.fold(f64::INFINITY, |least, one| if one < least { one } else { least });
    (least_ms < f64::INFINITY).then_some(least_ms)
}

/// Until when a stall stays longer than some resident can bear, if nothing but time passes: that resident
/// can bear less and less, until it is lost and does not count any more. `None` when all can bear it.
pub fn stalls_until(ledger: &Ledger, outlook: &Outlook, now: Time) -> Option<Time> {
    let now_ms = now.ms_since(Time::ZERO);
    let until = |pace: &Pace| {
        // What is left of its time before it is lost, less a microsecond for the rounding.
        let spare_ms = pace.lost_ms - now_ms - pace.remaining * outlook.step_ms;
        let spare_us = (spare_ms * 1000.0 - 1.0).max(0.0) as u64;
        let over = outlook.stall_ms > budget_ms(pace, outlook, now_ms);
        over.then_some(Time::from_micros(now.as_micros().saturating_add(spare_us)))
    };
    ledger.paces().iter().filter_map(until).max()
}

/// Longest stall that one resident can bear: the time its remaining tokens may take less the time
/// they will take. Infinite when it has no objective, is lost already, or cannot be hurt by any chunk. It is
/// not lost while only its margin is used up: then it bears nothing more.
fn budget_ms(pace: &Pace, outlook: &Outlook, now_ms: f64) -> f64 {
    let left_ms = pace.due_ms - now_ms;
    let lost = pace.lost_ms - now_ms - pace.remaining * outlook.step_ms < 0.0;
    let safe = left_ms - pace.remaining * outlook.full_step_ms >= 0.0;
    if lost | safe { f64::INFINITY } else { left_ms - pace.remaining * outlook.step_with_ms }
}

/// The gate of a pod's next step: prompts that begin with it wait for one another, and neither's first token can be told before the
/// other has come. So a second one goes only where both are short.
///
/// # Errors
/// When another prompt begins with it, and both are too long.
pub fn step_gate(
    pod: &PodState,
    outlook: &Outlook,
    now: Time,
    config: &PullConfig,
) -> Result<(), Reason> {
    let begin_tokens: f64 = beginning(pod, outlook, now).map(|prompt| prompt.uncached_tokens).sum();
    let over = begin_tokens + outlook.uncached_tokens > f64::from(config.step_tokens);
    let full = begin_tokens > 0.0 && over && pod.class.chunk_tokens > config.step_tokens;
    if full { Err(Reason::StepFull) } else { Ok(()) }
}

/// Until when at least the same prompts begin with a pod's next step, unless it is seen to end one.
pub fn step_until(pod: &PodState, outlook: &Outlook, now: Time) -> Time {
    let left_ms = |prompt: &Pending| step_at_most_ms(outlook) - now.ms_since(prompt.since);
    let least_ms = beginning(pod, outlook, now).map(left_ms).fold(f64::INFINITY, f64::min);
    // Less a microsecond for the rounding.
    now.plus(Duration::from_micros((least_ms * 1000.0 - 1.0).max(0.0) as u64))
}

/// Prompts that begin with a pod's next step: those that were sent since it was last seen to end one, and no longer ago than a step
/// takes, for streams may tell of none.
fn beginning<'a>(
    pod: &'a PodState,
    outlook: &'a Outlook,
    now: Time,
) -> impl Iterator<Item = &'a Pending> {
    let last = pod.pulse.last_step_at;
    let at_most_ms = step_at_most_ms(outlook);
    let begins =
        move |prompt: &&Pending| prompt.since >= last && now.ms_since(prompt.since) < at_most_ms;
    pod.ledger.pending().iter().rev().take_while(begins)
}

/// How long a pod's step takes at most before the newcomer's, in milliseconds: all that is pending may be in it.
fn step_at_most_ms(outlook: &Outlook) -> f64 {
    outlook.step_ms + outlook.stall_ms - outlook.own_stall_ms
}

/// The gates that need no model: the pod's buffer, the newcomer's pace and the residents' budgets.
///
/// # Errors
/// The first gate that is shut.
pub fn cheap_gates(
    slo: &Slo,
    outlook: &Outlook,
    ledger: &Ledger,
    room_tokens: f64,
    now: Time,
    config: &PullConfig,
) -> Result<(), Reason> {
    let with = outlook.backlog_tokens + outlook.uncached_tokens;
    if outlook.backlog_tokens > 0.0 && with > room_tokens {
        return Err(Reason::PendingFull);
    }
    if let Some(slo_ms) = tpot_slo_ms(slo) {
        let limit_ms = config.tpot_margin * slo_ms;
        if outlook.step_with_ms > limit_ms {
            return Err(Reason::TpotOverSlo { tpot_ms: outlook.step_with_ms, limit_ms });
        }
    }
    match stall_budget_ms(ledger, outlook, now) {
        Some(budget_ms) if outlook.stall_ms > budget_ms => {
            Err(Reason::StallOverBudget { stall_ms: outlook.stall_ms, budget_ms })
        }
        _ => Ok(()),
    }
}

/// The gates that ask the prediction: first token in time, and a pace inside the objective.
///
/// # Errors
/// The first gate that is shut.
pub fn predicted_gates(
    slo: &Slo,
    late: bool,
    waited_ms: f64,
    prediction: &Prediction,
) -> Result<(), Reason> {
    let ttft_ms = waited_ms + f64::from(prediction.ttft_ms.p50);
    if let Some(slo_ms) = ttft_slo_ms(slo).filter(|slo_ms| !late && ttft_ms > *slo_ms) {
        return Err(Reason::TtftOverSlo { ttft_ms, slo_ms });
    }
    let tpot_ms = f64::from(prediction.tpot_ms.p50);
    match tpot_slo_ms(slo) {
        Some(limit_ms) if tpot_ms > limit_ms => Err(Reason::TpotOverSlo { tpot_ms, limit_ms }),
        _ => Ok(()),
    }
}
