//! Keeps back what has come of an event until the rest has, so that what a client was given never ends inside one.
//!
//! A pod that is lost in the middle of an event has sent half of it. To end that half would hand it to the client's parser as
//! a whole one, which fails over it and never sees the event that reports the loss. To hold it back costs nobody time: a
//! parser does nothing with an event before its end either.
//!
//! What ends with an event, as nearly every read does, passes as it is. Of the rest only what follows the last whole event is
//! copied, and no more than [`MOST`]: an event that is longer is passed on as it comes.

use bytes::{Bytes, BytesMut};
use memchr::memrchr;

/// Most bytes that are kept back. A whole response in one event, as the Responses API ends its streams with, is mostly shorter.
const MOST: usize = 256 << 10;

/// What is kept back of a stream.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Begins where an event does, unless `torn`.
    part: BytesMut,
    /// What was passed on ends inside an event, which was too long.
    torn: bool,
}

impl Hold {
    /// What may be passed on now that this came; `between`: it ends between two events.
    pub(super) fn pass(&mut self, chunk: Bytes, between: bool) -> Bytes {
        if between && self.part.is_empty() {
            self.torn = false;
            return chunk;
        }
        self.pass_some(chunk, between)
    }

    #[cold]
    fn pass_some(&mut self, mut chunk: Bytes, between: bool) -> Bytes {
        let whole = if self.part.is_empty() {
            let whole = chunk.split_to(end_of_last(&chunk, 0));
            self.part.extend_from_slice(&chunk);
            whole
        } else {
            let known = self.part.len();
            self.part.extend_from_slice(&chunk);
            let end = if between { self.part.len() } else { end_of_last(&self.part, known) };
            self.part.split_to(end).freeze()
        };
        self.torn &= whole.is_empty();
        if self.part.len() <= MOST {
            return whole;
        }
        self.torn = true;
        let part = self.part.split().freeze();
        if whole.is_empty() { part } else { [whole, part].concat().into() }
    }

    /// Whether nothing is kept back.
    pub(super) fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// What is kept back, of a stream that is over as it is.
    pub(super) fn rest(&mut self) -> Bytes {
        self.part.split().freeze()
    }

    /// Whether what was passed on ends inside an event.
    pub(super) const fn is_torn(&self) -> bool {
        self.torn
    }
}

/// Where the last event ends whose last newline is not among the first bytes, which are `known`; 0 if there is none.
fn end_of_last(bytes: &[u8], known: usize) -> usize {
    let mut before = bytes;
    while let Some(at) = memrchr(b'\n', before).filter(|at| *at >= known) {
        before = before.get(..at).unwrap_or_default();
        let line = before.strip_suffix(b"\r").unwrap_or(before);
        if line.is_empty() || line.ends_with(b"\n") {
            return at + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes of these, one after the other, and whether it is torn then.
    fn passed(parts: &[&str]) -> (Vec<String>, bool) {
        let (mut hold, mut so_far) = (Hold::default(), String::new());
        let mut pass = |part: &&str| {
            so_far.push_str(part);
            let between = so_far.ends_with("\n\n") || so_far.ends_with("\n\r\n");
            let passed = hold.pass(Bytes::copy_from_slice(part.as_bytes()), between);
            String::from_utf8(passed.to_vec()).unwrap()
        };
        let passed = parts.iter().map(&mut pass).collect();
        (passed, hold.is_torn())
    }

    #[test]
    fn only_whole_events_pass() {
        for (parts, want) in [
            (vec!["a\n\n", "b\n\n"], vec!["a\n\n", "b\n\n"]),
            (vec!["a\n\nb", "c\n\nd\n\n"], vec!["a\n\n", "bc\n\nd\n\n"]),
            (vec!["a\n", "\nb", "\nc\n\n"], vec!["", "a\n\n", "b\nc\n\n"]),
            (vec!["a\r\n\r", "\nb\r\n", "\r\n"], vec!["", "a\r\n\r\n", "b\r\n\r\n"]),
            (vec!["a", "b", "c"], vec!["", "", ""]),
        ] {
            assert_eq!(passed(&parts), (want.into_iter().map(str::to_owned).collect(), false));
        }
    }

    #[test]
    fn an_event_that_is_too_long_passes_as_it_comes() {
        let long = "x".repeat(MOST);
        let (parts, torn) = passed(&["a\n\n", &long, "y", "z"]);
        assert_eq!((parts[1].len(), parts[2].len(), parts[3].len()), (0, MOST + 1, 0));
        assert!(torn);
        let (parts, torn) = passed(&["a\n\nb", &long, "y\n\nc"]);
        assert_eq!((parts[1].len(), &*parts[2], torn), (MOST + 1, "y\n\n", false));
    }
}
