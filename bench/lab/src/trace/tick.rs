//! Timestamps that were rounded, spread again.
//!
//! Replayed as they stand, rounded timestamps arrive in volleys that the traffic did not have. The rows of one tick are spread
//! uniformly over it, in the file's order, with a seed.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::Arrival;

/// Of so many gaps one has to be as long for that length to be a tick: what a few odd rows are apart decides nothing.
const ONE_IN: usize = 20;
/// Of a few gaps more than one.
const LEAST: usize = 2;

/// What timestamps were rounded to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) length_s: f64,
    /// Gaps that are shorter: times that were not rounded, among those that were.
    pub(super) shorter: usize,
}

/// The smallest gap between two different timestamps that is no exception, if there are two. Times that were not rounded have
/// none that comes as often, and of them it is the smallest, over which next to nothing is spread.
pub(super) fn found(rows: &mut [Arrival]) -> Option<Tick> {
    sort(rows);
    let gaps = rows.windows(2).filter_map(|pair| match pair {
        [a, b] if b.at_s > a.at_s => Some(b.at_s - a.at_s),
        _ => None,
    });
    let mut gaps: Vec<f64> = gaps.collect();
    gaps.sort_by(f64::total_cmp);
    let least = LEAST.max(gaps.len().div_ceil(ONE_IN));
    // Equal to the microsecond: seconds in floating point are no closer.
    let alike = gaps.chunk_by(|a, b| (a * 1e6).round() == (b * 1e6).round());
    let often = alike.filter(|gaps| gaps.len() >= least).find_map(|gaps| gaps.first());
    let length_s = often.or(gaps.first()).copied()?;
    Some(Tick { length_s, shorter: gaps.iter().filter(|gap| **gap < length_s).count() })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found_of(times_s: impl IntoIterator<Item = f64>) -> Option<Tick> {
        let row = |at_s| Arrival {
            at_s,
            input_tokens: 1,
            output_tokens: 1,
            class: None,
            prefix: Vec::new(),
        };
        found(&mut times_s.into_iter().map(row).collect::<Vec<_>>())
    }

    #[test]
    fn a_few_odd_rows_do_not_decide_what_the_others_were_rounded_to() {
        let rounded = || (0..200).flat_map(|tick| [3.0 * f64::from(tick); 9]);
        assert_eq!(found_of(rounded()), Some(Tick { length_s: 3.0, shorter: 0 }));
        let odd = found_of(rounded().chain([300.001, 333.0, 444.5]));
        assert_eq!(odd.map(|tick| tick.length_s), Some(3.0), "{odd:?}");
        assert_eq!(odd.map(|tick| tick.shorter), Some(4), "two of each odd time, none of 333");
        // Where a clock was off by a millisecond now and then the smaller of its ticks is the tick.
        let off =
            (0..200).map(|tick| 3.0 * f64::from(tick) + f64::from(u8::from(tick % 5 == 4)) / 1e3);
        assert!((found_of(off).unwrap().length_s - 2.999).abs() < 1e-9);
    }

    #[test]
    fn times_that_were_not_rounded_are_left_about_as_they_are() {
        let exact = found_of((0..400).map(|row| f64::from(row * row) / 1e3)).unwrap();
        assert!((exact.length_s - 0.001).abs() < 1e-9 && exact.shorter == 0, "{exact:?}");
        assert_eq!(found_of([5.0, 5.0]), None);
        assert_eq!(found_of([0.0, 7.0]).map(|tick| tick.length_s), Some(7.0));
    }
}
