//! Sends a request and reads the head of its response.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::response::Parts;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    BadReply, PodRequest, Reply, To,
    head::{self, Start},
    reply::Body,
    scratch,
};

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Not a byte of the request was written.
    Unsent(io::Error),
    /// The pod may have seen some of it.
    Lost(BadReply),
}

/// Sends a request to a pod and reads the head of its response. A pod may answer before it has all of the request; then the
/// rest is not sent and the connection is not used again.
pub(crate) async fn exchange<S>(
    stream: S,
    to: To<'_>,
    request: &PodRequest,
) -> Result<(Parts, Reply<S>), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = request.head(to);
    let mut exchange = Exchange {
        unwritten: head.as_slice().chain(&request.body),
        written: false,
        flushed: false,
        received: Vec::new(),
        of_head: request.is_of_head(),
        stream: Some(stream),
    };
    poll_fn(|cx| exchange.poll(cx)).await
}

/// A request that is being sent, or waits for its response.
struct Exchange<'a, S> {
    unwritten: bytes::buf::Chain<&'a [u8], &'a [u8]>,
    /// Some of the request was written.
    written: bool,
    /// All of it was, and what it was written to keeps none of it.
    flushed: bool,
    /// Part of a head, when it does not come at once.
    received: Vec<u8>,
    of_head: bool,
    /// `None` once it went to the reply.
    stream: Option<S>,
}

/// The head and what came of the body with it; `None` when it is not complete.
type Heard = Result<Option<(Parts, Body)>, BadReply>;

impl<S: AsyncRead + AsyncWrite + Unpin> Exchange<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Parts, Reply<S>), Failed>> {
        let broken = match self.poll_send(cx) {
            Poll::Ready(Err(error)) if !self.written => {
                return Poll::Ready(Err(Failed::Unsent(error)));
            }
            Poll::Ready(Err(error)) => Some(error),
            _ => None,
        };
        match self.poll_hear(cx) {
            Poll::Ready(answer) => Poll::Ready(answer),
            // What a pod says before it closes is there by then.
            Poll::Pending => match broken {
                Some(error) => Poll::Ready(Err(Failed::Lost(error.into()))),
                None => Poll::Pending,
            },
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while self.unwritten.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 2];
            let used = self.unwritten.chunks_vectored(&mut slices);
            let slices = slices.get(..used).unwrap_or_default();
            match Pin::new(&mut *stream).poll_write_vectored(cx, slices) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.written = true;
                    self.unwritten.advance(count);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if !self.flushed {
            ready!(Pin::new(&mut *stream).poll_flush(cx))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_hear(&mut self, cx: &mut Context<'_>) -> Poll<Result<(Parts, Reply<S>), Failed>> {
        loop {
            let Some(stream) = &mut self.stream else { return Poll::Pending };
            let (received, of_head) = (&mut self.received, self.of_head);
            let heard = match scratch::poll_read(stream, cx, |bytes| hear(received, bytes, of_head))
            {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(heard)) => heard,
                Poll::Ready(Err(error)) => Err(error.into()),
            };
            match heard {
                Ok(None) => {}
                Ok(Some((parts, body))) => return Poll::Ready(self.answered(parts, body)),
                Err(error) => return Poll::Ready(Err(self.failed(error))),
            }
        }
    }

    fn answered(&mut self, parts: Parts, body: Body) -> Result<(Parts, Reply<S>), Failed> {
        let stream = self.stream.take().ok_or(Failed::Lost(BadReply::Short))?;
        let reply = Reply::new(stream, body);
        let early = !self.flushed;
        Ok((parts, if early { reply.last() } else { reply }))
    }

    fn failed(&self, error: BadReply) -> Failed {
        match error {
            _ if self.written => Failed::Lost(error),
            BadReply::Io(error) => Failed::Unsent(error),
            other => Failed::Unsent(io::Error::other(other)),
        }
    }
}

/// Takes what was read.
fn hear(received: &mut Vec<u8>, bytes: &[u8], of_head: bool) -> Heard {
    if bytes.is_empty() {
        return Err(BadReply::Short);
    }
    if !received.is_empty() {
        received.extend_from_slice(bytes);
    }
    let mut rest = if received.is_empty() { bytes } else { received.as_slice() };
    loop {
        match head::start(rest, of_head)? {
            Start::Final(head, length) => {
                let after = rest.get(length..).unwrap_or_default();
                return Ok(Some((head.parts, Body::new(head.framing, head.keep, after)?)));
            }
            Start::Interim(length) => rest = rest.get(length..).unwrap_or_default(),
            Start::Incomplete => break,
        }
    }
    // Parsed anew with every part: a head comes in one or two.
    *received = rest.to_vec();
    Ok(None)
}
