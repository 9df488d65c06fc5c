//! HTTP/1 towards pods, against what RFC 9112 says and against what hyper makes of the same bytes.

mod framing;
mod fuzz;
mod sending;

use bytes::Bytes;
use http::{Method, response::Parts};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::{BadReply, Failed, PodRequest, To, exchange};

/// Room for everything that a test sends.
const ROOM: usize = 1 << 20;

fn request(method: Method, headers: &[(&'static str, &'static str)], body: &str) -> PodRequest {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    let path = "/v1/completions?a=b";
    PodRequest::new(&method, path, headers, Bytes::copy_from_slice(body.as_bytes()))
}

const fn to<'a>(authority: &'a str, name: &'a str) -> To<'a> {
    To { authority, rank: None, name }
}

fn post() -> PodRequest {
    request(Method::POST, &[], "{}")
}

/// What became of a response.
#[derive(Debug)]
struct Heard {
    parts: Parts,
    body: Vec<u8>,
    /// Whether the connection may be used again.
    kept: bool,
}

/// Answers a request with these pieces, one after another, and then hangs up if told to.
async fn hear(method: Method, pieces: &[&[u8]], hangs_up: bool) -> Result<Heard, BadReply> {
    let (ours, mut pods) = duplex(ROOM);
    let say = async {
        let mut asked = [0; 512];
        assert!(pods.read(&mut asked).await.unwrap() > 0);
        for piece in pieces {
            pods.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        (!hangs_up).then_some(pods)
    };
    let request = request(method, &[], "{}");
    let (heard, _open) = tokio::join!(read(ours, &request), say);
    heard
}

async fn read(stream: DuplexStream, request: &PodRequest) -> Result<Heard, BadReply> {
    let (parts, mut reply) = match exchange(stream, to("pod:1", "r-1"), request).await {
        Ok(answer) => answer,
        Err(Failed::Lost(error)) => return Err(error),
        Err(Failed::Unsent(error)) => panic!("{error}"),
    };
    let mut body = Vec::new();
    while let Some(data) = reply.data().await {
        body.extend_from_slice(&data?);
    }
    assert!(reply.is_over() && reply.left() == Some(0));
    Ok(Heard { parts, body, kept: reply.into_connection().is_some() })
}

async fn hear_text(text: &str) -> Result<Heard, BadReply> {
    hear(Method::POST, &[text.as_bytes()], true).await
}
