//! How much of a prompt is text, and how many prompts there are.
//!
//! Sizes are those of the raw JSON: the ratio of tokens to bytes is learned from what engines report
//! and takes quotes and escapes with it. The content of a `data:` URI is no text: an image of 1 MB is
//! some hundred tokens, not 250 000. It is replaced by its hash, so that prompts with different images
//! still differ. What an image costs is not counted.

use std::{borrow::Cow, fmt, sync::LazyLock};

use memchr::{
    memchr, memchr_iter, memchr3,
    memmem::{self, Finder},
};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use xxhash_rust::xxh3::xxh3_64;

/// What kind of prompt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Prompts in it.
    pub(super) prompts: u32,
    /// Its tokens, when it is given in tokens.
    pub(super) tokens: Option<u32>,
}

impl Shape {
    /// One prompt of text.
    pub(super) const ONE: Self = Self { prompts: 1, tokens: None };
}

/// The shape of a valid JSON value: a string, or an array of strings, tokens or arrays of tokens.
pub(super) fn shape(json: &str) -> Shape {
    let Some(inner) = json.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Shape::ONE;
    };
    let inner = inner.trim_ascii();
    // Tokens are counted by their commas: there may be a million, and they need no parsing.
    let commas = || memchr_iter(b',', inner.as_bytes()).count();
    match inner.as_bytes().first() {
        None => Shape::ONE,
        Some(b'-' | b'0'..=b'9') => Shape { prompts: 1, tokens: Some(clamped(commas() + 1)) },
        Some(b'[') if !inner.contains('"') => {
            let prompts = memchr_iter(b'[', inner.as_bytes()).count();
            Shape { prompts: clamped(prompts), tokens: Some(clamped(commas() + 1)) }
        }
        Some(_) => {
            let elements = serde_json::from_str::<Elements>(json).map_or(1, |elements| elements.0);
            Shape { prompts: clamped(elements), tokens: None }
        }
    }
}

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The number of an array's elements.
struct Elements(usize);

impl<'de> Deserialize<'de> for Elements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;

        impl<'de> Visitor<'de> for Count {
            type Value = Elements;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Elements, A::Error> {
                let mut count = 0;
                while array.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Elements(count))
            }
        }

        deserializer.deserialize_seq(Count)
    }
}

/// The parts as one text, without the content of data URIs. Borrowed when there is nothing to join
/// and nothing to leave out.
pub(super) fn join<'a>(parts: impl Iterator<Item = &'a str>) -> Cow<'a, [u8]> {
    let mut text = Cow::Borrowed(&b""[..]);
    for part in parts {
        let part = without_data(part.as_bytes());
        if text.is_empty() {
            text = part;
        } else {
            text.to_mut().extend_from_slice(&part);
        }
    }
    text
}

const BASE64: &[u8] = b";base64,";
static ENCODED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(BASE64));
/// A media type between `data:` and [`BASE64`] is at most this long, with its parameters.
const MEDIA_TYPE_BYTES: usize = 128;

fn without_data(json: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    let mut rest = json;
    let mut from = 0;
    while let Some(found) = find_encoded(rest.get(from..).unwrap_or_default()) {
        let content = from + found + BASE64.len();
        let (head, tail) = rest.split_at_checked(content).unwrap_or((rest, &[]));
        if !is_data_uri(head) {
            from = content;
            continue;
        }
        let (data, after) = tail.split_at_checked(content_bytes(tail)).unwrap_or((tail, &[]));
        kept.extend_from_slice(head);
        kept.extend_from_slice(&xxh3_64(data).to_ne_bytes());
        rest = after;
        from = 0;
    }
    if kept.is_empty() {
        return Cow::Borrowed(json);
    }
    kept.extend_from_slice(rest);
    Cow::Owned(kept)
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
