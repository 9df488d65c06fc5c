//! The bytes of a request.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

/// Bytes in which most heads are written, before they are kept in as many as they take.
const ROOM: usize = 512;

/// To whom a request goes, and as which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<'a> {
    /// The pod's host and port.
    pub authority: &'a str,
    /// Which of the engines there is to serve it; `None`: the pod decides.
    pub rank: Option<u16>,
    /// The name that the request has; empty where it has none.
    pub name: &'a str,
}

/// A request for a pod, with the head written but for what the pod and the body decide.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// The request line and the headers, without the empty line. Shared with those that are sent in its place.
    start: Arc<[u8]>,
    /// Its body, byte for byte.
    pub body: Bytes,
}

impl PodRequest {
    /// What belongs to one connection, `Host` and `Content-Length` among it, is not in `headers`, nor is `X-Request-Id`; see
    /// [`crate::api::headers`].
    pub fn new<'a>(
        method: &Method,
        path_and_query: &str,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        body: Bytes,
    ) -> Self {
        let mut start = Vec::with_capacity(ROOM);
        for part in [method.as_str(), " ", path_and_query, " HTTP/1.1\r\n"] {
            start.extend_from_slice(part.as_bytes());
        }
        for (name, value) in headers {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                start.extend_from_slice(part);
            }
        }
        Self { start: start.as_slice().into(), body }
    }

    /// The same with another body.
    #[must_use]
    pub(crate) fn with_body(&self, body: Bytes) -> Self {
        Self { start: self.start.clone(), body }
    }

    /// Whether only the head of its answer is asked for.
    pub(super) fn is_of_head(&self) -> bool {
        self.start.starts_with(b"HEAD ")
    }

    /// Its path and query; empty where it has none.
    pub(crate) fn path(&self) -> &str {
        let line = self.start.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let path = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        str::from_utf8(path).unwrap_or_default()
    }

    /// Whether it may change nothing at the pod.
    fn is_safe(&self) -> bool {
        self.is_of_head() || self.start.starts_with(b"GET ")
    }

    /// The head for this pod, engine and name.
    pub(super) fn head(&self, To { authority, rank, name }: To<'_>) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.start.len() + authority.len() + name.len() + 64);
        head.extend_from_slice(&self.start);
        // Whoever waits for a pod keeps its name elsewhere.
        if !name.is_empty() {
            head.extend_from_slice(b"x-request-id: ");
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        if let Some(rank) = rank {
            head.extend_from_slice(b"x-data-parallel-rank: ");
            head.extend_from_slice(itoa::Buffer::new().format(rank).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"host: ");
        head.extend_from_slice(authority.as_bytes());
        // A request without a body that could have one says so.
        if !(self.body.is_empty() && self.is_safe()) {
            head.extend_from_slice(b"\r\ncontent-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(self.body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n\r\n");
        head
    }
}
