//! Two trees over places in a list: sums on prefixes with their maximum, and the largest of a suffix.

#![expect(
    clippy::indexing_slicing,
    reason = "children and leaves of a tree that never changes its size"
)]

/// Values to which amounts are added on prefixes.
#[derive(Clone, Debug)]
pub(super) struct Loads {
    /// Largest value below each node, without what was added above it.
    most: Vec<f64>,
    added: Vec<f64>,
    leaves: usize,
}

impl Loads {
    pub(super) fn new(values: &[f64]) -> Self {
        let leaves = values.len().next_power_of_two();
        let mut most = vec![f64::NEG_INFINITY; 2 * leaves];
        most[leaves..leaves + values.len()].copy_from_slice(values);
        for node in (1..leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { most, added: vec![0.0; 2 * leaves], leaves }
    }

    /// Adds to the first `until` values.
    pub(super) fn add(&mut self, until: usize, amount: f64) {
        self.add_below(1, 0, self.leaves, until, amount);
    }

    fn add_below(&mut self, node: usize, from: usize, to: usize, until: usize, amount: f64) {
        if from >= until {
            return;
        }
        if to <= until {
            self.most[node] += amount;
            self.added[node] += amount;
            return;
        }
        let middle = (from + to) / 2;
        self.add_below(2 * node, from, middle, until, amount);
        self.add_below(2 * node + 1, middle, to, until, amount);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
    }

    /// The last of the first `until` values that is above `limit`: its place, and the value.
    pub(super) fn last_above(&self, until: usize, limit: f64) -> Option<(usize, f64)> {
        self.last_below(1, 0, self.leaves, until, limit)
    }

    fn last_below(
        &self,
        node: usize,
        from: usize,
        to: usize,
        until: usize,
        limit: f64,
    ) -> Option<(usize, f64)> {
        if from >= until || self.most[node] <= limit {
            return None;
        }
        if to - from == 1 {
            return Some((from, self.most[node]));
        }
        let (middle, limit) = ((from + to) / 2, limit - self.added[node]);
        let found = self
            .last_below(2 * node + 1, middle, to, until, limit)
            .or_else(|| self.last_below(2 * node, from, middle, until, limit));
        found.map(|(place, value)| (place, value + self.added[node]))
    }
}

/// Values of which the largest in a suffix is sought.
#[derive(Clone, Debug)]
pub(super) struct Largest {
    values: Vec<f64>,
    leaves: usize,
}

impl Largest {
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        Self { values: vec![f64::NEG_INFINITY; 2 * leaves], leaves }
    }

    /// Sets one; minus infinity takes it out.
    pub(super) fn set(&mut self, place: usize, value: f64) {
        let mut node = self.leaves + place;
        self.values[node] = value;
        while node > 1 {
            node /= 2;
            self.values[node] = self.values[2 * node].max(self.values[2 * node + 1]);
        }
    }

    /// The place of the largest value from `from` on.
    pub(super) fn from(&self, from: usize) -> Option<usize> {
        let (mut node, mut best) = (self.leaves + from, None);
        if from >= self.leaves {
            return None;
        }
        let mut most = f64::NEG_INFINITY;
        loop {
            if self.values[node] > most {
                (most, best) = (self.values[node], Some(node));
            }
            // Up to the next subtree on the right, if there is one.
            while node % 2 == 1 {
                if node == 1 {
                    return best.map(|node| self.leaf(node, most));
                }
                node /= 2;
            }
            node += 1;
        }
    }

    fn leaf(&self, mut node: usize, value: f64) -> usize {
        while node < self.leaves {
            node = if self.values[2 * node] >= value { 2 * node } else { 2 * node + 1 };
        }
        node - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn trees_say_what_lists_say() {
        let mut rng = SmallRng::seed_from_u64(5);
        for count in [1, 2, 3, 7, 16, 21] {
            let mut list: Vec<f64> = (0..count).map(|_| rng.random()).collect();
            let mut tree = Loads::new(&list);
            let mut weights = vec![f64::NEG_INFINITY; count];
            let mut largest = Largest::new(count);
            for _ in 0..200 {
                let until = rng.random_range(0..=count);
                let amount = rng.random_range(-1.0..1.0);
                tree.add(until, amount);
                list[..until].iter_mut().for_each(|value| *value += amount);
                let (until, limit) = (rng.random_range(0..=count), rng.random_range(-2.0..2.0));
                let want = list[..until].iter().rposition(|value| *value > limit);
                assert_eq!(tree.last_above(until, limit).map(|(place, _)| place), want);
                if let Some((place, value)) = tree.last_above(until, limit) {
                    assert!((value - list[place]).abs() < 1e-9);
                }
                let (place, out) = (rng.random_range(0..count), rng.random::<f64>() < 0.3);
                weights[place] = if out { f64::NEG_INFINITY } else { rng.random() };
                largest.set(place, weights[place]);
                let from = rng.random_range(0..count);
                let most = weights[from..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let found = largest.from(from).map_or(f64::NEG_INFINITY, |place| weights[place]);
                assert_eq!(found, most);
                assert!(largest.from(from).is_none_or(|place| place >= from));
            }
        }
    }
}
