//! What is promised to requests: their objectives and bands, counted.

use std::{collections::BTreeMap, time::Duration};

use crate::{Band, Request};

/// Objectives and bands of a number of requests.
#[derive(Debug, Default)]
pub struct Promised {
    tpot_micros: BTreeMap<u64, usize>,
    bands: BTreeMap<Band, usize>,
}

impl Promised {
    /// One more.
    pub fn enter(&mut self, request: &Request) {
        if let Some(tpot) = request.slo.tpot {
            *self.tpot_micros.entry(micros(tpot)).or_default() += 1;
        }
        *self.bands.entry(request.band).or_default() += 1;
    }

    /// One less.
    pub fn leave(&mut self, request: &Request) {
        if let Some(tpot) = request.slo.tpot {
            decrement(&mut self.tpot_micros, micros(tpot));
        }
        decrement(&mut self.bands, request.band);
    }

    /// The smallest TPOT objective that is at least as long as that, of more requests than `held` has of them.
    pub fn tightest_tpot_ms(&self, at_least_ms: f64, held: &Self) -> Option<f64> {
        let least = at_least_ms * 1000.0;
        let ms = |(micros, _): (&u64, _)| *micros as f64 / 1000.0;
        let (first, count) = self.tpot_micros.first_key_value()?;
        // Mostly nobody asks for less, and nothing is held.
        if *first as f64 >= least && held.tpot_micros.is_empty() {
            return Some(ms((first, count)));
        }
        let others = self.tpot_micros.range(least.ceil() as u64..);
        let is_more = |(micros, count): &(&u64, &usize)| {
            held.tpot_micros.get(micros).is_none_or(|held| *count > held)
        };
        others.into_iter().find(is_more).map(ms)
    }

    /// The highest band of which there are more than `held` has.
    pub fn top_band(&self, held: &Self) -> Band {
        let is_more =
            |(band, count): &(&Band, &usize)| held.bands.get(band).is_none_or(|held| *count > held);
        self.bands.iter().rev().find(is_more).map_or(Band(0), |(band, _)| *band)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}
