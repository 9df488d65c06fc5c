//! What of an answer was passed on, so that another pod can go on with it, and the stream of that pod made one with what was.
//!
//! Only the text of one choice can be gone on with: what a model thought, tools that it called and refusals are not in the prompt
//! from which another pod goes on, or not where the template of its chat would put them. The text is kept as it stands in JSON.
//!
//! To the client it is one stream. So events of the second pod have the `id` and `created` of the first's, the one with the role is left
//! out, for clients join roles as they do texts, and a `usage` counts what was said before as said and not as asked. Every other byte
//! stays as it is.

use std::{collections::BTreeMap, ops::Range, sync::LazyLock};

use bytes::{Bytes, BytesMut};
use memchr::{memchr, memmem::Finder};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::walk::place_of;

/// Most bytes of an answer that are kept.
const MOST: usize = 1 << 20;

/// Why an answer ended that its pod gave up, as JSON.
const ABORTED: &str = "\"abort\"";

/// What a delta has beside the text.
const ROLE: &str = "role";
const CONTENT: &str = "content";

/// What of an answer was passed on.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Its text, as inside a string of JSON.
    text: String,
    /// Events that carry some of it.
    pub events: u32,
    /// The `id` and `created` of its first event.
    names: Option<[Option<Box<RawValue>>; 2]>,
    /// Something cannot be gone on with, or need not.
    is_closed: bool,
    /// What the last event was that carried some of it: mostly the next one differs in its text alone.
    shape: Option<Shape>,
    /// What the stream of another pod, which goes on, is made one with.
    seam: Option<Seam>,
}

/// An event with a text, but for that.
#[derive(Debug)]
struct Shape {
    before: Box<[u8]>,
    behind: Box<[u8]>,
}

impl Shape {
    /// Of an event that has its text in this place.
    fn of(data: &[u8], text: &Range<usize>) -> Option<Self> {
        let (before, behind) = (data.get(..text.start)?, data.get(text.end..)?);
        Some(Self { before: before.into(), behind: behind.into() })
    }

    /// The text of another event that is the same but for that. A text with a quote or an escape is read in whole.
    fn text<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        let text = data.strip_prefix(&*self.before)?.strip_suffix(&*self.behind)?;
        let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
        if text.is_empty() || !text.iter().all(is_plain) {
            return None;
        }
        str::from_utf8(text).ok()
    }
}

/// Where the stream of another pod begins.
#[derive(Clone, Copy, Debug)]
struct Seam {
    /// Tokens that were said before.
    tokens: u32,
    /// Nothing of its own was passed on yet.
    is_fresh: bool,
}

/// What becomes of events that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// They are passed on like this.
    All(Bytes),
    /// Of these the first part; the rest says that the pod failed, or gave the answer up.
    UpTo(Bytes, Bytes),
}

impl Said {
    /// The text that was passed on, as inside a string of JSON. `None` where nobody can go on with it.
    pub(super) fn text(&self) -> Option<&str> {
        (!self.is_closed).then_some(&*self.text)
    }

    /// Another pod goes on from here, after so many tokens.
    pub(super) fn goes_on(&mut self, tokens: u32) {
        self.seam = Some(Seam { tokens, is_fresh: true });
        self.events = 0;
    }

    /// Tokens that were said before the stream that is read now.
    pub(super) fn before(&self) -> u32 {
        self.seam.as_ref().map_or(0, |seam| seam.tokens)
    }

    /// What the pod says that gave the answer up, as the client is told of it where nobody goes on.
    pub(super) fn last_words(&self, rest: Bytes) -> Bytes {
        let Some(seam) = self.seam else { return rest };
        let mut told = Self { is_closed: true, names: self.names.clone(), ..Self::default() };
        told.seam = Some(seam);
        match told.pass(rest, false) {
            Passed::All(rest) => rest,
            Passed::UpTo(whole, rest) => [whole, rest].concat().into(),
        }
    }

    /// Whole events are to be passed on. `may_fail`: one of them says that the pod failed.
    pub(super) fn pass(&mut self, events: Bytes, may_fail: bool) -> Passed {
        if self.is_closed && self.seam.is_none() {
            return Passed::All(events);
        }
        let (mut out, mut kept_to, mut event_from, mut at) = (None, 0, 0, 0);
        while let Some(length) = events.get(at..).and_then(|rest| memchr(b'\n', rest)) {
            let line = at..at + length;
            at = line.end + 1;
            let bytes = events.get(line.clone()).unwrap_or_default();
            let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
            if bytes.is_empty() {
                event_from = at;
                continue;
            }
            let Some(data) = bytes.strip_prefix(b"data:") else { continue };
            let edits = match self.event(data, may_fail) {
                Read::GivenUp => {
                    let rest = events.slice(event_from..);
                    return Passed::UpTo(joined(out, &events, kept_to..event_from), rest);
                }
                Read::Same => continue,
                Read::Left => {
                    at = end_of_event(&events, at);
                    vec![(std::mem::replace(&mut event_from, at)..at, Vec::new())]
                }
                Read::Edited(edits) => {
                    let shift = line.start + bytes.len() - data.len();
                    let behind =
                        |(place, with): Edit| (place.start + shift..place.end + shift, with);
                    edits.into_iter().map(behind).collect()
                }
            };
            let out = out.get_or_insert_with(BytesMut::new);
            for (place, with) in edits {
                out.extend_from_slice(events.get(kept_to..place.start).unwrap_or_default());
                out.extend_from_slice(&with);
                kept_to = place.end;
            }
        }
        let end = events.len();
        Passed::All(joined(out, &events, kept_to..end))
    }

    /// The data of an event: keeps its text, and says what becomes of it.
    fn event(&mut self, data: &[u8], may_fail: bool) -> Read {
        if self.seam.is_none()
            && let Some(text) = self.shape.as_ref().and_then(|shape| shape.text(data))
        {
            self.says(text);
            return Read::Same;
        }
        if data.trim_ascii() == b"[DONE]" {
            self.is_closed = true;
            return Read::Same;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            self.is_closed = true;
            return Read::Same;
        };
        let fails = event.error.is_some_and(|error| error.get() != "null");
        let gives_up = (fails && may_fail) || event.choices.iter().any(Choice::is_aborted);
        if gives_up && !self.is_closed {
            return Read::GivenUp;
        }
        if fails {
            return Read::Same;
        }
        let carries = self.keep(&event, data);
        if self.names.is_none() {
            self.names = Some([event.id, event.created].map(|it| it.map(ToOwned::to_owned)));
            return Read::Same;
        }
        let Some(seam) = &mut self.seam else { return Read::Same };
        let opens = seam.is_fresh && !carries && event.choices.iter().all(Choice::is_open);
        if opens && !event.choices.is_empty() {
            return Read::Left;
        }
        seam.is_fresh = false;
        let tokens = seam.tokens;
        let names = self.names.iter().flatten();
        let renamed = [event.id, event.created].into_iter().zip(names);
        let mut edits: Vec<Edit> = renamed
            .filter_map(|(own, first)| {
                Some((place_of(own?.get().as_bytes(), data)?, first.as_ref()?))
            })
            .map(|(place, first)| (place, first.get().as_bytes().to_vec()))
            .collect();
        let usage = event.usage.and_then(|own| Some((place_of(own.get().as_bytes(), data)?, own)));
        edits.extend(usage.and_then(|(place, own)| Some((place, counted(own, tokens)?))));
        edits.sort_unstable_by_key(|(place, _)| place.start);
        Read::Edited(edits)
    }

    /// Keeps the text of an event. Says whether it carries some of the answer.
    fn keep(&mut self, event: &Event<'_>, data: &[u8]) -> bool {
        let (mut carries, mut text) = (false, None);
        for choice in &event.choices {
            self.is_closed |= choice.index.unwrap_or(0) != 0 || !choice.is_open();
            let delta = choice.delta.iter().flatten();
            for (name, value) in delta.filter(|(name, value)| **name != ROLE && !is_empty(value)) {
                carries = true;
                match *name {
                    CONTENT => text = Some(*value),
                    _ => self.is_closed = true,
                }
            }
            text = choice.text.filter(|text| !is_empty(text)).or(text);
        }
        if let Some(text) = text {
            carries = true;
            match text.get().strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
                Some(text) => {
                    self.says(text);
                    self.shape =
                        place_of(text.as_bytes(), data).and_then(|text| Shape::of(data, &text));
                }
                None => self.is_closed = true,
            }
        }
        if self.is_closed {
            (self.text, self.shape) = (String::new(), None);
        }
        carries
    }

    fn says(&mut self, text: &str) {
        self.events += 1;
        if self.text.len() + text.len() <= MOST {
            self.text.push_str(text);
        } else {
            (self.text, self.shape, self.is_closed) = (String::new(), None, true);
        }
    }
}

/// Bytes of an event's data, and what stands there in their place.
type Edit = (Range<usize>, Vec<u8>);

/// What becomes of an event.
enum Read {
    Same,
    /// It says that the pod failed, or gives the answer up.
    GivenUp,
    /// It is left out.
    Left,
    Edited(Vec<Edit>),
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    created: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u32>,
    #[serde(borrow)]
    delta: Option<BTreeMap<&'a str, &'a RawValue>>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
}

impl Choice<'_> {
    /// Whether the pod gave it up: vLLM's word for those that it has when it is told to end.
    fn is_aborted(&self) -> bool {
        self.finish_reason.is_some_and(|reason| reason.get() == ABORTED)
    }

    /// Whether more of it follows.
    fn is_open(&self) -> bool {
        self.finish_reason.is_none_or(|reason| reason.get() == "null")
    }
}

/// Whether a value says nothing.
fn is_empty(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "\"\"" | "[]" | "{}" | "false")
}

/// A usage in which so many tokens count as said that the pod was asked with.
fn counted(usage: &RawValue, before: u32) -> Option<Vec<u8>> {
    let mut usage: Map<String, Value> = serde_json::from_str(usage.get()).ok()?;
    let before = u64::from(before);
    for (name, counts) in [("prompt_tokens", false), ("completion_tokens", true)] {
        let Some(count) = usage.get(name).and_then(Value::as_u64) else { continue };
        let count = if counts { count + before } else { count.saturating_sub(before) };
        usage.insert(name.to_owned(), count.into());
    }
    serde_json::to_vec(&usage).ok()
}

/// Where an event ends of which this is behind a line.
fn end_of_event(events: &[u8], mut at: usize) -> usize {
    while let Some(length) = events.get(at..).and_then(|rest| memchr(b'\n', rest)) {
        let line = events.get(at..at + length).unwrap_or_default();
        at += length + 1;
        if line.is_empty() || line == b"\r" {
            return at;
        }
    }
    events.len()
}

/// What was written anew, and this of the rest.
fn joined(written: Option<BytesMut>, events: &Bytes, rest: Range<usize>) -> Bytes {
    let rest = events.slice(rest);
    match written {
        None => rest,
        Some(mut written) => {
            written.extend_from_slice(&rest);
            written.freeze()
        }
    }
}

/// Whether a whole answer says that its pod gave it up.
pub(super) fn is_aborted(answer: &[u8]) -> bool {
    FINISH.find_iter(answer).any(|at| {
        let after = answer.get(at + FINISH.needle().len()..).unwrap_or_default();
        let value = after.trim_ascii_start().strip_prefix(b":").unwrap_or_default();
        value.trim_ascii_start().starts_with(ABORTED.as_bytes())
    })
}

static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"finish_reason\""));

/// The text that a piece of a JSON string is.
pub(super) fn plain(text: &str) -> Option<String> {
    serde_json::from_str(&["\"", text, "\""].concat()).ok()
}

#[cfg(test)]
mod tests;
