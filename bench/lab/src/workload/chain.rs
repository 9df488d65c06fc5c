//! Text as a prefix cache sees it: one hash per full block, each chained to everything before it.
//!
//! A text is a row of stretches, each with an identity and a length; two texts are equal as far as their stretches are. A block
//! that two stretches share is hashed over both, as the engine would hash its tokens, so a system prompt of 1000 tokens shares
//! 62 blocks of 16 and not 63. The blocks that one stretch fills alone are numbered from one hash: whoever keeps them in a table
//! can keep them side by side, and a text is always looked up as a whole.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::BLOCK_TOKENS;

/// A growing text.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    hashes: Vec<u64>,
    /// Hash of everything so far, the open block's tokens included.
    state: u64,
    /// Tokens in the open block.
    open_tokens: u32,
}

impl Chain {
    /// Adds the first `tokens` tokens of the stretch that is called `id`.
    pub(super) fn append(&mut self, id: u64, tokens: u32) {
        let mut from = 0;
        while from < tokens {
            let blocks = (tokens - from) / BLOCK_TOKENS;
            if self.open_tokens == 0 && blocks > 0 {
                self.fill(name([id, u64::from(from), u64::from(BLOCK_TOKENS)], self.state), blocks);
                from += blocks * BLOCK_TOKENS;
                continue;
            }
            let taken = (BLOCK_TOKENS - self.open_tokens).min(tokens - from);
            self.state = name([id, u64::from(from), u64::from(taken)], self.state);
            self.open_tokens += taken;
            from += taken;
            if self.open_tokens == BLOCK_TOKENS {
                self.hashes.push(self.state);
                self.open_tokens = 0;
            }
        }
    }

    /// Adds full blocks of one stretch, of which the first is called `first`.
    fn fill(&mut self, first: u64, blocks: u32) {
        let names = (0..u64::from(blocks)).map(|number| first.wrapping_add(number));
        self.hashes.extend(names);
        self.state = self.hashes.last().copied().unwrap_or(self.state);
    }

    /// Its length.
    pub(super) fn tokens(&self) -> u32 {
        let blocks = u32::try_from(self.hashes.len()).unwrap_or(u32::MAX);
        blocks.saturating_mul(BLOCK_TOKENS).saturating_add(self.open_tokens)
    }

    /// The hashes of its full blocks.
    pub(super) fn blocks(&self) -> Arc<[u64]> {
        Arc::from(self.hashes.as_slice())
    }
}

/// A number for three numbers and a seed.
pub(super) fn name(parts: [u64; 3], seed: u64) -> u64 {
    let mut bytes = [0; 24];
    for (to, part) in bytes.chunks_exact_mut(8).zip(parts) {
        to.copy_from_slice(&part.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stretches: &[(u64, u32)]) -> Chain {
        let mut chain = Chain::default();
        stretches.iter().for_each(|&(id, tokens)| chain.append(id, tokens));
        chain
    }

    fn shared(a: &Chain, b: &Chain) -> usize {
        a.hashes.iter().zip(&b.hashes).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn texts_share_the_full_blocks_of_what_they_share() {
        let (a, b) = (text(&[(1, 1000), (2, 500)]), text(&[(1, 1000), (3, 500)]));
        assert_eq!((a.tokens(), a.hashes.len()), (1500, 93));
        assert_eq!(shared(&a, &b), 62);
        assert_eq!(shared(&a, &text(&[(1, 700)])), 43, "a part of a stretch is shared too");
    }

    #[test]
    fn the_full_blocks_of_a_stretch_are_neighbours() {
        let text = text(&[(1, 40), (2, 100)]);
        assert_eq!(text.hashes.len(), 8);
        assert_eq!(text.hashes[0].wrapping_add(1), text.hashes[1]);
        assert_ne!(text.hashes[1].wrapping_add(1), text.hashes[2], "shared by both stretches");
        let rest = text.hashes[3..].windows(2).all(|pair| pair[0].wrapping_add(1) == pair[1]);
        assert!(rest, "{:?}", text.hashes);
    }

    #[test]
    fn a_longer_text_begins_with_the_shorter_one() {
        let mut chain = text(&[(1, 100), (2, 30)]);
        let before = chain.blocks();
        chain.append(3, 77);
        assert_eq!(chain.blocks()[..before.len()], before[..]);
        assert_eq!(chain.tokens(), 207);
    }

    #[test]
    fn a_block_depends_on_everything_before_it() {
        assert_eq!(shared(&text(&[(1, 16), (2, 16)]), &text(&[(3, 16), (2, 16)])), 0);
        let (a, b) = (text(&[(1, 16), (2, 16)]), text(&[(3, 16), (2, 16)]));
        assert_ne!(a.hashes[1], b.hashes[1]);
    }
}
