//! How the lab counts, hashes and makes up prompt text.
//!
//! There is no tokenizer: a token is four bytes of text, and a chat template adds a fixed number of tokens. The pods count
//! with [`count_tokens`] and the load writes with [`write_text`], so that a prompt made for n tokens is counted as n.
//! Text that is given the same segments starts with the same bytes, which is all that prefix caching looks at.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of text that count as one token.
pub const BYTES_PER_TOKEN: usize = 4;
/// Tokens that a chat template puts around the messages; Qwen's is 8 for one user message.
pub const TEMPLATE_TOKENS: u32 = 8;

/// A stretch of text that every prompt naming the same id shares, from its first byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Names the text.
    pub id: u64,
    /// Its length in tokens.
    pub tokens: u32,
}

/// Tokens of `text_bytes` bytes of text, without any template.
pub fn count_tokens(text_bytes: usize) -> u32 {
    u32::try_from(text_bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// One hash per full block of `block_tokens` tokens, each chained to the one before it.
pub fn block_hashes(text: &[u8], block_tokens: u32) -> Vec<u64> {
    let mut blocks = Vec::new();
    append_hashes(&mut blocks, text, block_tokens);
    blocks
}

/// Adds the hashes of the text that comes after full blocks.
pub fn append_hashes(blocks: &mut Vec<u64>, text: &[u8], block_tokens: u32) {
    let mut parent = blocks.last().copied().unwrap_or(0);
    blocks.extend(text.chunks_exact(block_bytes(block_tokens)).map(|block| {
        parent = xxh3_64_with_seed(block, parent);
        parent
    }));
}

/// What fills no block.
pub fn partial_block(text: &[u8], block_tokens: u32) -> &[u8] {
    text.chunks_exact(block_bytes(block_tokens)).remainder()
}

fn block_bytes(block_tokens: u32) -> usize {
    (block_tokens as usize * BYTES_PER_TOKEN).max(1)
}

/// Appends text that a pod counts as `prompt_tokens` once the template is around it: the segments, then words that
/// only `unique` has. A prompt of no more tokens than the template still gets one token of text.
pub fn write_text(out: &mut Vec<u8>, prompt_tokens: u32, prefix: &[Segment], unique: u64) {
    let mut left = prompt_tokens.saturating_sub(TEMPLATE_TOKENS).max(1);
    out.reserve(left as usize * BYTES_PER_TOKEN);
    for segment in prefix {
        let tokens = segment.tokens.min(left);
        write_words(out, tokens, segment.id ^ SEGMENT_SALT);
        left -= tokens;
    }
    write_words(out, left, unique);
}

/// Keeps the text of a segment apart from the unique text of the request of the same number.
const SEGMENT_SALT: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words of three letters and a space: four bytes each, and nothing that JSON escapes.
static WORDS: [&[u8; BYTES_PER_TOKEN]; 64] = [
    b"the ", b"and ", b"for ", b"are ", b"but ", b"not ", b"you ", b"all ", b"any ", b"can ",
    b"had ", b"her ", b"was ", b"one ", b"our ", b"out ", b"day ", b"get ", b"has ", b"him ",
    b"his ", b"how ", b"man ", b"new ", b"now ", b"old ", b"see ", b"two ", b"way ", b"who ",
    b"boy ", b"did ", b"its ", b"let ", b"put ", b"say ", b"she ", b"too ", b"use ", b"ask ",
    b"big ", b"car ", b"sun ", b"run ", b"map ", b"ice ", b"job ", b"key ", b"law ", b"leg ",
    b"log ", b"mix ", b"net ", b"oil ", b"pay ", b"pen ", b"red ", b"sea ", b"set ", b"sky ",
    b"tax ", b"tea ", b"top ", b"win ",
];

fn write_words(out: &mut Vec<u8>, tokens: u32, seed: u64) {
    const PER_DRAW: u32 = 10;
    const BITS: u32 = 6;
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut left = tokens;
    while left > 0 {
        let draw: u64 = rng.random();
        let words = left.min(PER_DRAW);
        for word in 0..words {
            let pick = (draw >> (word * BITS)) as usize % WORDS.len();
            out.extend_from_slice(WORDS.get(pick).copied().unwrap_or(b"the "));
        }
        left -= words;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: u32, prefix: &[Segment], unique: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write_text(&mut out, tokens, prefix, unique);
        out
    }

    #[test]
    fn a_prompt_made_for_n_tokens_is_counted_as_n() {
        for tokens in [9, 10, 17, 511, 512, 513, 6000, 85_400] {
            let shared = [Segment { id: 7, tokens: 512 }, Segment { id: 8, tokens: 512 }];
            for prefix in [&[][..], &shared[..]] {
                let made = text(tokens, prefix, 1);
                assert_eq!(count_tokens(made.len()) + TEMPLATE_TOKENS, tokens);
            }
        }
        assert_eq!(count_tokens(text(1, &[], 1).len()), 1, "text is never empty");
    }

    #[test]
    fn the_text_needs_no_json_escapes() {
        let made = String::from_utf8(text(5000, &[], 3)).unwrap();
        assert_eq!(serde_json::to_string(&made).unwrap().len(), made.len() + 2);
    }

    #[test]
    fn equal_segments_give_equal_block_hashes_and_the_rest_differs() {
        let prefix = [Segment { id: 5, tokens: 512 }, Segment { id: 6, tokens: 512 }];
        let one = block_hashes(&text(2000, &prefix, 1), 16);
        let two = block_hashes(&text(3000, &prefix, 2), 16);
        let same = one.iter().zip(&two).take_while(|(a, b)| a == b).count();
        assert_eq!(same, 1024 / 16);
    }

    #[test]
    fn a_block_hash_depends_on_everything_before_it() {
        let (a, b) = ([b'a'; 128], [[b'b'; 64], [b'a'; 64]].concat());
        assert_ne!(block_hashes(&a, 16)[1], block_hashes(&b, 16)[1]);
        assert_eq!(block_hashes(&[b'a'; 127], 16).len(), 1, "a partial block has no hash");
    }

    #[test]
    fn a_text_in_two_parts_has_the_hashes_of_the_whole() {
        let text: Vec<u8> = (0..300).map(|place| place as u8).collect();
        let (one, two) = text.split_at(150);
        let mut hashes = block_hashes(one, 16);
        append_hashes(&mut hashes, &[partial_block(one, 16), two].concat(), 16);
        assert_eq!(hashes, block_hashes(&text, 16));
    }

    #[test]
    fn a_segment_is_not_the_unique_text_of_the_request_with_its_number() {
        assert_ne!(text(100, &[Segment { id: 4, tokens: 92 }], 9), text(100, &[], 4));
    }
}
