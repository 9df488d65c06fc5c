//! Paths and queries of the API. What a user names may hold any character: a lane has slashes, and a
//! request id is whatever its client sent.

use std::fmt::{Display, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path that grows by segments and members of its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    text: String,
    has_query: bool,
}

impl Path {
    /// A path under `/api/v1`; `start` is written as it is.
    pub(crate) fn new(start: &str) -> Self {
        Self { text: start.to_owned(), has_query: false }
    }

    /// With one more segment.
    pub(crate) fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        self.text.extend(utf8_percent_encode(segment, RESERVED));
        self
    }

    /// With one more segment: a request by its number. Bare digits are what a client calls a request before
    /// they are a number.
    pub(crate) fn number(self, number: u64) -> Self {
        self.segment(&format!("#{number}"))
    }

    /// With a member of the query, if it has a value.
    pub(crate) fn with(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let sign = if self.has_query { '&' } else { '?' };
            let value = value.to_string();
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{sign}{name}={}", utf8_percent_encode(&value, RESERVED));
            self.has_query = true;
        }
        self
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}
