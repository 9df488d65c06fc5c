//! Timestamps that were rounded, spread again.
//!
//! Replayed as they stand, rounded timestamps arrive in volleys that the traffic did not have. The rows of one tick are spread
//! uniformly over it, in the file's order, with a seed.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::Arrival;

/// The smallest gap between two different timestamps, if there are two.
pub(super) fn smallest_gap_s(rows: &mut [Arrival]) -> Option<f64> {
    sort(rows);
    let gaps = rows.windows(2).filter_map(|pair| match pair {
        [a, b] if b.at_s > a.at_s => Some(b.at_s - a.at_s),
        _ => None,
    });
    gaps.reduce(f64::min)
}

/// Spreads the rows of each tick over it.
pub(super) fn spread(rows: &mut [Arrival], tick_s: f64, seed: u64) {
    sort(rows);
    let mut rng = SmallRng::seed_from_u64(seed);
    for tick in rows.chunk_by_mut(|a, b| a.at_s == b.at_s) {
        let mut offsets: Vec<f64> = tick.iter().map(|_| rng.random_range(0.0..tick_s)).collect();
        offsets.sort_by(f64::total_cmp);
        tick.iter_mut().zip(offsets).for_each(|(row, offset)| row.at_s += offset);
    }
}

fn sort(rows: &mut [Arrival]) {
    rows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
}
