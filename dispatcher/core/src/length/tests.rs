use proptest::prelude::*;

use super::*;

const EDGES: [u32; 3] = [64, 256, 1024];

fn history(half_life: u32) -> LengthHistory {
    LengthHistory::new(LengthConfig { half_life, ..LengthConfig::default() }, &EDGES)
}

fn seen(history: &mut LengthHistory, lengths: impl IntoIterator<Item = u32>) {
    lengths.into_iter().for_each(|length| history.observe(None, 100, length));
}

fn tenant(name: impl ToString) -> Arc<str> {
    name.to_string().into()
}

/// Whether two lengths are apart by no more than a bin.
fn near(got: u32, wanted: u32) -> bool {
    f64::from(got.abs_diff(wanted)) <= f64::from(wanted) / 6.0 + 1.0
}

#[test]
fn before_anything_is_seen_the_configured_guess_answers_within_the_maximum() {
    let cold = history(500);
    assert_eq!(cold.predict(None, 100, None), 256);
    assert_eq!(cold.predict(None, 100, Some(40)), 40);
    assert_eq!(cold.predict(None, 100, Some(0)), 0);
    assert_eq!(cold.remaining(None, 100, None, 50, 0.1), 26);
    assert_eq!(cold.remaining(None, 100, Some(40), 10, 0.1), 4);
    assert_eq!(cold.remaining(None, 100, None, 0, 0.0), 1);
}

#[test]
fn the_maximum_bounds_what_was_learned() {
    let mut history = history(500);
    seen(&mut history, [400; 100]);
    assert_eq!(history.predict(None, 100, Some(30)), 30);
    assert_eq!(history.remaining(None, 100, Some(30), 25, 0.5), 5);
    assert_eq!(history.remaining(None, 100, Some(30), 30, 0.5), 0);
    assert_eq!(history.remaining(None, 100, Some(30), 99, 0.5), 0);
}

#[test]
fn of_a_memoryless_length_as_much_remains_however_much_was_streamed() {
    let mut history = history(50_000);
    // Evenly spread quantiles of an exponential of mean 300.
    let spread = (0..40_000).map(|i| (f64::from(i) * 0.618_033_988_75).fract());
    seen(&mut history, spread.map(|u| (-300.0 * (1.0 - u).ln()).ceil() as u32));
    for generated in [0, 10, 100, 333, 700, 1000] {
        for (quantile, wanted) in [(0.1, 31.6_f64), (0.5, 207.9), (0.9, 690.8)] {
            let got = f64::from(history.remaining(None, 100, None, generated, quantile));
            // Even spread inside a bin is not the curve: up to an eighth too low at three means.
            assert!((got / wanted - 1.0).abs() < 0.125, "{quantile} after {generated}: {got}");
        }
    }
}

#[test]
fn of_a_constant_length_the_rest_remains_and_beyond_it_the_guess_answers() {
    let mut history = history(500);
    seen(&mut history, [500; 300]);
    assert!(near(history.predict(None, 100, None), 500));
    for (generated, quantile) in [(0, 0.1), (0, 0.9), (300, 0.1), (300, 0.9)] {
        let remaining = history.remaining(None, 100, None, generated, quantile);
        assert!(near(generated + remaining, 500), "{remaining} after {generated}");
    }
    assert_eq!(history.remaining(None, 100, None, 900, 0.1), 26);
}

#[test]
fn the_last_sliver_of_the_last_bin_is_too_little_to_answer_from() {
    let mut history = history(500);
    seen(&mut history, [500; 25]);
    let bin = history.bins[first_bin_beyond(&history.bins, 499)];
    assert!(bin.upper - bin.lower > 50);
    assert_eq!(history.remaining(None, 100, None, bin.upper - 1, 0.1), 26);
}

#[test]
fn the_least_that_follows_is_in_the_first_bin_that_holds_anything() {
    let mut history = history(500);
    seen(&mut history, [500; 100]);
    let bin = history.bins[first_bin_beyond(&history.bins, 499)];
    for generated in [0, 20, 300] {
        let reached = generated + history.remaining(None, 100, None, generated, 0.0);
        assert_eq!(reached, bin.lower + 1, "after {generated}");
    }
}

#[test]
fn short_lengths_are_told_apart_exactly() {
    let mut history = history(500);
    seen(&mut history, [7; 300]);
    assert_eq!(history.predict(None, 100, None), 7);
    assert_eq!(history.remaining(None, 100, None, 3, 0.1), 4);
}

#[test]
fn of_two_kinds_of_output_the_long_one_is_left_once_the_short_one_is_passed() {
    let mut history = history(500);
    seen(&mut history, [20, 1000].repeat(300));
    assert!(near(history.remaining(None, 100, None, 0, 0.25), 20));
    assert!(near(history.remaining(None, 100, None, 0, 0.75), 1000));
    assert!(near(50 + history.remaining(None, 100, None, 50, 0.1), 1000));
}

#[test]
fn the_past_fades_by_half_in_a_half_life() {
    let mut history = history(500);
    seen(&mut history, [50; 5000]);
    seen(&mut history, [800; 450]);
    assert!(near(history.predict(None, 100, None), 50));
    seen(&mut history, [800; 100]);
    assert!(near(history.predict(None, 100, None), 800));
}

#[test]
fn weights_scaled_down_many_times_still_answer_even_with_a_short_half_life() {
    let mut history = history(1);
    seen(&mut history, [70; 10_000]);
    assert!(near(history.predict(None, 100, None), 70));
    assert!((history.all.weight() - 2.0).abs() < 1e-6, "{}", history.all.weight());
}

#[test]
fn a_tenant_with_enough_of_its_own_is_not_disturbed_by_others() {
    let (quiet, loud, new) = (tenant("quiet"), tenant("loud"), tenant("new"));
    let mut history = history(500);
    for _ in 0..100 {
        history.observe(Some(&quiet), 100, 30);
        (0..9).for_each(|_| history.observe(Some(&loud), 100, 600));
    }
    assert!(near(history.predict(Some(&quiet), 100, None), 30));
    assert!(near(history.predict(Some(&loud), 100, None), 600));
    for stranger in [Some(&new), None] {
        assert!(near(history.predict(stranger, 100, None), 600));
    }
    // Past everything it ever sent, others know more.
    assert!(near(40 + history.remaining(Some(&quiet), 100, None, 40, 0.5), 600));
}

#[test]
fn a_history_answers_for_its_input_bucket_and_the_whole_pool_for_an_empty_one() {
    let mut history = history(500);
    for _ in 0..100 {
        history.observe(None, 64, 10);
        history.observe(None, 65, 300);
        history.observe(None, 256, 300);
    }
    assert!(near(history.predict(None, 1, None), 10));
    assert!(near(history.predict(None, 200, None), 300));
    assert!(near(history.predict(None, 100_000, None), 300));
    (0..19).for_each(|_| history.observe(None, 100_000, 5000));
    assert!(near(history.predict(None, 100_000, None), 300));
    (0..3).for_each(|_| history.observe(None, 100_000, 5000));
    assert!(near(history.predict(None, 100_000, None), 5000));
}

#[test]
fn prompts_of_one_size_that_are_answered_alike_have_a_history_of_their_own() {
    let mut history = history(500);
    let turn = |history: &mut LengthHistory| {
        history.observe(None, 120, 14);
        for input_tokens in [70, 80, 90, 160, 200, 240] {
            history.observe(None, input_tokens, 300);
        }
    };
    (0..90).for_each(|_| turn(&mut history));
    assert!(
        near(history.predict(None, 120, None), 300),
        "too few for a size, enough for its bucket"
    );
    (0..20).for_each(|_| turn(&mut history));
    assert!(near(history.predict(None, 120, None), 14));
    assert!(near(history.predict(None, 122, None), 14), "nearly the same size");
    assert!(near(history.predict(None, 140, None), 300), "what its bucket says");
    assert!(near(history.predict(None, 200, None), 300));
}

#[test]
fn tenants_are_bounded_and_those_heard_of_lately_are_kept() {
    let mut history = history(500);
    let (steady, gone) = (tenant("steady"), tenant("gone"));
    (0..50).for_each(|_| history.observe(Some(&gone), 100, 30));
    (0..50).for_each(|_| history.observe(Some(&steady), 100, 30));
    for number in 0..5000 {
        history.observe(Some(&tenant(number)), 100, 600);
        // Rarely, so that it must be carried from one generation to the next.
        if number % 300 == 0 {
            history.observe(Some(&steady), 100, 30);
        }
    }
    let kept = history.tenants.known.len();
    assert!((MOST_TENANTS / 2..=MOST_TENANTS).contains(&kept), "{kept}");
    assert!(near(history.predict(Some(&steady), 100, None), 30));
    assert_eq!(history.tenants.get("gone").map(<[_]>::len), None);
}

#[test]
fn an_output_of_nothing_is_ignored_and_one_beyond_all_bins_counts_as_the_longest() {
    let mut history = history(500);
    seen(&mut history, [0; 100]);
    assert_eq!(history.predict(None, 100, None), 256);
    seen(&mut history, [u32::MAX; 100]);
    assert!(near(history.predict(None, 100, None), LONGEST_TOKENS));
    assert_eq!(history.remaining(None, 100, None, u32::MAX, 0.5), 0);
}

proptest! {
    #[test]
    fn a_quantile_lies_in_the_bin_of_the_exact_one(
        mut lengths in prop::collection::vec(1..5000u32, 40..200),
        rank in any::<prop::sample::Index>(),
        edge in 0..45usize,
    ) {
        lengths.push(5000);
        let mut history = history(u32::MAX);
        seen(&mut history, lengths.iter().copied());
        let generated = history.bins[edge].lower;
        lengths.retain(|length| *length > generated);
        lengths.sort_unstable();
        let rank = rank.index(lengths.len());
        let quantile = (rank as f32 + 0.5) / lengths.len() as f32;
        let got = generated + history.remaining(None, 100, None, generated, quantile);
        let bin = history.bins[first_bin_beyond(&history.bins, lengths[rank] - 1)];
        prop_assert!(bin.lower < got && got <= bin.upper, "{got} for {}", lengths[rank]);
    }

    #[test]
    fn what_remains_grows_with_the_quantile_and_stays_bounded(
        lengths in prop::collection::vec(1..200_000u32, 0..100),
        generated in prop_oneof![0..5000u32, any::<u32>()],
        max_tokens in prop::option::of(0..10_000u32),
        mut quantiles in prop::collection::vec(0.0..=1.0f32, 10),
    ) {
        let mut history = history(20);
        seen(&mut history, lengths);
        quantiles.sort_unstable_by(f32::total_cmp);
        let left = max_tokens.unwrap_or(u32::MAX).saturating_sub(generated);
        let mut last = left.min(1);
        for quantile in quantiles {
            let now = history.remaining(None, 100, max_tokens, generated, quantile);
            prop_assert!(last <= now && now <= left, "{last} then {now} of {left}");
            last = now;
        }
    }
}
