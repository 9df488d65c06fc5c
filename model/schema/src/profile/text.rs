//! JSON as the profiling tools write it.
//!
//! Python's `json.dump` writes `NaN` and `Infinity`, which are no JSON. A parser that stops at the
//! first of them can only name a column of the text; here they become `null`, so that whoever reads
//! the value can name the cell.

use serde_json::Value;

use super::ProfileError;

/// What Python writes for floats that JSON does not have; the longest first.
const NAMES: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// The text as a value.
pub(super) fn parse(text: &str) -> Result<Value, ProfileError> {
    serde_json::from_str(&without_names(text))
        .map_err(|error| ProfileError::Json(error.to_string()))
}

/// The number at a place; NaN when it is `null`, `NaN` or infinite.
pub(super) fn number(value: &Value) -> Option<f64> {
    if value.is_null() { Some(f64::NAN) } else { value.as_f64() }
}

fn without_names(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut quoted, mut escaped) = (text, false, false);
    loop {
        let named = NAMES.iter().find_map(|name| rest.strip_prefix(name)).filter(|_| !quoted);
        if let Some(after) = named {
            out.push_str("null");
            rest = after;
            continue;
        }
        let mut letters = rest.chars();
        let Some(letter) = letters.next() else { return out };
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        out.push(letter);
        rest = letters.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinity_become_null_outside_strings_only() {
        let text = r#"{"NaN": [NaN, -Infinity, Infinity, -1.5], "a\"NaN": "b\\", "c": NaN}"#;
        let want = r#"{"NaN": [null, null, null, -1.5], "a\"NaN": "b\\", "c": null}"#;
        assert_eq!(without_names(text), want);
        assert!(parse(text).is_ok());
    }
}
