//! The sums of an account agree with its entries, whatever comes, decodes and goes.

use proptest::prelude::*;

use super::*;

fn pending(id: u64, band: i8, tokens: u32) -> Pending {
    Pending {
        id: RequestId(id),
        since: Time::ZERO,
        uncached_tokens: f64::from(tokens) / 3.0,
        uncached_pairs: f64::from(tokens).powi(2) / 7.0,
        assumed_first_token: None,
        late: false,
        resident: Resident {
            id: RequestId(id),
            band: Band(band),
            tpot_slo_ms: (!id.is_multiple_of(3)).then_some(50.0),
            first_token: Time::ZERO,
            generated: 0,
            remaining: 10.0,
            estimate_at: 5,
            input_tokens: tokens,
            sequences: 1 + tokens % 3,
            max_output_tokens: None,
            tenant: None,
            streamed: true,
            adapter: (!id.is_multiple_of(4)).then(|| AdapterId::of(&format!("{band}"))),
        },
    }
}

#[derive(Clone, Debug)]
enum Step {
    Debit(i8, u32),
    FirstToken(u64),
    Progress(u64, usize, u32),
    Expect(usize, f64),
    Credit(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (-1..2i8, 1..5000u32).prop_map(|(band, tokens)| Step::Debit(band, tokens)),
        2 => (0..60u64).prop_map(Step::FirstToken),
        2 => (0..60u64, 0..9usize, 0..20u32).prop_map(|(id, seat, generated)| Step::Progress(id, seat, generated)),
        1 => (0..10usize, 1.0..100.0f64).prop_map(|(seat, tokens)| Step::Expect(seat, tokens)),
        2 => (0..60u64).prop_map(Step::Credit),
    ]
}

proptest! {
    #[test]
    fn the_account_s_sums_agree_with_its_entries(steps in prop::collection::vec(step(), 0..60)) {
        let (mut ledger, config) = (Ledger::default(), PullConfig::default());
        for (id, step) in (0..).zip(steps) {
            let now = Time::from_millis(id);
            match step {
                Step::Debit(band, tokens) => ledger.debit(pending(id, band, tokens)),
                Step::FirstToken(id) => {
                    ledger.first_token(RequestId(id), now, &config);
                }
                Step::Progress(id, seat, generated) => {
                    let come = ledger.progress((RequestId(id), seat), generated, &config);
                    let there = come.map(|come| ledger.residents()[come.seat].id);
                    prop_assert_eq!(there, ledger.ids.iter().copied().find(|one| one.0 == id));
                }
                Step::Expect(seat, tokens) => ledger.expect(seat, tokens, 9, &config),
                Step::Credit(id) => {
                    ledger.credit(RequestId(id));
                }
            }
            ledger.check();
        }
        for id in (0..60).map(RequestId) {
            ledger.credit(id);
        }
        prop_assert!(ledger.is_empty());
        prop_assert_eq!((ledger.kv_tokens(), ledger.pending_tokens(), ledger.top_band()), (0.0, 0.0, None));
    }

    #[test]
    fn a_pace_knows_until_when_it_is_kept_and_how_soon_it_may_end(
        generated in 1..500u32, remaining in 1.0..500.0f64, first_ms in 0..100_000u64,
    ) {
        let config = PullConfig::default();
        let first_token = Time::from_millis(first_ms);
        let resident = Resident { first_token, generated, remaining, ..pending(1, 0, 9).resident };
        let pace = Pace::of(&resident, &config);
        let gaps = f64::from(generated) - 1.0;
        prop_assert!((pace.spare_until_ms + pace.kept_ms - (first_ms as f64 + 50.0 * gaps)).abs() < 1e-6);
        let margin_tokens = (gaps + remaining).min(f64::from(config.margin_tokens));
        prop_assert!((pace.kept_ms - (1.0 - config.tpot_margin) * 50.0 * margin_tokens).abs() < 1e-6);
        let within = |tokens: f64| (tokens - pace.surely) * pace.ends;
        prop_assert!((within(remaining) - config.remaining_quantile).abs() < 1e-9);
        prop_assert!(within(0.0) < 0.0 && (within(pace.latest) - 1.0).abs() < 1e-9);
        let free = Pace::of(&Resident { tpot_slo_ms: None, ..resident.clone() }, &config);
        prop_assert!(free.spare_until_ms == NEVER_MS && free.slo_ms == NEVER_MS);
        let told = PullConfig { remaining_quantile: 1.0, ..config };
        let known = Pace::of(&resident, &told);
        prop_assert!((known.latest - remaining).abs() < 1e-9 && known.surely == pace.surely);
    }
}
