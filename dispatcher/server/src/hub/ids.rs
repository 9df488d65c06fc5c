//! Tables by the ids of requests and pods.
//!
//! The process numbers both itself, so that nobody can choose ids that collide, and a multiplication spreads them as well as a
//! table needs.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes an id.
pub(crate) type ById = BuildHasherDefault<IdHasher>;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

/// 2^64 divided by the golden ratio, made odd: neighbouring numbers end up far from each other.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // A table takes its place from the low bits; those of a product depend on little.
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(SPREAD);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher};

    use weir_core::{PodId, RequestId};

    use super::*;

    #[test]
    fn numbers_in_a_row_spread_over_low_and_high_bits() {
        let hash = |id| ById::default().hash_one(RequestId(id));
        for bits in [|hash: u64| hash & 0xfff, |hash: u64| hash >> 52] {
            let places: HashSet<u64> = (0..4096).map(|id| bits(hash(id))).collect();
            assert!(places.len() > 2400, "{} places for 4096", places.len());
        }
        assert_ne!(ById::default().hash_one(PodId(1)), ById::default().hash_one(PodId(2)));
    }
}
