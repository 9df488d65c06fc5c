//! A connection, in the clear or sealed.

use std::{
    fmt,
    io::{self, ErrorKind, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{Accept, TlsStream};

use crate::accept::Listening;

/// A connection.
pub struct Line(State);

enum State {
    Clear(TcpStream),
    /// A client's, whose handshake is not over: whoever reads or writes goes on with it.
    Greeting(Box<Accept<TcpStream>>, &'static Listening),
    Sealed(Box<TlsStream<TcpStream>>),
    /// A client's, whose handshake failed.
    Lost,
}

impl From<TcpStream> for Line {
    fn from(stream: TcpStream) -> Self {
        Self(State::Clear(stream))
    }
}

impl Line {
    /// A client's, which is greeted by this listener.
    pub(super) fn greeting(accept: Accept<TcpStream>, listening: &'static Listening) -> Self {
        Self(State::Greeting(Box::new(accept), listening))
    }

    /// One whose handshake is over.
    pub(super) fn sealed(stream: TlsStream<TcpStream>) -> Self {
        Self(State::Sealed(Box::new(stream)))
    }

    /// The connection below; none where that is lost.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.0 {
            State::Clear(stream) => Some(stream),
            State::Greeting(accept, _) => accept.get_ref(),
            State::Sealed(stream) => Some(stream.get_ref().0),
            State::Lost => None,
        }
    }

    /// Whether a connection to a server that is not in use is as it was left: open, and with nothing to read.
    pub fn is_quiet(&mut self) -> bool {
        if let State::Sealed(stream) = &mut self.0
            && let TlsStream::Client(stream) = &mut **stream
        {
            let state = stream.get_mut().1.process_new_packets();
            let quiet = |state: rustls::IoState| {
                state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed()
            };
            if !state.is_ok_and(quiet) {
                return false;
            }
        }
        let mut byte = [MaybeUninit::uninit()];
        let peeked = self.socket().map(|stream| SockRef::from(stream).peek(&mut byte));
        matches!(peeked, Some(Err(error)) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Ready once the handshake is over.
    fn poll_greeted(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State::Greeting(accept, listening) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let (outcome, listening) = (ready!(Pin::new(&mut **accept).poll(cx)), *listening);
        match outcome {
            Ok(stream) => {
                self.0 = State::Sealed(Box::new(stream.into()));
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                self.0 = State::Lost;
                // Who only looks whether somebody listens has failed at nothing.
                if error.kind() != ErrorKind::UnexpectedEof {
                    listening.handshake_failed(&error);
                }
                Poll::Ready(Err(error))
            }
        }
    }
}

/// What is done with a line that cannot be read or written any more.
fn lost() -> io::Error {
    ErrorKind::NotConnected.into()
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            State::Clear(_) => "clear",
            State::Greeting(..) => "greeting",
            State::Sealed(_) => "sealed",
            State::Lost => "lost",
        };
        f.debug_tuple("Line").field(&state).field(&self.socket()).finish()
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.0 {
                State::Clear(stream) => return Pin::new(stream).poll_read(cx, buf),
                State::Sealed(stream) => return Pin::new(&mut **stream).poll_read(cx, buf),
                State::Greeting(..) => ready!(this.poll_greeted(cx))?,
                State::Lost => return Poll::Ready(Err(lost())),
            }
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            match &mut this.0 {
                State::Clear(stream) => return Pin::new(stream).poll_write(cx, bytes),
                State::Sealed(stream) => return Pin::new(&mut **stream).poll_write(cx, bytes),
                State::Greeting(..) => ready!(this.poll_greeted(cx))?,
                State::Lost => return Poll::Ready(Err(lost())),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            match &mut this.0 {
                State::Clear(stream) => return Pin::new(stream).poll_write_vectored(cx, slices),
                State::Sealed(stream) => {
                    return Pin::new(&mut **stream).poll_write_vectored(cx, slices);
                }
                State::Greeting(..) => ready!(this.poll_greeted(cx))?,
                State::Lost => return Poll::Ready(Err(lost())),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            State::Sealed(stream) => Pin::new(&mut **stream).poll_flush(cx),
            // Nothing was written yet, or all of it.
            State::Clear(_) | State::Greeting(..) | State::Lost => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            State::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            State::Sealed(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
            State::Greeting(accept, _) => match accept.get_mut() {
                Some(stream) => Pin::new(stream).poll_shutdown(cx),
                None => Poll::Ready(Ok(())),
            },
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}
