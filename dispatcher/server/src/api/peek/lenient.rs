//! Values as engines take them, not as a schema would have them.
//!
//! vLLM and SGLang read bodies with pydantic in its lax mode, which takes `16.0` and `"16"` for a
//! number and `"true"` for a truth. What even that mode refuses counts as absent here.

use std::borrow::Cow;

use serde::Deserialize;

use super::Raw;

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A string, with escapes resolved.
pub(super) fn string(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    if let Some(plain) = raw.0.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        && !plain.contains('\\')
    {
        return Some(Cow::Borrowed(plain));
    }
    serde_json::from_str::<Text<'_>>(raw.0).ok().map(|text| text.0)
}

/// A number that counts something: not negative, cut to 32 bits.
pub(super) fn count(raw: Raw<'_>) -> Option<u32> {
    let number: f64 = unquoted(raw)?.trim().parse().ok()?;
    // The cast saturates.
    (number.is_finite() && number >= 0.0).then_some(number as u32)
}

/// Whether a value means true.
pub(super) fn truth(raw: Raw<'_>) -> bool {
    let Some(text) = unquoted(raw) else { return false };
    let yes = ["true", "1", "1.0", "yes", "on", "y", "t"];
    yes.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// A scalar's text, whether or not it is quoted.
fn unquoted(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    match raw.0.as_bytes().first()? {
        b'"' => string(raw),
        b'{' | b'[' => None,
        _ => Some(Cow::Borrowed(raw.0)),
    }
}
