//! Tokens per byte of prompt, learned online from the `usage` that engines report.
//!
//! A pool owns one [`TokenRatio`]: a prompt whose tokens nobody counted is priced by it on arrival,
//! and every response that states its prompt tokens corrects it. The first few prompts move it
//! freely; after a mebibyte no single one, however large, counts for more than a 64th. A report that
//! no tokenizer could produce is ignored, so that one broken pod cannot spoil it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Ratio before anything was seen: English text under the vocabularies in use.
const COLD_PER_BYTE: f64 = 0.25;
/// What the cold ratio weighs: less than one ordinary prompt, so that the first one replaces it.
const COLD_BYTES: f64 = 2048.0;
/// Bytes of prompt over which the past fades.
const WINDOW_BYTES: f64 = 1_048_576.0;
/// Most bytes that one prompt counts for.
const LARGEST_BYTES: u32 = 16_384;
/// Ratios a tokenizer can produce: long runs of one character below, templates round a word above.
const CREDIBLE: RangeInclusive<f64> = 0.02..=2.0;

/// Tokens per byte, an average weighted by bytes in which the past fades.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenRatio {
    /// The average.
    per_byte: f64,
    /// Bytes it rests on, at most [`WINDOW_BYTES`].
    seen_bytes: f64,
}

impl Default for TokenRatio {
    fn default() -> Self {
        Self { per_byte: COLD_PER_BYTE, seen_bytes: COLD_BYTES }
    }
}

impl TokenRatio {
    /// A ratio that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Learns that a prompt of `bytes` was `tokens` long; ignores what cannot be.
    pub fn observe(&mut self, bytes: u32, tokens: u32) {
        let ratio = f64::from(tokens) / f64::from(bytes);
        if !CREDIBLE.contains(&ratio) {
            return;
        }
        let counted = f64::from(bytes.min(LARGEST_BYTES));
        self.seen_bytes = (self.seen_bytes + counted).min(WINDOW_BYTES);
        self.per_byte += (ratio - self.per_byte) * counted / self.seen_bytes;
    }

    /// Goes on from what another has learned; ignores what cannot be.
    pub fn recall(&mut self, learned: Self) {
        let Self { per_byte, seen_bytes } = learned;
        if CREDIBLE.contains(&per_byte) && (COLD_BYTES..=WINDOW_BYTES).contains(&seen_bytes) {
            *self = learned;
        }
    }

    /// Tokens expected of a prompt of `bytes`; at least one unless it is empty.
    pub fn tokens(&self, bytes: u32) -> u32 {
        // The cast saturates, and the ratio is positive.
        ((f64::from(bytes) * self.per_byte).round() as u32).max(bytes.min(1))
    }

    /// Tokens per byte.
    pub const fn per_byte(&self) -> f64 {
        self.per_byte
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_new_ratio_is_a_quarter_and_counts_at_least_one_token() {
        let ratio = TokenRatio::new();
        assert_eq!(ratio.tokens(4000), 1000);
        assert_eq!(ratio.tokens(1), 1);
        assert_eq!(ratio.tokens(0), 0);
    }

    #[test]
    fn a_handful_of_prompts_warms_it_up() {
        let mut ratio = TokenRatio::new();
        for _ in 0..5 {
            ratio.observe(4000, 2000);
        }
        assert!((ratio.per_byte() - 0.5).abs() < 0.03, "{}", ratio.per_byte());
    }

    #[test]
    fn after_the_warm_up_one_prompt_moves_it_little_however_large() {
        let mut ratio = TokenRatio::new();
        for _ in 0..1000 {
            ratio.observe(4000, 1000);
        }
        let before = ratio.per_byte();
        ratio.observe(100_000_000, 100_000_000);
        let moved = ratio.per_byte() - before;
        assert!(moved > 0.0 && moved < 0.02, "{moved}");
    }

    #[test]
    fn it_follows_a_change_of_language() {
        let mut ratio = TokenRatio::new();
        for _ in 0..1000 {
            ratio.observe(4000, 1000);
        }
        for _ in 0..1000 {
            ratio.observe(4000, 2400);
        }
        assert!((ratio.per_byte() - 0.6).abs() < 0.02, "{}", ratio.per_byte());
    }

    #[test]
    fn bytes_weigh_so_short_prompts_with_long_templates_hardly_count() {
        let mut ratio = TokenRatio::new();
        for _ in 0..200 {
            ratio.observe(8, 14);
            ratio.observe(8000, 2000);
        }
        assert!((ratio.per_byte() - 0.25).abs() < 0.01, "{}", ratio.per_byte());
    }

    #[test]
    fn reports_that_cannot_be_are_ignored() {
        let mut ratio = TokenRatio::new();
        for (bytes, tokens) in [(0, 0), (0, 10), (1000, 0), (1000, 19), (1000, 2001)] {
            ratio.observe(bytes, tokens);
            assert_eq!(ratio, TokenRatio::new(), "{bytes} bytes, {tokens} tokens");
        }
    }

    proptest! {
        #[test]
        fn it_stays_credible_whatever_is_reported(
            reports in prop::collection::vec((any::<u32>(), any::<u32>()), 0..200),
        ) {
            let mut ratio = TokenRatio::new();
            for (bytes, tokens) in reports {
                ratio.observe(bytes, tokens);
                ratio.observe(bytes % 10_000, tokens % 10_000);
                prop_assert!(CREDIBLE.contains(&ratio.per_byte()));
            }
        }
    }
}
