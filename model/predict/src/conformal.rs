//! From a median to a 90th percentile: a live conformal estimate.
//!
//! The factor is an empirical quantile of recent measured / median ratios with the finite-sample rank
//! of split conformal prediction (Vovk et al., Algorithmic Learning in a Random World, 2005): rank
//! ceil((n + 1) x 0.9) of n covers a fresh outcome with at least 90 % if outcomes are exchangeable.
//! Outcomes of a pool are not: load and engines change. So a ring keeps only the newest, and the rank
//! itself follows the coverage that was had (adaptive conformal inference: Gibbs and Candes, "Adaptive
//! conformal inference under distribution shift", NeurIPS 2021): each outcome above the percentile
//! raises it by nine steps, each at or below lowers it by one.
//!
//! The coverage that counts is that of the percentile *stated* at the decision, not that of the factor
//! in force when the outcome is known: a pool's ratios move together for seconds, and by the time a
//! response is over the factor has followed its neighbours. It counts whichever evaluator stated it, and whether or not that one still
//! serves: evaluators take turns as load changes, and what was under way when another took over are the longest responses. So what is
//! owed is kept once ([`Promise`]) and the ratios by evaluator ([`Conformal`]). Nor may it be forgotten: the share goes on past 1,
//! where the factor goes on past the largest ratio, or a stretch that no ratio of the ring covers is never made up for.
//!
//! With a share of each evaluator's own that stopped at the largest ratio, TPOT was covered by 85.4 to 89.2 % of six kinds of traffic
//! with the trainer in the loop, by 90.0 to 90.7 % as it is. What is left are the outcomes that were under way when an engine or the
//! load changed at once.

use std::collections::VecDeque;

/// Ratios kept. At 512 the 90th percentile is known to about one and a half points of coverage.
const RING: usize = 512;
/// Ratios needed before the estimate replaces the default.
const ENOUGH: usize = 30;
/// The stated share of outcomes at or below the 90th percentile.
const SHARE: f64 = 0.9;
/// Bounds of the share that the rank is taken at. Past 1 it is a debt.
const SHARES: [f64; 2] = [0.6, 2.0];
/// How many times the distance from the median ratio to the largest a debt of 1 adds to the largest.
const BEYOND: f64 = 2.0;
/// Largest factor. Beyond it the median is useless and the live error has long said so.
const FACTOR_CAP: f32 = 20.0;

/// That nine in ten outcomes are at or below what was stated for them: how it was kept so far, and so what rank is stated next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// The share of the ratios that the rank is taken at.
    share: f64,
    /// How far one outcome moves that share.
    follow: f64,
}

impl Promise {
    /// One whose rank moves by `follow` x 0.1 when an outcome was covered and by `follow` x 0.9 when it was not.
    pub(crate) const fn new(follow: f64) -> Self {
        Self { share: SHARE, follow }
    }

    /// Learns whether an outcome was at or below the percentile that was stated for it, whoever stated it.
    pub(crate) fn settle(&mut self, covered: bool) {
        let [least, most] = SHARES;
        let covered = f64::from(u8::from(covered));
        self.share = (self.share + self.follow * (SHARE - covered)).clamp(least, most);
    }
}

/// The factor for one target of one evaluator.
#[derive(Debug)]
pub(crate) struct Conformal {
    /// The newest last, and whether each is of the medians that count now or of those that they follow.
    ratios: VecDeque<(f32, bool)>,
    /// Those that are.
    own: usize,
    /// The same in ascending order, so that any rank is at hand: what comes and what goes moves a kilobyte.
    ascending: Vec<f32>,
    factor: f32,
}

impl Conformal {
    /// A factor that starts at `default_factor`.
    pub(crate) fn new(default_factor: f32) -> Self {
        Self {
            ratios: VecDeque::with_capacity(RING),
            own: 0,
            ascending: Vec::with_capacity(RING),
            factor: default_factor,
        }
    }

    /// Multiplies a median into a 90th percentile. Never below 1: a percentile under its median would
    /// make every margin built on it negative.
    pub(crate) const fn factor(&self) -> f32 {
        self.factor
    }

    /// Starts again at a factor, for other medians than those so far. By as much as what is owed moved the factor so far it moves the
    /// new one. Where medians follow one another so fast that few outcomes of any are known, ratios to those before count until enough
    /// to these are: they are close, and a factor that is never corrected would be of nobody's.
    pub(crate) fn renew(&mut self, factor: f32, promise: &Promise) {
        let owed = match (self.ratio_at(promise.share), self.ratio_at(SHARE)) {
            (Some(owing), Some(even)) if self.ratios.len() >= ENOUGH && even > 0.0 => owing / even,
            _ => 1.0,
        };
        self.factor = (factor * owed).clamp(1.0, FACTOR_CAP);
        if self.own >= ENOUGH {
            self.ratios.clear();
            self.ascending.clear();
        } else {
            self.ratios.iter_mut().for_each(|(_, own)| *own = false);
            self.keep(promise);
        }
        self.own = 0;
    }

    /// Learns from an outcome and the median that is now known for it; both in milliseconds and positive. `own`: it is of those that
    /// count now, not of those that they follow.
    pub(crate) fn observe(&mut self, median_ms: f32, measured_ms: f32, own: bool) {
        let ratio = measured_ms / median_ms;
        // What was under way says nothing new once enough is known.
        if !ratio.is_finite() || (!own && self.own >= ENOUGH) {
            return;
        }
        if self.ratios.len() == RING
            && let Some((oldest, was_own)) = self.ratios.pop_front()
        {
            self.own -= usize::from(was_own);
            self.ascending.remove(self.rank_of(oldest));
        }
        self.ratios.push_back((ratio, own));
        self.ascending.insert(self.rank_of(ratio), ratio);
        self.own += usize::from(own);
        if own && self.own == ENOUGH && self.ratios.len() > ENOUGH {
            self.ratios.retain(|(_, own)| *own);
            self.ascending.clear();
            self.ascending.extend(self.ratios.iter().map(|(ratio, _)| *ratio));
            self.ascending.sort_unstable_by(f32::total_cmp);
        }
    }

    /// Takes up what is owed now, and what was observed since the last time.
    pub(crate) fn keep(&mut self, promise: &Promise) {
        if self.ratios.len() >= ENOUGH
            && let Some(ratio) = self.ratio_at(promise.share)
        {
            self.factor = ratio.clamp(1.0, FACTOR_CAP);
        }
    }

    /// How many of the ring are less than a ratio: where it stands if it is of the ring.
    fn rank_of(&self, ratio: f32) -> usize {
        self.ascending.partition_point(|one| one.total_cmp(&ratio).is_lt())
    }

    /// The ratio that a share of those in the ring is at or below; `None` while there are none.
    fn ratio_at(&self, share: f64) -> Option<f32> {
        let count = self.ascending.len();
        let rank = (((count + 1) as f64 * share).ceil() as usize).min(count);
        let ratio = self.ascending.get(rank.max(1) - 1).copied()?;
        let debt = (BEYOND * (share - 1.0).max(0.0)) as f32;
        let middle = self.ascending.get(count / 2).copied()?;
        Some(ratio + debt * (ratio - middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOW: f64 = 0.01;

    /// The factor of the only evaluator, with what it owes.
    struct Alone(Conformal, Promise);

    impl Alone {
        fn new() -> Self {
            Self(Conformal::new(1.5), Promise::new(FOLLOW))
        }

        fn factor(&self) -> f32 {
            self.0.factor()
        }

        fn observe(&mut self, median_ms: f32, measured_ms: f32) {
            self.0.observe(median_ms, measured_ms, true);
            self.0.keep(&self.1);
        }

        /// Learns from an outcome that was stated by the factor in force.
        fn learn(&mut self, median_ms: f32, measured_ms: f32) {
            self.1.settle(measured_ms / median_ms <= self.factor());
            self.observe(median_ms, measured_ms);
        }
    }

    #[test]
    fn below_thirty_outcomes_the_default_stands() {
        let mut alone = Alone::new();
        for _ in 0..ENOUGH - 1 {
            alone.observe(100.0, 300.0);
        }
        assert_eq!(alone.factor(), 1.5);
        alone.observe(100.0, 300.0);
        assert_eq!(alone.factor(), 3.0);
    }

    #[test]
    fn the_first_factor_is_the_conformal_rank_of_the_ring() {
        let mut alone = Alone::new();
        // 1.01, 1.02 .. 1.30: rank ceil(31 x 0.9) = 28.
        for step in 1..=30_u8 {
            alone.observe(1.0, 1.0 + f32::from(step) / 100.0);
        }
        assert!((alone.factor() - 1.28).abs() < 1e-4, "{}", alone.factor());
    }

    #[test]
    fn a_renewed_factor_has_nothing_of_the_ratios_before() {
        let mut alone = Alone::new();
        (0..200).for_each(|_| alone.learn(100.0, 300.0));
        alone.0.renew(1.1, &Promise::new(FOLLOW));
        assert_eq!(alone.factor(), 1.1);
        (0..ENOUGH).for_each(|_| alone.observe(100.0, 105.0));
        assert!((alone.factor() - 1.05).abs() < 1e-4, "{}", alone.factor());
        alone.0.renew(0.7, &alone.1);
        assert_eq!(alone.factor(), 1.0, "a percentile is not below its median");
    }

    #[test]
    fn medians_that_follow_each_other_before_enough_is_known_share_their_ratios() {
        // Ten outcomes of each median of 1, whose ratios spread by a tenth; the manifests say that nine in ten are below 1.01.
        let mut alone = Alone(Conformal::new(1.5), Promise::new(0.004));
        let mut noise = crate::noise::Noise::new(3);
        let mut covered = 0;
        for outcome in 0..4000 {
            if outcome % 10 == 0 {
                alone.0.renew(1.01, &alone.1);
            }
            let ratio = (0.1 * noise.normal()).exp() as f32;
            covered += u32::from(outcome >= 1000 && ratio <= alone.factor());
            alone.learn(1.0, ratio);
        }
        assert!((2640..2760).contains(&covered), "{covered} of 3000 at or below the percentile");
    }

    #[test]
    fn what_was_under_way_counts_until_enough_is_known() {
        let mut alone = Alone::new();
        (0..ENOUGH).for_each(|_| alone.0.observe(100.0, 300.0, true));
        alone.0.renew(1.1, &Promise::new(FOLLOW));
        (0..ENOUGH).for_each(|_| alone.0.observe(100.0, 200.0, false));
        alone.0.keep(&alone.1);
        assert_eq!(alone.factor(), 2.0, "nothing else is known");
        (0..ENOUGH).for_each(|_| alone.0.observe(100.0, 105.0, true));
        alone.0.observe(100.0, 400.0, false);
        alone.0.keep(&alone.1);
        assert_eq!(alone.factor(), 1.05, "now its own are");
    }

    #[test]
    fn what_is_owed_moves_a_renewed_factor_too() {
        let mut alone = Alone::new();
        (1..=100_u8).for_each(|step| alone.observe(1.0, 1.0 + f32::from(step) / 100.0));
        (0..5).for_each(|_| alone.1.settle(false));
        alone.0.renew(1.1, &alone.1);
        // Five misses raise the share from 0.9 by 5 x 0.01 x 0.9: from the 91st of the ring to the 96th.
        assert!((alone.factor() - 1.1 * 1.96 / 1.91).abs() < 1e-4, "{}", alone.factor());
    }

    #[test]
    fn what_no_ratio_covers_raises_the_factor_beyond_the_largest() {
        let mut alone = Alone::new();
        (1..=100_u8).for_each(|step| alone.observe(1.0, 1.0 + f32::from(step) / 100.0));
        (0..20).for_each(|_| alone.1.settle(false));
        alone.0.keep(&alone.1);
        // A share of 0.9 + 20 x 0.009 = 1.08: 2 x 0.08 of the way from the middle, 1.51, to 2 is added to 2.
        assert!((alone.factor() - (2.0 + 0.16 * 0.49)).abs() < 1e-4, "{}", alone.factor());
        (0..80).for_each(|_| alone.1.settle(true));
        alone.0.keep(&alone.1);
        assert!((alone.factor() - 2.0).abs() < 0.02, "it is paid back: {}", alone.factor());
    }

    #[test]
    fn a_step_is_followed_within_a_few_dozen_outcomes() {
        let mut alone = Alone::new();
        let mut noise = crate::noise::Noise::new(9);
        let mut missed = |level: f64, count: u32| {
            let mut missed = 0;
            for _ in 0..count {
                let ratio = (level * (0.05 * noise.normal()).exp()) as f32;
                missed += u32::from(ratio > alone.factor());
                alone.learn(1.0, ratio);
            }
            missed
        };
        missed(1.0, 2000);
        let after = missed(1.4, 1000);
        assert!((90..140).contains(&after), "{after} of 1000 above the percentile");
    }

    #[test]
    fn a_median_that_is_always_too_high_does_not_invert_the_quantiles() {
        let mut alone = Alone::new();
        for _ in 0..64 {
            alone.learn(100.0, 10.0);
        }
        assert_eq!(alone.factor(), 1.0);
    }

    /// Share of 20,000 outcomes at or below what was stated for them, when each is known 150 outcomes
    /// later and resembles those of the same time.
    fn covered_late(feedback: fn(stated: f32, in_force: f32) -> f32) -> f64 {
        const IN_FLIGHT: usize = 150;
        let mut alone = Alone(Conformal::new(1.5), Promise::new(0.004));
        let mut noise = crate::noise::Noise::new(5);
        let (mut flights, mut common, mut covered) = (VecDeque::new(), 0.0, 0);
        for _ in 0..20_000 {
            common = 0.98 * common + 0.2 * noise.normal();
            let ratio = (0.05 * common + 0.05 * noise.normal()).exp() as f32;
            covered += u32::from(ratio <= alone.factor());
            flights.push_back((ratio, alone.factor()));
            if flights.len() > IN_FLIGHT
                && let Some((ratio, stated)) = flights.pop_front()
            {
                alone.1.settle(ratio <= feedback(stated, alone.factor()));
                alone.observe(1.0, ratio);
            }
        }
        f64::from(covered) / 20_000.0
    }

    #[test]
    fn late_outcomes_that_move_together_are_covered_because_what_was_stated_is_what_counts() {
        let stated = covered_late(|stated, _| stated);
        assert!((0.885..=0.915).contains(&stated), "{stated}");
        let in_force = covered_late(|_, in_force| in_force);
        assert!(in_force < 0.88, "{in_force}: the other feedback would do as well");
    }
}
