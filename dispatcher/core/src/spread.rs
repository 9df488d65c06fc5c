//! Maps by numbers that the dispatcher itself gives out, or that are hashes already.
//!
//! Nobody outside can choose such keys so that they collide, so one multiplication does what a keyed
//! hash does elsewhere, at a tenth of the cost.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map by such numbers.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Spread>>;

/// Hasher for numbers, mostly one. One multiplication fills the high bits, which the map also uses, for callers
/// that name by counting.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

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
        // 2^64 over the golden ratio, as in Knuth's multiplicative hashing.
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
