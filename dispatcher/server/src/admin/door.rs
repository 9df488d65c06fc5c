//! Connections to the admin side: how many there may be, and which are closed.
//!
//! The server waits for the rest of a head, or of a body, for as long as its client likes, and for a client that takes nothing of
//! a response; a few thousand of these would leave no file descriptor for anybody, the data plane least of all. So one on which
//! nothing moves is closed after a while, and one that has never said anything soon; what is watched gets a word each second. And
//! there are so many places: who comes when all are taken gets that of the connection which has been silent for longest, so that a
//! probe is answered whoever holds connections. Where all are in use that may be somebody's page, which comes back by itself.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::serve::Listener;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpListener,
    sync::Notify,
    time::Instant,
};

use crate::{
    accept::ADMIN,
    patience::Patience,
    tls::{Identity, Line},
};

/// Longest time in which not a byte goes either way.
pub const QUIET: Duration = Duration::from_secs(300);
/// Longest time until a client says anything at all: browsers and pools that connect ahead come back.
pub const FIRST: Duration = Duration::from_secs(10);

/// A listener whose connections do not stay for ever.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    /// Who it is; `None`: it is spoken to in the clear.
    identity: Option<Arc<Identity>>,
    places: Arc<Places>,
}

impl Door {
    /// A door to so many places, of which there is at least one.
    pub fn new(listener: TcpListener, identity: Option<Arc<Identity>>, most: usize) -> Self {
        Self { listener, identity, places: Arc::new(Places::of(most)) }
    }
}

impl Listener for Door {
    type Io = Quiet<Line>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = ADMIN.calm() => continue,
            };
            match accepted {
                Ok((stream, from)) => {
                    let place = self.places.take().await;
                    let line = Identity::line(self.identity.as_deref(), stream);
                    return (Quiet::new(line, place), from);
                }
                Err(error) => ADMIN.failed(error, self.places.taken()).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The places that there are, and who has them.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: Mutex<Vec<Arc<Guest>>>,
    left: Notify,
}

/// Who has a place.
#[derive(Debug)]
struct Guest {
    /// When something moved last.
    moved: Mutex<Instant>,
    /// Whether somebody else is to have the place.
    must_leave: AtomicBool,
    /// Whoever polls the connection.
    waker: AtomicWaker,
}

/// A connection's place, free again when dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    guest: Arc<Guest>,
}

impl Places {
    fn of(most: usize) -> Self {
        Self { most: most.max(1), taken: Mutex::default(), left: Notify::new() }
    }

    fn taken(&self) -> usize {
        self.taken.lock().len()
    }

    /// A place, which somebody leaves if there is none.
    async fn take(self: &Arc<Self>) -> Place {
        while self.taken() >= self.most {
            self.send_away();
            // Told of each that leaves, also of one that has left since.
            self.left.notified().await;
        }
        let guest = Arc::new(Guest {
            moved: Mutex::new(Instant::now()),
            must_leave: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        self.taken.lock().push(guest.clone());
        Place { places: self.clone(), guest }
    }

    /// Has the one leave that was silent for longest, unless somebody leaves already.
    fn send_away(&self) {
        let taken = self.taken.lock();
        if taken.iter().any(|guest| guest.must_leave.load(Relaxed)) {
            return;
        }
        let Some(longest) = taken.iter().min_by_key(|guest| *guest.moved.lock()) else { return };
        longest.must_leave.store(true, Relaxed);
        longest.waker.wake();
        ADMIN.displaced(taken.len());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.lock().retain(|guest| !Arc::ptr_eq(guest, &self.guest));
        self.places.left.notify_one();
    }
}

/// A stream that ends with an error when nothing has moved for [`QUIET`], or never anything for [`FIRST`], or when its place is
/// somebody else's.
#[derive(Debug)]
pub struct Quiet<S> {
    stream: S,
    /// Of what has never moved.
    first: Patience,
    /// Of what has.
    quiet: Patience,
    has_moved: bool,
    place: Place,
}

impl<S> Quiet<S> {
    fn new(stream: S, place: Place) -> Self {
        let [first, quiet] = [FIRST, QUIET].map(Patience::new);
        Self { stream, first, quiet, has_moved: false, place }
    }

    /// What came of a try: something moved, or it is quiet.
    fn tried<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.has_moved = true;
            self.quiet.forget();
            *self.place.guest.moved.lock() = Instant::now();
            return outcome;
        }
        self.stays(cx)?;
        let patience = if self.has_moved { &mut self.quiet } else { &mut self.first };
        patience.begin();
        ready!(patience.poll_over(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "nothing moved for too long")))
    }

    /// Whether it may, of which whoever polls is told when that changes.
    fn stays(&self, cx: &Context<'_>) -> io::Result<()> {
        let guest = &self.place.guest;
        guest.waker.register(cx.waker());
        if guest.must_leave.load(Relaxed) {
            return Err(io::Error::other("somebody else has its place"));
        }
        Ok(())
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
        let this = self.get_mut();
        // Where an answer is awaited and more was sent behind its request, the server does nothing else.
        this.stays(cx)?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        net::TcpStream,
        task::JoinSet,
        time::{sleep, timeout},
    };

    use super::*;

    fn timed_out<T: std::fmt::Debug>(outcome: io::Result<T>) -> bool {
        outcome.unwrap_err().kind() == io::ErrorKind::TimedOut
    }

    async fn quiet(stream: DuplexStream) -> Quiet<DuplexStream> {
        Quiet::new(stream, Arc::new(Places::of(1)).take().await)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_no_more_is_given_up() {
        let (mut client, server) = duplex(64);
        let mut server = quiet(server).await;
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        let begun = Instant::now();
        assert!(timed_out(timeout(QUIET * 2, server.read_u8()).await.unwrap()));
        assert_eq!(begun.elapsed(), QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_says_nothing_at_all_is_given_up_soon() {
        let (_client, server) = duplex(64);
        let mut server = quiet(server).await;
        let begun = Instant::now();
        assert!(timed_out(timeout(QUIET, server.read_u8()).await.unwrap()));
        assert_eq!(begun.elapsed(), FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        let (_client, server) = duplex(4);
        let mut server = quiet(server).await;
        assert!(timed_out(timeout(QUIET * 2, server.write_all(b"twelve bytes")).await.unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_something_now_and_then_stays() {
        let (mut client, server) = duplex(64);
        let mut server = quiet(server).await;
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        for _ in 0..5 {
            let more = timeout(QUIET / 2, server.read_u8()).await;
            assert!(more.is_err(), "it has nothing to say: {more:?}");
            server.write_all(b"x").await.unwrap();
            client.read_u8().await.unwrap();
            sleep(QUIET / 4).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_gets_the_place_of_the_one_that_was_silent_for_longest() {
        let places = Arc::new(Places::of(3));
        let mut clients = Vec::new();
        let mut servers = Vec::new();
        for _ in 0..3 {
            let (client, server) = duplex(64);
            clients.push(client);
            servers.push(Quiet::new(server, places.take().await));
            sleep(FIRST / 10).await;
        }
        // The first to come is not the first to go.
        clients[0].write_all(b"G").await.unwrap();
        servers[0].read_u8().await.unwrap();
        let mut reads = JoinSet::new();
        for (number, mut server) in servers.into_iter().enumerate() {
            reads.spawn(async move { (number, server.read_u8().await.unwrap_err().kind()) });
        }
        for longest in [1, 2, 0] {
            sleep(FIRST / 10).await;
            let begun = Instant::now();
            let newcomer = timeout(FIRST, places.take()).await.unwrap();
            assert_eq!(begun.elapsed(), Duration::ZERO);
            assert_eq!(places.taken(), 3, "never more");
            let gone = reads.join_next().await.unwrap().unwrap();
            assert_eq!(gone, (longest, io::ErrorKind::Other));
            // It stays for as long as the test does.
            std::mem::forget(newcomer);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_only_flushed_leaves_too() {
        let places = Arc::new(Places::of(1));
        let (_client, server) = duplex(64);
        let mut server = Quiet::new(server, places.take().await);
        let leaves = async move {
            let flushed = |cx: &mut Context<'_>| match Pin::new(&mut server).poll_flush(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(error),
                _ => Poll::Pending,
            };
            poll_fn(flushed).await
        };
        let (error, _newcomer) = tokio::join!(leaves, timeout(FIRST, places.take()));
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert_eq!(places.taken(), 1);
    }

    #[tokio::test]
    async fn a_probe_is_answered_whoever_holds_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = axum::Router::new().route("/livez", axum::routing::get(|| async { "ok" }));
        let served = axum::serve(Door::new(listener, None, 4), routes);
        tokio::spawn(async { served.await });
        let mut silent = Vec::new();
        for turn in 0..40 {
            silent.push(TcpStream::connect(address).await.unwrap());
            if turn % 8 == 7 {
                let mut probe = TcpStream::connect(address).await.unwrap();
                let head = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
                probe.write_all(head).await.unwrap();
                let mut text = String::new();
                probe.read_to_string(&mut text).await.unwrap();
                assert!(text.starts_with("HTTP/1.1 200"), "{text:?}");
            }
        }
        let end = silent[0].read(&mut [0]).await.unwrap();
        assert_eq!(end, 0, "it was closed long before it was silent for too long");
    }
}
