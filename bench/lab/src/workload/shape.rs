//! Any source with a rate that changes over the run: days and nights, a flash crowd, steps.
//!
//! The requests and their order stay those of the source; only their times move, so that the rate over the whole run is the one
//! that was asked for. A shape is relative to the run: a run of any length sees one whole day, or one flash crowd.

use std::{f64::consts::TAU, fmt, str::FromStr, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use weir_core::Time;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Means, Objectives, Source};
use crate::sim::SimRequest;

/// Parts of a day.
const DAY_PARTS: usize = 96;
/// How far the rate of a day goes above and below its mean: at the peak three times the trough.
const AMPLITUDE: f64 = 0.5;
/// Rate of a flash crowd, in rates of the rest of the run.
const CROWD: f64 = 3.0;
/// A flash crowd lasts a tenth of the run, from its middle on.
const CROWD_PARTS: usize = 10;

/// How the rate changes over a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    text: String,
    /// Relative rates of equally long parts of the run.
    parts: Vec<f64>,
}

impl FromStr for Shape {
    type Err = anyhow::Error;

    /// `diurnal[:amplitude]`, `flash[:factor]` or `steps:rate,rate,..`, all rates relative.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let one = |default: f64| if rest.is_empty() { Ok(default) } else { number(rest) };
        let parts = match kind {
            "diurnal" => diurnal(one(AMPLITUDE)?)?,
            "flash" => flash(one(CROWD)?)?,
            "steps" => rest.split(',').map(number).collect::<Result<_>>()?,
            _ => bail!("no shape is called {kind:?}; there are diurnal, flash and steps"),
        };
        let sound = parts.iter().all(|rate: &f64| rate.is_finite() && *rate >= 0.0);
        ensure!(
            sound && parts.iter().sum::<f64>() > 0.0,
            "{text:?} has no rate above zero, or one below"
        );
        Ok(Self { text: text.to_owned(), parts })
    }
}

fn number(text: &str) -> Result<f64> {
    text.trim().parse().with_context(|| format!("{text:?} is no number"))
}

/// A cosine from one trough to the next.
fn diurnal(amplitude: f64) -> Result<Vec<f64>> {
    ensure!((0.0..=1.0).contains(&amplitude), "an amplitude is between 0 and 1, not {amplitude}");
    let rate = |part: usize| 1.0 - amplitude * (TAU * (part as f64 + 0.5) / DAY_PARTS as f64).cos();
    Ok((0..DAY_PARTS).map(rate).collect())
}

fn flash(factor: f64) -> Result<Vec<f64>> {
    ensure!(
        factor.is_finite() && factor > 0.0,
        "a flash crowd's factor is above zero, not {factor}"
    );
    let rate = |part: usize| if part == CROWD_PARTS / 2 { factor } else { 1.0 };
    Ok((0..CROWD_PARTS).map(rate).collect())
}

impl fmt::Display for Shape {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.text)
    }
}

impl Shape {
    /// At which share of the run that share of the requests has come.
    fn time_of(&self, share: f64) -> f64 {
        let total: f64 = self.parts.iter().sum();
        let mut left = share.clamp(0.0, 1.0) * total;
        let count = self.parts.len() as f64;
        for (part, &rate) in self.parts.iter().enumerate() {
            if rate > 0.0 && left <= rate {
                return (part as f64 + left / rate) / count + (share - 1.0).max(0.0);
            }
            left -= rate;
        }
        share.max(1.0)
    }
}

/// A source in a shape.
pub struct Shaped {
    name: String,
    source: Arc<dyn Source>,
    shape: Shape,
}

impl Shaped {
    /// The source, its rate in that shape.
    ///
    /// # Errors
    /// When the source has rates of its own.
    pub fn new(source: Arc<dyn Source>, shape: Shape) -> Result<Self> {
        ensure!(
            source.stages().is_none(),
            "{} has rates of its own and takes no shape",
            source.name()
        );
        Ok(Self { name: format!("{}+{shape}", source.name()), source, shape })
    }
}

impl Source for Shaped {
    fn name(&self) -> &str {
        &self.name
    }

    fn means(&self) -> Means {
        self.source.means()
    }

    fn fingerprint(&self) -> u64 {
        xxh3_64_with_seed(self.shape.text.as_bytes(), self.source.fingerprint())
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let mut requests = self.source.requests(rate_rps, count, objectives, seed)?;
        let run_us = requests.len() as f64 / rate_rps * 1e6;
        for one in &mut requests {
            let share = one.request.arrived.as_micros() as f64 / run_us;
            one.request.arrived = Time::from_micros((self.shape.time_of(share) * run_us) as u64);
        }
        Ok(requests)
    }
}
