//! Where every random number of a source comes from.

use rand::{SeedableRng, rngs::SmallRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The generator of one purpose under a seed. Each purpose has its own, so that a change of one (another rate, other
/// classes) does not move the draws of another.
pub(super) fn stream(seed: u64, purpose: &str) -> SmallRng {
    SmallRng::seed_from_u64(xxh3_64_with_seed(purpose.as_bytes(), seed))
}
