//! What cannot be read as a request is answered in the shape of every other error.
//!
//! hyper answers a head that it cannot parse by itself, with a status and no body, and asks no service. Below it, its answer is
//! known for what it is: written while no request is being answered, with one of three statuses, and without the id that every
//! other answer has. The right one is written in its place. After it the connection ends.

use std::{
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{headers::REQUEST_ID, patience::Turns};

/// What a head is answered that hyper gives this status.
pub type Answer = Rc<dyn Fn(StatusCode) -> Response<Full<Bytes>>>;

/// A stream that writes the right answers in the place of hyper's own.
pub struct Misread<S> {
    stream: S,
    turns: Turns,
    answer: Answer,
    /// What is still to be written in the place of hyper's answer.
    instead: Option<Bytes>,
}

impl<S> Misread<S> {
    /// A stream of a connection whose requests take these turns.
    pub fn new(stream: S, turns: Turns, answer: Answer) -> Self {
        Self { stream, turns, answer, instead: None }
    }

    /// What is written in the place of these bytes, if they are hyper's own answer.
    fn instead_of(&self, bytes: &[u8]) -> Option<Bytes> {
        if self.turns.any() {
            return None;
        }
        let rest = bytes.strip_prefix(b"HTTP/1.")?;
        // After a request of HTTP/1.0 hyper answers in that.
        let rest = rest.strip_prefix(b"1 ").or_else(|| rest.strip_prefix(b"0 "))?;
        let status = StatusCode::from_bytes(rest.get(..3)?).ok()?;
        let is_of_a_head = matches!(
            status,
            StatusCode::BAD_REQUEST
                | StatusCode::URI_TOO_LONG
                | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        );
        if !is_of_a_head || memmem::find(bytes, REQUEST_ID.as_str().as_bytes()).is_some() {
            return None;
        }
        whole(bytes.strip_suffix(b"\r\n\r\n")?, (self.answer)(status))
    }
}

/// An answer under the head that hyper gave its own.
fn whole(head: &[u8], answer: Response<Full<Bytes>>) -> Option<Bytes> {
    let (parts, body) = answer.into_parts();
    let body = body.collect().now_or_never()?.ok()?.to_bytes();
    let has_no_body = |line: &&str| !line.starts_with("content-length:");
    let mut text = Vec::with_capacity(head.len() + body.len() + 128);
    for line in std::str::from_utf8(head).ok()?.split("\r\n").filter(has_no_body) {
        text.extend_from_slice(&[line.as_bytes(), b"\r\n"].concat());
    }
    for (name, value) in &parts.headers {
        text.extend_from_slice(
            &[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat(),
        );
    }
    text.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    text.extend_from_slice(&body);
    Some(text.into())
}

impl<S: AsyncRead + Unpin> AsyncRead for Misread<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Misread<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.instead.is_none() {
            this.instead = this.instead_of(bytes);
        }
        let Some(instead) = &mut this.instead else {
            return Pin::new(&mut this.stream).poll_write(cx, bytes);
        };
        while instead.has_remaining() {
            match ready!(Pin::new(&mut this.stream).poll_write(cx, instead))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => instead.advance(written),
            }
        }
        this.instead = None;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match slices {
            // hyper's own answer has no body, and so is in one piece.
            [one] => Pin::new(this).poll_write(cx, one),
            _ => Pin::new(&mut this.stream).poll_write_vectored(cx, slices),
        }
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
    use http::header::CONTENT_TYPE;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const OWN: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    fn answer() -> Answer {
        Rc::new(|status| {
            let mut response = Response::new(Full::from(format!("{{{}}}", status.as_u16())));
            response.headers_mut().insert(CONTENT_TYPE, "application/json".parse().unwrap());
            response
        })
    }

    /// What arrives of these bytes, through a stream that takes so many at once.
    async fn arrives(bytes: &[u8], turns: &Turns, at_once: usize) -> String {
        let (mut client, server) = duplex(at_once);
        let mut server = Misread::new(server, turns.clone(), answer());
        let mut text = String::new();
        let write = async {
            server.write_all(bytes).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let ((), read) = tokio::join!(write, client.read_to_string(&mut text));
        read.unwrap();
        text
    }

    #[tokio::test]
    async fn hypers_own_answer_gets_a_body_however_little_the_client_takes_at_once() {
        for at_once in [1, 7, 4096] {
            assert_eq!(
                arrives(OWN, &Turns::default(), at_once).await,
                "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: 5\r\n\r\n{431}",
            );
        }
    }

    #[tokio::test]
    async fn everything_else_passes_as_it_is() {
        let ours = String::from_utf8(OWN.to_vec()).unwrap().replace("connection", "x-request-id");
        let fine = ours.replace("431", "200");
        for bytes in [ours.as_bytes(), fine.as_bytes(), b"HTTP/1.1 4", b"", b"data: [DONE]\n\n"] {
            let arrived = arrives(bytes, &Turns::default(), 4096).await;
            assert_eq!(arrived.as_bytes(), bytes);
        }
        let turns = Turns::default();
        let _turn = turns.begin();
        let arrived = arrives(OWN, &turns, 4096).await;
        assert_eq!(arrived.as_bytes(), OWN, "a response that has these bytes in it");
    }
}
