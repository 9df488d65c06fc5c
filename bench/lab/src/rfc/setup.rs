//! What the RFC gives of its queue simulator: patterns, and consumers that serve them; and what it does not, read as it can be.
//!
//! Given are an arrival rate, a latency, a consumer's throughput and an objective for each pattern. Not given are how many
//! consumers there are, the law of the arrivals and the length of a run. Arrivals are taken as Poisson here. The consumers cannot
//! be one or two, as "single GPU" and "bi-GPU" might be read: the patterns offer 4.976 consumers' worth of work, and on a single
//! consumer packing and spreading are the same, which the RFC tells apart. So these are read as kinds of GPUs, and
//! the numbers of consumers are tried from the fewest that hold the load on.

use anyhow::{Context, Result};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::Exp1;
use serde::Serialize;
use serde_json::json;
use weir_core::Profiles;
use weir_schema::profile::{Percentile, Profile};

/// Requests that cost alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pattern {
    /// Requests per second.
    pub rate_rps: f64,
    /// Seconds that a plain consumer takes for one.
    pub latency_s: f64,
    /// Requests per second that such a consumer serves at most.
    pub throughput_rps: f64,
    /// Seconds from arrival to the end that are promised.
    pub slo_s: f64,
}

const fn pattern(rate_rps: f64, latency_s: f64, throughput_rps: f64, slo_s: f64) -> Pattern {
    Pattern { rate_rps, latency_s, throughput_rps, slo_s }
}

/// "Ideal bi-patterns".
pub const BI: [Pattern; 2] = [pattern(4.0, 0.5, 4.1, 2.0), pattern(4.0, 5.0, 1.0, 20.0)];

/// "Multi-patterns from a real workload log"; the RFC's "3,774" is read as 3.774.
pub const MULTI: [Pattern; 4] = [
    pattern(0.642, 6.7, 3.774, 20.0),
    pattern(4.2, 1.4, 8.089, 5.0),
    pattern(0.535, 7.3, 1.969, 20.0),
    pattern(2.622, 8.3, 0.999, 20.0),
];

/// What a consumer is, beside one that the patterns are given for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Kind {
    /// How many times as fast: it serves a request in so much less time.
    pub speed: f64,
    /// How many times as large: it serves so many more at once, each in the same time.
    pub size: f64,
}

impl Kind {
    /// The one that the patterns are given for.
    pub const PLAIN: Self = Self { speed: 1.0, size: 1.0 };

    /// One that is so many times as fast.
    pub const fn fast(speed: f64) -> Self {
        Self { speed, ..Self::PLAIN }
    }

    /// One that is so many times as large.
    pub const fn large(size: f64) -> Self {
        Self { size, ..Self::PLAIN }
    }
}

/// Patterns, and consumers that serve them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SetUp {
    /// Its name, for tables.
    pub name: String,
    /// Which of the RFC's result lines for waits it belongs to: 1 to 3.
    pub line: usize,
    /// What comes.
    pub patterns: Vec<Pattern>,
    /// The consumers; those of a kind stand together, the better kind first.
    pub consumers: Vec<Kind>,
}

impl SetUp {
    /// Work that comes, as a share of what the consumers can do.
    pub fn offered(&self) -> f64 {
        let work: f64 = self.patterns.iter().map(|one| one.rate_rps / one.throughput_rps).sum();
        work / self.consumers.iter().map(|one| one.speed * one.size).sum::<f64>()
    }

    /// Requests that come in a second, of all patterns.
    pub fn rate_rps(&self) -> f64 {
        self.patterns.iter().map(|one| one.rate_rps).sum()
    }

    /// Mean latency of what comes, on a plain consumer.
    pub fn mean_latency_s(&self) -> f64 {
        let work: f64 = self.patterns.iter().map(|one| one.rate_rps * one.latency_s).sum();
        work / self.rate_rps()
    }

    /// The kinds of consumers; a consumer's class is the place of its kind here.
    pub fn kinds(&self) -> Vec<Kind> {
        let mut kinds = self.consumers.clone();
        kinds.dedup();
        kinds
    }

    /// The class of each consumer.
    pub fn classes(&self) -> Vec<u16> {
        let kinds = self.kinds();
        let class = |one: &Kind| kinds.iter().position(|kind| kind == one).unwrap_or_default();
        self.consumers.iter().map(|one| class(one) as u16).collect()
    }

    /// Prompt tokens that stand for a pattern: a token for each millisecond of its latency.
    pub fn tokens(pattern: &Pattern) -> u32 {
        (pattern.latency_s * 1000.0).round() as u32
    }

    /// The patterns as a profile of each kind of consumer, as AIBrix writes them: a faster one serves more per
    /// second, each in less time and so as many at once; a larger one serves more at once.
    ///
    /// # Errors
    /// When a pattern is not one that a profile can have.
    pub fn profiles(&self) -> Result<Profiles> {
        let mut patterns = self.patterns.clone();
        patterns.sort_by(|one, other| one.latency_s.total_cmp(&other.latency_s));
        let inputs: Vec<u32> = patterns.iter().map(Self::tokens).collect();
        let mut profiles = Profiles::default();
        for (class, Kind { speed, size }) in (0..).zip(self.kinds()) {
            let rate = |one: &Pattern| one.throughput_rps * speed * size;
            let rates: Vec<f64> = patterns.iter().map(rate).collect();
            let ends: Vec<f64> = patterns.iter().map(|one| one.latency_s / speed).collect();
            let file = json!({
                "gpu": format!("speed {speed}, size {size}"),
                "cost": 1.0,
                "created": 0.0,
                "indexes": [[1], inputs],
                "tputs": [rates],
                "e2e": [ends],
            });
            let mut profile = Profile::default();
            profile.add(&file.to_string(), Percentile::P50)?;
            profiles.insert(class, profile.patterns.context("a profile without patterns")?);
        }
        Ok(profiles)
    }

    /// What comes in so many seconds, in the order of time.
    pub fn arrivals(&self, horizon_s: f64, seed: u64) -> Vec<Arrival> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut arrivals = Vec::new();
        for (pattern, of) in self.patterns.iter().enumerate() {
            let mut at_s = 0.0;
            loop {
                let gap: f64 = rng.sample(Exp1);
                at_s += gap / of.rate_rps;
                if at_s >= horizon_s {
                    break;
                }
                arrivals.push(Arrival { at_s, pattern });
            }
        }
        arrivals.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        arrivals
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When it comes.
    pub at_s: f64,
    /// Its pattern, by its place.
    pub pattern: usize,
}

/// The RFC's set-ups, as they can be read.
pub fn set_ups() -> Vec<SetUp> {
    let alike = |name: &str, line, patterns: &[Pattern], count: usize| SetUp {
        name: format!("{name}, {count} alike"),
        line,
        patterns: patterns.to_vec(),
        consumers: vec![Kind::PLAIN; count],
    };
    let two = |name: &str, consumers: [(usize, Kind); 2]| SetUp {
        name: format!("bi-pattern, {name}"),
        line: 2,
        patterns: BI.to_vec(),
        consumers: consumers.map(|(count, kind)| vec![kind; count]).concat(),
    };
    let single = [5, 6, 7, 8].map(|count| alike("bi-pattern", 1, &BI, count));
    let both = [
        two("3 twice as large and 2", [(3, Kind::large(2.0)), (2, Kind::PLAIN)]),
        two("3 twice as fast and 2", [(3, Kind::fast(2.0)), (2, Kind::PLAIN)]),
        two("2 twice as fast and 2", [(2, Kind::fast(2.0)), (2, Kind::PLAIN)]),
        two("4 and 4 half as large", [(4, Kind::PLAIN), (4, Kind::large(0.5))]),
        two("4 and 4 half as fast", [(4, Kind::PLAIN), (4, Kind::fast(0.5))]),
    ];
    let multi = [4, 5, 6].map(|count| alike("multi-pattern", 3, &MULTI, count));
    single.into_iter().chain(both).chain(multi).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_offer_what_the_rfc_says() {
        let offered = |patterns: &[Pattern]| -> f64 {
            patterns.iter().map(|one| one.rate_rps / one.throughput_rps).sum()
        };
        assert!((offered(&BI) - 4.9756).abs() < 1e-3, "{}", offered(&BI));
        assert!((offered(&MULTI) - 3.5857).abs() < 1e-3, "{}", offered(&MULTI));
        assert!(set_ups().iter().all(|set_up| set_up.offered() < 1.0));
        assert!((set_ups()[0].mean_latency_s() - 2.75).abs() < 1e-9);
    }

    #[test]
    fn a_profile_says_of_a_pattern_what_was_written_into_it() {
        for set_up in set_ups() {
            let profiles = set_up.profiles().unwrap();
            for (class, Kind { speed, size }) in (0..).zip(set_up.kinds()) {
                for one in &set_up.patterns {
                    let cost = profiles.cost(class, SetUp::tokens(one), 1).unwrap().unwrap();
                    let load = (one.throughput_rps * one.latency_s * size).recip();
                    assert!((cost.load - load).abs() < 1e-9, "{cost:?}");
                    assert!((cost.cell.e2e_s - one.latency_s / speed).abs() < 1e-9, "{cost:?}");
                }
            }
        }
    }

    #[test]
    fn arrivals_come_at_their_rates_and_in_order() {
        let set_up = &set_ups()[1];
        let arrivals = set_up.arrivals(5000.0, 1);
        assert!(arrivals.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
        let second = arrivals.iter().filter(|one| one.pattern == 1).count() as f64;
        assert!((second / 20_000.0 - 1.0).abs() < 0.03, "{second}");
        assert_eq!(set_up.arrivals(50.0, 2), set_up.arrivals(50.0, 2));
    }
}
