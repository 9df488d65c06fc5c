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

pub mod learned;

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
        let says = |history: Option<&Histogram>, enough: f64| {
            let history = history.filter(|history| history.weight() >= enough)?;
            history.beyond(&self.bins, generated, quantile)
        };
        let own = tenant.and_then(|name| self.tenants.get(name)?.get(bucket));
        says(own, self.enough)
            .or_else(|| says(self.sizes.get(size(input_tokens)), self.size_enough))
            .or_else(|| says(self.any_tenant.get(bucket), self.enough))
            .or_else(|| says(Some(&self.all), self.enough))
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

/// Histories of tenants, each with the last generation in which it was heard of. A generation ends with [`MOST_TENANTS`] / 2 heard
/// of, and whoever was not heard of in it is forgotten then. So the half of [`MOST_TENANTS`] heard of last is always kept.
#[derive(Clone, Debug, Default)]
struct Tenants {
    known: HashMap<Arc<str>, (u64, Box<[Histogram]>)>,
    generation: u64,
    /// Tenants heard of in this generation.
    heard: usize,
}

impl Tenants {
    fn get(&self, name: &str) -> Option<&[Histogram]> {
        self.known.get(name).map(|(_, own)| &**own)
    }

    /// The histories of a tenant that was just heard of.
    fn known(&mut self, name: &Arc<str>, input_edges: &[u32]) -> &mut [Histogram] {
        let last = self.known.get(name).map(|(last, _)| *last);
        if last != Some(self.generation) {
            if self.heard >= MOST_TENANTS / 2 {
                let ended = self.generation;
                self.known.retain(|one, (last, _)| *last == ended || one == name);
                (self.generation, self.heard) = (ended + 1, 0);
            }
            self.heard += 1;
        }
        let blank = || (self.generation, buckets(input_edges));
        let (last, own) = self.known.entry(Arc::clone(name)).or_insert_with(blank);
        *last = self.generation;
        own
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
    /// Weight of what is in each bin and above it; empty until the first observation, as most tenants use few buckets. Bins between
    /// which nothing was seen hold the very same number.
    onward: Box<[f64]>,
    /// Weight of the newest observation.
    newest: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { onward: Box::default(), newest: 1.0 }
    }
}

impl Histogram {
    /// Observations it rests on, the faded ones in part.
    fn weight(&self) -> f64 {
        self.onward_from(0) / self.newest
    }

    /// Weight of what is in a bin and above it.
    fn onward_from(&self, bin: usize) -> f64 {
        self.onward.get(bin).copied().unwrap_or(0.0)
    }

    fn add(&mut self, bin: usize, bins: usize, growth: f64) {
        if self.onward.is_empty() {
            self.onward = vec![0.0; bins].into();
        }
        self.newest *= growth;
        if let Some(up_to) = self.onward.get_mut(..=bin) {
            up_to.iter_mut().for_each(|weight| *weight += self.newest);
        }
        if self.newest > LARGEST_WEIGHT {
            self.scale_down();
        }
    }

    fn scale_down(&mut self) {
        for weight in &mut self.onward {
            let scaled = *weight / self.newest;
            *weight = if scaled < SMALLEST_WEIGHT { 0.0 } else { scaled };
        }
        self.newest = 1.0;
    }

    /// A quantile of what follows `generated` tokens, at least one; nothing when next to nothing as
    /// long was seen. Lengths are taken as spread evenly inside a bin.
    fn beyond(&self, bins: &[Bin], generated: u32, quantile: f32) -> Option<u32> {
        let first = first_bin_beyond(bins, generated);
        let begun = |bin: &Bin| bin.lower.max(generated);
        let (whole, above) = (self.onward_from(first), self.onward.get(first + 1..)?);
        let passed = bins.get(first).map_or(0.0, |bin| {
            let share = share(begun(bin) - bin.lower, bin.upper - bin.lower);
            (whole - self.onward_from(first + 1)) * share
        });
        if whole - passed < LEAST_BEYOND * self.newest {
            return None;
        }
        // Of the first bin a part has passed. The first ones may be empty.
        let left = (1.0 - f64::from(quantile.clamp(0.0, 1.0))) * (whole - passed);
        let below = above.partition_point(|onward| *onward > left || *onward == whole);
        let at = first + below;
        let (bin, here) = (bins.get(at)?, self.onward_from(at));
        let inside = (here - left) / (here - self.onward_from(at + 1));
        let reached = bin.lower + (f64::from(bin.upper - bin.lower) * inside).ceil() as u32;
        let length = reached.clamp(begun(bin) + 1, bin.upper);
        Some(length.saturating_sub(generated).max(1))
    }
}

fn share(part: u32, whole: u32) -> f64 {
    f64::from(part) / f64::from(whole)
}

#[cfg(test)]
mod tests;
