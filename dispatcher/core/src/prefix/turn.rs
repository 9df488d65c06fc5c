//! A prompt as a turn of a conversation.
//!
//! What an engine generates stays in its cache like what it was sent, and the next turn of the conversation has it in its prompt.
//! Weir relays an answer and does not read it, so its blocks have no names here; but whoever reads the next turn sees where it
//! stands in that. So a prompt has a name as a whole, under which a pod is believed to hold its answer, and says to which prompt
//! the answer is that it goes on from.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ring::Answer;

/// What a prompt is to the turns before and after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Names all of the prompt, to its last byte; 0 where no turn can come after it.
    pub name: u64,
    /// The answer that it goes on from, if it has one.
    pub reply: Option<Reply>,
}

/// The last answer in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The [`Turn::name`] of the prompt that it is to: everything before it.
    pub to: u64,
    /// Full blocks of that prompt, which are the first of this one.
    pub from: u32,
    /// Full blocks of this prompt up to the end of the answer.
    pub end: u32,
}

/// Names a prompt as a whole by its last full block, or the seed of its names where it has none, and what comes after that.
pub fn prompt_name(above: u64, tail: &[u8]) -> u64 {
    // Not 0, which is none.
    xxh3_64_with_seed(tail, above) | 1
}

impl Reply {
    /// Blocks of the prompt that a pod holds which has its first `held`, and some of an answer to what comes before the reply.
    pub(super) fn held(&self, held: usize, answer: &Answer) -> usize {
        if held != self.from as usize || !self.is(answer) {
            return held;
        }
        // Answers are counted in tokens and prompts in bytes, and a token may have more bytes in one than in the other.
        let of_answer = u64::from(answer.held) * u64::from(self.stands());
        held + (of_answer / u64::from(answer.blocks.max(1))) as usize
    }

    /// Whether it can be that answer. One more than twice as long as what stands here is another, or that of an engine that
    /// thought aloud: of it only the end is sent back, and lies below other blocks than the engine has.
    pub(super) const fn is(&self, answer: &Answer) -> bool {
        answer.blocks <= self.stands().saturating_mul(2)
    }

    /// Blocks that it takes in this prompt.
    const fn stands(&self) -> u32 {
        self.end.saturating_sub(self.from)
    }
}
