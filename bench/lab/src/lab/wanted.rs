//! The table of targets: what is wanted of Weir, against whom, and where it stood before.

use super::case::Case;
use crate::report::{Judged, Keep};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wanted {
    /// Name of the case.
    pub(super) case: &'static str,
    /// What is asked.
    pub(super) ask: Ask,
    /// Where it stood before.
    pub(super) start: Option<&'static str>,
    /// The bound.
    pub(super) target: f64,
}

/// What is asked of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ask {
    /// Highest load with this share attained, over the best rival's.
    Load(f64),
    /// The same, TPOT counted only for answers of 16 tokens and more.
    LoadFrom16(f64),
    /// Goodput at 1.3 of capacity over that of the best rival of a kind.
    Goodput(Kind),
    /// Attainment of the largest 5 % of the prompts at 0.7 load, over the best rival's.
    Largest,
    /// Their longest wait for a first token, over that of the push rival with the shortest.
    WorstWait,
    /// Attainment of all that Weir's default leaves to the best of its variants, in points.
    Cost,
    /// Mean end to end at 0.9 load, over that of the best push rival.
    MeanE2e,
    /// Mean TTFT there, over that of the same rival.
    MeanTtft,
    /// Median end to end, over that of `load-prefix-322`.
    MedianE2e,
    /// Median TTFT, over that of `load-prefix-322`.
    MedianTtft,
    /// Highest load with the trained model, over that with exact predictions.
    Trained(f64),
    /// Mean error of the trained model's predictions.
    Error(Predicted),
    /// How far the share of values at or below the stated 90th percentile is from 90 %.
    Coverage(Predicted),
}

/// What is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predicted {
    /// TTFT from dispatch.
    Ttft,
    /// Time per token.
    Tpot,
}

/// What a rival does with a request that no pod has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sends it on.
    Push,
    /// May hold it.
    Pull,
}

/// Load of the goodput rows.
pub(super) const OVERLOAD: f64 = 1.3;
/// Load of the rows about the largest prompts.
pub(super) const LARGE_LOAD: f64 = 0.7;
/// Load of the rows without objectives.
pub(super) const FREE_LOAD: f64 = 0.9;
/// Load of the rows about predictions.
pub(super) const LIVE_LOAD: f64 = 0.8;
/// Name of Weir when it is told without error what the trained model predicts.
pub(super) const EXACT: &str = "weir:exact-predictions";
/// Whom the production ladder is compared with.
pub(super) const LADDER_RIVAL: &str = "load-prefix-322";

/// The rivals that hold requests back; all others push.
pub(super) fn kind(policy: &str) -> Kind {
    let holds =
        ["cap-", "slices", "aibrix-pull", "pattern-pull", "llmd-fc", "flow-control", "llumnix-slo"];
    if holds.iter().any(|name| policy.starts_with(name)) { Kind::Pull } else { Kind::Push }
}

const fn wanted(case: &'static str, ask: Ask, start: Option<&'static str>, target: f64) -> Wanted {
    Wanted { case, ask, start, target }
}

/// All rows.
pub(super) fn table() -> Vec<Wanted> {
    let mut rows = vec![
        wanted("conv-one", Ask::Load(0.99), Some("1.29x"), 1.35),
        wanted("conv-two", Ask::Load(0.99), Some("1.67x"), 1.8),
        wanted("servegen-one", Ask::Load(0.99), Some("3.2x"), 3.5),
        wanted("servegen-one", Ask::LoadFrom16(0.99), Some("1.5x"), 1.6),
        wanted("code-one", Ask::Load(0.99), Some("3.4x"), 3.5),
        wanted("mooncake-8", Ask::Load(0.99), Some("2.35x"), 2.6),
        wanted("conv-one-512", Ask::Load(0.99), Some("1.15x"), 1.25),
        wanted("conv-two-512", Ask::Load(0.99), Some("1.5x"), 1.6),
        wanted("servegen-one-512", Ask::Load(0.99), Some("1.2x"), 1.3),
        wanted("a-one", Ask::Load(0.99), Some("0.98x"), 1.0),
        wanted("a-one", Ask::Load(0.95), Some("1.23x"), 1.1),
        wanted("a-two", Ask::Load(0.99), None, 1.0),
        wanted("a-two", Ask::Load(0.95), None, 1.1),
        wanted("c-one", Ask::Load(0.99), Some("1.01x"), 1.0),
        wanted("c-one", Ask::Load(0.95), Some("1.02x"), 1.1),
        wanted("c-two", Ask::Load(0.99), Some("0.94x"), 1.0),
        wanted("c-two", Ask::Load(0.95), Some("0.99x"), 1.1),
    ];
    for case in [
        "conv-one",
        "conv-two",
        "servegen-one",
        "code-one",
        "mooncake-8",
        "a-one",
        "a-two",
        "c-one",
        "c-two",
    ] {
        rows.push(wanted(case, Ask::Goodput(Kind::Push), Some("3x"), 3.0));
        rows.push(wanted(case, Ask::Goodput(Kind::Pull), None, 2.0));
    }
    rows.extend([
        wanted("mooncake-8", Ask::Largest, Some("attained 0.44"), 1.0),
        wanted("mooncake-8", Ask::WorstWait, Some("4 to 7x push's"), 3.0),
        wanted("mooncake-8", Ask::Cost, None, 2.0),
    ]);
    for case in ["conv-none", "servegen-none", "code-none", "mooncake-none"] {
        rows.push(wanted(case, Ask::MeanE2e, Some("-5 to -39 %"), 0.85));
        rows.push(wanted(case, Ask::MeanTtft, Some("-9 to +12 %"), 1.1));
    }
    rows.extend([
        wanted("ladder", Ask::MedianE2e, None, 0.65),
        wanted("ladder", Ask::MedianTtft, None, 0.25),
        wanted("trained", Ask::Trained(0.99), None, 0.97),
        wanted("live", Ask::Error(Predicted::Ttft), None, 0.05),
        wanted("live", Ask::Error(Predicted::Tpot), None, 0.03),
        wanted("live", Ask::Coverage(Predicted::Ttft), None, 0.02),
        wanted("live", Ask::Coverage(Predicted::Tpot), None, 0.02),
    ]);
    rows
}

impl Wanted {
    /// A name that stays.
    pub(super) fn id(&self) -> String {
        format!("{}/{}", self.case, self.ask.id())
    }

    /// What is measured.
    pub(super) fn what(&self) -> String {
        let title = Case::named(self.case).map_or(self.case, |case| case.title);
        format!("{}: {title}", self.ask.words())
    }
}

impl Predicted {
    const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
        }
    }
}

impl Ask {
    /// Whether rivals are asked too.
    pub(super) const fn is_contest(self) -> bool {
        !matches!(self, Self::Trained(_) | Self::Error(_) | Self::Coverage(_))
    }

    fn id(self) -> String {
        let percent = |share: f64| (share * 100.0).round();
        match self {
            Self::Load(at) => format!("load-at-{}", percent(at)),
            Self::LoadFrom16(at) => format!("load-at-{}-from-16-tokens", percent(at)),
            Self::Goodput(Kind::Push) => "goodput-against-push".to_owned(),
            Self::Goodput(Kind::Pull) => "goodput-against-pull".to_owned(),
            Self::Largest => "largest-attained".to_owned(),
            Self::WorstWait => "largest-worst-wait".to_owned(),
            Self::Cost => "largest-cost".to_owned(),
            Self::MeanE2e => "mean-e2e".to_owned(),
            Self::MeanTtft => "mean-ttft".to_owned(),
            Self::MedianE2e => "median-e2e".to_owned(),
            Self::MedianTtft => "median-ttft".to_owned(),
            Self::Trained(at) => format!("load-at-{}-over-exact", percent(at)),
            Self::Error(of) => format!("error-{}", of.name().to_lowercase()),
            Self::Coverage(of) => format!("coverage-{}", of.name().to_lowercase()),
        }
    }

    fn words(self) -> String {
        let percent = |share: f64| (share * 100.0).round();
        match self {
            Self::Load(at) => format!("highest load at {} %", percent(at)),
            Self::LoadFrom16(at) => {
                format!("highest load at {} %, TPOT counted from 16 tokens on", percent(at))
            }
            Self::Goodput(Kind::Push) => format!("goodput (rps) at load {OVERLOAD} against push"),
            Self::Goodput(Kind::Pull) => format!("goodput (rps) at load {OVERLOAD} against pull"),
            Self::Largest => {
                format!("attainment of the largest 5 % of prompts at load {LARGE_LOAD}")
            }
            Self::WorstWait => {
                format!("longest TTFT of the largest 5 % (ms) at load {LARGE_LOAD} against push")
            }
            Self::Cost => {
                format!("points that the best variant attains more over all at load {LARGE_LOAD}")
            }
            Self::MeanE2e => format!("mean end to end (ms) at load {FREE_LOAD} against push"),
            Self::MeanTtft => format!("mean TTFT (ms) at load {FREE_LOAD} against the same"),
            Self::MedianE2e => format!("median end to end (ms) against {LADDER_RIVAL}"),
            Self::MedianTtft => format!("median TTFT (ms) against {LADDER_RIVAL}"),
            Self::Trained(at) => {
                format!("highest load at {} % over that with exact predictions", percent(at))
            }
            Self::Error(of) => {
                format!("mean error of the predicted {} at load {LIVE_LOAD}", of.name())
            }
            Self::Coverage(of) => {
                format!(
                    "distance of the 90 % coverage of {} from 90 % at load {LIVE_LOAD}",
                    of.name()
                )
            }
        }
    }

    /// On which side of its bound it is kept.
    pub(super) const fn keep(self) -> Keep {
        match self {
            Self::Load(_)
            | Self::LoadFrom16(_)
            | Self::Goodput(_)
            | Self::Largest
            | Self::Trained(_) => Keep::AtLeast,
            _ => Keep::AtMost,
        }
    }

    /// What its bound is about.
    pub(super) const fn judged(self) -> Judged {
        match self {
            Self::Cost | Self::Error(_) | Self::Coverage(_) => Judged::Measured,
            _ => Judged::Ratio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_case_and_a_name_of_its_own() {
        let rows = table();
        for row in &rows {
            assert!(Case::named(row.case).is_some(), "{}", row.case);
            assert_eq!(
                rows.iter().filter(|other| other.id() == row.id()).count(),
                1,
                "{}",
                row.id()
            );
        }
    }

    #[test]
    fn every_rival_is_of_one_kind_or_the_other() {
        use crate::contender::Contender;
        let pull = Contender::rivals().into_iter().filter(|name| kind(name) == Kind::Pull).count();
        assert!(pull > 5 && pull < Contender::rivals().len() - 5);
    }
}
