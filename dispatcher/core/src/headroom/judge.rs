//! Predictions against objectives: the newcomer's own, and those of everyone it would delay.
//!
//! The gate that wins is what a prompt puts at [`risk`](super::risk): how many residents would lose their mean pace if it stalled them now, while
//! nobody knows how soon they end (docs/decisions/001-the-pull-loop.md).

use std::time::Duration;

use weir_schema::Prediction;

use crate::{
    PullConfig, Slo, Time,
    explain::Reason,
    fleet::PodState,
    headroom::Outlook,
    ledger::{Ledger, Pending},
};

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

/// The gate of a pod's next step: prompts that begin with it wait for one another, and neither's first token can be told before the
/// other has come. So a second one goes only where all together have no more than so many tokens.
///
/// # Errors
/// When another prompt begins with it, and together they have more.
pub fn step_gate(
    pod: &PodState,
    outlook: &Outlook,
    most_tokens: f64,
    now: Time,
) -> Result<(), Reason> {
    let begin_tokens: f64 = beginning(pod, outlook, now).map(|prompt| prompt.uncached_tokens).sum();
    let over = begin_tokens + outlook.uncached_tokens > most_tokens;
    let full = begin_tokens > 0.0 && over && f64::from(pod.class.chunk_tokens) > most_tokens;
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

/// The gates that need no model: the pod's buffer, the newcomer's pace, if it has one to keep, and what it puts at risk, which
/// `at_risk` says of a stall in milliseconds.
///
/// # Errors
/// The first gate that is shut.
pub fn cheap_gates(
    pace_ms: Option<f64>,
    outlook: &Outlook,
    at_risk: impl FnOnce(f64) -> f64,
    (room_tokens, bearable): (f64, f64),
    config: &PullConfig,
) -> Result<(), Reason> {
    let with = outlook.ahead_tokens + outlook.uncached_tokens;
    if outlook.ahead_tokens > 0.0 && with > room_tokens {
        return Err(Reason::PendingFull);
    }
    if let Some(pace_ms) = pace_ms {
        let limit_ms = config.tpot_margin * pace_ms;
        if outlook.pace_with_ms > limit_ms {
            return Err(Reason::TpotOverSlo { tpot_ms: outlook.pace_with_ms, limit_ms });
        }
    }
    let stall_ms = outlook.stall_ms;
    let at_risk = at_risk(stall_ms);
    if at_risk > bearable {
        return Err(Reason::StallOverBudget { stall_ms, at_risk, bearable });
    }
    Ok(())
}

/// The gates that ask the prediction: a first token in time, counted from arrival, and a pace that is kept; each of them where there
/// is one to keep.
///
/// # Errors
/// The first gate that is shut.
pub fn predicted_gates(
    [first_ms, pace_ms]: [Option<f64>; 2],
    waited_ms: f64,
    prediction: &Prediction,
) -> Result<(), Reason> {
    let ttft_ms = waited_ms + f64::from(prediction.ttft_ms.p50);
    if let Some(slo_ms) = first_ms.filter(|slo_ms| ttft_ms > *slo_ms) {
        return Err(Reason::TtftOverSlo { ttft_ms, slo_ms });
    }
    let tpot_ms = f64::from(prediction.tpot_ms.p50);
    match pace_ms {
        Some(limit_ms) if tpot_ms > limit_ms => Err(Reason::TpotOverSlo { tpot_ms, limit_ms }),
        _ => Ok(()),
    }
}
