//! Targets and how far they were reached: the table that a run of the lab ends in.

use serde::{Deserialize, Serialize};

/// What a run of the whole lab came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// What was run.
    pub command: String,
    /// How long it took.
    pub seconds: f64,
    /// Requests simulated per second of it, over all threads.
    pub requests_per_s: f64,
    /// What a reader must know about how it was run.
    pub notes: Vec<String>,
    /// Every row of the table of targets.
    pub targets: Vec<Target>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// A name that stays.
    pub id: String,
    /// What is measured, under which conditions.
    pub what: String,
    /// Where it stood before the lab, as it was said then.
    pub start: Option<String>,
    /// The bound that is to be kept.
    pub target: f64,
    /// On which side of it.
    pub keep: Keep,
    /// What the bound is about.
    pub judged: Judged,
    /// What Weir reached, in the unit of `what`; `None` when it was not run.
    pub measured: Option<f64>,
    /// What the best rival reached.
    pub rival: Option<f64>,
    /// Who that is.
    pub best_rival: Option<String>,
    /// What no scheduler exceeds in the same place, where a bound is known.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Share of the requests of lower classes that Weir has in time there, of a highest load where there are such classes.
    #[serde(default)]
    pub lower_in_time: Option<f64>,
    /// The same of the rival, at the load that it holds itself.
    #[serde(default)]
    pub rival_lower_in_time: Option<f64>,
    /// Weir over the rival.
    pub ratio: Option<f64>,
    /// Half width of the 95 % interval, over seeds, of what the bound is about.
    pub interval: Option<f64>,
    /// Whether the bound was kept; `None` when it was not run.
    pub passed: Option<bool>,
    /// Seeds.
    pub seeds: usize,
    /// Requests per seed.
    pub requests: usize,
    /// What repeats it.
    pub command: String,
    /// Why it was not run, or what else is to be said.
    pub note: Option<String>,
}

/// On which side of its bound a target is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// At least so much.
    #[default]
    AtLeast,
    /// At most so much.
    AtMost,
}

/// What a bound is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// Weir over the best rival.
    #[default]
    Ratio,
    /// What Weir reached.
    Measured,
}

impl Target {
    /// What the bound is about, where it was run.
    pub fn value(&self) -> Option<f64> {
        match self.judged {
            Judged::Ratio => self.ratio,
            Judged::Measured => self.measured,
        }
    }

    /// The ratio that no scheduler exceeds: the limit over the rival.
    pub fn most(&self) -> Option<f64> {
        let rival = self.rival.filter(|rival| *rival > 0.0)?;
        Some(self.limit? / rival)
    }

    /// The same with its ratio and its verdict, from what was measured. A rival that reached nothing is beaten by whoever
    /// reached something.
    pub fn judged(mut self) -> Self {
        self.ratio = self.measured.zip(self.rival).and_then(|(measured, rival)| {
            (rival > 0.0 || measured > 0.0).then(|| measured / rival.max(f64::MIN_POSITIVE))
        });
        self.ratio = self.ratio.map(|ratio| ratio.min(1e6));
        self.passed = self.value().map(|value| match self.keep {
            // A figure is kept that rounds to its bound.
            Keep::AtLeast => value >= self.target - 5e-4,
            Keep::AtMost => value <= self.target + 5e-4,
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_kept_on_its_side() {
        let target = |measured, rival, keep| {
            Target { target: 1.35, measured, rival, keep, ..Target::default() }.judged()
        };
        let kept = target(Some(0.83), Some(0.61), Keep::AtLeast);
        assert_eq!((kept.passed, (kept.ratio.unwrap() * 100.0).round()), (Some(true), 136.0));
        assert_eq!(target(Some(0.83), Some(0.61), Keep::AtMost).passed, Some(false));
        assert_eq!(target(None, Some(0.61), Keep::AtLeast).passed, None);
        assert_eq!(target(Some(0.1), Some(0.0), Keep::AtLeast).passed, Some(true));
        assert_eq!(target(Some(0.0), Some(0.0), Keep::AtLeast).passed, None);
    }
}
