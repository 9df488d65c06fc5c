//! Requests as bytes that are made once, and where an answer ends.

use anyhow::{Result, bail, ensure};
use memchr::memmem;

/// The model that everybody serves.
pub(super) const MODEL: &str = "m";
/// Tokens of a stream that stays silent after the first.
pub(super) const IDLE_TOKENS: u32 = 100_000;

/// Text with a line break every 80 bytes, escaped as JSON escapes it.
const PROSE: &str =
    "A request waits here until a pod has room for it, and then it goes at once. Sir\\n";
/// Lines as programs have them: short, indented, with quotes; an escape for each 11 bytes.
const CODE: &str =
    r#"        if pod == \"north\" {\n            send(&pod, \"now\", 7)?;\n        }\n"#;

/// A tool that an agent may call, as the definitions have it that go with each of its requests.
const TOOL: &str = r#"{"type":"function","function":{"name":"find_pods","description":"Finds the pods that serve a model and have room for a request.","parameters":{"type":"object","properties":{"model":{"type":"string","description":"Name of the model"},"phase":{"type":"string","enum":["ready","warming","draining"]},"limit":{"type":"integer","minimum":1,"maximum":100,"default":20}},"required":["model"],"additionalProperties":false}}}"#;

/// What a prompt is made of.
#[derive(Clone, Copy, Debug)]
pub enum Prompt {
    /// Sentences.
    Prose,
    /// A program.
    Code,
    /// Definitions of tools, and a question.
    Tools,
}

/// A request for an answer in one piece, with a body of this many bytes.
pub(super) fn whole(body_bytes: usize) -> Vec<u8> {
    prompted(Prompt::Prose, body_bytes)
}

/// The same with such a prompt.
pub(super) fn prompted(by: Prompt, body_bytes: usize) -> Vec<u8> {
    let (line, tools) = match by {
        Prompt::Prose => (PROSE, String::new()),
        Prompt::Code => (CODE, String::new()),
        Prompt::Tools => {
            let count = body_bytes / (TOOL.len() + 1);
            (PROSE, format!(r#""tools":[{}],"#, vec![TOOL; count.saturating_sub(1)].join(",")))
        }
    };
    let open = format!(
        r#"{{"model":"{MODEL}","max_tokens":16,{tools}"messages":[{{"role":"user","content":""#
    );
    let close = r#""}]}"#;
    let text = prompt(line, body_bytes.saturating_sub(open.len() + close.len()));
    post(&format!("{open}{text}{close}"))
}

/// A request for a stream of this many tokens.
pub(super) fn stream(tokens: u32) -> Vec<u8> {
    post(&format!(
        r#"{{"model":"{MODEL}","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"{}"}}]}}"#,
        prompt(PROSE, 64)
    ))
}

/// So many bytes of a line again and again.
fn prompt(line: &str, bytes: usize) -> String {
    let mut text = line.repeat(bytes / line.len());
    text.extend(std::iter::repeat_n('x', bytes - text.len()));
    text
}

fn post(body: &str) -> Vec<u8> {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of a message, and what its body is framed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head with its empty line.
    pub(super) bytes: usize,
    /// `None`: in chunks.
    pub(super) length: Option<usize>,
}

/// The head of a message that has begun to arrive; `None` when more is to come.
pub(super) fn head(message: &[u8]) -> Option<Head> {
    let bytes = memmem::find(message, b"\r\n\r\n")? + 4;
    let lines = message.get(..bytes)?.split(|byte| *byte == b'\n');
    let length = lines.filter_map(content_length).next();
    Some(Head { bytes, length })
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let (name, value) = line.split_at_checked(NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// How far an answer has come. Keeps nothing of it but its last bytes.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// What came of the head so far.
    start: Vec<u8>,
    framed: Option<Option<usize>>,
    body_bytes: usize,
    tail: Vec<u8>,
}

/// The last chunk, after the end of the one before.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

impl Answer {
    /// Takes the next bytes; says whether the answer is complete.
    ///
    /// # Errors
    /// When its status is not 200, or more comes than belongs to it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<bool> {
        let Some(length) = self.framed else {
            self.start.extend_from_slice(bytes);
            let Some(head) = head(&self.start) else { return Ok(false) };
            ensure!(self.start.get(8..12) == Some(b" 200"), "{}", status_line(&self.start));
            self.framed = Some(head.length);
            let start = std::mem::take(&mut self.start);
            return self.body(start.get(head.bytes..).unwrap_or_default(), head.length);
        };
        self.body(bytes, length)
    }

    /// Bytes of the body that came, with the lengths of chunks.
    pub(super) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    fn body(&mut self, bytes: &[u8], length: Option<usize>) -> Result<bool> {
        self.body_bytes += bytes.len();
        let Some(length) = length else { return Ok(self.is_last(bytes)) };
        if self.body_bytes > length {
            bail!("an answer of {length} bytes has {}", self.body_bytes);
        }
        Ok(self.body_bytes == length)
    }

    fn is_last(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() >= LAST_CHUNK.len() {
            self.tail.clear();
        }
        let kept = bytes.len().saturating_sub(LAST_CHUNK.len());
        self.tail.extend_from_slice(bytes.get(kept..).unwrap_or_default());
        let extra = self.tail.len().saturating_sub(LAST_CHUNK.len());
        self.tail.drain(..extra);
        self.tail == LAST_CHUNK
    }
}

fn status_line(message: &[u8]) -> String {
    let line = message.split(|byte| *byte == b'\r').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_body_of_the_size_that_was_asked_for() {
        let kinds = [Prompt::Prose, Prompt::Code, Prompt::Tools];
        for (kind, bytes) in
            kinds.into_iter().flat_map(|kind| [150, 32 << 10].map(|bytes| (kind, bytes)))
        {
            let request = prompted(kind, bytes);
            let head = head(&request).unwrap();
            assert_eq!((head.length, request.len() - head.bytes), (Some(bytes), bytes));
            let body: serde_json::Value = serde_json::from_slice(&request[head.bytes..]).unwrap();
            assert_eq!(body["model"], MODEL);
            let tools = body["tools"].as_array().map_or(0, Vec::len);
            assert_eq!(tools > 50, matches!(kind, Prompt::Tools) && bytes > 150, "{tools}");
        }
        let request = stream(100);
        let head = head(&request).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&request[head.bytes..]).unwrap();
        assert_eq!((&body["stream"], &body["max_tokens"]), (&true.into(), &100.into()));
    }

    #[test]
    fn an_answer_ends_where_its_framing_says_wherever_it_is_cut() {
        let with_length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        let in_chunks =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello\n\r\n0\r\n\r\n";
        for text in [with_length, in_chunks] {
            for cut in 1..text.len() {
                let mut answer = Answer::default();
                let (before, after) = text.as_bytes().split_at(cut);
                assert!(!answer.take(before).unwrap(), "{cut}");
                assert!(answer.take(after).unwrap(), "{cut}");
            }
            let mut answer = Answer::default();
            let ends = text.bytes().map(|byte| answer.take(&[byte]).unwrap());
            assert_eq!(ends.filter(|end| *end).count(), 1);
        }
    }

    #[test]
    fn another_status_or_length_is_an_error() {
        let refused = Answer::default().take(b"HTTP/1.1 429 Too Many Requests\r\n\r\n");
        assert_eq!(refused.unwrap_err().to_string(), "HTTP/1.1 429 Too Many Requests");
        assert!(Answer::default().take(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab").is_err());
    }
}
