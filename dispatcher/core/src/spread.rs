//! Maps by numbers that the dispatcher itself gives out, or that are hashes already.
//!
//! Nobody outside can choose such keys so that they collide, so one multiplication does what a keyed
//! hash does elsewhere, at a tenth of the cost.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
};

/// 2^64 over the golden ratio, as in Knuth's multiplicative hashing. It is odd, so that what differs stays different.
pub const SPREADS: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map by such numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Entries for which a table always keeps room.
const KEPT: usize = 4096;

/// Gives memory back when a table has come down to an eighth of its room, as after a burst. The removals before have
/// paid for what that costs.
pub fn slim<K: Eq + Hash, V>(map: &mut NumberMap<K, V>) {
    if map.capacity() > KEPT && map.len() < map.capacity() / 8 {
        map.shrink_to((2 * map.len()).max(KEPT / 2));
    }
}

/// Hasher for numbers, mostly one. One multiplication fills the high bits, which the map also uses, for callers
/// that name by counting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(SPREADS);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher};

    use super::*;

    #[test]
    fn numbers_in_a_row_spread_over_low_and_high_bits() {
        let hash = |id: u64| BuildHasherDefault::<Spread>::default().hash_one(id);
        for bits in [|hash: u64| hash & 0xfff, |hash: u64| hash >> 52] {
            let places: HashSet<u64> = (0..4096).map(|id| bits(hash(id))).collect();
            assert!(places.len() > 2400, "{} places for 4096", places.len());
        }
    }

    #[test]
    fn a_table_gives_back_what_a_burst_took_and_keeps_what_it_holds() {
        let mut map: NumberMap<u64, u64> = (0..100_000).map(|id| (id, id)).collect();
        let most = map.capacity();
        let mut moves = 0;
        for id in 0..100_000 {
            assert_eq!(map.remove(&id), Some(id));
            let before = map.capacity();
            slim(&mut map);
            moves += usize::from(map.capacity() != before);
            assert!(map.capacity() <= KEPT || map.capacity() <= 16 * map.len().max(1), "{id}");
        }
        assert!(map.capacity() <= KEPT && most > 10 * map.capacity(), "{}", map.capacity());
        assert!(moves < 8, "{moves}");
    }
}
