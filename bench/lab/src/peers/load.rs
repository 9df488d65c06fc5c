//! The load: requests in a closed loop, at a rate, streamed, and idle. It reads no more of an answer than it takes to see its
//! end, for it shares its core with the pods.

use std::{future::Future, net::SocketAddr, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, interval_at, sleep, sleep_until, timeout},
};

use super::wire::{self, Answer};

/// Connections of the closed loop.
pub(super) const CLOSED: usize = 64;
/// Connections that send at a rate, and the rate of all of them.
pub(super) const PACED: usize = 20;
pub(super) const RATE: u32 = 500;
/// Streams at once.
pub(super) const STREAMS: usize = 100;
/// Bytes of a token's event at the least; an answer that is shorter has lost some.
const TOKEN_BYTES: usize = 150;
/// Longest time for one answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Idle streams that are opened at the same time.
const OPENED_TOGETHER: usize = 50;

/// A client's connection.
pub(super) struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What one answer was.
pub(super) struct Answered {
    /// Until its first byte.
    pub(super) first: Duration,
    /// Bytes of its body.
    pub(super) bytes: usize,
}

/// What came of some load.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) requests: u64,
    pub(super) errors: u64,
    /// One of the errors, in words.
    pub(super) error: Option<String>,
    pub(super) firsts: Vec<Duration>,
    pub(super) took: Duration,
}

impl Outcome {
    fn add(&mut self, answered: Result<Answered>) {
        match answered {
            Ok(answered) => {
                self.requests += 1;
                self.firsts.push(answered.first);
            }
            Err(error) => {
                self.errors += 1;
                self.error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn join(mut self, other: Self) -> Self {
        self.requests += other.requests;
        self.errors += other.errors;
        self.error = self.error.or(other.error);
        self.firsts.extend(other.firsts);
        self.took = self.took.max(other.took);
        self
    }
}

impl Caller {
    pub(super) async fn call(target: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(target).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 16 << 10] })
    }

    /// Sends a request and reads its answer to the end.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Answered> {
        let (asked, mut first) = (Instant::now(), None);
        self.stream.write_all(request).await?;
        let mut answer = Answer::default();
        loop {
            let count = self.stream.read(&mut self.buffer).await?;
            ensure!(count > 0, "the connection ended before the answer");
            let first = *first.get_or_insert_with(|| asked.elapsed());
            if answer.take(self.buffer.get(..count).unwrap_or_default())? {
                return Ok(Answered { first, bytes: answer.body_bytes() });
            }
        }
    }

    /// Sends a request so many times, each when the one before was answered.
    pub(super) async fn ask_again(&mut self, request: &[u8], times: u32) -> Result<()> {
        for _ in 0..times {
            self.ask(request).await?;
        }
        Ok(())
    }

    /// Opens a stream and reads its first token.
    async fn open(target: SocketAddr, request: Bytes) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(target).await.context("cannot connect")?;
        stream.write_all(&request).await?;
        let (mut answer, mut buffer) = (Answer::default(), [0; 1024]);
        while answer.body_bytes() < TOKEN_BYTES {
            let count = stream.read(&mut buffer).await?;
            ensure!(count > 0, "the connection ended before the first token");
            let complete = answer.take(buffer.get(..count).unwrap_or_default())?;
            ensure!(!complete, "the stream ended");
        }
        Ok(stream)
    }
}

/// Callers that are connected, and have been answered once.
pub(super) struct Crew {
    callers: Vec<Caller>,
    target: SocketAddr,
}

impl Crew {
    pub(super) async fn gather(target: SocketAddr, count: usize, request: &[u8]) -> Result<Self> {
        let mut callers = Vec::with_capacity(count);
        for _ in 0..count {
            let mut caller = Caller::call(target).await?;
            within(caller.ask(request)).await?;
            callers.push(caller);
        }
        Ok(Self { callers, target })
    }

    /// Everybody asks again as soon as there is an answer.
    pub(super) async fn closed(self, request: &Bytes, lasts: Duration) -> Outcome {
        let until = Instant::now() + lasts;
        self.all(request, move |mut caller, target, request, _| async move {
            let mut outcome = Outcome::default();
            while Instant::now() < until && outcome.errors < 100 {
                again(&mut caller, target, &request, &mut outcome).await;
            }
            outcome
        })
        .await
    }

    /// Requests at [`RATE`], each on time whatever became of the one before.
    pub(super) async fn paced(self, request: &Bytes, lasts: Duration) -> Outcome {
        let start = Instant::now();
        let count = u32::try_from(self.callers.len()).unwrap_or(1);
        let every = Duration::from_secs(1) * count / RATE;
        self.all(request, move |mut caller, target, request, number| async move {
            let mut outcome = Outcome::default();
            let mut due = interval_at(start + every * number / count, every);
            while start.elapsed() < lasts {
                due.tick().await;
                again(&mut caller, target, &request, &mut outcome).await;
            }
            outcome
        })
        .await
    }

    /// A stream of this many tokens for everybody, begun one after another.
    pub(super) async fn streams(self, request: &Bytes, tokens: u32) -> Outcome {
        let start = Instant::now();
        self.all(request, move |mut caller, _, request, number| async move {
            sleep_until(start + Duration::from_micros(200) * number).await;
            let mut outcome = Outcome::default();
            let answered = within(caller.ask(&request)).await.and_then(|answered| {
                let least = tokens as usize * TOKEN_BYTES;
                ensure!(answered.bytes >= least, "{} bytes in a stream", answered.bytes);
                Ok(answered)
            });
            outcome.add(answered);
            outcome
        })
        .await
    }

    async fn all<F>(
        self,
        request: &Bytes,
        each: impl Fn(Caller, SocketAddr, Bytes, u32) -> F,
    ) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (start, mut tasks) = (Instant::now(), JoinSet::new());
        for (number, caller) in (0..).zip(self.callers) {
            tasks.spawn(each(caller, self.target, request.clone(), number));
        }
        let mut total = Outcome::default();
        while let Some(outcome) = tasks.join_next().await {
            total = total.join(outcome.unwrap_or_default());
        }
        total.took = start.elapsed();
        total
    }
}

/// One request more; after an error on another connection.
async fn again(caller: &mut Caller, target: SocketAddr, request: &[u8], outcome: &mut Outcome) {
    let answered = within(caller.ask(request)).await;
    if answered.is_err()
        && let Ok(fresh) = Caller::call(target).await
    {
        *caller = fresh;
    }
    outcome.add(answered);
}

async fn within<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| bail!("no answer within {PATIENCE:?}"))
}

/// Streams that say nothing after their first token.
pub(super) struct IdleStreams {
    target: SocketAddr,
    streams: Vec<TcpStream>,
}

impl IdleStreams {
    pub(super) const fn none(target: SocketAddr) -> Self {
        Self { target, streams: Vec::new() }
    }

    /// Opens more, until there are this many.
    pub(super) async fn grow(&mut self, count: usize) -> Result<()> {
        let request = Bytes::from(wire::stream(wire::IDLE_TOKENS));
        let mut tasks = JoinSet::new();
        while self.streams.len() < count {
            while tasks.len() < OPENED_TOGETHER.min(count - self.streams.len()) {
                tasks.spawn(within(Caller::open(self.target, request.clone())));
            }
            if let Some(opened) = tasks.join_next().await {
                self.streams.push(opened??);
            }
        }
        // What opening them took is given back.
        sleep(Duration::from_secs(1)).await;
        let lost = self.streams.iter().filter(|stream| has_ended(stream)).count();
        ensure!(lost == 0, "{lost} of {count} idle streams ended");
        Ok(())
    }
}

fn has_ended(stream: &TcpStream) -> bool {
    let waits = std::io::ErrorKind::WouldBlock;
    !matches!(stream.try_read(&mut [0; 16]), Err(error) if error.kind() == waits)
}

#[cfg(test)]
mod tests {
    use super::{super::pod::Pods, *};

    async fn crew(pods: &Pods, count: usize) -> Crew {
        Crew::gather(pods.addresses[0], count, &wire::whole(150)).await.unwrap()
    }

    #[tokio::test]
    async fn every_kind_of_load_is_answered_by_the_pods_themselves() {
        let pods = Pods::start(1).await.unwrap();
        let brief = Duration::from_millis(50);
        let small = Bytes::from(wire::whole(150));
        let large = Bytes::from(wire::whole(32 << 10));
        let stream = Bytes::from(wire::stream(3));
        for outcome in [
            crew(&pods, 4).await.closed(&small, brief).await,
            crew(&pods, 4).await.closed(&large, brief).await,
            crew(&pods, PACED).await.paced(&small, brief).await,
            crew(&pods, 4).await.streams(&stream, 3).await,
        ] {
            assert_eq!((outcome.errors, outcome.error.as_deref()), (0, None));
            assert!(outcome.requests >= 4 && outcome.firsts.len() as u64 == outcome.requests);
        }
    }

    #[tokio::test]
    async fn an_idle_stream_stays_open() {
        let pods = Pods::start(1).await.unwrap();
        let mut streams = IdleStreams::none(pods.addresses[0]);
        streams.grow(3).await.unwrap();
        assert_eq!(streams.streams.len(), 3);
    }

    #[tokio::test]
    async fn an_answer_that_is_refused_is_an_error() {
        let pods = Pods::start(1).await.unwrap();
        let stream = Bytes::from(wire::stream(2));
        let short = crew(&pods, 1).await.streams(&stream, 90).await;
        assert_eq!((short.requests, short.errors), (0, 1));
        assert!(short.error.unwrap().contains("bytes in a stream"));
    }
}
