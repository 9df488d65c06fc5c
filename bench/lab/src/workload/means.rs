//! What the mean request of a source is like, counted from requests that it made.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
};

use super::{BLOCK_TOKENS, draft::Draft};
use crate::sim::SimRequest;

/// What the mean request of a source is like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Means {
    /// Prompt tokens.
    pub input_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
    /// Share of the prompt tokens that a cache without bounds would have.
    pub hit: f64,
}

impl Means {
    /// Those of a list of requests, in its order.
    pub fn of(requests: &[SimRequest]) -> Self {
        let mut count = Count::default();
        for one in requests {
            let blocks = &one.request.blocks;
            let kept = one.blocks_with_answer.as_ref().unwrap_or(blocks);
            count.add(one.input_tokens, one.output_tokens, blocks, kept);
        }
        count.means()
    }
}

/// For keys that are hashes already; there are millions of them.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A cache without bounds in front of which requests pass.
#[derive(Debug, Default)]
pub(super) struct Count {
    seen: HashSet<u64, BuildHasherDefault<Hashed>>,
    requests: f64,
    input_tokens: f64,
    output_tokens: f64,
    hit_tokens: f64,
}

impl Count {
    /// Counts a request that is not made yet.
    pub(super) fn draft(&mut self, draft: &Draft<'_>) {
        let kept = draft.blocks_with_answer.as_ref().unwrap_or(&draft.blocks);
        self.add(draft.input_tokens, draft.output_tokens, &draft.blocks, kept);
    }

    fn add(&mut self, input_tokens: u32, output_tokens: u32, blocks: &[u64], kept: &[u64]) {
        let known = blocks.iter().take_while(|block| self.seen.contains(*block)).count();
        self.seen.extend(kept.iter().skip(known));
        self.requests += 1.0;
        self.input_tokens += f64::from(input_tokens);
        self.output_tokens += f64::from(output_tokens);
        self.hit_tokens += (known as f64 * f64::from(BLOCK_TOKENS)).min(f64::from(input_tokens));
    }

    pub(super) fn means(&self) -> Means {
        let requests = self.requests.max(1.0);
        Means {
            input_tokens: self.input_tokens / requests,
            output_tokens: self.output_tokens / requests,
            hit: self.hit_tokens / self.input_tokens.max(1.0),
        }
    }
}
