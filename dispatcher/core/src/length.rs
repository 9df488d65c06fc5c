//! How long outputs get: what was seen of a tenant and a prompt size, as quantiles.
//!
//! A pool owns one [`LengthHistory`]; the scheduler tells it the output of every request that ended,
//! asks once per arrival how long an output will be, and asks of a running request how much is still
//! to come. Four histories answer, the first that rests on enough: this tenant and input bucket, any
//! tenant and prompts of nearly this size, any tenant and this bucket, everything. Before any of them
//! does, a configured guess does. Prompts that a program makes are of a few sizes, each of which is
//! answered alike; a history of one size rests on fewer requests, and has to rest on more than a bucket's.
//!
//! A history is a histogram whose bins grow by a sixth, so a length, streamed and remaining together,
//! is wrong by less than that, and whose past fades by half every `half_life` observations of its own.
//! Fading costs nothing: instead of all old weights shrinking, each new one is larger than the last.
//! Memory is bounded: at most 1024 tenants have a history of their own; beyond that, those not heard
//! of for longest lose it and share the one of all tenants.

use std::{collections::HashMap, iter, sync::Arc};

use crate::LengthConfig;

/// Tenants with a history of their own, at most.
const MOST_TENANTS: usize = 1024;
/// Longest output told apart; the longest context windows in use.
const LONGEST_TOKENS: u32 = 131_072;
/// A new weight above this scales the whole histogram down, far from where f64 loses small ones.
const LARGEST_WEIGHT: f64 = 1e12;
/// Share of the newest weight below which a scaled weight is forgotten.
const SMALLEST_WEIGHT: f64 = 1e-9;
/// Observations above a length, in weight, from which a history can say what follows that length.
const LEAST_BEYOND: f64 = 0.5;
/// Share of the weight that a history tends to that is always enough: with a short half-life it
/// would otherwise never reach what is asked of it.
const ENOUGH_SHARE: f64 = 0.9;

/// Prompts of one size are longer than those of the size below by this factor.
const SIZE_STEP: f64 = 1.05;
/// Sizes told apart, up to some millions of tokens.
const SIZES: usize = 320;
/// Times as much as a bucket's that the history of a size has to rest on.
const SIZE_ENOUGH: f64 = 5.0;

/// Output lengths of one pool, by tenant and input bucket.
#[derive(Clone, Debug)]
pub struct LengthHistory {
    config: LengthConfig,
    /// Weight a history needs to answer.
    enough: f64,
    /// The same of one of a size.
    size_enough: f64,
    /// Factor from one observation's weight to the next one's.
    growth: f64,
    /// Upper edges of the input buckets, inclusive; one more bucket lies above the last.
    input_edges: Box<[u32]>,
    bins: Box<[Bin]>,
    tenants: Tenants,
    /// Any tenant, by the size of the prompt.
    sizes: Box<[Histogram]>,
    /// Any tenant, by input bucket.
    any_tenant: Box<[Histogram]>,
    all: Histogram,
}

impl LengthHistory {
    /// A history that has seen nothing. `input_edges` are the inclusive upper edges of the input
    /// buckets in tokens, ascending.
    pub fn new(config: LengthConfig, input_edges: &[u32]) -> Self {
        let growth = (1.0 / f64::from(config.half_life.max(1))).exp2();
        let steady_weight = growth / (growth - 1.0);
        let enough = f64::from(config.enough);
        let at_most = ENOUGH_SHARE * steady_weight;
        Self {
            config,
            enough: enough.min(at_most),
            size_enough: (SIZE_ENOUGH * enough).min(at_most),
            growth,
            input_edges: input_edges.into(),
            bins: bins().collect(),
            tenants: Tenants::default(),
            sizes: vec![Histogram::default(); SIZES].into(),
            any_tenant: buckets(input_edges),
            all: Histogram::default(),
        }
    }

    /// Learns that a request of `input_tokens` ended after `output_tokens` per sequence. One that
    /// generated nothing says nothing about lengths and is ignored.
    pub fn observe(&mut self, tenant: Option<&Arc<str>>, input_tokens: u32, output_tokens: u32) {
        if output_tokens == 0 {
            return;
        }
        let bin = first_bin_beyond(&self.bins, output_tokens.min(LONGEST_TOKENS) - 1);
        let bucket = self.bucket(input_tokens);
        let own = tenant.map(|name| self.tenants.known(name, &self.input_edges));
        let own = own.and_then(|buckets| buckets.get_mut(bucket));
        let of_size = self.sizes.get_mut(size(input_tokens));
        let any_tenant = self.any_tenant.get_mut(bucket);
        let coarser = of_size.into_iter().chain(any_tenant).chain([&mut self.all]);
        for history in own.into_iter().chain(coarser) {
            history.add(bin, self.bins.len(), self.growth);
        }
    }

    /// Output tokens expected of a new request: the configured quantile, bounded by
    /// `max_output_tokens`. At least one, except under a maximum of zero.
    pub fn predict(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        max_output_tokens: Option<u32>,
    ) -> u32 {
        let length = self.beyond(tenant, input_tokens, 0, self.config.quantile);
        let length = length.unwrap_or(self.config.cold_tokens).max(1);
        length.min(max_output_tokens.unwrap_or(u32::MAX))
    }

    /// A quantile of the output tokens still to come from a request that has streamed `generated`,
    /// bounded by what `max_output_tokens` leaves. At least one, except when that leaves nothing.
    /// Where nothing as long was seen, that share of the configured guess: a low quantile stays low.
    pub fn remaining(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        max_output_tokens: Option<u32>,
        generated: u32,
        quantile: f32,
    ) -> u32 {
        let left = max_output_tokens.unwrap_or(u32::MAX).saturating_sub(generated);
        let cold = || {
            let guess = self.config.cold_tokens.min(max_output_tokens.unwrap_or(u32::MAX));
            (f64::from(guess) * f64::from(quantile.clamp(0.0, 1.0))).round() as u32
        };
        let length = self.beyond(tenant, input_tokens, generated, quantile);
        length.unwrap_or_else(cold).max(1).min(left)
    }

    /// A quantile of what follows `generated` tokens, from the first history that can say.
    fn beyond(
        &self,
        tenant: Option<&Arc<str>>,
        input_tokens: u32,
        generated: u32,
        quantile: f32,
    ) -> Option<u32> {
        let bucket = self.bucket(input_tokens);
        let own = tenant.and_then(|name| self.tenants.get(name)).and_then(|own| own.get(bucket));
        let own = own.map(|own| (own, self.enough));
        let of_size = self.sizes.get(size(input_tokens)).map(|of_size| (of_size, self.size_enough));
        let coarser = self.any_tenant.get(bucket).into_iter().chain([&self.all]);
        let coarser = coarser.map(|history| (history, self.enough));
        let histories = own.into_iter().chain(of_size).chain(coarser);
        histories
            .filter(|(history, enough)| history.weight() >= *enough)
            .map(|(history, _)| history)
            .find_map(|history| history.beyond(&self.bins, generated, quantile))
    }

    fn bucket(&self, input_tokens: u32) -> usize {
        self.input_edges.partition_point(|edge| *edge < input_tokens)
    }
}

/// The size of a prompt.
fn size(input_tokens: u32) -> usize {
    (f64::from(input_tokens.max(1)).ln() / SIZE_STEP.ln()) as usize
}

/// Empty histories, one per input bucket.
fn buckets(input_edges: &[u32]) -> Box<[Histogram]> {
    vec![Histogram::default(); input_edges.len() + 1].into()
}

/// Histories of tenants in two generations. A tenant heard of is in the young one; when that is full
/// it becomes the old one, and what was still in the old one is forgotten. So the half of
/// [`MOST_TENANTS`] heard of last is always kept, at no cost per observation.
#[derive(Clone, Debug, Default)]
struct Tenants {
    young: HashMap<Arc<str>, Box<[Histogram]>>,
    old: HashMap<Arc<str>, Box<[Histogram]>>,
}

impl Tenants {
    fn get(&self, name: &str) -> Option<&[Histogram]> {
        self.young.get(name).or_else(|| self.old.get(name)).map(|own| &**own)
    }

    /// The histories of a tenant that was just heard of.
    fn known(&mut self, name: &Arc<str>, input_edges: &[u32]) -> &mut [Histogram] {
        if !self.young.contains_key(name) {
            let own = self.old.remove(name).unwrap_or_else(|| buckets(input_edges));
            if self.young.len() >= MOST_TENANTS / 2 {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(Arc::clone(name), own);
        }
        self.young.entry(Arc::clone(name)).or_default()
    }
}

/// Lengths above `lower` up to and including `upper`.
#[derive(Clone, Copy, Debug)]
struct Bin {
    lower: u32,
    upper: u32,
}

/// Bins from one token to [`LONGEST_TOKENS`]: single lengths up to 12, then each a sixth longer.
fn bins() -> impl Iterator<Item = Bin> {
    let next = |bin: &Bin| {
        let upper = bin.upper.saturating_add((bin.upper / 6).max(1)).min(LONGEST_TOKENS);
        (bin.upper < LONGEST_TOKENS).then_some(Bin { lower: bin.upper, upper })
    };
    iter::successors(Some(Bin { lower: 0, upper: 1 }), next)
}

/// Index of the first bin with lengths above `tokens`.
fn first_bin_beyond(bins: &[Bin], tokens: u32) -> usize {
    bins.partition_point(|bin| bin.upper <= tokens)
}

/// Lengths seen, as weights in bins.
#[derive(Clone, Debug)]
struct Histogram {
    /// Weight per bin; empty until the first observation, as most tenants use few buckets.
    weights: Box<[f64]>,
    /// Their sum.
    total: f64,
    /// Weight of the newest observation.
    newest: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { weights: Box::default(), total: 0.0, newest: 1.0 }
    }
}

impl Histogram {
    /// Observations it rests on, the faded ones in part.
    fn weight(&self) -> f64 {
        self.total / self.newest
    }

    fn add(&mut self, bin: usize, bins: usize, growth: f64) {
        if self.weights.is_empty() {
            self.weights = vec![0.0; bins].into();
        }
        self.newest *= growth;
        if let Some(weight) = self.weights.get_mut(bin) {
            *weight += self.newest;
            self.total += self.newest;
        }
        if self.newest > LARGEST_WEIGHT {
            self.scale_down();
        }
    }

    fn scale_down(&mut self) {
        for weight in &mut self.weights {
            let scaled = *weight / self.newest;
            *weight = if scaled < SMALLEST_WEIGHT { 0.0 } else { scaled };
        }
        self.newest = 1.0;
        self.total = self.weights.iter().sum();
    }

    /// A quantile of what follows `generated` tokens, at least one; nothing when next to nothing as
    /// long was seen. Lengths are taken as spread evenly inside a bin.
    fn beyond(&self, bins: &[Bin], generated: u32, quantile: f32) -> Option<u32> {
        let first = first_bin_beyond(bins, generated);
        let (bins, weights) = (bins.get(first..)?, self.weights.get(first..)?);
        let begun = |bin: &Bin| bin.lower.max(generated);
        let whole: f64 = weights.iter().sum();
        let passed = bins.first().zip(weights.first()).map_or(0.0, |(bin, weight)| {
            weight * share(begun(bin) - bin.lower, bin.upper - bin.lower)
        });
        if whole - passed < LEAST_BEYOND * self.newest {
            return None;
        }
        // Counted from the lower edge of the first bin, of which a part has passed.
        let mut below = passed + f64::from(quantile.clamp(0.0, 1.0)) * (whole - passed);
        let mut length = generated;
        for (bin, weight) in bins.iter().zip(weights).filter(|(_, weight)| **weight > 0.0) {
            if below <= *weight {
                let inside = f64::from(bin.upper - bin.lower) * below / weight;
                let reached = bin.lower + inside.ceil() as u32;
                length = reached.clamp(begun(bin) + 1, bin.upper);
                break;
            }
            below -= weight;
            // What rounding leaves over belongs to the longest length seen.
            length = bin.upper;
        }
        Some(length.saturating_sub(generated).max(1))
    }
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole)
}

#[cfg(test)]
mod tests;
