//! A member written into a JSON object, whose other bytes stay as they are.
//!
//! It goes in before the object's last brace. Where the object has a member of that name too, the last of them counts, in Python as in
//! Rust's maps. It costs one copy of the body.

use bytes::Bytes;

/// A JSON object with one member more; anything else unchanged. `value` is JSON.
pub(super) fn spliced(body: &Bytes, name: &str, value: &str) -> Bytes {
    let inside = body.trim_ascii_end().strip_suffix(b"}");
    let Some(inside) = inside.filter(|_| is_object(body)) else { return body.clone() };
    let comma = if inside.trim_ascii_end().ends_with(b"{") { "" } else { "," };
    let member = format!("{comma}\"{name}\":{value}");
    let (head, tail) = body.split_at_checked(inside.len()).unwrap_or((body, &[]));
    [head, member.as_bytes(), tail].concat().into()
}

fn is_object(body: &[u8]) -> bool {
    without_mark(body).trim_ascii_start().starts_with(b"{")
}

/// What follows a byte order mark, which engines skip as we do.
pub(super) fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_go_in_before_the_last_brace_and_nothing_else_changes() {
        for (body, with) in [
            (r#"{"a":{}}"#, r#"{"a":{},"priority":-5}"#),
            ("{\"a\":1 }\r\n ", "{\"a\":1 ,\"priority\":-5}\r\n "),
            ("{ }", "{ \"priority\":-5}"),
            ("\u{feff}{\"a\":\"}\"}", "\u{feff}{\"a\":\"}\",\"priority\":-5}"),
        ] {
            let spliced = spliced(&Bytes::from(body), "priority", "-5");
            assert_eq!(spliced, with);
            let json = with.trim_start_matches('\u{feff}');
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(json["priority"], -5);
        }
        for other in ["", "[1]", "{\"a\":", "7", "}", "[{}", "\"{}\""] {
            assert_eq!(spliced(&Bytes::from(other), "priority", "1"), other, "no object");
        }
    }
}
