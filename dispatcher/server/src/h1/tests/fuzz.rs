//! Made-up responses: every framing, cut anywhere; damaged ones, beside what hyper makes of them; and plain noise.

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use proptest::{collection::vec, prelude::*, sample::Index};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::{Builder, Runtime},
};

use super::{ROOM, hear};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A valid response: its bytes and its body.
fn response() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let pieces = vec(vec(any::<u8>(), 1..300), 0..8);
    (pieces, any::<bool>(), any::<bool>(), "[a-z]{0,12}").prop_map(
        |(pieces, chunked, trailers, aside)| {
            let body = pieces.concat();
            let head = b"HTTP/1.1 200 OK\r\nx-a: b\r\n".to_vec();
            if !chunked {
                let length = format!("content-length: {}\r\n\r\n", body.len());
                return ([head, length.into_bytes(), body.clone()].concat(), body);
            }
            let mut bytes = [head, b"transfer-encoding: chunked\r\n\r\n".to_vec()].concat();
            for piece in &pieces {
                let extension = if aside.is_empty() { String::new() } else { format!(";{aside}") };
                bytes.extend(format!("{:X}{extension}\r\n", piece.len()).bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n");
            if trailers {
                bytes.extend(format!("x-{aside}a: 1\r\n").bytes());
            }
            bytes.extend(b"\r\n");
            (bytes, body)
        },
    )
}

fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).filter(|piece| !piece.is_empty()).collect()
}

/// The body of a response as hyper reads it; `None` when it refuses it.
async fn as_hyper_reads(bytes: &[u8]) -> Option<Vec<u8>> {
    let (ours, mut pods) = duplex(ROOM);
    let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
    let say = async {
        let mut asked = [0; 512];
        let _ = pods.read(&mut asked).await;
        let _ = pods.write_all(bytes).await;
        drop(pods);
    };
    let ask = async {
        let request = http::Request::post("/").header("host", "pod");
        let response =
            sender.send_request(request.body(Full::<Bytes>::from("{}")).unwrap()).await.ok()?;
        let body = response.into_body().collect().await.ok()?;
        drop(sender);
        Some(body.to_bytes().to_vec())
    };
    let (answer, _, ()) = tokio::join!(ask, connection, say);
    answer
}

proptest! {
    #[test]
    fn every_valid_response_is_read_whole_wherever_it_is_cut(
        (bytes, body) in response(),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let heard = runtime().block_on(hear(Method::POST, &pieces(&bytes, &cuts), false)).unwrap();
        prop_assert_eq!(heard.body, body);
        prop_assert!(heard.kept);
    }

    #[test]
    fn a_valid_response_that_is_cut_short_is_never_complete((bytes, _) in response(), at in any::<Index>()) {
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert!(runtime().block_on(hear(Method::POST, &[cut], true)).is_err());
    }

    /// What is stricter here than in hyper refuses; nothing is read as something else.
    #[test]
    fn a_damaged_response_is_refused_or_read_as_hyper_reads_it(
        (bytes, _) in response(),
        damage in vec((any::<Index>(), prop_oneof![
            Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b';'), Just(b' '), Just(b','), Just(b'f'), any::<u8>()
        ]), 1..4),
        inserts in any::<bool>(),
    ) {
        let mut bytes = bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            if inserts { bytes.insert(at, byte) } else { bytes[at] = byte }
        }
        let runtime = runtime();
        if let Ok(heard) = runtime.block_on(hear(Method::POST, &[&bytes], true)) {
            let theirs = runtime.block_on(as_hyper_reads(&bytes));
            prop_assert_eq!(Some(heard.body), theirs, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn noise_neither_panics_nor_hangs(noise in vec(any::<u8>(), 0..600), chunked in any::<bool>()) {
        let head: &[u8] = if chunked { b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" } else { b"" };
        let heard = runtime().block_on(hear(Method::POST, &[head, &noise], true));
        prop_assert!(heard.is_err() || chunked);
    }
}
