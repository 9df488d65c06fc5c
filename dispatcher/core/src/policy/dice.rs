//! Every draw of a policy, decided by its seed: the same events under the same seed are the same
//! decisions, in a simulation as in a report of what went wrong.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A sequence of draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// Dice of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A number above 0 and below 1.
    pub fn uniform(&mut self) -> f64 {
        self.drawn += 1;
        let hash = xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.seed);
        // The upper 52 bits and a half: neither 0 nor 1 can come out.
        ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Whether something of this probability happens. Draws nothing when it is certain.
    pub fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        probability >= 1.0 || self.uniform() < probability
    }

    /// A place below `len`; 0 when `len` is 0.
    pub fn below(&mut self, len: usize) -> usize {
        let place = (self.uniform() * len as f64) as usize;
        place.min(len.saturating_sub(1))
    }
}
