//! The head of a response, and what it says of the body (RFC 9112, section 6.3).

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header,
    response::Parts,
};
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

/// A head that was read.
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
    Final(Box<Head>, usize),
}

/// Reads the head of the response to a request of this method.
pub(super) fn start(bytes: &[u8], method: &Method) -> Result<Start, BadReply> {
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
    parts.headers = fields(bytes.get(..length).unwrap_or_default(), response.headers)?;
    let (framing, keep) = framing(&parts, method)?;
    Ok(Start::Final(Box::new(Head { parts, framing, keep }), length))
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

/// The headers, whose values are all parts of one copy of the head.
fn fields(head: &[u8], parsed: &[httparse::Header<'_>]) -> Result<HeaderMap, BadReply> {
    let bad = || BadReply::Malformed("header");
    let copy = Bytes::copy_from_slice(head);
    let mut headers = HeaderMap::with_capacity(parsed.len() + OUR_HEADERS);
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| bad())?;
        let from = field.value.as_ptr().addr().checked_sub(head.as_ptr().addr()).ok_or_else(bad)?;
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

/// Where the body ends, and whether the connection may be used after it.
fn framing(parts: &Parts, method: &Method) -> Result<(Framing, bool), BadReply> {
    let (headers, modern) = (&parts.headers, parts.version == Version::HTTP_11);
    let keep = if modern { !says(headers, "close") } else { says(headers, "keep-alive") };
    let length = content_length(headers)?;
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&parts.status);
    if bodiless || *method == Method::HEAD {
        return Ok((Framing::Length(0), keep));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        if !modern || !is_chunked(headers) {
            return Err(BadReply::Malformed("transfer encoding"));
        }
        // Both at once is how responses are smuggled: what follows on the connection is not believed.
        return Ok((Framing::Chunks(Chunks::new()), keep && length.is_none()));
    }
    Ok(length.map_or((Framing::Close, false), |length| (Framing::Length(length), keep)))
}

/// Whether `Connection` has this word.
fn says(headers: &HeaderMap, word: &str) -> bool {
    let mut values = headers.get_all(header::CONNECTION).iter();
    values.any(|value| {
        let words = value.as_bytes().split(|byte| *byte == b',');
        words.into_iter().any(|said| said.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    })
}

/// Whether the body is in chunks and nothing else was done to it.
fn is_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let first = codings.next().map(|value| value.as_bytes().trim_ascii());
    first.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// The length, also when it is said several times, if always the same.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, BadReply> {
    let bad = BadReply::Malformed("content length");
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for said in value.as_bytes().split(|byte| *byte == b',') {
            let Some(said) = digits(said.trim_ascii()) else { return Err(bad) };
            if length.replace(said).is_some_and(|before| before != said) {
                return Err(bad);
            }
        }
    }
    Ok(length)
}

fn digits(text: &[u8]) -> Option<u64> {
    // A sign would parse too.
    let plain = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}
