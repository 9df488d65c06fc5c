//! Requests that share nothing with each other, of one or more patterns.
//!
//! - The patterns of AIBrix's RFC "Load-aware pattern-based routing policy with profile support": rate, latency and latency
//!   objective of each. The RFC's queues know no tokens; here a pattern is a prompt and an answer, of which the RFC itself names
//!   256/16 (0.5 s) and 4096/32 (5 s).
//! - ShareGPT-like: lognormal lengths inside the bounds of vLLM's benchmark (at least 4 tokens each, prompts of at most 1024,
//!   2048 together) with the means that it counts on that data set.

use std::sync::OnceLock;

use anyhow::Result;
use rand::{Rng, rngs::SmallRng};

use super::{
    Means, Objective, Objectives, Source, arrivals, draft::Draft, draw::stream, length::Length,
    means::Count,
};
use crate::sim::SimRequest;

/// Requests over which the means are counted.
const SAMPLE: usize = 20_000;

/// A pattern of the RFC.
struct RfcPattern {
    name: &'static str,
    rate_rps: f64,
    latency_s: f64,
    slo_s: f64,
    input_tokens: u32,
    output_tokens: u32,
}

/// "Ideal bi-patterns", with the token counts of the RFC's examples of these latencies.
const BI: [RfcPattern; 2] =
    [rfc("short", 4.0, (0.5, 2.0), (256, 16)), rfc("long", 4.0, (5.0, 20.0), (4096, 32))];

/// "Multi-patterns from a real workload log": no token counts are given, so prompts of 512 tokens, and answers that take the
/// latency at 40 ms per token.
const MULTI: [RfcPattern; 4] = [
    rfc("p1", 0.642, (6.7, 20.0), (512, 168)),
    rfc("p2", 4.2, (1.4, 5.0), (512, 35)),
    rfc("p3", 0.535, (7.3, 20.0), (512, 183)),
    rfc("p4", 2.622, (8.3, 20.0), (512, 208)),
];

const fn rfc(
    name: &'static str,
    rate_rps: f64,
    (latency_s, slo_s): (f64, f64),
    (input_tokens, output_tokens): (u32, u32),
) -> RfcPattern {
    RfcPattern { name, rate_rps, latency_s, slo_s, input_tokens, output_tokens }
}

/// A part of a mixture.
#[derive(Debug)]
struct Part {
    class: Option<&'static str>,
    weight: f64,
    input: Length,
    output: Length,
}

/// The source.
#[derive(Debug)]
pub struct Mixture {
    name: String,
    parts: Vec<Part>,
    /// Prompt and answer together are no longer; longer ones are drawn again.
    most_tokens: u32,
    /// Seed of the sample for the means.
    seed: u64,
    means: OnceLock<Means>,
}

impl Mixture {
    /// Two patterns at equal rates, one ten times as slow as the other.
    pub fn bi_pattern(seed: u64) -> Self {
        Self::of_patterns("bi-pattern", &BI, seed)
    }

    /// Four patterns of a real log.
    pub fn multi_pattern(seed: u64) -> Self {
        Self::of_patterns("multi-pattern", &MULTI, seed)
    }

    /// Short chat requests with a wide spread.
    pub fn sharegpt(seed: u64) -> Self {
        let part = Part {
            class: None,
            weight: 1.0,
            input: Length::LogNormal { median: 184.0, sigma: 1.6, least: 4, most: 1024 },
            output: Length::LogNormal { median: 113.0, sigma: 1.2, least: 4, most: 2044 },
        };
        Self::new("sharegpt", vec![part], 2048, seed)
    }

    fn of_patterns(name: &str, patterns: &[RfcPattern], seed: u64) -> Self {
        let part = |pattern: &RfcPattern| Part {
            class: Some(pattern.name),
            weight: pattern.rate_rps,
            input: Length::Fixed(pattern.input_tokens),
            output: Length::Fixed(pattern.output_tokens),
        };
        Self::new(name, patterns.iter().map(part).collect(), u32::MAX, seed)
    }

    fn new(name: &str, parts: Vec<Part>, most_tokens: u32, seed: u64) -> Self {
        Self { name: name.to_owned(), parts, most_tokens, seed, means: OnceLock::new() }
    }

    fn draft(&self, at_s: f64, rng: &mut SmallRng) -> Draft<'static> {
        let total: f64 = self.parts.iter().map(|part| part.weight).sum();
        let mut left = rng.random::<f64>() * total;
        let chosen = self.parts.iter().find(|part| {
            left -= part.weight;
            left < 0.0
        });
        let Some(part) = chosen.or(self.parts.last()) else { return Draft::default() };
        let (input_tokens, output_tokens) = self.lengths(part, rng);
        Draft { at_s, input_tokens, output_tokens, class: part.class, ..Draft::default() }
    }

    fn lengths(&self, part: &Part, rng: &mut SmallRng) -> (u32, u32) {
        let mut drawn = (part.input.draw(rng), part.output.draw(rng));
        // Bounded, as every redraw is: a pair that never fits is cut below.
        for _ in 0..100 {
            if drawn.0.saturating_add(drawn.1) <= self.most_tokens {
                return drawn;
            }
            drawn = (part.input.draw(rng), part.output.draw(rng));
        }
        (drawn.0.min(self.most_tokens / 2), drawn.1.min(self.most_tokens / 2))
    }
}

impl Source for Mixture {
    fn name(&self) -> &str {
        &self.name
    }

    fn means(&self) -> Means {
        *self.means.get_or_init(|| {
            let mut rng = stream(self.seed, "lengths");
            let mut count = Count::default();
            (0..SAMPLE).for_each(|_| count.draft(&self.draft(0.0, &mut rng)));
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
        let (mut lengths, mut classes) = (stream(seed, "lengths"), stream(seed, "classes"));
        let calls = arrivals::steady(rate_rps, count, seed)?;
        let one = |(place, call): (usize, &arrivals::Call)| {
            self.draft(call.at_s, &mut lengths).request(place, objectives, &mut classes)
        };
        Ok(calls.iter().enumerate().map(one).collect())
    }
}

impl Objectives {
    /// What the RFC asks of its two patterns.
    pub fn bi_pattern() -> Self {
        of_patterns(&BI)
    }

    /// What the RFC asks of its four patterns.
    pub fn multi_pattern() -> Self {
        of_patterns(&MULTI)
    }
}

/// The RFC's objective is for wait and latency together; a request that starts in time for its latency and keeps its pace meets
/// it.
fn of_patterns(patterns: &[RfcPattern]) -> Objectives {
    let class = |pattern: &RfcPattern| Objective {
        name: pattern.name.to_owned(),
        share: pattern.rate_rps,
        band: 0,
        ttft_ms: Some((pattern.slo_s - pattern.latency_s) * 1000.0),
        ttft_ms_per_input_token: 0.0,
        tpot_ms: Some(pattern.latency_s * 1000.0 / f64::from(pattern.output_tokens)),
    };
    Objectives { classes: patterns.iter().map(class).collect() }
}
