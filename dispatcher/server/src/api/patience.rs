//! How long one connection may keep the server waiting.
//!
//! Wraps a connection's stream, below HTTP. Three patiences end in an error, which closes the
//! connection: with the head of a request that has begun to arrive (a client that sends a byte now and
//! then would hold the connection for ever), with a client that takes not one byte of a response
//! that is ready (it would hold a pod's capacity for ever), and with a connection on which nothing is
//! asked. The HTTP server's own timeout cannot tell the last from the first, and a gateway's pooled
//! connection must live through minutes without a request. The wait for one begins where the stream is read from or flushed,
//! whichever comes: when a response is over the HTTP server flushes it, and does not read again before it is told that there
//! is something to be read.
//!
//! A client that has left is seen by reading, and the HTTP server does not read while a request is answered and bytes
//! that lie behind it were read already. Then the stream is asked itself, when the server flushes it, which it does
//! whenever it is looked at; if the client has closed its side, that ends in an error too.
//!
//! The HTTP server asks for no more of a response than it has room for. So a response is told how much of it is kept there, and
//! gives no more where that is enough (`api::behind`).
//!
//! The HTTP server throws away what it has not written of a response that breaks off. So a response that does is told when all of
//! it is written, which ends, at the latest, with the patience for a client that takes nothing.
//!
//! A response to HTTP/1.0 whose length nobody knows ends where its connection does. When that ends before it, the client is
//! not to take the one for the other: the connection is reset.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::room::Guest;
use crate::{patience::Patience, tls::Line};

/// How many requests of a connection are being answered, and how many there have been. Shared between
/// the stream below HTTP and the service above it.
#[derive(Clone, Debug, Default)]
pub struct Turns(Rc<Cell<Count>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    open: u32,
    begun: u64,
    /// The connection's end would be taken for that of a response, which is not there yet.
    owed_end: bool,
    /// How much of what the server was given of a response is on its way.
    given: Given,
    /// Bytes that it was given since all of them were, and in how many pieces.
    kept: (usize, usize),
}

/// What the server was given of a response, and keeps until the client takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Given {
    /// Nothing of it is left.
    #[default]
    Sent,
    /// Some of it may be.
    Kept,
    /// Some of it may be, and the response waits for that to be over.
    Awaited,
}

/// A request that is being answered; dropped when its response is over.
#[derive(Debug)]
pub struct Turn(Turns);

impl Turns {
    /// A request's head is complete.
    pub fn begin(&self) -> Turn {
        let count = self.0.get();
        self.0.set(Count { open: count.open + 1, begun: count.begun + 1, ..count });
        Turn(self.clone())
    }

    /// The server has written whatever it was given. Whether the response waits for that.
    fn sent(&self) -> bool {
        let count = self.0.get();
        if count.given == Given::Sent {
            return false;
        }
        self.0.set(Count { given: Given::Sent, kept: (0, 0), ..count });
        count.given == Given::Awaited
    }

    /// Whether any request is being answered.
    pub fn any(&self) -> bool {
        self.0.get().open > 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let count = self.0.0.get();
        self.0.0.set(Count { open: count.open.saturating_sub(1), ..count });
    }
}

impl Turn {
    /// Whether the connection's end would be taken for the end of its response, before that has come. If the connection does end
    /// then, it is reset.
    pub fn owes_the_end(&self, owes: bool) {
        let count = self.0.0.get();
        self.0.0.set(Count { owed_end: owes, ..count });
    }

    /// The server is given so many bytes of its response.
    pub fn gives(&self, bytes: usize) {
        let count = self.0.0.get();
        let kept = (count.kept.0.saturating_add(bytes), count.kept.1.saturating_add(1));
        self.0.0.set(Count { given: Given::Kept, kept, ..count });
    }

    /// Ready while the server keeps fewer bytes and fewer pieces than these of what it was given, and else as [`Turn::poll_sent`].
    pub fn poll_room(&self, (bytes, pieces): (usize, usize)) -> Poll<()> {
        let kept = self.0.0.get().kept;
        if kept.0 < bytes && kept.1 < pieces { Poll::Ready(()) } else { self.poll_sent() }
    }

    /// Ready when the server has written what it was given. Must be polled by the connection's task, which is woken then.
    pub fn poll_sent(&self) -> Poll<()> {
        let count = self.0.0.get();
        if count.given == Given::Sent {
            return Poll::Ready(());
        }
        self.0.0.set(Count { given: Given::Awaited, ..count });
        Poll::Pending
    }
}

/// Time between two looks at a client with more unread bytes than were read: what waits for bytes cannot tell them from
/// the end then.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What a connection's stream can do besides.
pub trait Wire {
    /// Ready when there is something to be read: `true` if it is the end, which bytes may still lie before.
    fn poll_departed(&self, cx: &mut Context<'_>) -> Poll<bool>;

    /// Has it end in an error for the other side, once it is dropped.
    fn spoil_end(&self);
}

impl Wire for Line {
    fn poll_departed(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(socket) = self.socket() else { return Poll::Ready(true) };
        // What the system told the runtime already; the system itself is not asked.
        let Ok(()) = ready!(socket.poll_read_ready(cx)) else { return Poll::Ready(true) };
        let known = socket.ready(Interest::READABLE).now_or_never();
        Poll::Ready(known.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed())))
    }

    fn spoil_end(&self) {
        // Fails for a connection that is gone.
        let _ = self.socket().map(TcpStream::set_zero_linger);
    }
}

/// A stream that gives up on a client; see the module.
#[derive(Debug)]
pub struct Patient<S: Wire> {
    stream: S,
    turns: Turns,
    /// What it is to whoever has no place.
    guest: Arc<Guest>,
    idle: Patience,
    head: Patience,
    /// The turns begun when the first byte of the awaited head came; `None` before it.
    head_since: Option<u64>,
    write: Patience,
    /// Whether it was read from since it was last flushed, and whoever reads is woken by what comes next, the end included. A read
    /// that found something wakes nobody.
    waits_for_bytes: bool,
    look_again: Patience,
}

impl<S: Wire> Patient<S> {
    /// The stream of this guest, that waits at most this long for a request, for the rest of its head and for a write.
    pub fn new(
        (stream, guest): (S, Arc<Guest>),
        turns: Turns,
        [idle, head, write]: [Duration; 3],
    ) -> Self {
        let [idle, head, write, look_again] = [idle, head, write, LOOK_AGAIN].map(Patience::new);
        Self {
            stream,
            turns,
            guest,
            idle,
            head,
            head_since: None,
            write,
            waits_for_bytes: false,
            look_again,
        }
    }

    /// Whether bytes that arrive now belong to a head.
    fn awaits_head(&mut self) -> bool {
        let Count { open, begun, .. } = self.turns.0.get();
        if open > 0 || self.head_since.is_some_and(|since| since != begun) {
            self.head.forget();
            self.head_since = None;
        }
        if open > 0 {
            self.idle.forget();
            self.guest.has_asked();
        }
        open == 0
    }

    /// Ready once nothing was asked for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.write.is_waiting() {
            // The last answer is still on its way: that has a time of its own.
            self.idle.forget();
            self.guest.has_asked();
            return Poll::Pending;
        }
        if !self.idle.is_waiting() {
            self.guest.falls_silent();
        }
        self.idle.begin();
        if self.guest.must_leave(cx) {
            return Poll::Ready(displaced());
        }
        self.idle.poll_over(cx).map(|()| given_up("nothing was asked for too long"))
    }

    /// A write that did not get through: still pending, or given up.
    fn unwritten<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        self.write.begin();
        ready!(self.write.poll_over(cx));
        Poll::Ready(Err(given_up("the client does not take its response")))
    }
}

impl<S: Wire> Drop for Patient<S> {
    fn drop(&mut self) {
        if self.turns.0.get().owed_end {
            self.stream.spoil_end();
        }
    }
}

impl<S: Wire> Patient<S> {
    /// Ready once the client has left whose request is being answered, if nobody reads, which would say so.
    fn poll_departed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.waits_for_bytes) || self.turns.0.get().open == 0 {
            return Poll::Pending;
        }
        loop {
            if self.look_again.is_waiting() {
                ready!(self.look_again.poll_over(cx));
                self.look_again.forget();
            }
            if ready!(self.stream.poll_departed(cx)) {
                return Poll::Ready(());
            }
            self.look_again.begin();
        }
    }
}

fn given_up(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn displaced() -> io::Error {
    io::Error::other("somebody else has its place")
}

impl<S: AsyncRead + Wire + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let awaits_head = this.awaits_head();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.waits_for_bytes = read.is_pending();
        if !awaits_head {
            return read;
        }
        if read.is_ready() {
            if buf.filled().len() > before && this.head_since.is_none() {
                this.head_since = Some(this.turns.0.get().begun);
                this.head.begin();
                this.idle.forget();
                this.guest.falls_silent();
            }
            return read;
        }
        if this.head_since.is_none() {
            return this.poll_idle(cx).map(Err);
        }
        if this.write.is_waiting() {
            return Poll::Pending;
        }
        if this.guest.must_leave(cx) {
            return Poll::Ready(Err(displaced()));
        }
        ready!(this.head.poll_over(cx));
        Poll::Ready(Err(given_up("the head of a request did not arrive in time")))
    }
}

impl<S: AsyncWrite + Wire + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        if written.is_pending() {
            return this.unwritten(cx);
        }
        this.write.forget();
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        if written.is_pending() {
            return this.unwritten(cx);
        }
        this.write.forget();
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.poll_departed(cx).is_ready() {
            let gone = io::Error::new(io::ErrorKind::ConnectionReset, "the client has left");
            return Poll::Ready(Err(gone));
        }
        // The server flushes when it has nothing left to write; what is sealed may still wait for the client.
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        let Poll::Ready(flushed) = flushed else { return this.unwritten(cx) };
        flushed?;
        this.write.forget();
        if this.turns.sent() {
            cx.waker().wake_by_ref();
        }
        if this.awaits_head()
            && this.head_since.is_none()
            && let Poll::Ready(given_up) = this.poll_idle(cx)
        {
            return Poll::Ready(Err(given_up));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
