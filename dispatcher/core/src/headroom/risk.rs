//! How many residents a stall would cost their pace.
//!
//! A resident has an objective for its mean pace, and nobody knows when it ends. Were it to end after `r` more tokens, they and
//! those streamed may take `slo x (g + r - 1)` since its first token, a margin is kept of that, and they will take the stall, a step
//! each, and what other prompts take meanwhile: so it bears what the line `ahead - kept - stall + r x (slo - token)` leaves above
//! zero. Short answers are hurt most, for they have no time to make up for it. How likely it is to end within `r` is read from one low quantile of what is still to come: not
//! at all within a fifth of that many tokens, from there on as likely with each token, in a line through the quantile. What it would
//! lose without the newcomer too does not count, nor where no chunk can hurt it.
//!
//! The sum over all residents is how many of them the newcomer would cost, on average. It may cost few when it has just come, for
//! there may be a better moment or a better pod; when no time is left to find one, half of one.

use smallvec::SmallVec;

use crate::{
    PullConfig, Time,
    headroom::Outlook,
    ledger::{Ledger, Pace},
};

/// Hours: longer than any stall.
const LONGEST_MS: f64 = 1e7;

/// How many residents a request may put at risk that is so urgent.
pub fn bearable(urgency: f64, config: &PullConfig) -> f64 {
    let [at_once, when_due] = [config.risk_at_once, config.risk_when_due];
    at_once + (when_due - at_once) * urgency * urgency
}

/// How many residents would lose their pace by a stall, on average.
pub fn at_risk(ledger: &Ledger, outlook: &Outlook, stall_ms: f64, now: Time) -> f64 {
    let now_ms = now.ms_since(Time::ZERO);
    let touched = touched(ledger.paces(), outlook, stall_ms, now_ms);
    touched.map(|pace| Loss::of(pace, outlook, now_ms).by(stall_ms)).sum()
}

/// How many more that are than would be by a shorter stall, before it.
pub fn more_at_risk(
    ledger: &Ledger,
    outlook: &Outlook,
    [before_ms, stall_ms]: [f64; 2],
    now: Time,
) -> f64 {
    let now_ms = now.ms_since(Time::ZERO);
    let is_touched = touched_by(outlook, before_ms, now_ms);
    let (mut before, mut all) = (0.0, 0.0);
    // Who is touched by the shorter one is by the longer one.
    for pace in touched(ledger.paces(), outlook, stall_ms, now_ms) {
        let loss = Loss::of(pace, outlook, now_ms);
        all += loss.by(stall_ms);
        if is_touched(pace) {
            before += loss.by(before_ms);
        }
    }
    all - before
}

/// Those that may lose their pace by a stall. Most bear it, however soon they end and however late.
#[inline]
fn touched<'a>(
    paces: &'a [Pace],
    outlook: &Outlook,
    stall_ms: f64,
    now_ms: f64,
) -> impl Iterator<Item = &'a Pace> {
    let is_touched = touched_by(outlook, stall_ms, now_ms);
    paces.iter().filter(move |pace| is_touched(pace))
}

#[inline]
fn touched_by(outlook: &Outlook, stall_ms: f64, now_ms: f64) -> impl Fn(&Pace) -> bool + use<> {
    let (until_ms, step_ms) = (now_ms + stall_ms, outlook.token_ms);
    move |pace| {
        let gain_ms = pace.slo_ms - step_ms;
        let worst = if gain_ms >= 0.0 { pace.surely } else { pace.latest };
        pace.spare_until_ms - until_ms + gain_ms * worst < 0.0
    }
}

/// The longest stall that puts no more than that at risk, in milliseconds; `None` when any may.
pub fn budget_ms(ledger: &Ledger, outlook: &Outlook, bearable: f64, now: Time) -> Option<f64> {
    let bears_ms = bears_ms(ledger, outlook, bearable, now, LONGEST_MS);
    (bears_ms < LONGEST_MS).then_some(bears_ms)
}

/// The longest stall, up to `most_ms`, that puts no more than that at risk.
pub fn bears_ms(ledger: &Ledger, outlook: &Outlook, bearable: f64, now: Time, most_ms: f64) -> f64 {
    // A predictor may say that a stall takes less than no time.
    let (now_ms, most_ms) = (now.ms_since(Time::ZERO), most_ms.max(0.0));
    // Whoever bears the longest bears a shorter one. What is at risk rises on lines between the moments where one begins or ends.
    let mut turns: SmallVec<[Turn; 32]> = SmallVec::new();
    for pace in touched(ledger.paces(), outlook, most_ms, now_ms) {
        let Loss { from_ms, until_ms, chance } = Loss::of(pace, outlook, now_ms);
        if until_ms > from_ms {
            let per_ms = chance / (until_ms - from_ms);
            turns.push(Turn { at_ms: from_ms, per_ms, at_once: 0.0 });
            turns.push(Turn { at_ms: until_ms, per_ms: -per_ms, at_once: 0.0 });
        } else {
            turns.push(Turn { at_ms: from_ms, per_ms: 0.0, at_once: chance });
        }
    }
    turns.sort_unstable_by(|one, other| one.at_ms.total_cmp(&other.at_ms));
    let (mut at_risk, mut per_ms, mut last_ms) = (0.0, 0.0, 0.0);
    for turn in turns {
        let before: f64 = at_risk + per_ms * (turn.at_ms - last_ms);
        if before > bearable {
            return (last_ms + (bearable - at_risk) / per_ms).clamp(0.0, most_ms);
        }
        at_risk = before + turn.at_once;
        if at_risk > bearable {
            return turn.at_ms.clamp(0.0, most_ms);
        }
        (per_ms, last_ms) = (per_ms + turn.per_ms, turn.at_ms);
    }
    most_ms
}

/// Where what is at risk begins or ends to rise with the stall, or jumps.
struct Turn {
    at_ms: f64,
    per_ms: f64,
    at_once: f64,
}

/// Until when a request surely puts more at risk on a pod than it may, if nothing happens there: what is at risk gets less only as
/// residents are lost anyway, and what it may gets more as it waits, from its urgency now to all of it within its spare time.
pub fn over_until(
    ledger: &Ledger,
    outlook: &Outlook,
    (urgency, spare_ms): (f64, f64),
    now: Time,
    config: &PullConfig,
) -> Time {
    // Fewer prompts may come than do now.
    let outlook = &Outlook { token_ms: outlook.pace_with_ms, ..*outlook };
    let now_ms = now.ms_since(Time::ZERO);
    let mut over = -bearable(urgency, config);
    let mut per_ms = 2.0 * (config.risk_when_due - config.risk_at_once).max(0.0) / spare_ms;
    for pace in touched(ledger.paces(), outlook, outlook.stall_ms, now_ms) {
        let risk = Loss::of(pace, outlook, now_ms).by(outlook.stall_ms);
        if risk > 0.0 {
            over += risk;
            per_ms += pace.ends / (pace.slo_ms - outlook.pace_ms).abs();
        }
    }
    // Less a microsecond for the rounding.
    let least_us = (over / per_ms * 1e3 - 1.0).max(0.0) as u64;
    Time::from_micros(now.as_micros().saturating_add(least_us))
}

/// Chance that a resident keeps its pace without a stall and loses it with it: none up to one stall, all of it from another one on,
/// and on a line between the two.
struct Loss {
    from_ms: f64,
    until_ms: f64,
    chance: f64,
}

impl Loss {
    fn of(pace: &Pace, outlook: &Outlook, now_ms: f64) -> Self {
        let spare_ms = pace.spare_until_ms - now_ms;
        // Were it to end within fewer tokens, or after more, no stall would cost it its pace.
        let (mut from, mut to) = (pace.surely.max(0.0), pace.latest);
        let mut beyond = |crossing: f64, beyond: bool| {
            if beyond { from = from.max(crossing) } else { to = to.min(crossing) }
        };
        let zero = |at_ms: f64, per_token_ms: f64| -at_ms / per_token_ms;
        let lost_ms = pace.slo_ms - outlook.pace_ms;
        beyond(zero(spare_ms + pace.kept_ms, lost_ms), lost_ms >= 0.0);
        let hurt_ms = pace.slo_ms - outlook.full_pace_ms;
        beyond(zero(spare_ms, hurt_ms), hurt_ms < 0.0);
        if to <= from {
            return Self { from_ms: 0.0, until_ms: 0.0, chance: 0.0 };
        }
        // The stall by which it would lose it if it ended after so many.
        let gain_ms = pace.slo_ms - outlook.token_ms;
        let [one_ms, other_ms] = [from, to].map(|tokens| spare_ms + gain_ms * tokens);
        Self {
            from_ms: one_ms.min(other_ms),
            until_ms: one_ms.max(other_ms),
            chance: pace.ends * (to - from),
        }
    }

    fn by(&self, stall_ms: f64) -> f64 {
        if stall_ms >= self.until_ms {
            return self.chance;
        }
        let share = (stall_ms - self.from_ms) / (self.until_ms - self.from_ms);
        self.chance * share.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests;
