//! Classes of requests, and what they are promised.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::{Band, Slo};

/// A class of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Its name.
    pub name: String,
    /// Share of the requests that are of it, before shares are scaled to sum to 1.
    #[serde(default = "one")]
    pub share: f64,
    /// Priority band; below zero is sheddable.
    #[serde(default)]
    pub band: i8,
    /// Objective for the time from arrival to the first token.
    #[serde(default)]
    pub ttft_ms: Option<f64>,
    /// What a token of the prompt adds to it: no objective that is the same for all holds for prompts of any length.
    #[serde(default)]
    pub ttft_ms_per_input_token: f64,
    /// Objective for the mean time per token after the first.
    #[serde(default)]
    pub tpot_ms: Option<f64>,
}

fn one() -> f64 {
    1.0
}

impl Objective {
    /// The objectives of a request of so many prompt tokens.
    pub fn slo(&self, input_tokens: u32) -> Slo {
        let duration = |ms: f64| Duration::try_from_secs_f64(ms / 1000.0).ok();
        let extra_ms = self.ttft_ms_per_input_token * f64::from(input_tokens);
        Slo {
            ttft: self.ttft_ms.and_then(|ms| duration(ms + extra_ms)),
            tpot: self.tpot_ms.and_then(duration),
        }
    }

    /// Its band.
    pub const fn band(&self) -> Band {
        Band(self.band)
    }
}

/// All classes of a load. There is at least one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objectives {
    /// The classes; a request names one by its place.
    pub classes: Vec<Objective>,
}

impl Default for Objectives {
    /// TTFT 2 s and TPOT 50 ms for everybody.
    fn default() -> Self {
        Self { classes: vec![objective("interactive", 1.0, 1, Some((2000.0, 50.0)))] }
    }
}

impl Objectives {
    /// 70 % at 1 s and 40 ms, the rest a batch that is sheddable at 30 s and 100 ms.
    pub fn two_classes() -> Self {
        Self {
            classes: vec![
                objective("interactive", 0.7, 1, Some((1000.0, 40.0))),
                objective("batch", 0.3, -1, Some((30_000.0, 100.0))),
            ],
        }
    }

    /// The demo's classes in the demo's shares.
    pub fn three_classes() -> Self {
        Self {
            classes: vec![
                objective("interactive", 0.5, 1, Some((2000.0, 50.0))),
                objective("standard", 0.2, 0, Some((4000.0, 100.0))),
                objective("batch", 0.3, -1, Some((30_000.0, 100.0))),
            ],
        }
    }

    /// Nobody is promised anything.
    pub fn none() -> Self {
        Self { classes: vec![objective("all", 1.0, 0, None)] }
    }

    /// The tightest pace that a class is promised, or that of the default: what the capacity of a pool is counted at.
    pub fn tightest_tpot_ms(&self) -> f64 {
        let tightest = self.classes.iter().filter_map(|class| class.tpot_ms).reduce(f64::min);
        tightest.unwrap_or(50.0)
    }

    /// The class of a name.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name == name)
    }

    /// The class in whose part of 0 to 1 a draw lies.
    pub fn by_share(&self, draw: f64) -> usize {
        let total: f64 = self.classes.iter().map(|class| class.share).sum();
        let mut left = draw * total;
        for (place, class) in self.classes.iter().enumerate() {
            left -= class.share;
            if left < 0.0 {
                return place;
            }
        }
        self.classes.len().saturating_sub(1)
    }
}

fn objective(name: &str, share: f64, band: i8, ms: Option<(f64, f64)>) -> Objective {
    Objective {
        name: name.to_owned(),
        share,
        band,
        ttft_ms: ms.map(|(ttft_ms, _)| ttft_ms),
        ttft_ms_per_input_token: 0.0,
        tpot_ms: ms.map(|(_, tpot_ms)| tpot_ms),
    }
}
