//! What the events of a stream say: some of the answer, usage, an error, the end.
//!
//! Runs on every chunk, so it looks at bytes and parses nothing but a `usage` object and what may be an error; a line that
//! lies within one chunk, which is the usual case, is not copied either.
//!
//! A data event counts as one of the answer's when it carries some of it: a key from [`CARRIERS`]
//! with a value that is not empty. That leaves out vLLM's first event, which has only the role,
//! the last one, which has only the finish reason, and the one with `usage`. With n > 1 the events of all choices count. A
//! key is found by its bytes: inside a JSON string its quote would be escaped, and what ends a
//! string is not followed by a colon.

pub(super) mod error;

use std::sync::LazyLock;

use memchr::{memchr, memmem::Finder};

use super::usage::{self, Usage};

/// Most bytes kept of a line that is not complete yet. Of a longer one its answer is looked for in
/// what was there by then, and its `usage` in its end.
const LONGEST_LINE: usize = 64 << 10;

/// `usage` is looked for in this many last bytes of an event: it is the last thing of any size in
/// it, and an event with log probabilities is long.
const USAGE_TAIL: usize = 1024;

/// Keys that carry some of the answer, with the first bytes that their value may have. The closing
/// quote alone makes `content"` find `reasoning_content` too.
const CARRIERS: [(&str, &[u8]); 11] = [
    ("content\"", b"\"["),
    ("\"text\"", b"\""),
    ("\"tool_calls\"", b"["),
    ("\"reasoning\"", b"\""),
    ("\"function_call\"", b"{"),
    ("\"refusal\"", b"\""),
    ("\"audio\"", b"{"),
    // A string in the Responses API only; the object of a chat says nothing by itself.
    ("\"delta\"", b"\""),
    // Of what goes on as tokens; of a chat beside its text, for who asks for them.
    ("\"token_ids\"", b"["),
    // Of the Messages API, whose texts are found by `text`.
    ("\"thinking\"", b"\""),
    ("\"partial_json\"", b"\""),
];

static FINDERS: LazyLock<[(Finder<'static>, &'static [u8]); CARRIERS.len()]> =
    LazyLock::new(|| CARRIERS.map(|(key, starts)| (Finder::new(key), starts)));

/// The type of the event that ends a stream of the Messages API, which has nothing else.
static STOP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"message_stop\""));
const LONGEST_STOP: usize = 64;

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));

/// Reads a stream as it passes, whatever its chunks.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Start of a line whose end has not come yet.
    line: Vec<u8>,
    /// The start of the line was cut off, and there was some of the answer in it.
    cut_carried: bool,
    /// The last complete line that is no comment was not empty: an event is open.
    in_event: bool,
    /// By its name the open event is an error.
    is_error: bool,
    /// Data events seen.
    pub events: u32,
    /// Data events that carry some of the answer: a token each, on most engines.
    pub carrying: u32,
    /// The last `usage` seen.
    pub usage: Option<Usage>,
    /// `data: [DONE]` was seen, or an event that ends a stream whose events have types.
    pub done: bool,
    /// The status of the error that was seen as an event, by its code if it has one.
    pub error: Option<u16>,
}

impl Scan {
    /// Takes the next chunk.
    pub(super) fn chunk(&mut self, mut rest: &[u8]) {
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.line_ends(line);
            } else {
                self.keep(line);
                let mut line = std::mem::take(&mut self.line);
                self.line_ends(&line);
                line.clear();
                self.line = line;
            }
            self.cut_carried = false;
        }
        if !rest.is_empty() {
            self.keep(rest);
        }
    }

    /// The stream is over: its last line may lack its end.
    pub(super) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.line_ends(&line);
        }
    }

    /// Whether the stream stands between two events.
    pub(super) fn between_events(&self) -> bool {
        self.line.is_empty() && !self.in_event
    }

    /// Whether the stream stands inside a line with data.
    pub(super) fn is_in_data(&self) -> bool {
        self.line.starts_with(DATA)
    }

    fn keep(&mut self, part: &[u8]) {
        self.line.extend_from_slice(part);
        if self.line.len() > LONGEST_LINE {
            self.cut_carried |= carries_answer(&self.line);
            // The start stays recognisable as data.
            let cut = self.line.len() - USAGE_TAIL;
            self.line.drain(DATA.len()..cut);
        }
    }

    fn line_ends(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A comment belongs to no event.
        if !line.starts_with(b":") {
            self.in_event = !line.is_empty();
        }
        if let Some(data) = line.strip_prefix(DATA) {
            self.data(data.strip_prefix(b" ").unwrap_or(data));
        } else if line.is_empty() {
            self.is_error = false;
        } else if let Some(name) = line.strip_prefix(NAME) {
            self.is_error = error::is_named(name.trim_ascii());
        }
    }

    fn data(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        self.events += 1;
        if !self.is_error && (self.cut_carried || carries_answer(data)) {
            self.carrying += 1;
        } else if let Some(said) = error::said(data, self.is_error) {
            self.error = Some(said.status);
            self.done |= said.last;
        } else if data.len() <= LONGEST_STOP && STOP.find(data).is_some() {
            self.done = true;
        }
        let tail = data.get(data.len().saturating_sub(USAGE_TAIL)..).unwrap_or(data);
        if USAGE.find(tail).is_some() {
            self.usage = usage::last_in(tail).map(|usage| usage.or(self.usage)).or(self.usage);
        }
    }
}

const DATA: &[u8] = b"data:";
const NAME: &[u8] = b"event:";

fn carries_answer(event: &[u8]) -> bool {
    FINDERS.iter().any(|(key, starts)| {
        key.find_iter(event).any(|at| {
            event.get(at + key.needle().len()..).is_some_and(|after| is_filled(after, starts))
        })
    })
}

/// Whether what follows a key is a value that is not empty and starts as allowed.
fn is_filled(after_key: &[u8], starts: &[u8]) -> bool {
    let Some(value) = after_key.trim_ascii_start().strip_prefix(b":") else { return false };
    let Some((start, inside)) = value.trim_ascii_start().split_first() else { return false };
    let empty = match start {
        b'"' => inside.starts_with(b"\""),
        b'[' => inside.trim_ascii_start().starts_with(b"]"),
        _ => inside.trim_ascii_start().starts_with(b"}"),
    };
    starts.contains(start) && !empty
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}"#;
    const TOKEN: &str = r#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"Hi \"content\" {"},"finish_reason":null}]}"#;
    const FINISH: &str =
        r#"data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const COUNTS: &str = r#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":11,"total_tokens":13,"completion_tokens":2}}"#;

    fn stream(lines: &[&str]) -> String {
        lines.iter().map(|line| format!("{line}\n\n")).collect()
    }

    fn scan(text: &str) -> Scan {
        let mut scan = Scan::default();
        scan.chunk(text.as_bytes());
        scan
    }

    #[test]
    fn only_events_with_some_of_the_answer_are_tokens() {
        let seen = scan(&stream(&[": ping", ROLE, TOKEN, TOKEN, FINISH, COUNTS, "data: [DONE]"]));
        assert_eq!((seen.events, seen.carrying), (5, 2));
        let counts = Usage { prompt_tokens: Some(11), completion_tokens: Some(2) };
        assert_eq!(seen.usage, Some(counts));
        assert!(seen.done && seen.error.is_none() && seen.between_events());
    }

    #[test]
    fn a_stream_reads_the_same_wherever_it_is_cut() {
        let text = stream(&[ROLE, TOKEN, ": ping", TOKEN, FINISH, COUNTS, "data: [DONE]"])
            .replace("\n\ndata: [DONE]", "\r\n\r\ndata: [DONE]");
        for cut in 0..text.len() {
            let mut seen = Scan::default();
            let (before, after) = text.as_bytes().split_at(cut);
            seen.chunk(before);
            assert_eq!(seen.done, cut + 1 >= text.len(), "cut at {cut}");
            seen.chunk(after);
            assert_eq!((seen.events, seen.carrying, seen.done), (5, 2, true), "cut at {cut}");
            assert_eq!(seen.usage.unwrap().completion_tokens, Some(2), "cut at {cut}");
        }
    }

    #[test]
    fn every_kind_of_answer_counts() {
        for filled in [
            r#"{"choices":[{"text":"a","index":0}]}"#,
            r#"{"request_id":"a","choices":[{"index":0,"logprobs":null,"token_ids":[7]}]}"#,
            r#"{"choices": [{"delta": {"content": "a"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"a","content":null}}]}"#,
            r#"{"choices":[{"delta":{"content":"","reasoning":"a"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            r#"{"type":"response.output_text.delta","delta":"a"}"#,
            r#"{"index":0,"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"a"}}"#,
            r#"{"delta":{"type":"input_json_delta","partial_json":"{\"a"}}"#,
        ] {
            assert_eq!(scan(&format!("data: {filled}\n\n")).carrying, 1, "{filled}");
        }
        for empty in [
            r#"{"choices":[{"text":"","index":0,"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[ ]}}]}"#,
            r#"{"type":"response.created","response":{"text":{"format":{}},"output":[]}}"#,
            r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_start","content_block":{"type":"tool_use","input":{}}}"#,
        ] {
            assert_eq!(scan(&format!("data: {empty}\n\n")).carrying, 0, "{empty}");
        }
    }

    #[test]
    fn a_pods_own_error_is_seen() {
        for (code, status) in
            [("null", 500), ("\"rate_limit\"", 500), ("400", 400), ("503", 503), ("7", 500)]
        {
            let error = format!("data: {{\"error\":{{\"message\":\"no\",\"code\":{code}}}}}\n\n");
            assert_eq!(scan(&error).error, Some(status), "{error}");
        }
        assert_eq!(scan("data: {\"error\":\"no\"}\n\ndata: [DONE]\n\n").error, Some(500));
    }

    #[test]
    fn an_error_is_one_by_its_name_or_by_what_it_says() {
        let failed = r#"data: {"type":"response.failed","response":{"output":[{"text":"half an answer"}],"error":{"code":"server_error"}}}"#;
        let seen = scan(&format!("event: response.failed\n{failed}\n\n"));
        assert_eq!((seen.error, seen.carrying, seen.done), (Some(500), 0, true));
        for named in ["event: error\ndata: {}\n\n", "event:error\r\ndata: oops\r\n\r\n"] {
            assert_eq!(scan(named).error, Some(500), "{named}");
        }
        let others = format!("event: error\n\n{TOKEN}\n\nevent: errors\ndata: {{}}\n\n{TOKEN}\n\n");
        let seen = scan(&others);
        assert_eq!((seen.error, seen.carrying), (None, 2));
        let null = r#"data: {"error":null,"choices":[{"delta":{"role":"assistant"}}]}"#;
        assert_eq!(scan(&stream(&[null, TOKEN, "data: [DONE]"])).error, None);
    }

    #[test]
    fn a_stream_of_messages_ends_with_an_event_and_counts_in_two() {
        let start = r#"data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":11,"output_tokens":0}}}"#;
        let text = r#"data: {"index":0,"type":"content_block_delta","delta":{"type":"text_delta","text":"a \"message_stop\""}}"#;
        let delta = r#"data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#;
        for stop in [r#"data: {"type":"message_stop"}"#, r#"data: { "type": "message_stop" }"#] {
            let mut seen = scan(&stream(&[start, text, text, delta]));
            assert!(!seen.done);
            seen.chunk(stream(&["event: message_stop", stop]).as_bytes());
            assert_eq!((seen.carrying, seen.done, seen.error), (2, true, None));
            let counts = Usage { prompt_tokens: Some(11), completion_tokens: Some(2) };
            assert_eq!(seen.usage, Some(counts));
        }
        for error in [
            r#"data: {"type":"error","error":{"type":"api_error","message":"no"}}"#,
            r#"data: {"type": "error", "error": {"type": "api_error", "message": "no"}}"#,
        ] {
            let seen = scan(&stream(&[start, error]));
            assert_eq!((seen.error, seen.done), (Some(500), true), "nothing follows it");
        }
    }

    #[test]
    fn an_end_without_its_newline_is_an_end() {
        let mut seen = scan("data: {}\n\ndata: [DONE]");
        assert!(!seen.done);
        seen.finish();
        assert!(seen.done);
    }

    #[test]
    fn an_open_event_is_known() {
        assert!(!scan("data: {\"a").between_events());
        assert!(!scan("data: {}\n").between_events());
        assert!(scan("data: {}\n\n").between_events());
        assert!(!scan("data: {}\n: ping\n").between_events());
        assert!(!scan(": pi").between_events());
        for ping in [": ping\n", ":\r\n", ": ping\n\n"] {
            assert!(scan(ping).between_events(), "{ping:?}");
            assert!(scan(&format!("data: {{}}\n\n{ping}")).between_events(), "{ping:?}");
        }
    }

    #[test]
    fn a_line_without_end_is_bounded_and_still_read() {
        let mut seen = Scan::default();
        seen.chunk(br#"data: {"choices":[{"delta":{"content":"#);
        seen.chunk(b"\"");
        for _ in 0..64 {
            seen.chunk(&[b'a'; 8192]);
            assert!(seen.line.len() <= LONGEST_LINE + 8192);
        }
        seen.chunk(b"\"}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":9}}\n\n");
        assert_eq!((seen.events, seen.carrying), (1, 1));
        assert_eq!(seen.usage.unwrap().completion_tokens, Some(9));
    }
}
