//! Counts what a stream of server-sent events holds, without parsing its chunks.
//!
//! Fed with the body's frames as they arrive, cut anywhere. Comments and blank lines are skipped, as the OpenAI SDKs do.
//! Only two kinds of lines are read further: the one with `usage` and the one with an error.

use memchr::memmem::Finder;
use serde::Deserialize;

/// A line longer than this is cut; chunks of a few tokens are far below.
const LINE_BYTES: usize = 64 * 1024;

/// What was seen of a stream so far.
pub(super) struct Events {
    line: Vec<u8>,
    usage_mark: Finder<'static>,
    /// Events that carry tokens, the first one of a chat (with the role) included.
    pub(super) chunks: u32,
    /// `completion_tokens` of the `usage` chunk.
    pub(super) completion_tokens: Option<u32>,
    /// Whether `[DONE]` was seen.
    pub(super) done: bool,
    /// The `code` of an error event.
    pub(super) error: Option<String>,
}

#[derive(Deserialize)]
struct UsageChunk {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u32,
}

#[derive(Deserialize)]
struct ErrorChunk {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    code: Option<serde_json::Value>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            line: Vec::new(),
            usage_mark: Finder::new(b"\"usage\":{"),
            chunks: 0,
            completion_tokens: None,
            done: false,
            error: None,
        }
    }

    /// Takes the next bytes and returns whether they completed an event that carries tokens.
    pub(super) fn feed(&mut self, mut frame: &[u8]) -> bool {
        let before = self.chunks;
        while let Some(end) = memchr::memchr(b'\n', frame) {
            let (line, rest) = frame.split_at(end);
            if self.line.is_empty() {
                self.line_ended(line);
            } else {
                self.keep(line);
                let line = std::mem::take(&mut self.line);
                self.line_ended(&line);
                self.line = line;
                self.line.clear();
            }
            frame = rest.get(1..).unwrap_or_default();
        }
        self.keep(frame);
        self.chunks > before
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    fn line_ended(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.done = true;
        } else if data.starts_with(b"{\"error\"") {
            self.error = Some(error_code(data));
        } else if self.usage_mark.find(data).is_some() {
            self.usage(data);
        } else {
            self.chunks += 1;
        }
    }

    /// A chunk with usage; with `continuous_usage_stats` it carries tokens as well.
    fn usage(&mut self, data: &[u8]) {
        if let Ok(chunk) = serde_json::from_slice::<UsageChunk>(data) {
            self.completion_tokens = Some(chunk.usage.completion_tokens);
        }
        if memchr::memmem::find(data, b"\"choices\":[]").is_none() {
            self.chunks += 1;
        }
    }
}

fn error_code(data: &[u8]) -> String {
    let chunk = serde_json::from_slice::<ErrorChunk>(data).ok();
    match chunk.and_then(|chunk| chunk.error.code) {
        Some(serde_json::Value::String(code)) => code,
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = concat!(
        ": queued\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\" a\"}}]}\n\n",
        "data:{\"choices\":[{\"delta\":{\"content\":\" b\"}}]}\r\n\r\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
        "data: [DONE]\n\n",
    );

    #[test]
    fn events_are_counted_wherever_the_frames_are_cut() {
        for size in [1, 2, 7, 50, 1000] {
            let mut events = Events::new();
            let with_tokens =
                STREAM.as_bytes().chunks(size).filter(|frame| events.feed(frame)).count();
            assert_eq!((events.chunks, events.completion_tokens), (3, Some(2)), "cut at {size}");
            assert!(events.done && events.error.is_none() && (1..=3).contains(&with_tokens));
        }
    }

    #[test]
    fn an_error_event_is_found_with_its_code() {
        let mut events = Events::new();
        let tokens =
            events.feed(b"data: {\"error\":{\"message\":\"m\",\"code\":\"upstream_lost\"}}\n\n");
        assert_eq!(events.error.as_deref(), Some("upstream_lost"));
        assert!(!tokens && !events.done);
    }

    #[test]
    fn a_null_usage_is_a_chunk_like_any_other() {
        let mut events = Events::new();
        assert!(events.feed(b"data: {\"choices\":[{}],\"usage\":null}\n"));
        assert_eq!((events.chunks, events.completion_tokens), (1, None));
    }
}
