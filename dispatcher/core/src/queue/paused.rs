//! What an operator holds back.

use std::collections::BTreeSet;

use crate::{AdapterId, Band, BucketEdges, control::Gate, queue::LaneKey};

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

    /// Goes by other buckets: a lane stays paused under its name, and one whose name no lane has any more
    /// is resumed.
    pub fn rename(&mut self, before: &BucketEdges, after: &BucketEdges) {
        let names = self.lanes.iter().map(|key| key.name(before));
        self.lanes = names.filter_map(|name| LaneKey::parse(&name, after)).collect();
    }

    /// Whether every gate is open.
    pub fn is_empty(&self) -> bool {
        !self.pool && self.bands.is_empty() && self.lanes.is_empty()
    }

    /// Whether what is in a lane is held: with the lane of all adapters that of each is.
    pub fn covers(&self, key: LaneKey) -> bool {
        let covers_lane =
            |key: LaneKey| self.lanes.contains(&key) || self.lanes.contains(&key.of_all_adapters());
        !self.is_empty() && (self.covers_band(key.band()) || covers_lane(key.shared()))
    }

    /// Whether a lane of requests for an adapter is held.
    pub fn names(&self, adapter: AdapterId) -> bool {
        self.lanes.iter().any(|key| key.adapter() == Some(adapter))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_lane_keeps_its_name_when_the_buckets_change() {
        let before = BucketEdges { input: vec![64, 512], output: vec![16] };
        let after = BucketEdges { input: vec![512, 1024], output: vec![16] };
        let key = |name, edges| LaneKey::parse(name, edges).unwrap();
        let mut paused = Paused::default();
        paused.pause(Gate::Lane(key("b0/i512/o16", &before)));
        paused.pause(Gate::Lane(key("b0/i64/o16", &before)));
        paused.pause(Gate::Band(Band(3)));
        paused.rename(&before, &after);
        assert!(paused.covers(key("b0/i512/o16", &after)));
        assert_eq!(paused.gates().len(), 2);
    }
}
