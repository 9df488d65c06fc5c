//! Which of the RFC's result lines hold: relations between policies, over paired seeds.

use serde::Serialize;

use crate::study::half_width;

/// Waits that differ by less than this share of the mean latency are alike: nobody would notice.
const ALIKE: f64 = 0.01;

/// A ratio of two means over the same seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio of the means.
    pub value: f64,
    /// Half width of its 95 % interval.
    pub ci: f64,
}

impl Ratio {
    /// Of values that belong together by their places; `None` when those below are all zero or there are fewer than two.
    ///
    /// The interval is that of the paired differences `these - ratio * those`, which is that of the ratio to first order.
    pub fn of(these: &[f64], those: &[f64]) -> Option<Self> {
        let below = mean(those);
        if below <= 0.0 {
            return None;
        }
        let value = mean(these) / below;
        let pairs = these.iter().zip(those);
        let left: Vec<f64> = pairs.map(|(this, that)| (this - value * that) / below).collect();
        Some(Self { value, ci: half_width(&left)? })
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// What the RFC says of two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The first has less.
    Less,
    /// Both have the same.
    Same,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not.
    Not,
    /// The seeds cannot tell.
    Open,
    /// Neither policy has any: there is nothing to compare.
    Nothing,
}

/// One relation, as it came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The RFC's result line: 1 to 3 for waits, 4 for violations.
    pub line: usize,
    /// Where.
    pub set_up: String,
    /// Which policy has less, or the same.
    pub these: String,
    /// Than which.
    pub those: String,
    /// What the RFC says.
    pub says: Relation,
    /// Mean of the first: seconds, or a share of the requests.
    pub these_mean: f64,
    /// Mean of the second.
    pub those_mean: f64,
    /// The first over the second.
    pub ratio: Option<Ratio>,
    /// Whether it is so.
    pub verdict: Verdict,
}

/// Named values by seed.
pub(super) type Named<'a> = (&'a str, &'a [f64]);

impl Check {
    /// `unit` is what differences are small against.
    pub(super) fn of(
        line: usize,
        set_up: &str,
        (these, some): Named<'_>,
        (those, others): Named<'_>,
        says: Relation,
        unit: f64,
    ) -> Self {
        let (these_mean, those_mean, ratio) = (mean(some), mean(others), Ratio::of(some, others));
        let alike = (these_mean - those_mean).abs() <= ALIKE * unit;
        let verdict = match (says, ratio) {
            (_, None) if these_mean <= 0.0 => Verdict::Nothing,
            (Relation::Same, _) if alike => Verdict::Holds,
            (_, None) => Verdict::Not,
            (Relation::Less, Some(Ratio { value, ci })) if value + ci < 1.0 => Verdict::Holds,
            (Relation::Less, Some(Ratio { value, ci })) if value - ci > 1.0 => Verdict::Not,
            (Relation::Less, Some(_)) => Verdict::Open,
            (Relation::Same, Some(Ratio { value, ci })) if (value - 1.0).abs() > ci => Verdict::Not,
            (Relation::Same, Some(_)) => Verdict::Holds,
        };
        Self {
            line,
            set_up: set_up.to_owned(),
            these: these.to_owned(),
            those: those.to_owned(),
            says,
            these_mean,
            those_mean,
            ratio,
            verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(these: &[f64], those: &[f64], says: Relation) -> Verdict {
        Check::of(1, "here", ("a", these), ("b", those), says, 10.0).verdict
    }

    #[test]
    fn a_ratio_is_that_of_the_means_and_paired() {
        // Half in every pair, although the pairs differ by far.
        let ratio = Ratio::of(&[1.0, 50.0, 3.0], &[2.0, 100.0, 6.0]).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12 && ratio.ci < 1e-12, "{ratio:?}");
        // Residuals 1, 0, -1 over a mean of 10: standard deviation .1, of three.
        let ratio = Ratio::of(&[11.0, 10.0, 9.0], &[10.0, 10.0, 10.0]).unwrap();
        assert!((ratio.ci - 4.303 * 0.1 / 3_f64.sqrt()).abs() < 1e-9, "{ratio:?}");
        assert_eq!(Ratio::of(&[1.0, 2.0], &[0.0, 0.0]), None);
    }

    #[test]
    fn less_is_less_beyond_the_interval() {
        let two = [2.0, 2.0, 2.0];
        assert_eq!(check(&[1.0, 1.1, 0.9], &two, Relation::Less), Verdict::Holds);
        assert_eq!(check(&[1.0, 3.0, 1.9], &two, Relation::Less), Verdict::Open);
        assert_eq!(check(&[3.0, 3.1, 2.9], &two, Relation::Less), Verdict::Not);
        assert_eq!(check(&[0.0, 0.0], &[0.0, 0.0], Relation::Less), Verdict::Nothing);
        assert_eq!(check(&[0.1, 0.0], &[0.0, 0.0], Relation::Less), Verdict::Not);
    }

    #[test]
    fn the_same_is_within_the_interval_or_too_little_to_notice() {
        let two = [2.0, 2.0, 2.0];
        assert_eq!(check(&[1.0, 3.0, 1.9], &two, Relation::Same), Verdict::Holds);
        assert_eq!(check(&[1.0, 1.1, 0.9], &two, Relation::Same), Verdict::Not);
        // Half as much, but of a wait that is a hundredth of the latency.
        assert_eq!(check(&[0.05, 0.05], &[0.1, 0.1], Relation::Same), Verdict::Holds);
    }

    #[test]
    fn a_wait_that_nobody_would_notice_is_the_same_as_none() {
        let none = [0.0, 0.0];
        assert_eq!(check(&[0.001, 0.001], &none, Relation::Same), Verdict::Holds);
        assert_eq!(check(&none, &[0.001, 0.001], Relation::Same), Verdict::Holds);
        assert_eq!(check(&[0.2, 0.2], &none, Relation::Same), Verdict::Not);
        assert_eq!(check(&none, &none, Relation::Same), Verdict::Nothing);
    }
}
