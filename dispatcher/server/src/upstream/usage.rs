//! Token counts as a pod reports them.

use std::{str::from_utf8, sync::LazyLock};

use memchr::memmem::FinderRev;
use serde::Deserialize;

use crate::walk::Walk;

/// The `usage` object of a response, as far as it is needed. The Responses API has other names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Usage {
    /// Tokens of the prompt.
    #[serde(default, alias = "input_tokens")]
    pub prompt_tokens: Option<u32>,
    /// Tokens of the output, over all choices.
    #[serde(default, alias = "output_tokens")]
    pub completion_tokens: Option<u32>,
}

impl Usage {
    /// That of an answer of which so many tokens were said before, which were a part of the prompt then.
    pub(super) fn after(self, before: u32) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.map(|tokens| tokens.saturating_sub(before)),
            completion_tokens: self.completion_tokens.map(|tokens| tokens.saturating_add(before)),
        }
    }

    /// With what `before` says of what this one does not: the Messages API counts the prompt at the start of a stream.
    pub(super) fn or(self, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        Self {
            prompt_tokens: self.prompt_tokens.or(before.prompt_tokens),
            completion_tokens: self.completion_tokens.or(before.completion_tokens),
        }
    }
}

const KEY: &[u8] = b"\"usage\"";

static LAST: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(KEY));

/// The last `usage` object in a JSON text.
///
/// Only that object is parsed. A search by bytes is enough to find it: inside a JSON string the
/// quotes of the key would be escaped.
pub(super) fn last_in(json: &[u8]) -> Option<Usage> {
    let at = LAST.rfind(json)?;
    parse(json.get(at + KEY.len()..)?)
}

/// Reads the value that follows the key; `None` for null and for what is not a usage object.
fn parse(after_key: &[u8]) -> Option<Usage> {
    let value = after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    if !value.starts_with(b"{") {
        return None;
    }
    // What follows the object is left unread.
    plain(value)
        .or_else(|| Usage::deserialize(&mut serde_json::Deserializer::from_slice(value)).ok())
}

/// Reads an object as engines write it; `None` for what is anything else, which serde judges.
fn plain(value: &[u8]) -> Option<Usage> {
    let mut usage = Usage::default();
    let mut walk = Walk::of(from_utf8(value).ok()?);
    walk.takes(b'{')?;
    loop {
        let (key, number) = (walk.key()?, walk.value()?);
        let place = match key {
            "prompt_tokens" | "input_tokens" => Some(&mut usage.prompt_tokens),
            "completion_tokens" | "output_tokens" => Some(&mut usage.completion_tokens),
            _ => None,
        };
        if let Some(place) = place {
            // What is said twice is serde's, and so is anything but a number.
            if place.replace(number.parse().ok()?).is_some() {
                return None;
            }
        }
        match walk.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    walk.is_believed().then_some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn usage(prompt_tokens: u32, completion_tokens: u32) -> Option<Usage> {
        let (prompt_tokens, completion_tokens) = (Some(prompt_tokens), Some(completion_tokens));
        Some(Usage { prompt_tokens, completion_tokens })
    }

    #[test]
    fn usage_is_found_wherever_it_is_nested() {
        let chat = br#"{"choices":[],"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}}"#;
        assert_eq!(last_in(chat), usage(7, 2));
        let responses = br#"{"type":"response.completed","response":{"usage" : {"input_tokens":3,"output_tokens":4},"user":null}}"#;
        assert_eq!(last_in(responses), usage(3, 4));
    }

    #[test]
    fn text_that_speaks_of_usage_is_not_usage() {
        let text = br#"{"choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":1}}"}}]}"#;
        assert_eq!(last_in(text), None);
        assert_eq!(last_in(br#"{"usage":null}"#), None);
        assert_eq!(last_in(br#"{"usage":{"prompt_tok"#), None);
        assert_eq!(last_in(b"\"usage\""), None);
    }

    #[test]
    fn what_is_read_without_serde_is_what_serde_reads() {
        let mut plain_ones = 0;
        for text in [
            r#"{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}"#,
            r#"{ "input_tokens" : 7 ,"output_tokens":0}, {"#,
            r#"{"total_tokens":9}"#,
            r#"{"prompt_tokens":999999999}"#,
            "{}",
            r#"{"prompt_tokens":7"#,
            r#"{"prompt_tokens":7,}"#,
            r#"{"prompt_tokens":07}"#,
            r#"{"prompt_tokens":-7}"#,
            r#"{"prompt_tokens":7.0}"#,
            r#"{"prompt_tokens":7e1}"#,
            r#"{"prompt_tokens":null,"completion_tokens":2}"#,
            r#"{"prompt_tokens":7,"prompt_tokens":8}"#,
            r#"{"prompt_tokens":7,"input_tokens":8}"#,
            r#"{"prompt_tokens":99999999999}"#,
            r#"{"prompt_tokens":"7"}"#,
            r#"{"prompt\u005ftokens":7}"#,
            r#"{"details":{"a":1},"prompt_tokens":7}"#,
            r#"{"prompt_tokens":nullx}"#,
            r#"{"prompt_tokens":7 8}"#,
        ] {
            let json = text.as_bytes();
            let serde = Usage::deserialize(&mut serde_json::Deserializer::from_slice(json)).ok();
            let read = plain(json);
            plain_ones += usize::from(read.is_some());
            assert!(read.is_none() || read == serde, "{text}: {read:?}, {serde:?}");
        }
        assert_eq!(plain_ones, 5);
    }

    #[test]
    fn an_embedding_has_no_output_tokens() {
        let found = last_in(br#"{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}"#);
        assert_eq!(found, Some(Usage { prompt_tokens: Some(5), completion_tokens: None }));
    }
}
