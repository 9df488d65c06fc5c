//! Where the last answer stands in the messages of a conversation.
//!
//! Read are only messages as programs write them, on one line. Of anything else nothing is said, and the conversation counts as
//! one that begins with it.

use std::sync::LazyLock;

use memchr::{memmem::Finder, memrchr_iter};
use weir_core::prefix::{BLOCK_BYTES, Reply, Turn, prompt_name};

use crate::walk::Walk;

const ASSISTANT: &[u8] = br#""assistant""#;
static ROLE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ASSISTANT));
/// What is searched first for the last answer, from the end: most conversations have it there.
const NEAR_BYTES: usize = 2048;
/// How many times as much comes next.
const FURTHER: usize = 4;

/// Objects that are looked at for the one that has the last such word in it: a message may have parts before its role.
const MOST_TRIED: usize = 8;

/// What a prompt that ends in an array of messages is to the turns of its conversation. Its blocks are named under `seed`.
pub(super) fn of(text: &[u8], blocks: &[u64], seed: u64) -> Turn {
    let Some(whole) = array_end(text) else { return Turn::default() };
    Turn { name: named(whole, blocks, seed), reply: reply(whole, blocks, seed) }
}

fn reply(text: &[u8], blocks: &[u64], seed: u64) -> Option<Reply> {
    let at = last_role(text)?;
    let (before, end) = message(text, at)?;
    Some(Reply {
        to: named(before, blocks, seed),
        from: (before.len() / BLOCK_BYTES) as u32,
        end: (end / BLOCK_BYTES) as u32,
    })
}

/// Where the role of an answer stands last.
fn last_role(text: &[u8]) -> Option<usize> {
    let (mut end, mut width) = (text.len(), NEAR_BYTES);
    while end > 0 {
        let start = end.saturating_sub(width);
        // One that begins before the end may go beyond it.
        let reach = text.len().min(end + ASSISTANT.len() - 1);
        if let Some(at) = ROLE.find_iter(text.get(start..reach)?).last() {
            return Some(start + at);
        }
        (end, width) = (start, width * FURTHER);
    }
    None
}

/// The messages without the bracket that closes them.
fn array_end(text: &[u8]) -> Option<&[u8]> {
    let whole = text.trim_ascii_end().strip_suffix(b"]")?.trim_ascii_end();
    whole.ends_with(b"}").then_some(whole)
}

/// All messages before the one whose role stands at `at`, and where that one ends.
fn message(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    // A quote without a backslash before it is inside of no string: what looks like the beginning of an object is one.
    let opens = |start: &usize| {
        let after = text.get(start + 1..).unwrap_or_default().trim_ascii_start();
        let before = text.get(..*start).unwrap_or_default().trim_ascii_end();
        after.starts_with(b"\"") && (before.ends_with(b",") || before.ends_with(b"["))
    };
    let starts = memrchr_iter(b'{', text.get(..at)?).filter(opens).take(MOST_TRIED);
    for start in starts {
        let (len, is_answer) = object(text.get(start..)?)?;
        if start + len > at {
            let before = text.get(..start)?.trim_ascii_end().strip_suffix(b",")?.trim_ascii_end();
            return (is_answer && before.ends_with(b"}")).then_some((before, start + len));
        }
    }
    None
}

/// The length of the object at the beginning, and whether it is a message of the assistant.
fn object(text: &[u8]) -> Option<(usize, bool)> {
    // What was attached further on is replaced by bytes that are no text.
    let text = text.utf8_chunks().next()?.valid();
    let mut walk = Walk::of(text);
    let mut is_answer = false;
    walk.takes(b'{')?;
    loop {
        let (key, value) = (walk.key()?, walk.value()?);
        is_answer |= key == "role" && value == "\"assistant\"";
        match walk.next()? {
            b',' => {}
            b'}' => return Some((walk.at(), is_answer)),
            _ => return None,
        }
    }
}

/// The name of a text whose first blocks these are.
fn named(text: &[u8], blocks: &[u64], seed: u64) -> u64 {
    let (whole, tail) = text.as_chunks::<BLOCK_BYTES>();
    let above = whole.len().checked_sub(1).map_or(Some(&seed), |last| blocks.get(last));
    above.map_or(0, |above| prompt_name(*above, tail))
}

#[cfg(test)]
mod tests;
