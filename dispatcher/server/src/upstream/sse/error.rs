//! Errors inside a stream, which engines and APIs say in several ways: an object `error`, an object of the type or the kind
//! `error`, a response that has failed, an event of one of these names.
//!
//! Asked only of events that carry nothing of the answer, and of those parsed is only what has one of the words in it. A
//! member that is there and null, as some engines have it in every event, is no error.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The type of an error of the Messages and the Responses API, and the name of its event.
const ERROR: &str = "error";
/// The type of the event that ends a stream of the Responses API which has failed, and its name.
const FAILED: &str = "response.failed";

/// How these end where they are a key or a value.
static WORDS: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["error\"", "response.failed\""].map(Finder::new));

/// An error that an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its status: engines say it as a `code`, 4xx where the request was wrong, for the head went out as 200. Another code, or
    /// none, is an error of the pod's.
    pub status: u16,
    /// No event follows it.
    pub last: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// Whether an event of this name is an error.
pub(super) fn is_named(name: &[u8]) -> bool {
    name == ERROR.as_bytes() || name == FAILED.as_bytes()
}

/// Whether there may be an error in this at all.
pub(in super::super) fn may_say(data: &[u8]) -> bool {
    WORDS.iter().any(|word| word.find(data).is_some())
}

/// The error that an event says with its data, or is by its name.
pub(super) fn said(data: &[u8], named: bool) -> Option<Said> {
    if !named && !may_say(data) {
        return None;
    }
    // serde would also fill it from an array, in order.
    let object = data.trim_ascii_start().starts_with(b"{");
    let event = object.then(|| serde_json::from_slice::<Event<'_>>(data).ok()).flatten();
    let event = event.unwrap_or_default();
    let last = is(event.kind, ERROR) || is(event.kind, FAILED);
    if !named && !last && !is(event.object, ERROR) && event.error.is_none() {
        return None;
    }
    let inner = event.error.or(event.response.and_then(error_of));
    let code = event.code.and_then(number).or_else(|| number(code_of(inner?)?));
    let status = code.filter(|code| (400..600).contains(code)).unwrap_or(500);
    Some(Said { status, last })
}

fn is(value: Option<&RawValue>, word: &str) -> bool {
    let plain = value.and_then(|value| value.get().strip_prefix('"')?.strip_suffix('"'));
    plain == Some(word)
}

fn error_of(value: &RawValue) -> Option<&RawValue> {
    serde_json::from_str::<Event<'_>>(value.get()).ok()?.error
}

fn code_of(value: &RawValue) -> Option<&RawValue> {
    serde_json::from_str::<Event<'_>>(value.get()).ok()?.code
}

fn number(value: &RawValue) -> Option<u16> {
    value.get().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data: &str) -> Option<Said> {
        said(data.as_bytes(), false)
    }

    #[test]
    fn an_error_is_known_in_every_way_that_it_is_said() {
        for (data, status, last) in [
            (r#"{"error":{"message":"no","code":400}}"#, 400, false),
            (r#"{ "error" : { "code" : 404 } }"#, 404, false),
            (r#"{"error":"no"}"#, 500, false),
            (r#"{"error":{"code":"rate_limit"}}"#, 500, false),
            (r#"{"error":{"code":7}}"#, 500, false),
            (r#"{"id":"c","choices":[],"error":{"code":503}}"#, 503, false),
            (
                r#"{"object":"error","message":"no","type":"BadRequestError","code":400}"#,
                400,
                false,
            ),
            (r#"{"type": "error", "error": {"type":"api_error"}}"#, 500, true),
            (
                r#"{"code":"server_error","message":"no","sequence_number":1,"type":"error"}"#,
                500,
                true,
            ),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"server_error"}}}"#,
                500,
                true,
            ),
            (r#"{"response":{"error":{"code":429}},"type":"response.failed"}"#, 429, true),
        ] {
            assert_eq!(of(data), Some(Said { status, last }), "{data}");
        }
    }

    #[test]
    fn what_only_speaks_of_an_error_is_none() {
        for data in [
            r#"{"error":null,"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"type":"response.created","response":{"error":null,"output":[]}}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#,
            r#"{"choices":[],"usage":{"error":1}}"#,
            r#"{"choices":[{"delta":{"role":"response.failed"}}]}"#,
            r#"{"error":"#,
            r#"["error"]"#,
        ] {
            assert_eq!(of(data), None, "{data}");
        }
    }

    #[test]
    fn an_event_of_such_a_name_is_an_error_whatever_it_says() {
        assert!(is_named(b"error") && is_named(b"response.failed"));
        assert!(!is_named(b"response.completed") && !is_named(b"errors"));
        for (data, status) in
            [("{\"message\":\"no\"}", 500), ("oops", 500), ("{\"code\":400}", 400)]
        {
            assert_eq!(said(data.as_bytes(), true), Some(Said { status, last: false }), "{data}");
        }
    }
}
