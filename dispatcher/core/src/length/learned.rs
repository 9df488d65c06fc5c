//! What a history has seen, for another to go on from.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Bin, Histogram, LengthHistory, MOST_TENANTS, SIZES, SMALLEST_WEIGHT, Tenants};

/// What a history has seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Inclusive upper edges of the input buckets, in tokens.
    pub input_edges: Vec<u32>,
    /// Everything.
    pub all: Seen,
    /// Any tenant, by input bucket.
    pub any_tenant: Vec<Seen>,
    /// Any tenant, by the size of the prompt, of those sizes of which there were any.
    pub sizes: Vec<(u16, Seen)>,
    /// By tenant and input bucket, with whether the tenant is one of those heard of last; by name.
    pub tenants: Vec<(Arc<str>, bool, Vec<Seen>)>,
}

/// Lengths in tokens, ascending, with the weight of each: the newest one seen weighs one. A length stands for those of its bin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen(pub Vec<(u32, f32)>);

impl Seen {
    fn of(history: &Histogram, bins: &[Bin]) -> Self {
        if history.onward.is_empty() {
            return Self::default();
        }
        let weights = bins.iter().enumerate().filter_map(|(at, bin)| {
            let weight = (history.onward_from(at) - history.onward_from(at + 1)) / history.newest;
            (weight >= SMALLEST_WEIGHT).then_some((bin.upper, weight as f32))
        });
        Self(weights.collect())
    }

    /// What cannot be is left out.
    fn recalled(&self, bins: &[Bin]) -> Histogram {
        let mut onward = vec![0.0; bins.len()];
        for (length, weight) in &self.0 {
            let at = bins.partition_point(|bin| bin.upper < *length);
            if let Some(place) = onward.get_mut(at)
                && weight.is_finite()
                && *weight > 0.0
            {
                *place += f64::from(*weight);
            }
        }
        let mut above = 0.0;
        for weight in onward.iter_mut().rev() {
            above += *weight;
            *weight = above;
        }
        if above == 0.0 {
            return Histogram::default();
        }
        Histogram { onward: onward.into(), newest: 1.0 }
    }
}

impl LengthHistory {
    /// What it has seen.
    pub fn learned(&self) -> Lengths {
        let seen = |history: &Histogram| Seen::of(history, &self.bins);
        let of_each = |histories: &[Histogram]| histories.iter().map(seen).collect();
        let sizes = (0..).zip(self.sizes.iter()).filter(|(_, size)| !size.onward.is_empty());
        let tenants = self.tenants.known.iter().map(|(name, (heard, own))| {
            (name.clone(), *heard == self.tenants.generation, of_each(own))
        });
        let mut tenants: Vec<_> = tenants.collect();
        tenants.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        Lengths {
            input_edges: self.input_edges.to_vec(),
            all: seen(&self.all),
            any_tenant: of_each(&self.any_tenant),
            sizes: sizes.map(|(at, history)| (at, seen(history))).collect(),
            tenants,
        }
    }

    /// Goes on from what another has seen, instead of from what this one has; not where that is by other buckets.
    pub fn recall(&mut self, learned: &Lengths) {
        let buckets = self.input_edges.len() + 1;
        if *learned.input_edges != *self.input_edges || learned.any_tenant.len() != buckets {
            return;
        }
        let recalled = |seen: &Seen| seen.recalled(&self.bins);
        let mut sizes = vec![Histogram::default(); SIZES];
        for (at, seen) in &learned.sizes {
            if let Some(size) = sizes.get_mut(usize::from(*at)) {
                *size = recalled(seen);
            }
        }
        let mut tenants = Tenants { generation: 1, ..Tenants::default() };
        let known = learned.tenants.iter().filter(|(.., own)| own.len() == buckets);
        for (name, heard_last, own) in known.take(MOST_TENANTS) {
            // As many as a generation has.
            let heard_last = *heard_last && tenants.heard < MOST_TENANTS / 2;
            tenants.heard += usize::from(heard_last);
            let own = own.iter().map(recalled).collect();
            tenants.known.insert(name.clone(), (u64::from(heard_last), own));
        }
        self.all = recalled(&learned.all);
        self.any_tenant = learned.any_tenant.iter().map(recalled).collect();
        (self.sizes, self.tenants) = (sizes.into(), tenants);
    }
}
