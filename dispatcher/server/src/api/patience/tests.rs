use std::future::poll_fn;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, timeout},
};

use super::*;

const HEAD: Duration = Duration::from_secs(10);
const WRITE: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(7200);

/// A client that has left, and these bytes behind its request.
struct Left(&'static [u8]);

impl Wire for Left {
    fn poll_departed(&self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(true)
    }

    fn spoil_end(&self) {}
}

impl AsyncRead for Left {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        buf.put_slice(std::mem::take(&mut self.0));
        Poll::Ready(Ok(()))
    }
}

/// What is read of it says that it ends.
impl Wire for DuplexStream {
    fn poll_departed(&self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Pending
    }

    fn spoil_end(&self) {}
}

fn patient<S: Wire>(server: S, turns: Turns) -> Patient<S> {
    Patient::new((server, Arc::default()), turns, [IDLE, HEAD, WRITE])
}

fn pair(buffer: usize) -> (DuplexStream, Patient<DuplexStream>, Turns) {
    let (client, server) = duplex(buffer);
    let turns = Turns::default();
    (client, patient(server, turns.clone()), turns)
}

fn timed_out<T: std::fmt::Debug>(outcome: io::Result<T>) -> bool {
    outcome.unwrap_err().kind() == io::ErrorKind::TimedOut
}

#[tokio::test]
async fn a_read_that_found_something_tells_nobody_of_the_end() {
    let turns = Turns::default();
    let _turn = turns.begin();
    let mut server = patient(Left(b"x"), turns);
    assert!(server.read_u8().now_or_never().is_some());
    let left = poll_fn(|cx| server.poll_departed(cx)).now_or_never();
    assert!(left.is_some(), "nobody else would say so");
    assert!(server.read_u8().now_or_never().is_none());
    let left = poll_fn(|cx| server.poll_departed(cx)).now_or_never();
    assert!(left.is_none(), "whoever reads is told");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_given_up() {
    let (mut client, mut server, _turns) = pair(64);
    let begun = Instant::now();
    let drip = async {
        while client.write_all(b"G").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let read = async {
        loop {
            if let Err(error) = server.read_u8().await {
                return error;
            }
        }
    };
    let both = async {
        tokio::select! { error = read => error, () = drip => unreachable!() }
    };
    let error = timeout(HEAD * 2, both).await.unwrap();
    assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, HEAD));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_not_given_up() {
    let (mut client, mut server, turns) = pair(64);
    client.write_all(b"x").await.unwrap();
    server.read_u8().await.unwrap();
    drop(turns.begin());
    let quiet = timeout(Duration::from_secs(3600), server.read_u8()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_given_up_after_its_own_patience() {
    let (mut client, mut server, turns) = pair(64);
    for _ in 0..3 {
        // What was waited before the last request does not count.
        assert!(timeout(IDLE / 2, server.read_u8()).await.is_err());
        client.write_all(b"x").await.unwrap();
        server.read_u8().await.unwrap();
        drop(turns.begin());
    }
    let begun = Instant::now();
    assert!(timed_out(timeout(IDLE * 2, server.read_u8()).await.unwrap()));
    assert_eq!(begun.elapsed(), IDLE);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_flushed_and_not_read_from_is_given_up_too() {
    let (mut client, mut server, turns) = pair(64);
    client.write_all(b"x").await.unwrap();
    server.read_u8().await.unwrap();
    let turn = turns.begin();
    let flushed = |server: &mut Patient<DuplexStream>, cx: &mut Context<'_>| match Pin::new(server)
        .poll_flush(cx)
    {
        Poll::Ready(Err(error)) => Poll::Ready(error),
        _ => Poll::Pending,
    };
    let quiet = poll_fn(|cx| flushed(&mut server, cx));
    assert!(timeout(IDLE * 2, quiet).await.is_err(), "a request is being answered");
    drop(turn);
    let begun = Instant::now();
    let error = timeout(IDLE * 2, poll_fn(|cx| flushed(&mut server, cx))).await.unwrap();
    assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, IDLE));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_being_answered_may_take_its_time() {
    let (mut client, mut server, turns) = pair(64);
    client.write_all(b"x").await.unwrap();
    server.read_u8().await.unwrap();
    let turn = turns.begin();
    assert!(timeout(HEAD * 9, server.read_u8()).await.is_err());
    drop(turn);
    client.write_all(b"y").await.unwrap();
    server.read_u8().await.unwrap();
    let next = timeout(HEAD * 2, server.read_u8()).await.unwrap();
    assert!(timed_out(next), "the next head has a patience of its own");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_given_up() {
    let (_client, mut server, _turns) = pair(4);
    let begun = Instant::now();
    let written = timeout(WRITE * 2, server.write_all(b"twelve bytes")).await.unwrap();
    assert!(timed_out(written));
    assert_eq!(begun.elapsed(), WRITE);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_taken_slowly_is_no_idle_connection() {
    let (mut client, server, _turns) = pair(1);
    let (mut reading, mut writing) = tokio::io::split(server);
    let pause = WRITE / 2;
    let bytes = vec![0; 2 + (IDLE.as_secs() / pause.as_secs()) as usize];
    let slow = async {
        loop {
            tokio::time::sleep(pause).await;
            client.read_u8().await.unwrap();
        }
    };
    let begun = Instant::now();
    tokio::select! {
        read = reading.read_u8() => panic!("{read:?}"),
        written = writing.write_all(&bytes) => written.unwrap(),
        () = slow => unreachable!(),
    }
    assert!(begun.elapsed() >= IDLE);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_little_is_not_given_up() {
    let (mut client, mut server, _turns) = pair(1);
    let slow = async {
        for _ in 0..12 {
            tokio::time::sleep(WRITE / 2).await;
            client.read_u8().await.unwrap();
        }
    };
    let (written, ()) = tokio::join!(server.write_all(b"twelve bytes"), slow);
    written.unwrap();
}

/// A stream that takes what is written at once, and has it on its way only when that is flushed.
struct Sealing(DuplexStream, Vec<u8>);

impl Wire for Sealing {
    fn poll_departed(&self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Pending
    }

    fn spoil_end(&self) {}
}

impl AsyncWrite for Sealing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self(below, kept) = self.get_mut();
        while !kept.is_empty() {
            let count = ready!(Pin::new(&mut *below).poll_write(cx, kept))?;
            kept.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sealed_and_not_taken_is_not_sent_and_is_given_up() {
    let (mut client, server) = duplex(4);
    let turns = Turns::default();
    let mut server = patient(Sealing(server, Vec::new()), turns.clone());
    let turn = turns.begin();
    turn.gives(8);
    server.write_all(b"8 bytes!").await.unwrap();
    assert!(timeout(WRITE / 2, server.flush()).await.is_err());
    assert!(turn.poll_sent().is_pending(), "half of it is still here");
    let mut taken = [0; 8];
    let (flushed, read) = tokio::join!(server.flush(), client.read_exact(&mut taken));
    flushed.unwrap();
    read.unwrap();
    assert!(turn.poll_sent().is_ready());

    server.write_all(b"8 bytes!").await.unwrap();
    let begun = Instant::now();
    assert!(timed_out(timeout(WRITE * 2, server.flush()).await.unwrap()));
    assert_eq!(begun.elapsed(), WRITE, "what was waited before does not count");
}
