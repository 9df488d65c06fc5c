//! The head of a response, and what it says of the body (RFC 9112, section 6.3).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, response::Parts};
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use super::{BadReply, chunks::Chunks};

/// Most bytes of a head, interim responses before it not counted.
pub(super) const MOST_HEAD_BYTES: usize = 64 << 10;
/// Most headers.
const MOST_HEADERS: usize = 128;
/// Place for headers of ours, so that a map is not grown for them.
const OUR_HEADERS: usize = 5;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many bytes more.
    Length(u64),
    Chunks(Chunks),
    /// Where the connection does.
    Close,
}

/// A head that was read, without what belongs to the connection.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) parts: Parts,
    pub(super) framing: Framing,
    /// Whether the connection may be used again after the body.
    pub(super) keep: bool,
}

/// What is in the first bytes that a pod sent.
#[derive(Debug)]
pub(super) enum Start {
    /// Part of a head.
    Incomplete,
    /// An interim response (1xx) of this many bytes, after which the head comes.
    Interim(usize),
    /// The head, of this many bytes.
    Final(Head, usize),
}

/// Reads the head of a response, which is all of it if the request asked for no more.
pub(super) fn start(bytes: &[u8], of_head: bool) -> Result<Start, BadReply> {
    let mut headers = [MaybeUninit::uninit(); MOST_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    );
    let length = match parsed.map_err(|_| BadReply::Malformed("head"))? {
        Status::Complete(length) => length,
        Status::Partial if bytes.len() >= MOST_HEAD_BYTES => {
            return Err(BadReply::Malformed("head too long"));
        }
        Status::Partial => return Ok(Start::Incomplete),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(BadReply::Malformed("status"))?;
    if status.is_informational() {
        // Nobody asked the pod to change the protocol.
        let switches = status == StatusCode::SWITCHING_PROTOCOLS;
        return if switches {
            Err(BadReply::Malformed("another protocol"))
        } else {
            Ok(Start::Interim(length))
        };
    }
    let version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut parts = parts(status, version, response.reason.unwrap_or_default())?;
    let fields = Fields(response.headers);
    parts.headers = fields.to_map(bytes.get(..length).unwrap_or_default())?;
    let (framing, keep) = framing(&parts, fields, of_head)?;
    Ok(Start::Final(Head { parts, framing, keep }, length))
}

fn parts(status: StatusCode, version: Version, reason: &str) -> Result<Parts, BadReply> {
    let (mut parts, ()) = Response::new(()).into_parts();
    (parts.status, parts.version) = (status, version);
    // The server writes the usual words itself.
    if !reason.is_empty() && Some(reason) != status.canonical_reason() {
        let phrase = ReasonPhrase::try_from(reason.as_bytes());
        parts.extensions.insert(phrase.map_err(|_| BadReply::Malformed("reason"))?);
    }
    Ok(parts)
}

/// Names of headers that belong to one connection (RFC 9110, section 7.6.1), and of the length, which follows from the body.
const OF_THE_CONNECTION: [&str; 10] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers as they were parsed.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [httparse::Header<'a>]);

impl<'a> Fields<'a> {
    /// The values under this name.
    fn all(self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        let named = move |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case(name);
        self.0.iter().filter(named).map(|field| field.value)
    }

    /// The words of `Connection`.
    fn said_of_the_connection(self) -> impl Iterator<Item = &'a [u8]> {
        let words = |value: &'a [u8]| value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        self.all("connection").flat_map(words)
    }

    /// Whether `Connection` has this word.
    fn says(self, word: &str) -> bool {
        self.said_of_the_connection().any(|said| said.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether a header is not for whoever is behind this connection.
    fn stays(self, name: &str) -> bool {
        OF_THE_CONNECTION.iter().any(|known| name.eq_ignore_ascii_case(known)) || self.says(name)
    }

    /// Whether the body is in chunks and nothing else was done to it; `None` when nothing is said of it.
    fn is_chunked(self) -> Option<bool> {
        let mut codings = self.all("transfer-encoding");
        let chunked = codings.next()?.trim_ascii().eq_ignore_ascii_case(b"chunked");
        Some(chunked && codings.next().is_none())
    }

    /// The length, also when it is said several times, if always the same.
    fn content_length(self) -> Result<Option<u64>, BadReply> {
        let bad = BadReply::Malformed("content length");
        let mut length = None;
        for value in self.all("content-length") {
            for said in value.split(|byte| *byte == b',') {
                let Some(said) = digits(said.trim_ascii()) else { return Err(bad) };
                if length.replace(said).is_some_and(|before| before != said) {
                    return Err(bad);
                }
            }
        }
        Ok(length)
    }

    /// Those that do not belong to the connection. Their values are all parts of one copy of the head.
    fn to_map(self, head: &[u8]) -> Result<HeaderMap, BadReply> {
        let bad = || BadReply::Malformed("header");
        let copy = Bytes::copy_from_slice(head);
        // One of them is about the body, mostly, and does not stay.
        let mut headers = HeaderMap::with_capacity(self.0.len() + OUR_HEADERS - 1);
        for field in self.0 {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| bad())?;
            if self.stays(name.as_str()) {
                continue;
            }
            let from = field.value.as_ptr().addr().checked_sub(head.as_ptr().addr());
            let from = from.ok_or_else(bad)?;
            let value = if field.value.is_empty() {
                HeaderValue::from_static("")
            } else {
                let value = copy.slice(from..from + field.value.len());
                HeaderValue::from_maybe_shared(value).map_err(|_| bad())?
            };
            headers.append(name, value);
        }
        Ok(headers)
    }
}

/// Where the body ends, and whether the connection may be used after it.
fn framing(parts: &Parts, fields: Fields<'_>, of_head: bool) -> Result<(Framing, bool), BadReply> {
    let modern = parts.version == Version::HTTP_11;
    let keep = if modern { !fields.says("close") } else { fields.says("keep-alive") };
    let length = fields.content_length()?;
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parts.status);
    if bodiless || of_head {
        return Ok((Framing::Length(0), keep));
    }
    if let Some(chunked) = fields.is_chunked() {
        if !modern || !chunked {
            return Err(BadReply::Malformed("transfer encoding"));
        }
        // Both at once is how responses are smuggled: what follows on the connection is not believed.
        return Ok((Framing::Chunks(Chunks::new()), keep && length.is_none()));
    }
    Ok(length.map_or((Framing::Close, false), |length| (Framing::Length(length), keep)))
}

fn digits(text: &[u8]) -> Option<u64> {
    // A sign would parse too.
    let plain = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}
