//! What is at risk is what counting through all lengths finds, and it stays over what may be for as long as is said.

use proptest::prelude::*;

use super::*;
use crate::{
    Band, PodId, RequestId,
    ledger::{Pending, Resident},
};

const NOW_MS: u64 = 100_000;

fn outlook(pace_ms: f64, pace_with_ms: f64, full_pace_ms: f64, stall_ms: f64) -> Outlook {
    Outlook {
        pod: PodId(0),
        empty: false,
        uncached_tokens: 1000.0,
        backlog_tokens: 0.0,
        ahead_tokens: 0.0,
        pending: 0,
        step_ms: pace_ms,
        pace_ms,
        pace_with_ms,
        token_ms: pace_with_ms,
        full_pace_ms,
        stall_ms,
        own_stall_ms: stall_ms,
        decodes: 1.0,
        ttft_ms: 100.0,
        tie_ms: 100.0,
        per_prefill_ms: 0.1,
        api_ms: 5.0,
        is_apart: true,
        place: 0,
    }
}

fn resident(id: u64, tpot_slo_ms: f64, generated: u32, remaining: f64, age_ms: u64) -> Pending {
    Pending {
        id: RequestId(id),
        since: Time::ZERO,
        uncached_tokens: 1.0,
        uncached_pairs: 1.0,
        assumed_first_token: None,
        late: false,
        resident: Resident {
            id: RequestId(id),
            band: Band(0),
            tpot_slo_ms: Some(tpot_slo_ms),
            first_token: Time::from_millis(NOW_MS - age_ms),
            generated,
            remaining,
            estimate_at: u32::MAX,
            input_tokens: 100,
            sequences: 1,
            max_output_tokens: None,
            tenant: None,
            streamed: true,
            adapter: None,
        },
    }
}

/// A ledger where these decode.
fn ledger(residents: Vec<Pending>, config: &PullConfig) -> Ledger {
    let mut ledger = Ledger::default();
    for (seat, pending) in residents.into_iter().enumerate() {
        let Resident { id, first_token, generated, remaining, .. } = pending.resident;
        ledger.debit(pending);
        ledger.first_token(id, first_token, config);
        ledger.progress((id, seat), generated, config);
        ledger.expect(seat, remaining, u32::MAX, config);
    }
    ledger
}

/// The chance that a resident is lost by the stall alone, counted through the lengths that it may have.
fn counted(resident: &Resident, outlook: &Outlook, now_ms: f64, config: &PullConfig) -> f64 {
    let (slo_ms, streamed) = (resident.tpot_slo_ms.unwrap(), f64::from(resident.generated));
    let quantile_at = resident.remaining;
    let (surely, steps) = (SURE * quantile_at, 200_000);
    let last = surely + (quantile_at - surely) / config.remaining_quantile;
    let margin_tokens = (streamed - 1.0 + quantile_at).min(f64::from(config.margin_tokens));
    let kept_ms = (1.0 - config.tpot_margin) * slo_ms * margin_tokens;
    let each = |step: u32| {
        let tokens = surely + (last - surely) * (f64::from(step) + 0.5) / f64::from(steps);
        let due_ms = resident.first_token.ms_since(Time::ZERO) + slo_ms * (streamed + tokens - 1.0);
        let left_ms = due_ms - kept_ms - now_ms;
        let lost = due_ms - now_ms < tokens * outlook.pace_ms;
        let unhurt = left_ms >= tokens * outlook.full_pace_ms;
        let over = left_ms < tokens * outlook.token_ms + outlook.stall_ms;
        u32::from(over && !lost && !unhurt)
    };
    f64::from((0..steps).map(each).sum::<u32>()) / f64::from(steps)
}

const SURE: f64 = 0.2;

prop_compose! {
    fn someone()(
        slo_ms in prop::sample::select(vec![30.0, 50.0, 100.0]), generated in 1..400u32,
        remaining in 1.0..200.0f64, pace in 0.3..1.2f64,
    ) -> (f64, u32, f64, u64) {
        (slo_ms, generated, remaining, (slo_ms * f64::from(generated) * pace) as u64)
    }
}

proptest! {
    #[test]
    fn what_is_at_risk_is_what_counting_through_all_lengths_finds(
        (slo_ms, generated, remaining, age_ms) in someone(), step_ms in 10.0..60.0f64,
        more in 0.01..5.0f64, full in 0.0..900.0f64, stall_ms in 0.0..5_000.0f64, slower in 1.0..3.0f64,
    ) {
        let config = PullConfig::default();
        let one = resident(1, slo_ms, generated, remaining, age_ms);
        let outlook = outlook(step_ms, step_ms + more, step_ms + more + full, stall_ms);
        let outlook = Outlook { token_ms: slower * outlook.pace_with_ms, ..outlook };
        let expected = counted(&one.resident, &outlook, NOW_MS as f64, &config);
        let ledger = ledger(vec![one], &config);
        let found = at_risk(&ledger, &outlook, outlook.stall_ms, Time::from_millis(NOW_MS));
        prop_assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
    }

    #[test]
    fn the_budget_is_the_longest_stall_that_costs_no_more_than_it_may(
        all in prop::collection::vec(someone(), 1..12), step_ms in 10.0..60.0f64, bearable in 0.01..0.6f64,
    ) {
        let config = PullConfig::default();
        let residents = (1..).zip(all).map(|(id, (slo, generated, left, age))| resident(id, slo, generated, left, age));
        let ledger = ledger(residents.collect(), &config);
        let (now, at) = (Time::from_millis(NOW_MS), |stall_ms| outlook(step_ms, step_ms + 0.5, 400.0, stall_ms));
        match budget_ms(&ledger, &at(0.0), bearable, now) {
            Some(stall_ms) => {
                prop_assert!(stall_ms == 0.0 || at_risk(&ledger, &at(stall_ms), stall_ms, now) <= bearable + 1e-9);
                prop_assert!(at_risk(&ledger, &at(stall_ms), stall_ms + 1.0, now) > bearable);
            }
            None => prop_assert!(at_risk(&ledger, &at(LONGEST_MS), LONGEST_MS, now) <= bearable),
        }
    }

    #[test]
    fn a_pod_stays_shut_for_as_long_as_is_said(
        all in prop::collection::vec(someone(), 1..12), step_ms in 10.0..60.0f64, stall_ms in 1.0..3_000.0f64,
        waited_ms in 0.0..3_000.0f64, spare_ms in 100.0..3_000.0f64, slower in 1.0..3.0f64,
    ) {
        let config = PullConfig::default();
        let residents = (1..).zip(all).map(|(id, (slo, generated, left, age))| resident(id, slo, generated, left, age));
        let ledger = ledger(residents.collect(), &config);
        let outlook = outlook(step_ms, step_ms + 0.5, 400.0, stall_ms);
        let now = Time::from_millis(NOW_MS);
        let urgency = |at: Time| ((waited_ms + at.ms_since(now)) / spare_ms).min(1.0);
        let over = |at| at_risk(&ledger, &outlook, stall_ms, at) > bearable(urgency(at), &config);
        if over(now) {
            // Whatever prompts take of the pods now, they may take nothing a moment later.
            let slow = Outlook { token_ms: slower * outlook.pace_with_ms, ..outlook };
            let until = over_until(&ledger, &slow, (urgency(now), spare_ms), now, &config);
            let span_us = until.as_micros() - now.as_micros();
            for part in 0..=20 {
                let at = Time::from_micros(now.as_micros() + (span_us / 20).min(1_000_000) * part);
                prop_assert!(over(at), "{part} of {span_us} us");
            }
        }
    }
}

#[test]
fn what_prompts_take_meanwhile_is_no_time_to_bear_another_one_in() {
    let config = PullConfig::default();
    let ledger = ledger(vec![resident(1, 50.0, 100, 100.0, 4800)], &config);
    let now = Time::from_millis(NOW_MS);
    let bears_ms = |slower: f64| {
        let outlook = outlook(20.0, 20.5, 400.0, 0.0);
        let outlook = Outlook { token_ms: slower * outlook.pace_with_ms, ..outlook };
        budget_ms(&ledger, &outlook, 0.02, now).unwrap()
    };
    let budgets = [1.0, 1.3, 1.6, 2.0].map(bears_ms);
    assert!(budgets.is_sorted_by(|one, next| one > next), "{budgets:?}");
}

#[test]
fn a_request_may_cost_more_the_more_urgent_it_is() {
    let config = PullConfig { risk_at_once: 0.1, risk_when_due: 0.5, ..PullConfig::default() };
    for (urgency, residents) in [(0.0, 0.1), (0.5, 0.2), (1.0, 0.5)] {
        assert!((bearable(urgency, &config) - residents).abs() < 1e-12, "{urgency}");
    }
}

#[test]
fn one_without_an_objective_and_one_that_is_long_enough_are_not_at_risk() {
    let config = PullConfig::default();
    let mut free = resident(1, 50.0, 10, 5.0, 600);
    free.resident.tpot_slo_ms = None;
    let stall = outlook(20.0, 20.5, 400.0, 0.0);
    let now = Time::from_millis(NOW_MS);
    assert_eq!(at_risk(&ledger(vec![free], &config), &stall, 1e6, now), 0.0);
    // 272 tokens at 20.5 ms make up for 8 s of stall. Of 1,400 to come a fifth is sure to be that many, of 200 all of them are not, and of
    // 300 others may take a part.
    let known = PullConfig { remaining_quantile: 1.0, tpot_margin: 1.0, ..config };
    let of = |left| {
        let told = ledger(vec![resident(1, 50.0, 2, left, 50)], &known);
        at_risk(&told, &outlook(20.0, 20.5, 400.0, 0.0), 8_000.0, now)
    };
    assert_eq!((of(1_400.0), of(200.0)), (0.0, 1.0));
    assert!((0.8..0.95).contains(&of(300.0)), "{}", of(300.0));
}

#[test]
fn a_stall_that_a_predictor_says_to_take_less_than_no_time_is_none() {
    let config = PullConfig::default();
    let ledger = ledger(vec![resident(1, 50.0, 10, 50.0, 4000)], &config);
    for stall_ms in [-1.0, f64::NAN] {
        let outlook = outlook(60.0, 60.5, 400.0, stall_ms);
        assert_eq!(bears_ms(&ledger, &outlook, 0.0, Time::from_millis(NOW_MS), stall_ms), 0.0);
    }
}
