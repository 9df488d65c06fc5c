//! What is attached to a prompt in base64: images, audio, files. It is no text: an image of 1 MB is some hundred tokens, twenty
//! seconds of audio are some hundred too, and neither is 250 000. It is replaced by its hash, so that prompts with different
//! attachments still differ. What an attachment costs is not counted.
//!
//! It stands in a `data:` URI, or alone as a string: OpenAI's `input_audio` has it so, and vLLM's embeddings. Such a string is
//! the value of a member, is long, and has no other letter from its first to its last; a member whose value engines read as
//! text is left as it is. Text is passed over in strides: where one of its letters is no base64, no such string is around it,
//! and where none begins, none does before the next quote.

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use memchr::{
    memchr, memchr3,
    memmem::{self, Finder},
};
use xxhash_rust::xxh3::xxh3_64;

/// The text of a JSON value with every attachment replaced. Borrowed when there is none.
pub(super) fn replaced(json: &[u8]) -> Cow<'_, [u8]> {
    match cut(json, next_string) {
        Cow::Borrowed(json) => cut(json, next_in_uri),
        Cow::Owned(json) => Cow::Owned(cut(&json, next_in_uri).into_owned()),
    }
}

/// The text with what is found in it, one after the other, replaced by its hash.
fn cut(text: &[u8], next: fn(&[u8], usize) -> Option<Range<usize>>) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    let mut done = 0;
    while let Some(found) = next(text, done) {
        kept.extend_from_slice(text.get(done..found.start).unwrap_or_default());
        let content = text.get(found.clone()).unwrap_or_default();
        kept.extend_from_slice(&xxh3_64(content).to_ne_bytes());
        done = found.end;
    }
    if kept.is_empty() {
        return Cow::Borrowed(text);
    }
    kept.extend_from_slice(text.get(done..).unwrap_or_default());
    Cow::Owned(kept)
}

const BASE64: &[u8] = b";base64,";
static ENCODED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(BASE64));
/// A media type between `data:` and [`BASE64`] is at most this long, with its parameters.
const MEDIA_TYPE_BYTES: usize = 128;

/// The content of the first data URI from here on.
fn next_in_uri(text: &[u8], from: usize) -> Option<Range<usize>> {
    let mut at = from;
    loop {
        at += find_encoded(text.get(at..)?)? + BASE64.len();
        if is_data_uri(text.get(from..at)?) {
            return Some(at..at + content_bytes(text.get(at..)?));
        }
    }
}

/// The first [`BASE64`]. Most texts have nothing that it could begin with, and are through with that.
fn find_encoded(text: &[u8]) -> Option<usize> {
    let from = memchr(b';', text)?;
    Some(from + ENCODED.find(text.get(from..)?)?)
}

/// Whether the text ends in the head of a data URI.
fn is_data_uri(head: &[u8]) -> bool {
    let start = head.len().saturating_sub(MEDIA_TYPE_BYTES);
    memmem::find(head.get(start..).unwrap_or_default(), b"data:").is_some()
}

/// Length of base64 inside a JSON string: up to a quote, a space, or an escape other than `\/`.
fn content_bytes(tail: &[u8]) -> usize {
    let mut end = 0;
    while let Some(found) = memchr3(b'"', b' ', b'\\', tail.get(end..).unwrap_or_default()) {
        end += found;
        if tail.get(end..end + 2) != Some(br"\/") {
            return end;
        }
        end += 2;
    }
    tail.len()
}

/// A shorter string is not looked for: as text it is some hundred tokens, as many as an attachment.
pub(super) const SHORTEST: usize = 1024;
/// Keys whose values are text to the engine, whatever they look like: of messages, parts, calls of tools and their results.
const OF_TEXT: [&[u8]; 5] =
    [b"\"content\"", b"\"text\"", b"\"arguments\"", b"\"input\"", b"\"output\""];

/// The first string from here on that is an attachment.
fn next_string(text: &[u8], from: usize) -> Option<Range<usize>> {
    // None begins before this, and none that is long enough lies between two probes.
    let mut floor = from;
    loop {
        let at = floor + SHORTEST;
        if !is_letter(text.get(at)?) {
            floor = at;
            continue;
        }
        let before = text.get(floor..at)?.iter().rposition(|letter| !is_letter(letter));
        let start = before.map_or(floor, |before| floor + before + 1);
        if is_member(text.get(..start)?) {
            let tail = text.get(start..)?;
            let (content, after) = tail.split_at_checked(content_bytes(tail))?;
            if after.first() == Some(&b'"') && content.len() >= SHORTEST && is_base64(content) {
                return Some(start..start + content.len());
            }
        }
        floor = at + memchr(b'"', text.get(at..)?)?;
    }
}

/// Whether what follows is inside a string that is the value of a member, but of none in [`OF_TEXT`].
fn is_member(head: &[u8]) -> bool {
    let colon = head.strip_suffix(b"\"").map(<[u8]>::trim_ascii_end);
    let key = colon.and_then(|head| head.strip_suffix(b":")).map(<[u8]>::trim_ascii_end);
    key.is_some_and(|key| !OF_TEXT.iter().any(|of_text| key.ends_with(of_text)))
}

/// With what base64 may have in a JSON string: both alphabets, and a slash behind a backslash.
const fn is_letter(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() | matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'\\')
}

fn is_base64(content: &[u8]) -> bool {
    // In pieces that are read without a branch for each letter.
    content.chunks(64).all(|piece| piece.iter().fold(true, |all, byte| all & is_letter(byte)))
}
