//! The bytes of a request.

use bytes::Bytes;
use http::Method;

/// Bytes in which most heads are written, before they are kept in as many as they take.
const ROOM: usize = 512;

/// A request for a pod, with the head written but for what the pod and the body decide.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// Whether it may change nothing at the pod.
    is_safe: bool,
    /// Whether only the head of its answer is asked for.
    pub(super) of_head: bool,
    /// The request line and the headers, without the empty line.
    start: Box<[u8]>,
    /// Its body, byte for byte.
    pub body: Bytes,
}

impl PodRequest {
    /// What belongs to one connection, `Host` and `Content-Length` among it, is not in `headers`; see
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
        let (is_safe, of_head) = (method.is_safe(), method == Method::HEAD);
        Self { is_safe, of_head, start: start.as_slice().into(), body }
    }

    /// The head for the pod of this authority.
    pub(super) fn head(&self, authority: &str) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.start.len() + authority.len() + 48);
        head.extend_from_slice(&self.start);
        head.extend_from_slice(b"host: ");
        head.extend_from_slice(authority.as_bytes());
        // A request without a body that could have one says so.
        if !(self.body.is_empty() && self.is_safe) {
            head.extend_from_slice(b"\r\ncontent-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(self.body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n\r\n");
        head
    }
}
