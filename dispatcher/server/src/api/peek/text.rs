//! How much of a prompt is text, and how many prompts there are.
//!
//! Sizes are those of the raw JSON: the ratio of tokens to bytes is learned from what engines report
//! and takes quotes and escapes with it. What is [attached] is no text.

use std::{borrow::Cow, fmt};

use memchr::memchr_iter;
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::attached;

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

/// What of a `system` is for the model, before and after the line by which an agent says who it is. That line has a number of
/// its own in each request, and engines leave it out, for else no prompt would begin as the one before.
pub(super) fn without_attribution(system: &str) -> [&str; 2] {
    const LINE: &str = "\"x-anthropic-billing-header";
    // It is the first of the texts.
    let first = if system.starts_with('[') { system.find('}') } else { None };
    let part = first.and_then(|end| system.split_at_checked(end + 1));
    match part {
        Some((part, rest)) if part.contains(LINE) => [part.get(..1).unwrap_or_default(), rest],
        _ => [system, ""],
    }
}

/// The parts as one text, without what is attached. Borrowed when there is nothing to join
/// and nothing to leave out.
pub(super) fn join<'a>(parts: impl Iterator<Item = &'a str>) -> Cow<'a, [u8]> {
    let parts = parts.map(|part| attached::replaced(part.as_bytes()));
    let mut parts: SmallVec<[_; 4]> = parts.filter(|part| !part.is_empty()).collect();
    if parts.len() > 1 {
        return Cow::Owned(parts.concat());
    }
    parts.pop().unwrap_or_default()
}
