//! Where a member of the body's object stands, so that it can be taken out without writing the rest
//! anew.

use std::ops::Range;

use memchr::memrchr;

use crate::walk::place_of;

/// The bytes of a member of a valid object: key, value, and the comma that is one too many without
/// them. `value` is part of `body`; `None` when it is not.
pub(super) fn span(body: &[u8], value: &[u8]) -> Option<Range<usize>> {
    let Range { start: from, end: to } = place_of(value, body)?;
    let (before, after) = (body.get(..from)?, body.get(to..)?.trim_ascii_start());
    let colon = before.trim_ascii_end().strip_suffix(b":")?;
    // A key that is a plain word, however it is escaped, has no quote inside.
    let key = colon.trim_ascii_end().strip_suffix(b"\"")?;
    let start = memrchr(b'"', key)?;
    if let Some(rest) = after.strip_prefix(b",") {
        return Some(start..body.len() - rest.len());
    }
    let head = body.get(..start)?.trim_ascii_end();
    Some(head.strip_suffix(b",").map_or(start, <[u8]>::len)..to)
}
