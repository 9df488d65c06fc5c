//! A response on its way to a client that may take it slowly.
//!
//! The HTTP server asks for more of a response when it has written what it was given, and keeps up to 400 KB of it. A pod would then
//! be read as fast as its client reads: one that has long done its part would count as busy, with its lease, for as long as somebody
//! takes over reading what it said. So what a client does not take is read all the same, and waits here: beside what the server
//! keeps ([`KEPT`]), 64 KiB of each response and, of all together, as much as there is memory for ([`Memory`]). Beyond that the pod
//! has to wait.

use std::{
    collections::VecDeque,
    error::Error,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use http_body::{Body, Frame, SizeHint};

use super::patience::Turn;
use crate::budget::{Memory, Part};

/// Bytes and pieces of a response that the server keeps for a client. It asks for no more beyond 400 KB or 16 pieces, not even what
/// has become of the rest.
pub(super) const KEPT: (usize, usize) = (128 << 10, 8);

/// Bytes of a piece that is put together.
const PIECE: usize = 16 << 10;

/// A response body that ends its turn when it is over, and that breaks off when what came before is written.
pub(super) struct InTurn<B> {
    body: B,
    turn: Turn,
    /// What came of it and the server has no room for.
    behind: Option<Box<Behind>>,
    memory: Rc<Memory>,
    /// Nothing more comes of the body.
    over: bool,
    /// Nothing but the connection's end will tell the client that it is over.
    bare: bool,
    /// How it has broken off, of which the server is not told yet.
    broken: Option<Box<dyn Error + Send + Sync>>,
}

/// What a client has not taken yet. Small pieces are put together: events have some 250 bytes, and what keeps each of them apart
/// takes half as much.
#[derive(Default)]
struct Behind {
    pieces: VecDeque<Bytes>,
    last: BytesMut,
    bytes: usize,
    part: Option<Part>,
}

impl Behind {
    fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        if self.last.len() + data.len() > PIECE {
            self.pieces.push_back(std::mem::take(&mut self.last).freeze());
        }
        if data.len() > PIECE / 2 {
            self.pieces.push_back(self.last.split().freeze());
            self.pieces.push_back(data);
        } else {
            if self.last.is_empty() {
                self.last.reserve(PIECE);
            }
            self.last.extend_from_slice(&data);
        }
    }

    fn pop(&mut self) -> Bytes {
        let piece = loop {
            match self.pieces.pop_front() {
                Some(piece) if piece.is_empty() => {}
                Some(piece) => break piece,
                None => break std::mem::take(&mut self.last).freeze(),
            }
        };
        self.bytes -= piece.len();
        piece
    }
}

impl<B> InTurn<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(super) fn new(body: B, turn: Turn, version: Version, memory: Rc<Memory>) -> Self {
        // HTTP/1.0 has no chunks.
        let bare = version < Version::HTTP_11
            && !body.is_end_stream()
            && body.size_hint().exact().is_none();
        if bare {
            turn.owes_the_end(true);
        }
        Self { body, turn, behind: None, memory, over: false, bare, broken: None }
    }

    /// The next of the body; `None` where nothing more comes of it.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.over = !matches!(&frame, Some(Ok(_))) || self.body.is_end_stream();
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                self.broken = Some(error.into());
                None
            }
            None => None,
        })
    }

    /// Takes what comes while the client is behind, and there is memory.
    fn read_on(&mut self, cx: &mut Context<'_>) {
        while !self.over && self.has_memory() {
            let Poll::Ready(Some(frame)) = self.poll_body(cx) else { return };
            // No body here has trailers.
            let Ok(data) = frame.into_data() else { continue };
            self.behind.get_or_insert_default().push(data);
        }
    }

    fn has_memory(&mut self) -> bool {
        let Some(behind) = &mut self.behind else { return true };
        self.memory.fits(&mut behind.part, behind.bytes)
    }

    /// What was read while the client was behind.
    fn next_behind(&mut self) -> Option<Frame<Bytes>> {
        let behind = self.behind.as_mut()?;
        let data = behind.pop();
        if behind.bytes == 0 {
            self.behind = None;
        }
        (!data.is_empty()).then(|| Frame::data(data))
    }
}

fn length(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Buf::remaining)
}

impl<B> Body for InTurn<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.turn.poll_room(KEPT).is_pending() {
            self.read_on(cx);
            return Poll::Pending;
        }
        let frame = match self.next_behind() {
            Some(frame) => Some(frame),
            None => ready!(self.poll_body(cx)),
        };
        if let Some(frame) = &frame {
            self.turn.gives(length(frame));
        }
        // A body that has broken off has nothing more to come either.
        if self.bare && self.broken.is_none() && self.is_end_stream() {
            self.turn.owes_the_end(false);
        }
        if frame.is_none() && self.broken.is_some() {
            ready!(self.turn.poll_sent());
            return Poll::Ready(self.broken.take().map(Err));
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        let over = self.over || self.body.is_end_stream();
        over && self.behind.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
