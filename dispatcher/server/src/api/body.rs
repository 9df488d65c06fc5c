//! Reads a request's body: bounded in size, in time, and together with all others that are being read ([`super::reading`]).
//!
//! A small body is copied, because a piece of the connection's buffer would hold all of it for as long as the request waits; a
//! large one that came in one piece is not. The body of a request that is refused unread is thrown away as it comes for a
//! moment, because a client that is still sending when the connection closes sees a broken pipe
//! instead of the answer.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderValue,
    header::{CONTENT_ENCODING, EXPECT, TRANSFER_ENCODING},
};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{
    config::Limits,
    error::ApiError,
    reading::{Reading, Share},
};

/// Bodies up to this size are copied: half of what a connection reads at once, at the least.
const COPIED_BYTES: usize = 4 << 10;
/// Memory set aside for a body on the word of its Content-Length alone.
const BELIEVED_BYTES: u64 = 1 << 20;
/// How long a body that is not read is still taken from the client.
const DISCARD: Duration = Duration::from_secs(2);

/// Reads the body of a request with these headers.
///
/// # Errors
/// [`ApiError::Encoded`], [`ApiError::TooLarge`], [`ApiError::NoRoom`], [`ApiError::Late`] or [`ApiError::Broken`].
pub async fn read<B>(
    headers: &HeaderMap,
    body: B,
    limits: &Limits,
    reading: &Reading,
) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    if is_encoded(headers) {
        discard(headers, body).await;
        return Err(ApiError::Encoded);
    }
    let max_bytes = limits.max_body_bytes;
    let declared = body.size_hint().lower();
    if waits(headers) && declared > max_bytes as u64 {
        return Err(ApiError::TooLarge { max_bytes });
    }
    let outcome = {
        let share = reading.share(limits.max_reading_bytes);
        let mut collected = pin!(collect(&mut body, declared, max_bytes, share));
        match soon(collected.as_mut()).await {
            Some(outcome) => outcome,
            // Boxed, like what is below: it is large and rare.
            None => {
                let outcome = Box::pin(timeout(limits.body_timeout, collected)).await;
                outcome.unwrap_or(Err(ApiError::Late))
            }
        }
    };
    if matches!(outcome, Err(ApiError::TooLarge { .. } | ApiError::NoRoom)) {
        drain(body).await;
    }
    outcome
}

/// Takes the body of a request that is refused by its head, so that its client comes to read the answer.
pub async fn discard<B>(headers: &HeaderMap, body: B)
where
    B: Body<Data = Bytes>,
{
    if !body.is_end_stream() && !waits(headers) {
        // Boxed, for it is large and rare.
        Box::pin(async { drain(pin!(body)).await }).await;
    }
}

/// Whatever comes of it, the answer is the same.
async fn drain<B>(mut body: Pin<&mut B>)
where
    B: Body<Data = Bytes>,
{
    let all = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = Box::pin(timeout(DISCARD, all)).await;
}

/// Of a client that waits for "100 Continue" nothing needs to be taken: it has sent nothing yet.
fn waits(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

/// What becomes of this when it is looked at twice. The server hands over a body that came with its head when it is asked for
/// the second time, and then no timer is needed.
async fn soon<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut asked = false;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if asked => Poll::Ready(None),
        Poll::Pending => {
            asked = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

async fn collect<B>(
    body: &mut B,
    declared: u64,
    max_bytes: usize,
    mut share: Share<'_>,
) -> Result<Bytes, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if declared > max_bytes as u64 {
        return Err(ApiError::TooLarge { max_bytes });
    }
    let Some(first) = chunk(body).await? else { return Ok(Bytes::new()) };
    if body.is_end_stream() && first.len() <= max_bytes {
        let small = first.len() <= COPIED_BYTES;
        return Ok(if small { Bytes::copy_from_slice(&first) } else { first });
    }
    let expected = (declared.min(BELIEVED_BYTES) as usize).max(first.len());
    share.grow(expected).await?;
    let mut all = BytesMut::with_capacity(expected);
    let mut next = Some(first);
    while let Some(piece) = next {
        let bytes = all.len() + piece.len();
        if bytes > max_bytes {
            return Err(ApiError::TooLarge { max_bytes });
        }
        if bytes > all.capacity() {
            let capacity = bytes.max(2 * all.capacity());
            share.grow(capacity).await?;
            all.reserve(capacity - all.len());
        }
        all.extend_from_slice(&piece);
        share.has_come_to(bytes);
        let mut further = pin!(chunk(body));
        next = poll_fn(|cx| match share.poll_given_up(cx) {
            Poll::Ready(given_up) => Poll::Ready(Err(given_up)),
            Poll::Pending => further.as_mut().poll(cx),
        })
        .await?;
    }
    // What came in chunks of unknown number has doubled its room until it fitted.
    let roomy = all.capacity() - all.len() > all.len() / 8;
    Ok(if roomy { Bytes::copy_from_slice(&all) } else { all.freeze() })
}

/// The next piece of data; trailers are skipped.
async fn chunk<B>(body: &mut B) -> Result<Option<Bytes>, ApiError>
where
    B: Body<Data = Bytes> + Unpin,
{
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::Broken)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Whether the body is compressed. It is not decoded, for what it could grow to, and not passed on,
/// for then nothing could be read of it.
fn is_encoded(headers: &HeaderMap) -> bool {
    let all =
        |name, is_plain: fn(&HeaderValue) -> bool| headers.get_all(name).into_iter().all(is_plain);
    // The server takes apart what is in chunks, and leaves what is compressed inside them.
    let in_chunks = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    !all(CONTENT_ENCODING, says_nothing) || !all(TRANSFER_ENCODING, in_chunks)
}

/// Whether a list of encodings names none, as a header does that a client has set to nothing.
fn says_nothing(encodings: &HeaderValue) -> bool {
    encodings
        .as_bytes()
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .all(|encoding| encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::{Stream, StreamExt, TryStreamExt, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::api::config::RawApi;

    fn limits(max_body_bytes: usize) -> Limits {
        Limits { max_body_bytes, ..RawApi::default().check().unwrap().limits }
    }

    fn pieces<const N: usize>(
        pieces: [&'static str; N],
    ) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
        stream::iter(pieces.map(|piece| Ok(Frame::data(Bytes::from(piece)))))
    }

    async fn read_all<B: Body<Data = Bytes>>(body: B, max: usize) -> Result<Bytes, ApiError> {
        read(&HeaderMap::new(), body, &limits(max), &Reading::default()).await
    }

    #[tokio::test]
    async fn a_body_in_one_piece_is_copied_only_if_it_is_small() {
        for (bytes, copied) in [(100, true), (COPIED_BYTES, true), (COPIED_BYTES + 1, false)] {
            let sent = Bytes::from(vec![b'x'; bytes]);
            let read = read_all(Full::new(sent.clone()), bytes).await.unwrap();
            assert_eq!(read, sent);
            assert_eq!(read.as_ptr() != sent.as_ptr(), copied, "{bytes}");
        }
    }

    #[tokio::test]
    async fn pieces_are_joined_and_trailers_skipped() {
        let trailers = stream::iter([Ok(Frame::trailers(HeaderMap::new()))]);
        let body = StreamBody::new(pieces(["ab", "", "cde"]).chain(trailers));
        assert_eq!(read_all(body, 5).await.unwrap(), "abcde");
        assert_eq!(read_all(Full::new(Bytes::new()), 5).await.unwrap(), "");
    }

    #[tokio::test]
    async fn one_byte_too_many_is_refused_declared_or_not() {
        let declared = read_all(Full::new(Bytes::from("abcdef")), 5).await;
        assert!(matches!(declared, Err(ApiError::TooLarge { max_bytes: 5 })));
        let chunked = read_all(StreamBody::new(pieces(["abc", "def"])), 5).await;
        assert!(matches!(chunked, Err(ApiError::TooLarge { max_bytes: 5 })));
    }

    /// A body that comes in so many pieces of 100 KiB, one after each such time.
    fn paced(pieces: usize, every: Duration) -> impl Body<Data = Bytes> {
        StreamBody::new(stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(every).await;
            Ok::<_, io::Error>(Frame::data(vec![b'x'; 100 << 10].into()))
        }))
    }

    /// The same, of which no more comes then.
    fn half(pieces: usize, every: Duration) -> impl Body<Data = Bytes> {
        let all = BodyExt::into_data_stream(paced(pieces, every)).map_ok(Frame::data);
        StreamBody::new(all.chain(stream::pending()))
    }

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test(start_paused = true)]
    async fn large_bodies_are_bounded_together_and_usual_ones_are_not() {
        let limits = Limits { max_reading_bytes: 1 << 20, ..limits(1 << 20) };
        let (reading, none) = (Reading::default(), HeaderMap::new());
        let often = Duration::from_millis(900);
        let comes = read(&none, paced(8, often), &limits, &reading);
        let others = async {
            tokio::time::sleep(often * 6).await;
            assert!((536 << 10..=1 << 20).contains(&reading.bytes()), "{}", reading.bytes());
            let other = read(&none, paced(4, AT_ONCE), &limits, &reading).await;
            assert!(matches!(other, Err(ApiError::NoRoom)), "{other:?}");
            let usual = StreamBody::new(pieces(["ab", "cd"]));
            assert_eq!(read(&none, usual, &limits, &reading).await.unwrap(), "abcd");
        };
        let (comes, ()) = tokio::join!(comes, others);
        assert_eq!(comes.unwrap().len(), 800 << 10, "it came as it should, and stays");
        assert_eq!(reading.bytes(), 0, "whoever leaves gives it back");
        let alone = read(&none, paced(1, AT_ONCE), &limits, &reading).await;
        assert_eq!(alone.unwrap().len(), 100 << 10);
        assert_eq!(reading.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_hardly_come_give_way_to_others_and_those_first_that_stopped_first() {
        let limits = Limits { max_reading_bytes: 400 << 10, ..limits(1 << 20) };
        let (reading, none) = (Reading::default(), HeaderMap::new());
        let dribbles = stream::iter([100 << 10, 1, 1, 1, 1, 1, 1, 1, 1]).then(async |bytes| {
            tokio::time::sleep(Duration::from_millis(400)).await;
            Ok::<_, io::Error>(Frame::data(vec![b'x'; bytes].into()))
        });
        let first = read(&none, half(2, AT_ONCE), &limits, &reading);
        let second = read(&none, StreamBody::new(dribbles), &limits, &reading);
        let begun = tokio::time::Instant::now();
        let honest = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let large = read(&none, paced(2, AT_ONCE), &limits, &reading).await;
            assert_eq!(large.unwrap().len(), 200 << 10);
            assert_eq!(begun.elapsed(), Duration::from_secs(1), "the first was given up");
            let larger = read(&none, paced(4, AT_ONCE), &limits, &reading).await;
            assert_eq!(larger.unwrap().len(), 400 << 10);
            assert_eq!(begun.elapsed(), Duration::from_millis(1400), "then the second");
        };
        let (first, second, ()) = tokio::join!(first, second, honest);
        for given_up in [first, second] {
            assert!(matches!(given_up, Err(ApiError::NoRoom)), "{given_up:?}");
        }
        assert_eq!(reading.bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_is_given_up() {
        let body = StreamBody::new(pieces(["abc"]).chain(stream::pending()));
        assert!(matches!(read_all(body, 5).await, Err(ApiError::Late)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_stops_sending_is_answered_all_the_same() {
        let endless = stream::repeat_with(|| Ok::<_, io::Error>(Frame::data(Bytes::from("abc"))));
        let paced = endless.then(async |frame| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            frame
        });
        assert!(matches!(
            read_all(StreamBody::new(paced), 5).await,
            Err(ApiError::TooLarge { .. })
        ));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_refused() {
        let broken = pieces(["abc"]).chain(stream::iter([Err(io::Error::other("gone"))]));
        assert!(matches!(read_all(StreamBody::new(broken), 5).await, Err(ApiError::Broken)));
    }

    #[tokio::test]
    async fn a_compressed_body_is_refused_unread() {
        for (encoding, accepted) in [
            ("gzip", false),
            ("identity", true),
            ("Identity", true),
            ("br", false),
            ("", true),
            ("identity, ", true),
            ("identity, gzip", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, encoding.parse().unwrap())]);
            let outcome =
                read(&headers, Full::new(Bytes::from("x")), &limits(5), &Reading::default()).await;
            assert_eq!(outcome.is_ok(), accepted, "{encoding}");
        }
        for (encoding, accepted) in [("chunked", true), ("Chunked", true), ("gzip, chunked", false)]
        {
            let headers = HeaderMap::from_iter([(TRANSFER_ENCODING, encoding.parse().unwrap())]);
            let outcome =
                read(&headers, Full::new(Bytes::from("x")), &limits(5), &Reading::default()).await;
            assert_eq!(outcome.is_ok(), accepted, "{encoding}");
        }
    }

    /// A body that counts what was taken of it.
    fn counted(taken: &std::cell::Cell<usize>) -> impl Body<Data = Bytes> {
        let count = |_: &io::Result<Frame<Bytes>>| taken.set(taken.get() + 1);
        StreamBody::new(pieces(["abc", "def", "ghi"]).inspect(count))
    }

    #[tokio::test]
    async fn a_body_that_is_refused_unread_is_taken_all_the_same() {
        let taken = std::cell::Cell::new(0);
        discard(&HeaderMap::new(), counted(&taken)).await;
        assert_eq!(taken.take(), 3);
        let gzip = HeaderMap::from_iter([(CONTENT_ENCODING, "gzip".parse().unwrap())]);
        assert!(read(&gzip, counted(&taken), &limits(5), &Reading::default()).await.is_err());
        assert_eq!(taken.take(), 3);
        // It would be asked to send what is refused.
        let waits = HeaderMap::from_iter([(EXPECT, "100-continue".parse().unwrap())]);
        discard(&waits, counted(&taken)).await;
        assert_eq!(taken.take(), 0);
    }
}
