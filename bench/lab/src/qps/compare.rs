//! Ratios between policies, and whether what was published holds.

use super::{
    measure::{Compared, Measured, Step},
    published::Says,
    set_up::Asks,
};

/// Ratios nearer to one than this are no difference.
const EVEN: f64 = 0.02;
/// Those that are called comparable may differ by this.
const COMPARABLE: f64 = 0.05;

/// A ratio over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ratio {
    /// Of the seeds together: the geometric mean.
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Ratio {
    fn of(each: &[f64]) -> Option<Self> {
        let fold = |with: fn(f64, f64) -> f64| each.iter().copied().reduce(with);
        let value = geometric(each.iter().copied())?;
        Some(Self { value, least: fold(f64::min)?, most: fold(f64::max)? })
    }
}

/// The geometric mean; `None` of nothing.
fn geometric(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) =
        values.fold((0.0, 0.0), |(sum, count), value| (sum + value.ln(), count + 1.0));
    (count > 0.0).then(|| f64::exp(sum / count))
}

/// A policy's time per output token over another's: over the rates the geometric mean.
pub(super) fn ntpot(own: &Measured, other: &Measured) -> Option<Ratio> {
    let each = own.seeds.iter().zip(&other.seeds).filter_map(|(own, other)| {
        geometric(own.iter().zip(other).map(|(own, other)| own.ntpot_ms / other.ntpot_ms))
    });
    Ratio::of(&each.collect::<Vec<_>>())
}

/// A policy's highest tokens per second over another's.
pub(super) fn throughput(own: &Measured, other: &Measured) -> Option<Ratio> {
    let peak = |steps: &Vec<Step>| steps.iter().map(|step| step.tokens_per_s).fold(0.0, f64::max);
    let each = own.seeds.iter().zip(&other.seeds).map(|(own, other)| peak(own) / peak(other));
    Ratio::of(&each.collect::<Vec<_>>())
}

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    /// It is neither better nor worse.
    Even,
    Fails,
}

/// Whether a ratio of times per token is as it was said.
pub(super) fn judge(says: Says, ratio: Ratio) -> Verdict {
    match says {
        Says::Better if ratio.value < 1.0 - EVEN => Verdict::Holds,
        Says::Better if ratio.value <= 1.0 + EVEN => Verdict::Even,
        Says::Alike if (ratio.value - 1.0).abs() <= COMPARABLE => Verdict::Holds,
        Says::Better | Says::Alike => Verdict::Fails,
    }
}

impl Compared {
    /// What a policy showed.
    pub(super) fn of(&self, policy: &str) -> Option<&Measured> {
        self.measured.iter().find(|one| one.policy == policy)
    }

    /// The claims about predicted latency with the ratios here.
    pub(super) fn judged(&self) -> Vec<(&'static str, Says, Ratio, Verdict)> {
        let Asks::Ladder(claims) = self.set_up.asks else { return Vec::new() };
        let one = |claim: &super::published::Claim| {
            let ratio = ntpot(self.of("predicted-latency")?, self.of(claim.over)?)?;
            Some((claim.over, claim.says, ratio, judge(claim.says, ratio)))
        };
        claims.iter().filter_map(one).collect()
    }
}
