//! Token counts as a pod reports them.

use std::sync::LazyLock;

use memchr::memmem::FinderRev;
use serde::Deserialize;

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
    Usage::deserialize(&mut serde_json::Deserializer::from_slice(value)).ok()
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
    fn an_embedding_has_no_output_tokens() {
        let found = last_in(br#"{"data":[],"usage":{"prompt_tokens":5,"total_tokens":5}}"#);
        assert_eq!(found, Some(Usage { prompt_tokens: Some(5), completion_tokens: None }));
    }
}
