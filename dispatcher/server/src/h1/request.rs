//! The bytes of a request.

use bytes::Bytes;
use http::{HeaderMap, Method, header, uri::PathAndQuery};

/// A request for a pod, with the head written but for what the pod and the body decide.
#[derive(Clone, Debug)]
pub(crate) struct PodRequest {
    pub(super) method: Method,
    /// The request line and the headers, without the empty line.
    start: Box<[u8]>,
    pub(crate) body: Bytes,
}

impl PodRequest {
    /// What belongs to one connection, `Host` and `Content-Length` among it, is not in `headers`; see
    /// [`crate::api::headers`].
    pub(crate) fn new(
        method: Method,
        path_and_query: &PathAndQuery,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Self {
        let path = path_and_query.as_str();
        let length: usize =
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let mut start = Vec::with_capacity(method.as_str().len() + path.len() + 12 + length);
        for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
            start.extend_from_slice(part.as_bytes());
        }
        for (name, value) in headers {
            if [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name) {
                continue;
            }
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                start.extend_from_slice(part);
            }
        }
        Self { method, start: start.into(), body }
    }

    /// The head for the pod of this authority.
    pub(super) fn head(&self, authority: &str) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.start.len() + authority.len() + 48);
        head.extend_from_slice(&self.start);
        let length = self.body.len().to_string();
        // A request without a body that could have one says so.
        let has_length = !(self.body.is_empty() && self.method.is_safe());
        let length = if has_length { ["\r\ncontent-length: ", &length] } else { [""; 2] };
        let [said, length] = length;
        for part in ["host: ", authority, said, length, "\r\n\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        head
    }
}
