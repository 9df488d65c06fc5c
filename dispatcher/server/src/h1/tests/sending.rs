//! What a pod sees of a request, and which requests may be sent again.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::Method;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

use super::{ROOM, post, request, to};
use crate::h1::{Failed, To, exchange};

#[tokio::test]
async fn a_request_has_its_path_headers_name_host_and_length() {
    let (ours, mut pods) = duplex(ROOM);
    let asked = request(Method::POST, &[("x-a", "1"), ("x-b", "2 3")], "{\"a\":1}");
    let sent =
        tokio::spawn(
            async move { exchange(ours, to("pod:8000", "r-1"), &asked).await.map(|_| ()) },
        );
    let mut seen = vec![0; 4096];
    let count = pods.read(&mut seen).await.unwrap();
    let seen = std::str::from_utf8(&seen[..count]).unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    assert_eq!(lines.remove(0), "POST /v1/completions?a=b HTTP/1.1");
    lines.sort_unstable();
    let own = ["content-length: 7", "host: pod:8000", "x-a: 1", "x-b: 2 3", "x-request-id: r-1"];
    assert_eq!(lines, own);
    assert_eq!(body, "{\"a\":1}");
    drop(pods);
    assert!(matches!(sent.await.unwrap(), Err(Failed::Lost(_))));
}

#[tokio::test]
async fn a_request_of_which_nothing_was_written_is_told_from_one_that_was_lost() {
    let (ours, pods) = duplex(ROOM);
    drop(pods);
    assert!(matches!(exchange(ours, to("pod", "r-1"), &post()).await, Err(Failed::Unsent(_))));

    let (ours, mut pods) = duplex(16);
    let lost = async {
        pods.read_u8().await.unwrap();
        drop(pods);
    };
    let asked = post();
    let (answer, ()) = tokio::join!(exchange(ours, to("pod", "r-1"), &asked), lost);
    assert!(matches!(answer, Err(Failed::Lost(_))));
}

#[test]
fn which_of_a_pods_engines_is_to_serve_stands_in_the_head() {
    let head = |rank| {
        let head = post().head(To { rank, ..to("pod:8000", "r-1") });
        String::from_utf8(head).unwrap()
    };
    assert!(head(Some(11)).contains("\r\nx-data-parallel-rank: 11\r\n"));
    assert!(!head(None).contains("rank"));
}

#[tokio::test]
async fn a_large_body_goes_through_a_small_buffer() {
    let body = "x".repeat(300 << 10);
    let asked = request(Method::POST, &[], &body);
    let (ours, mut pods) = duplex(1000);
    let serve = async {
        let mut seen = Vec::new();
        while !seen.ends_with(b"xxxx") || seen.len() < body.len() {
            pods.read_buf(&mut seen).await.unwrap();
        }
        pods.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        (pods, seen)
    };
    let (answer, (_pods, seen)) = tokio::join!(exchange(ours, to("pod", "r-1"), &asked), serve);
    assert!(answer.unwrap().1.into_connection().is_some());
    assert!(seen.ends_with(body.as_bytes()));
}

/// A pod that refuses a body by its head alone, as a server with a bound on bodies does.
#[tokio::test]
async fn an_answer_before_the_end_of_the_request_counts_and_ends_the_connection() {
    let asked = request(Method::POST, &[], &"x".repeat(64 << 10));
    let (ours, mut pods) = duplex(1000);
    let refuse = async {
        let mut seen = [0; 200];
        pods.read_exact(&mut seen).await.unwrap();
        pods.write_all(b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 2\r\n\r\nno")
            .await
            .unwrap();
        pods
    };
    let (answer, _pods) = tokio::join!(exchange(ours, to("pod", "r-1"), &asked), refuse);
    let (parts, mut reply) = answer.unwrap();
    assert_eq!(parts.status, 413);
    assert_eq!(reply.data().await.unwrap().unwrap(), "no");
    assert!(reply.data().await.is_none());
    assert!(reply.into_connection().is_none(), "the rest of the request was not sent");
}

/// A stream that takes what is written at once, and has it on its way only when that is flushed, which it is not until it may.
struct Sealing {
    below: DuplexStream,
    kept: Vec<u8>,
    may: bool,
}

impl AsyncRead for Sealing {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().below).poll_read(cx, buf)
    }
}

impl AsyncWrite for Sealing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.kept.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { below, kept, may } = self.get_mut();
        while !kept.is_empty() && *may {
            let count = ready!(Pin::new(&mut *below).poll_write(cx, kept))?;
            kept.drain(..count);
        }
        if kept.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn what_is_sealed_is_flushed_and_a_connection_that_keeps_some_of_it_is_not_used_again() {
    for may in [true, false] {
        let (below, mut pods) = duplex(ROOM);
        let ours = Sealing { below, kept: Vec::new(), may };
        let asked = request(Method::POST, &[], "{}");
        let answer = async {
            if may {
                let mut seen = vec![0; 4096];
                let count = pods.read(&mut seen).await.unwrap();
                assert!(seen[..count].ends_with(b"{}"));
            }
            pods.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let (exchanged, ()) = tokio::join!(exchange(ours, to("pod", ""), &asked), answer);
        assert_eq!(exchanged.unwrap().1.into_connection().is_some(), may);
    }
}
