//! Connections to the admin side on which nothing moves any more are closed.
//!
//! The server waits for the rest of a head, or of a body, for as long as its client likes, and for a client that takes nothing of
//! a response; a few thousand of these would leave no file descriptor for anybody. What is watched gets a word each second.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

use crate::patience::Patience;

/// Longest time in which not a byte goes either way.
pub const QUIET: Duration = Duration::from_secs(300);

/// A listener whose connections do not stay for ever.
#[derive(Debug)]
pub struct Door(pub TcpListener);

impl Listener for Door {
    type Io = Quiet<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        let (stream, from) = Listener::accept(&mut self.0).await;
        (Quiet::new(stream), from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A stream that ends with an error when nothing has moved for [`QUIET`].
#[derive(Debug)]
pub struct Quiet<S> {
    stream: S,
    quiet: Patience,
}

impl<S> Quiet<S> {
    fn new(stream: S) -> Self {
        Self { stream, quiet: Patience::new(QUIET) }
    }

    /// What came of a try: something moved, or it is quiet.
    fn tried<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.quiet.forget();
            return outcome;
        }
        self.quiet.begin();
        ready!(self.quiet.poll_over(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved for too long")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Quiet<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.tried(cx, read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Quiet<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.tried(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.tried(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::{Instant, sleep, timeout},
    };

    use super::*;

    fn timed_out<T: std::fmt::Debug>(outcome: io::Result<T>) -> bool {
        outcome.unwrap_err().kind() == io::ErrorKind::TimedOut
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_no_more_is_given_up() {
        let (mut client, server) = duplex(64);
        let mut server = Quiet::new(server);
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        let begun = Instant::now();
        assert!(timed_out(timeout(QUIET * 2, server.read_u8()).await.unwrap()));
        assert_eq!(begun.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, server) = duplex(4);
        let mut server = Quiet::new(server);
        assert!(timed_out(timeout(QUIET * 2, server.write_all(b"twelve bytes")).await.unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_something_now_and_then_stays() {
        let (mut client, server) = duplex(64);
        let mut server = Quiet::new(server);
        for _ in 0..5 {
            let more = timeout(QUIET / 2, server.read_u8()).await;
            assert!(more.is_err(), "it has nothing to say: {more:?}");
            server.write_all(b"x").await.unwrap();
            client.read_u8().await.unwrap();
            sleep(QUIET / 4).await;
        }
    }
}
