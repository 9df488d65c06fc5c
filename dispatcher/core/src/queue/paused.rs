//! What an operator holds back.

use std::collections::BTreeSet;

use crate::{Band, control::Gate, queue::LaneKey};

/// The gates of a pool that are shut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paused {
    pool: bool,
    bands: BTreeSet<Band>,
    lanes: BTreeSet<LaneKey>,
}

impl Paused {
    /// Shuts a gate.
    pub fn pause(&mut self, gate: Gate) {
        match gate {
            Gate::Pool => self.pool = true,
            Gate::Band(band) => drop(self.bands.insert(band)),
            Gate::Lane(key) => drop(self.lanes.insert(key.shared())),
        }
    }

    /// Opens a gate; that of the pool opens all.
    pub fn resume(&mut self, gate: Gate) {
        match gate {
            Gate::Pool => *self = Self::default(),
            Gate::Band(band) => drop(self.bands.remove(&band)),
            Gate::Lane(key) => drop(self.lanes.remove(&key.shared())),
        }
    }

    /// Whether every gate is open.
    pub fn is_empty(&self) -> bool {
        !self.pool && self.bands.is_empty() && self.lanes.is_empty()
    }

    /// Whether what is in a lane is held.
    pub fn covers(&self, key: LaneKey) -> bool {
        !self.is_empty() && (self.covers_band(key.band()) || self.lanes.contains(&key.shared()))
    }

    /// Whether a whole band is held.
    pub fn covers_band(&self, band: Band) -> bool {
        self.pool || self.bands.contains(&band)
    }

    /// Whether single lanes are held.
    pub fn has_lanes(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// The gates that are shut.
    pub fn gates(&self) -> Vec<Gate> {
        let pool = self.pool.then_some(Gate::Pool).into_iter();
        let bands = self.bands.iter().map(|band| Gate::Band(*band));
        pool.chain(bands).chain(self.lanes.iter().map(|key| Gate::Lane(*key))).collect()
    }
}
