//! HTTP/1 as Weir speaks it to pods, for requests and scrapes: one request on a connection at a time, driven by whoever waits for its response.
//!
//! There is no task and no buffer per connection. A response is read into memory that all connections of a thread share, and
//! what of it belongs to the body is copied out, so that a stream that is silent holds nothing but its socket. Requests are
//! written with their whole body at hand; responses are read as RFC 9112 has them.
//!
//! # Promises
//! - A request of which nothing was written is told from one that the pod may have seen.
//! - A response ends where its framing says. What cannot be understood, or is not complete, is an error and never an end.
//! - A connection is used again only after a response that was understood to its last byte, with nothing behind it, and that
//!   neither side wanted to be the last.
//! - What a pod can make the process hold is bounded: a head by 64 KB, chunk extensions and trailers, which are
//!   dropped, by 16 KB, and of a body what fits into one read.
//!
//! # Layout
//! - `request`: the bytes of a request
//! - `head`: a response's head and what it says of the body; `chunks`: a body in chunks
//! - `exchange`: sends a request and reads the head; `reply`: reads the body; `scratch`: the memory it is read into

mod chunks;
mod exchange;
mod head;
mod reply;
mod request;
mod scratch;
#[cfg(test)]
mod tests;

pub(crate) use exchange::{Failed, exchange};
pub(crate) use reply::Reply;
pub use request::PodRequest;
pub(crate) use request::To;

/// Why a response could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BadReply {
    /// The connection failed.
    #[error("connection lost: {0}")]
    Io(#[from] std::io::Error),
    /// The connection ended before the response did.
    #[error("connection closed before the end of the response")]
    Short,
    /// It is not a response as RFC 9112 has it.
    #[error("not a valid HTTP response: {0}")]
    Malformed(&'static str),
}
