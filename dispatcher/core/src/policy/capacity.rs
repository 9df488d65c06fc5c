//! What a request takes of a pod: Load(P) = 1 / Capacity(P), Capacity(P) = RPS(P) x E2E(P), by the
//! pattern P of pod class, input and output tokens (the AIBrix RFC's arithmetic).
//!
//! The table is configured; a pattern without a cell of its own is that of the nearest cell in
//! powers of two. A class without any cell carries a configured number of requests, whatever they
//! are. A cell of capacity zero says that the class cannot serve the pattern inside its objective.

use serde::{Deserialize, Serialize};

/// One measured pattern.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadCell {
    /// Index of the pod class.
    pub class: u16,
    /// Input tokens.
    pub input_tokens: u32,
    /// Output tokens.
    pub output_tokens: u32,
    /// Highest rate inside the objective, in requests per second; 0: none.
    pub rps: f64,
    /// Mean time from dispatch to the end at that rate, in seconds.
    pub e2e_s: f64,
}

impl LoadCell {
    /// Requests in flight that the pod carries inside its objective (Little's law).
    pub fn capacity(&self) -> f64 {
        self.rps * self.e2e_s
    }
}

/// What requests take of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTable {
    /// Measured patterns.
    pub cells: Vec<LoadCell>,
    /// Requests in flight that a pod of a class without cells carries.
    pub default_capacity: f64,
}

impl Default for LoadTable {
    /// 32 requests: where a pod of the default class, whose step is then 20 to 40 ms, still keeps
    /// the pace of an interactive request.
    fn default() -> Self {
        Self { cells: Vec::new(), default_capacity: 32.0 }
    }
}

impl LoadTable {
    /// Share of a pod of this class that a request takes; `None` when the class cannot serve it.
    pub fn load(&self, class: u16, input_tokens: u32, output_tokens: u32) -> Option<f64> {
        let distance = |cell: &LoadCell| {
            octaves(cell.input_tokens, input_tokens) + octaves(cell.output_tokens, output_tokens)
        };
        let cells = self.cells.iter().filter(|cell| cell.class == class);
        let nearest = cells.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let capacity = nearest.map_or(self.default_capacity, LoadCell::capacity);
        (capacity.is_finite() && capacity > 0.0).then(|| 1.0 / capacity)
    }
}

/// How often one number has to be doubled to become the other.
fn octaves(a: u32, b: u32) -> f64 {
    (f64::from(a.max(1)).log2() - f64::from(b.max(1)).log2()).abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(input_tokens: u32, output_tokens: u32, rps: f64, e2e_s: f64) -> LoadCell {
        LoadCell { class: 0, input_tokens, output_tokens, rps, e2e_s }
    }

    /// Seed 002: "256/16: 4RPS, 0.5s = 2 Pending requests. 4096/32: 1RPS, 5s = 5 Pending requests".
    #[test]
    fn the_rfcs_examples_have_capacities_of_two_and_five() {
        let cells = vec![cell(256, 16, 4.0, 0.5), cell(4096, 32, 1.0, 5.0)];
        let table = LoadTable { cells, ..LoadTable::default() };
        assert_eq!(table.load(0, 256, 16), Some(0.5));
        assert_eq!(table.load(0, 4096, 32), Some(0.2));
        assert_eq!(table.load(0, 300, 20), Some(0.5), "the nearest cell");
        assert_eq!(table.load(0, 100_000, 1), Some(0.2), "clamped at the edge");
        assert_eq!(table.load(1, 256, 16), Some(1.0 / 32.0), "another class, without cells");
    }

    /// AIBrix: a profile without e2e gave consumption 0, which is unlimited admission.
    #[test]
    fn a_cell_without_rate_or_time_is_infeasible_and_never_free() {
        for (rps, e2e_s) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0)] {
            let table = LoadTable { cells: vec![cell(1, 1, rps, e2e_s)], ..LoadTable::default() };
            assert_eq!(table.load(0, 256, 16), None, "{rps} {e2e_s}");
        }
    }
}
