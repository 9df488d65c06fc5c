//! How long outputs get: what was seen of a tenant and a prompt size, as quantiles.
//!
//! A pool owns one [`LengthHistory`]; the scheduler tells it the output of every request that ended,
//! asks once per arrival how long an output will be, and asks of a running request how much is still
//! to come. Three histories answer, the first that rests on enough: this tenant and input bucket, any
//! tenant and this bucket, everything. Before any of them does, a configured guess does.
//!
//! A history is a histogram whose bins grow by a sixth, so a length, streamed and remaining together,
//! is wrong by less than that, and whose past fades by half every `half_life` observations of its own.
//! Fading costs nothing: instead of all old weights shrinking, each new one is larger than the last.
//! Memory is bounded: at most 1024 tenants have a history of their own; beyond that, those not heard
//! of for longest lose it and share the one of all tenants.

use std::{collections::HashMap, iter, sync::Arc};

use crate::LengthConfig;

/// Tenants with a history of their own, at most.
const MOST_TENANTS: usize = 1024;
/// Longest output told apart; the longest context windows in use.
const LONGEST_TOKENS: u32 = 131_072;
/// A new weight above this scales the whole histogram down, far from where f64 loses small ones.
const LARGEST_WEIGHT: f64 = 1e12;
/// Share of the newest weight below which a scaled weight is forgotten.
const SMALLEST_WEIGHT: f64 = 1e-9;
/// Observations above a length, in weight, from which a history can say what follows that length.
const LEAST_BEYOND: f64 = 0.5;
/// Share of the weight that a history tends to that is always enough: with a short half-life it
/// would otherwise never reach what is asked of it.
const ENOUGH_SHARE: f64 = 0.9;

/// Output lengths of one pool, by tenant and input bucket.
#[derive(Clone, Debug)]
pub struct LengthHistory {
    config: LengthConfig,
    /// Weight a history needs to answer.
    enough: f64,
    /// Factor from one observation's weight to the next one's.
    growth: f64,
    /// Upper edges of the input buckets, inclusive; one more bucket lies above the last.
    input_edges: Box<[u32]>,
    bins: Box<[Bin]>,
    tenants: Tenants,
    /// Any tenant, by input bucket.
    any_tenant: Box<[Histogram]>,
    all: Histogram,
}

impl LengthHistory {
    /// A history that has seen nothing. `input_edges` are the inclusive upper edges of the input
    /// buckets in tokens, ascending.
    pub fn new(config: LengthConfig, input_edges: &[u32]) -> Self {
        let growth = (1.0 / f64::from(config.half_life.max(1))).exp2();
        let steady_weight = growth / (growth - 1.0);
        Self {
            config,
            enough: f64::from(config.enough).min(ENOUGH_SHARE * steady_weight),
            growth,
            input_edges: input_edges.into(),
            bins: bins().collect(),
            tenants: Tenants::default(),
            any_tenant: buckets(input_edges),
            all: Histogram::default(),
        }
    }

    /// Learns that a request of `input_tokens` ended after `output_tokens` per sequence. One that
    /// generated nothing says nothing about lengths and is ignored.
    pub fn observe(&mut self, tenant: Option<&Arc<str>>, input_tokens: u32, output_tokens: u32) {
        if output_tokens == 0 {
            return;
        }
        let bin = first_bin_beyond(&self.bins, output_tokens.min(LONGEST_TOKENS) - 1);
        let bucket = self.bucket(input_tokens);
        let own = tenant.map(|name| self.tenants.known(name, &self.input_edges));
        let own = own.and_then(|buckets| buckets.get_mut(bucket));
        let any_tenant = self.any_tenant.get_mut(bucket);
        for history in own.into_iter().chain(any_tenant).chain([&mut self.all]) {
            history.add(bin, self.bins.len(), self.growth);
        }
    }

    /// Output tokens expected of a new request: the configured quantile, bounded by
    /// `max_output_tokens`. At least one, except under a maximum of zero.
    pub fn predict(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        max_output_tokens: Option<u32>,
    ) -> u32 {
        let length = self.beyond(tenant, input_tokens, 0, self.config.quantile);
        let length = length.unwrap_or(self.config.cold_tokens).max(1);
        length.min(max_output_tokens.unwrap_or(u32::MAX))
    }

    /// A quantile of the output tokens still to come from a request that has streamed `generated`,
    /// bounded by what `max_output_tokens` leaves. At least one, except when that leaves nothing.
    /// Where nothing as long was seen, that share of the configured guess: a low quantile stays low.
    pub fn remaining(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        max_output_tokens: Option<u32>,
        generated: u32,
        quantile: f32,
    ) -> u32 {
        let left = max_output_tokens.unwrap_or(u32::MAX).saturating_sub(generated);
        let cold = || {
            let guess = self.config.cold_tokens.min(max_output_tokens.unwrap_or(u32::MAX));
            (f64::from(guess) * f64::from(quantile.clamp(0.0, 1.0))).round() as u32
        };
        let length = self.beyond(tenant, input_tokens, generated, quantile);
        length.unwrap_or_else(cold).max(1).min(left)
    }

    /// A quantile of what follows `generated` tokens, from the first history that can say.
    fn beyond(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        generated: u32,
        quantile: f32,
    ) -> Option<u32> {
        let bucket = self.bucket(input_tokens);
        let own = tenant.and_then(|name| self.tenants.get(name)).and_then(|own| own.get(bucket));
        let histories = own.into_iter().chain(self.any_tenant.get(bucket)).chain([&self.all]);
        histories
            .filter(|history| history.weight() >= self.enough)
            .find_map(|history| history.beyond(&self.bins, generated, quantile))
    }

    fn bucket(&self, input_tokens: u32) -> usize {
        self.input_edges.partition_point(|edge| *edge < input_tokens)
    }
}

/// Empty histories, one per input bucket.
fn buckets(input_edges: &[u32]) -> Box<[Histogram]> {
    vec![Histogram::default(); input_edges.len() + 1].into()
}

/// Histories of tenants in two generations. A tenant heard of is in the young one; when that is full
/// it becomes the old one, and what was still in the old one is forgotten. So the half of
/// [`MOST_TENANTS`] heard of last is always kept, at no cost per observation.
#[derive(Clone, Debug, Default)]
struct Tenants {
    young: HashMap<Arc<str>, Box<[Histogram]>>,
    old: HashMap<Arc<str>, Box<[Histogram]>>,
}

impl Tenants {
    fn get(&self, name: &str) -> Option<&[Histogram]> {
        self.young.get(name).or_else(|| self.old.get(name)).map(|own| &**own)
    }

    /// The histories of a tenant that was just heard of.
    fn known(&mut self, name: &Arc<str>, input_edges: &[u32]) -> &mut [Histogram] {
        if !self.young.contains_key(name) {
            let own = self.old.remove(name).unwrap_or_else(|| buckets(input_edges));
            if self.young.len() >= MOST_TENANTS / 2 {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(Arc::clone(name), own);
        }
        self.young.entry(Arc::clone(name)).or_default()
    }
}

/// Lengths above `lower` up to and including `upper`.
#[derive(Clone, Copy, Debug)]
struct Bin {
    lower: u32,
    upper: u32,
}

/// Bins from one token to [`LONGEST_TOKENS`]: single lengths up to 12, then each a sixth longer.
fn bins() -> impl Iterator<Item = Bin> {
    let next = |bin: &Bin| {
        let upper = bin.upper.saturating_add((bin.upper / 6).max(1)).min(LONGEST_TOKENS);
        (bin.upper < LONGEST_TOKENS).then_some(Bin { lower: bin.upper, upper })
    };
    iter::successors(Some(Bin { lower: 0, upper: 1 }), next)
}

/// Index of the first bin with lengths above `tokens`.
fn first_bin_beyond(bins: &[Bin], tokens: u32) -> usize {
    bins.partition_point(|bin| bin.upper <= tokens)
}

/// Lengths seen, as weights in bins.
#[derive(Clone, Debug)]
struct Histogram {
    /// Weight per bin; empty until the first observation, as most tenants use few buckets.
    weights: Box<[f64]>,
    /// Their sum.
    total: f64,
    /// Weight of the newest observation.
    newest: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { weights: Box::default(), total: 0.0, newest: 1.0 }
    }
}

impl Histogram {
    /// Observations it rests on, the faded ones in part.
    fn weight(&self) -> f64 {
        self.total / self.newest
    }

    fn add(&mut self, bin: usize, bins: usize, growth: f64) {
        if self.weights.is_empty() {
            self.weights = vec![0.0; bins].into();
        }
        self.newest *= growth;
        if let Some(weight) = self.weights.get_mut(bin) {
            *weight += self.newest;
            self.total += self.newest;
        }
        if self.newest > LARGEST_WEIGHT {
            self.scale_down();
        }
    }

    fn scale_down(&mut self) {
        for weight in &mut self.weights {
            let scaled = *weight / self.newest;
            *weight = if scaled < SMALLEST_WEIGHT { 0.0 } else { scaled };
        }
        self.newest = 1.0;
        self.total = self.weights.iter().sum();
    }

    /// A quantile of what follows `generated` tokens, at least one; nothing when next to nothing as
    /// long was seen. Lengths are taken as spread evenly inside a bin.
    fn beyond(&self, bins: &[Bin], generated: u32, quantile: f32) -> Option<u32> {
        let first = first_bin_beyond(bins, generated);
        let (bins, weights) = (bins.get(first..)?, self.weights.get(first..)?);
        let begun = |bin: &Bin| bin.lower.max(generated);
        let whole: f64 = weights.iter().sum();
        let passed = bins.first().zip(weights.first()).map_or(0.0, |(bin, weight)| {
            weight * share(begun(bin) - bin.lower, bin.upper - bin.lower)
        });
        if whole - passed < LEAST_BEYOND * self.newest {
            return None;
        }
        // Counted from the lower edge of the first bin, of which a part has passed.
        let mut below = passed + f64::from(quantile.clamp(0.0, 1.0)) * (whole - passed);
        let mut length = generated;
        for (bin, weight) in bins.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            if below <= *weight {
                let inside = f64::from(bin.upper - bin.lower) * below / weight;
                let reached = bin.lower + inside.ceil() as u32;
                length = reached.clamp(begun(bin) + 1, bin.upper);
                break;
            }
            below -= weight;
            // What rounding leaves over belongs to the longest length seen.
            length = bin.upper;
        }
        Some(length.saturating_sub(generated).max(1))
    }
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole)
}

#[cfg(test)]
mod tests {
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
    fn tenants_are_bounded_and_those_heard_of_lately_are_kept() {
        let mut history = history(500);
        let (steady, gone) = (tenant("steady"), tenant("gone"));
        (0..50).for_each(|_| history.observe(Some(&gone), 100, 30));
        for number in 0..5000 {
            history.observe(Some(&tenant(number)), 100, 600);
            history.observe(Some(&steady), 100, 30);
        }
        let kept = history.tenants.young.len() + history.tenants.old.len();
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
            edge in 0..60usize,
        ) {
            let mut history = history(u32::MAX);
            seen(&mut history, lengths.iter().copied());
            let generated = history.bins[edge].lower;
            lengths.retain(|length| *length > generated);
            lengths.sort_unstable();
            prop_assume!(!lengths.is_empty());
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
}
