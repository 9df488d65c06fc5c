//! The demo's mix as a source: Poisson arrivals, lognormal lengths, a few shared system prompts per class.

use std::sync::OnceLock;

use anyhow::Result;

use super::{
    Means, Objectives, Source, arrivals,
    chain::{self, Chain},
    draft::Draft,
    draw::stream,
    means::Count,
};
use crate::{
    load::{Class, DemoMix, Planned, parse_classes},
    sim::SimRequest,
};

/// Requests over which the means are counted.
const SAMPLE: usize = 20_000;
/// The demo's classes and their shares.
const SHARES: [&str; 3] = ["interactive:0.5", "standard:0.2", "batch:0.3"];

/// The source.
#[derive(Debug)]
pub struct BuiltIn {
    classes: Vec<Class>,
    /// Seed of the sample for the means.
    seed: u64,
    means: OnceLock<Means>,
}

impl BuiltIn {
    /// The demo's classes in the demo's shares.
    ///
    /// # Errors
    /// When a class of the demo has no objectives.
    pub fn new(seed: u64) -> Result<Self> {
        let classes = parse_classes(&SHARES.map(str::to_owned), &[])?;
        Ok(Self { classes, seed, means: OnceLock::new() })
    }

    fn planned(&self, rate_rps: f64, count: usize, seed: u64) -> Result<Vec<Planned>> {
        arrivals::above_zero(rate_rps, count)?;
        // So much longer that hardly ever fewer come than are asked for; the rest is cut off.
        let enough_s = (count as f64 + 6.0 * (count as f64).sqrt() + 20.0) / rate_rps;
        let stretches = vec![(rate_rps, enough_s)];
        let mut planned = DemoMix { stretches, classes: self.classes.clone(), seed }.requests()?;
        planned.truncate(count);
        Ok(planned)
    }

    fn draft(&self, planned: &Planned) -> Draft<'_> {
        let mut text = Chain::default();
        let mut left = planned.input_tokens;
        for segment in &planned.prefix {
            text.append(segment.id, segment.tokens.min(left));
            left -= segment.tokens.min(left);
        }
        // The rest is nobody else's. It has blocks all the same: what is cached of a prompt is told by its share of them.
        text.append(chain::name([planned.at.as_nanos() as u64, 0, 0], self.seed), left);
        Draft {
            at_s: planned.at.as_secs_f64(),
            input_tokens: planned.input_tokens,
            output_tokens: planned.output_tokens,
            class: self.classes.get(planned.class).map(|class| class.name.as_str()),
            blocks: text.blocks(),
            ..Draft::default()
        }
    }
}

impl Source for BuiltIn {
    fn name(&self) -> &str {
        "demo"
    }

    fn means(&self) -> Means {
        *self.means.get_or_init(|| {
            let planned = self.planned(1.0, SAMPLE, self.seed).unwrap_or_default();
            let mut count = Count::default();
            planned.iter().for_each(|planned| count.draft(&self.draft(planned)));
            count.means()
        })
    }

    fn requests(
        &self,
        rate_rps: f64,
        count: usize,
        objectives: &Objectives,
        seed: u64,
    ) -> Result<Vec<SimRequest>> {
        let mut classes = stream(seed, "classes");
        let planned = self.planned(rate_rps, count, seed)?;
        let one = |(place, planned): (usize, &Planned)| {
            self.draft(planned).request(place, objectives, &mut classes)
        };
        Ok(planned.iter().enumerate().map(one).collect())
    }
}
