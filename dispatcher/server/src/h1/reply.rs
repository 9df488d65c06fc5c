//! The body of a response.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::{BadReply, chunks::Pieces, head::Framing, scratch};

/// How far a body has been read.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    /// Data that was read and not yet handed over.
    ready: Bytes,
    /// Whether the connection may be used again; false once something was wrong.
    keep: bool,
    /// The last of the body was read.
    over: bool,
}

impl Body {
    /// `after` is what came with the head, and `keep` what that says of the connection.
    pub(super) fn new(framing: Framing, keep: bool, after: &[u8]) -> Result<Self, BadReply> {
        let over = framing == Framing::Length(0);
        let mut body = Self { framing, ready: Bytes::new(), keep, over };
        if !after.is_empty() {
            body.take(after)?;
        }
        Ok(body)
    }

    /// Takes what was read; nothing means that the connection has ended.
    fn take(&mut self, bytes: &[u8]) -> Result<(), BadReply> {
        let mut pieces = Pieces::new();
        let behind = match &mut self.framing {
            Framing::Close => {
                self.over = bytes.is_empty();
                pieces.push(bytes);
                &[]
            }
            _ if bytes.is_empty() => return Err(BadReply::Short),
            Framing::Length(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, behind) = bytes.split_at(count);
                pieces.push(data);
                *left -= count as u64;
                self.over = *left == 0;
                behind
            }
            Framing::Chunks(chunks) => {
                let behind = chunks.take(bytes, &mut pieces)?;
                self.over = chunks.is_over();
                behind
            }
        };
        // Nobody asked for what comes after the end.
        self.keep &= behind.is_empty();
        self.ready = match pieces.as_slice() {
            [] => Bytes::new(),
            [one] => Bytes::copy_from_slice(one),
            many => many.concat().into(),
        };
        Ok(())
    }
}

/// A response whose body is being read. Dropped before its end, its connection is cut.
#[derive(Debug)]
pub(crate) struct Reply<S> {
    stream: S,
    body: Body,
}

impl<S: AsyncRead + Unpin> Reply<S> {
    pub(super) const fn new(stream: S, body: Body) -> Self {
        Self { stream, body }
    }

    /// The same, its connection not to be used again.
    pub(super) fn last(mut self) -> Self {
        self.body.keep = false;
        self
    }

    /// The next data of the body; `None` at its end.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BadReply>>> {
        let Self { stream, body } = self;
        loop {
            if !body.ready.is_empty() {
                return Poll::Ready(Some(Ok(std::mem::take(&mut body.ready))));
            }
            if body.over {
                return Poll::Ready(None);
            }
            let read = ready!(scratch::poll_read(stream, cx, |bytes| body.take(bytes)));
            if let Err(error) = read.map_err(BadReply::from).flatten() {
                (body.keep, body.over) = (false, true);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Reads the next data of the body.
    pub(crate) async fn data(&mut self) -> Option<Result<Bytes, BadReply>> {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Whether all data was handed over and the end was seen.
    pub(crate) fn is_over(&self) -> bool {
        self.body.over && self.body.ready.is_empty()
    }

    /// Bytes that are still to be handed over, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        let ready = self.body.ready.len() as u64;
        match self.body.framing {
            _ if self.body.over => Some(ready),
            Framing::Length(left) => Some(ready + left),
            Framing::Chunks(_) | Framing::Close => None,
        }
    }

    /// The connection, for the next request, if it may be used for one.
    pub(crate) fn into_connection(self) -> Option<S> {
        (self.body.keep && self.is_over()).then_some(self.stream)
    }
}
