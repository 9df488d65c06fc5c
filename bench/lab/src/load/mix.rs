//! The built-in workload: Poisson arrivals, lognormal lengths, and a few shared system prompts per class.
//!
//! Lengths are those of short chat traffic: prompts have a median of 700 and a mean of about 1000 tokens, outputs a median
//! of 170 and a mean of about 200. Made, not recorded: good for a demonstration, no evidence about anyone's traffic.

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Exp, LogNormal};

use super::{Class, Planned, plan};
use crate::{
    bounds::MOST_REQUESTS,
    prompt::{Segment, TEMPLATE_TOKENS},
    trace::Arrival,
};

const INPUT: Length = Length { median: 700.0, sigma: 0.87, least: 32, most: 6000 };
const OUTPUT: Length = Length { median: 170.0, sigma: 0.58, least: 16, most: 800 };

/// System prompts that a class's requests choose from.
const SYSTEM_PROMPTS: u64 = 4;
/// Tokens of a system prompt: 16 KV blocks.
const SYSTEM_TOKENS: u32 = 256;
/// Prompts of at least so many tokens carry a system prompt.
const WITH_SYSTEM_TOKENS: u32 = 2 * SYSTEM_TOKENS;

/// The demo's workload over some seconds at one or more rates.
#[derive(Clone, Debug)]
pub struct DemoMix {
    /// Rate in requests per second and duration in seconds of each stretch, one after the other.
    pub stretches: Vec<(f64, f64)>,
    /// The classes and their shares.
    pub classes: Vec<Class>,
    /// Decides every draw.
    pub seed: u64,
}

/// Means of a set of requests, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixMeans {
    /// Prompt tokens.
    pub input_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Share of the prompt tokens that lie in a shared prefix.
    pub shared: f64,
}

impl DemoMix {
    /// The requests.
    ///
    /// # Errors
    /// When a rate is not above zero, a stretch has no end, or there are more requests than memory is taken to hold.
    pub fn requests(&self) -> Result<Vec<Planned>> {
        let mut rng = SmallRng::seed_from_u64(self.seed);
        let (mut rows, mut start_s, mut requests) = (Vec::new(), 0.0, 0.0);
        for &(rate, for_s) in &self.stretches {
            ensure!(rate.is_finite() && rate > 0.0, "a rate must be above zero, not {rate}");
            ensure!(
                for_s.is_finite() && for_s >= 0.0,
                "the seconds of a mix are a number from zero on, not {for_s}"
            );
            requests += rate * for_s;
            ensure!(
                requests <= MOST_REQUESTS as f64,
                "the mix is of {requests:.0} requests, and at most {MOST_REQUESTS} are made: a lower rate, or fewer seconds"
            );
            let gap = Exp::new(rate).context("rate")?;
            let mut at_s: f64 = start_s + gap.sample(&mut rng);
            while at_s < start_s + for_s {
                rows.push(self.row(at_s, &mut rng)?);
                at_s += gap.sample(&mut rng);
            }
            start_s += for_s;
        }
        plan::requests(rows, &self.classes, self.seed)
    }

    fn row(&self, at_s: f64, rng: &mut SmallRng) -> Result<Arrival> {
        let class = plan::by_share(&self.classes, rng.random());
        let input_tokens = INPUT.draw(rng)?;
        let id = class as u64 * SYSTEM_PROMPTS + rng.random_range(0..SYSTEM_PROMPTS);
        let system =
            (input_tokens >= WITH_SYSTEM_TOKENS).then_some(Segment { id, tokens: SYSTEM_TOKENS });
        Ok(Arrival {
            at_s,
            input_tokens,
            output_tokens: OUTPUT.draw(rng)?,
            class: self.classes.get(class).map(|class| class.name.clone()),
            prefix: system.into_iter().collect(),
        })
    }
}

impl MixMeans {
    /// The means of these requests.
    pub fn of(requests: &[Planned]) -> Self {
        let count = requests.len().max(1) as f64;
        let sum = |tokens: fn(&Planned) -> u32| {
            requests.iter().map(|request| f64::from(tokens(request))).sum::<f64>()
        };
        let input = sum(|request| request.input_tokens);
        let shared = sum(|request| {
            let tokens: u32 = request.prefix.iter().map(|segment| segment.tokens).sum();
            tokens.min(request.input_tokens.saturating_sub(TEMPLATE_TOKENS))
        });
        Self {
            input_tokens: input / count,
            output_tokens: sum(|request| request.output_tokens) / count,
            shared: shared / input.max(1.0),
        }
    }
}

/// A lognormal number of tokens, clipped.
struct Length {
    median: f64,
    sigma: f64,
    least: u32,
    most: u32,
}

impl Length {
    fn draw(&self, rng: &mut SmallRng) -> Result<u32> {
        let tokens = LogNormal::new(self.median.ln(), self.sigma).context("length")?.sample(rng);
        Ok((tokens.round() as u32).clamp(self.least, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse_classes;

    fn mix() -> DemoMix {
        let shares = ["interactive:0.5", "standard:0.2", "batch:0.3"].map(str::to_owned);
        let classes = parse_classes(&shares, &[]).unwrap();
        DemoMix { stretches: vec![(100.0, 100.0), (200.0, 100.0)], classes, seed: 1 }
    }

    #[test]
    fn the_means_are_about_a_thousand_in_and_two_hundred_out() {
        let means = MixMeans::of(&mix().requests().unwrap());
        assert!((means.input_tokens - 1000.0).abs() < 50.0, "{means:?}");
        assert!((means.output_tokens - 200.0).abs() < 10.0, "{means:?}");
        assert!((0.1..0.25).contains(&means.shared), "{means:?}");
    }

    #[test]
    fn each_stretch_has_its_own_rate() {
        let requests = mix().requests().unwrap();
        let low = requests.iter().filter(|request| request.at.as_secs() < 100).count() as f64;
        let high = requests.len() as f64 - low;
        assert!((low / 10_000.0 - 1.0).abs() < 0.05 && (high / 20_000.0 - 1.0).abs() < 0.05);
        assert!(requests.windows(2).all(|pair| pair[0].at <= pair[1].at));
    }

    #[test]
    fn a_mix_without_end_is_an_error() {
        for (stretch, said) in [
            ((10.0, f64::INFINITY), "not inf"),
            ((10.0, f64::NAN), "not NaN"),
            ((10.0, -1.0), "not -1"),
            ((1e9, 1e9), "at most 10000000"),
        ] {
            let error = DemoMix { stretches: vec![stretch], ..mix() }.requests().unwrap_err();
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn classes_share_no_system_prompt() {
        let requests = mix().requests().unwrap();
        let ids = |class: usize| {
            let of_class = requests.iter().filter(move |request| request.class == class);
            of_class
                .flat_map(|request| &request.prefix)
                .map(|segment| segment.id)
                .collect::<std::collections::BTreeSet<u64>>()
        };
        assert_eq!(ids(0).len(), SYSTEM_PROMPTS as usize);
        assert!(ids(0).is_disjoint(&ids(1)) && ids(1).is_disjoint(&ids(2)));
    }

    #[test]
    fn the_same_seed_gives_the_same_requests() {
        let times = |mix: DemoMix| {
            mix.requests().unwrap().iter().map(|request| request.at).collect::<Vec<_>>()
        };
        assert_eq!(times(mix()), times(mix()));
        assert_ne!(times(mix()), times(DemoMix { seed: 2, ..mix() }));
    }
}
