//! What is promised to everything that waits or is in flight, and what pods are judged by.

use std::{collections::BTreeMap, time::Duration};

use smallvec::SmallVec;
use weir_schema::StepTime;

use crate::{Band, Request};

/// What all pods are judged by.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Basis {
    pub(super) steps: SmallVec<[StepTime; 4]>,
    pub(super) tightest_tpot_ms: Option<f64>,
    pub(super) top_band: Band,
    /// Classes of the pods that take requests, each once.
    pub(super) open_classes: SmallVec<[u16; 4]>,
}

/// Objectives and bands of everything that waits or is in flight.
#[derive(Debug, Default)]
pub(super) struct Alive {
    tpot_micros: BTreeMap<u64, usize>,
    bands: BTreeMap<Band, usize>,
}

impl Alive {
    pub(super) fn enter(&mut self, request: &Request) {
        if let Some(tpot) = request.slo.tpot {
            *self.tpot_micros.entry(micros(tpot)).or_default() += 1;
        }
        *self.bands.entry(request.band).or_default() += 1;
    }

    pub(super) fn leave(&mut self, request: &Request) {
        if let Some(tpot) = request.slo.tpot {
            decrement(&mut self.tpot_micros, micros(tpot));
        }
        decrement(&mut self.bands, request.band);
    }

    /// The smallest TPOT objective that is at least as long as that.
    pub(super) fn tightest_tpot_ms(&self, at_least_ms: f64) -> Option<f64> {
        let least = at_least_ms * 1000.0;
        let ms = |(micros, _): (&u64, _)| *micros as f64 / 1000.0;
        let (first, count) = self.tpot_micros.first_key_value()?;
        // Mostly nobody asks for less.
        if *first as f64 >= least {
            return Some(ms((first, count)));
        }
        self.tpot_micros.range(least.ceil() as u64..).next().map(ms)
    }

    /// The highest band of which more is alive than `held` says.
    pub(super) fn top_band(&self, held: impl Fn(Band) -> usize) -> Band {
        let mut bands = self.bands.iter().rev();
        bands.find(|(band, count)| **count > held(**band)).map_or(Band(0), |(band, _)| *band)
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
