//! The data plane: threads that accept connections and speak HTTP/1 on them.
//!
//! Each thread has its own listener on the same address (`SO_REUSEPORT`), its own current-thread
//! runtime and its own service, so that a request never leaves its thread. What a request is, is the
//! service's affair.
//!
//! # Promises
//! - After [`Plane::drain`] every response says `connection: close`, and its connection is closed behind it: a client that hears so
//!   asks somebody else next, and does not send its request into a connection that is just being closed.
//! - [`Plane::stop`] ends accepting, closes connections without a request, and lets each running
//!   response finish; then its connection is closed. [`Plane::finished`] says when all have.
//! - [`Plane::close`] says [`Closing`] and has every connection looked at, so that what runs ends with an error.
//! - [`Plane::abort`], and dropping the plane, cuts everything at once.
//! - A response that does not come to its end never looks finished: where the connection's end would be the response's, the
//!   connection is reset. What was given of it before reaches a client that takes it.
//! - A client that leaves, or closes its side only, drops the future or the body of its response, whatever it sent behind its
//!   request.
//! - At the bound on connections, who comes gets the place of one on which nothing is asked ([`super::room`]); where there is none,
//!   further ones wait in the backlog. Out of file descriptors or memory,
//!   accepting pauses and goes on; the thread neither spins nor ends.

use std::{
    convert::Infallible,
    error::Error,
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, TryFutureExt};
use http::{HeaderValue, Request, Response, StatusCode, header::CONNECTION};
use http_body::Body;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::{self, Runtime},
    sync::watch,
    task::{JoinSet, LocalSet, yield_now},
};

use super::{
    behind::InTurn,
    config::Limits,
    misread::{Answer, Misread},
    patience::{Patient, Turns, Wire},
    room::{Entrance, Guest, Place, Room},
};
use crate::{
    accept::{API, concerns_one_client},
    budget::Memory,
    descriptors,
    tls::Identity,
    upstream::Closing,
};

/// Connections that may wait to be accepted, per thread; the system may allow fewer.
const BACKLOG: i32 = 4096;
/// Bytes of responses that the system takes and has not sent: a client that reads slowly is seen to read whenever half of them have
/// gone, and not first when a third of a buffer of megabytes has.
const UNSENT: u32 = 128 * 1024;
/// After this long without a word the system asks whether a client is still there, and again every
/// [`PROBE_EVERY`]: one that vanished without closing must not hold a place in the queue.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// Bytes that are read of a connection before anything is done with them: hyper's own default. A head of more needs as many.
const READ_AHEAD: usize = 408 << 10;

/// What the data plane is told.
#[derive(Debug)]
pub struct PlaneConfig {
    /// Where it listens, with a thread for each.
    pub listeners: Listeners,
    /// Who it is to clients; `None`: they speak to it in the clear.
    pub identity: Option<Arc<Identity>>,
    /// Bounds on what a client may send and for how long.
    pub limits: Limits,
    /// The places of its connections.
    pub room: Arc<Room>,
}

/// A running data plane.
#[derive(Debug)]
pub struct Plane {
    address: SocketAddr,
    phase: watch::Sender<Phase>,
    closing: Closing,
}

/// How far the plane's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    Draining,
    Stopping,
    Closing,
    Aborted,
}

impl Plane {
    /// Starts the threads. `make` makes the service of one thread, on that thread; it may
    /// spawn local tasks, and is told when what runs is to end. `misread` answers what hyper cannot read as a request. The memory
    /// is for what clients have not taken of their responses.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<M, S, A, B>(
        (config, memory): (PlaneConfig, Memory),
        misread: A,
        make: M,
    ) -> io::Result<Self>
    where
        M: Fn(&Closing) -> S + Clone + Send + 'static,
        A: Fn(StatusCode) -> Response<Full<Bytes>> + Clone + Send + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
        B: Body<Data = Bytes> + Unpin + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (room, limits, identity) = (config.room, config.limits, config.identity);
        let Listeners { address, sockets } = config.listeners;
        let (phase, observed) = watch::channel(Phase::Open);
        let closing = Closing::default();
        for (number, listener) in sockets.into_iter().enumerate() {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let (make, observed, closing) = (make.clone(), observed.clone(), closing.clone());
            let (misread, room) = (misread.clone(), room.clone());
            let terms = (limits, identity.clone(), memory.clone());
            let make = move || (Rc::new(make(&closing)), Rc::new(misread) as Answer);
            let name = format!("weir-data-{number}");
            thread::Builder::new()
                .name(name)
                .spawn(move || run(&runtime, (listener, room), terms, make, observed))?;
        }
        Ok(Self { address, phase, closing })
    }

    /// Where it listens: with the port that the system chose, if it was to choose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Goes on as before, and ends each connection with its next response.
    pub fn drain(&self) {
        self.move_on(Phase::Draining);
    }

    /// Stops accepting and lets running responses finish.
    pub fn stop(&self) {
        self.move_on(Phase::Stopping);
    }

    fn move_on(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            if later {
                *phase = to;
            }
            later
        });
    }

    /// Has what runs end, each with an error of its own.
    pub fn close(&self) {
        self.closing.say();
        self.phase.send_replace(Phase::Closing);
    }

    /// Cuts everything.
    pub fn abort(&self) {
        self.phase.send_replace(Phase::Aborted);
    }

    /// Ends when every thread is done, which is after [`Plane::stop`] or [`Plane::abort`].
    pub async fn finished(&self) {
        self.phase.closed().await;
    }
}

/// Room for as many connections as the limits say, and there are files for.
pub fn room(limits: &Limits) -> Arc<Room> {
    let max_connections = limits.max_connections.min(descriptors::most_clients());
    if max_connections < limits.max_connections {
        tracing::warn!(
            max_connections,
            "open files allow no more; limits.max_connections is higher"
        );
    }
    Room::of(max_connections)
}

/// Where connections wait for a plane from now on, whenever that starts: a socket for each of its threads, all on one address.
#[derive(Debug)]
pub struct Listeners {
    /// With the port that the system chose, if it was to choose.
    address: SocketAddr,
    sockets: Vec<StdListener>,
}

impl Listeners {
    /// For so many threads; at least one.
    ///
    /// # Errors
    /// When the address cannot be listened on, also when another process does.
    pub fn bind(address: SocketAddr, threads: usize) -> io::Result<Self> {
        // A single socket, without SO_REUSEPORT, fails if another process listens there. With it two
        // processes would share the port in silence, so it is tried without first.
        let first = open(address, false)?;
        let address = first.local_addr()?;
        if threads <= 1 {
            return Ok(Self { address, sockets: vec![first] });
        }
        drop(first);
        let sockets = (0..threads).map(|_| open(address, true)).collect::<io::Result<_>>()?;
        Ok(Self { address, sockets })
    }
}

fn open(address: SocketAddr, shared: bool) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit all three.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY),
    )?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The life of one thread.
fn run<M, S, B>(
    runtime: &Runtime,
    (listener, room): (StdListener, Arc<Room>),
    (limits, identity, memory): (Limits, Option<Arc<Identity>>, Memory),
    make: M,
    phase: watch::Receiver<Phase>,
) where
    M: FnOnce() -> (Rc<S>, Answer),
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Dropped last: whoever waits for the end waits for everything that the thread owned.
    let held = phase.clone();
    let tasks = LocalSet::new();
    tasks.block_on(runtime, async {
        // A task of its own: what the thread blocks on is looked at after everything that any connection does.
        let mut door = JoinSet::new();
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                let entrance = Entrance::new(listener, room);
                let terms = Terms { limits, identity, memory: Rc::new(memory) };
                drop(door.spawn_local(serve(entrance, terms, make(), phase)));
            }
            Err(error) => tracing::error!(%error, "a data-plane thread cannot listen"),
        }
        door.join_next().await;
    });
    drop(tasks);
    drop(held);
}

/// What a thread's connections go by.
#[derive(Clone)]
struct Terms {
    limits: Limits,
    identity: Option<Arc<Identity>>,
    /// For what clients have not taken of their responses.
    memory: Rc<Memory>,
}

/// Accepts until told to stop, then waits for what runs.
async fn serve<S, B>(
    mut entrance: Entrance,
    terms: Terms,
    (service, misread): (Rc<S>, Answer),
    mut phase: watch::Receiver<Phase>,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    let mut observed = phase.clone();
    let welcome = |connections: &mut JoinSet<()>, stream: TcpStream, place: Option<Place>| {
        let answers = (service.clone(), misread.clone());
        let guest = place.as_ref().map(|place| place.guest().clone()).unwrap_or_default();
        let line = Identity::line(terms.identity.as_deref(), stream);
        let talk = converse((line, guest), terms.clone(), answers, phase.clone());
        connections.spawn_local(talk.map(|()| drop(place)));
    };
    loop {
        tokio::select! {
            biased;
            () = reached(&mut observed, Phase::Stopping) => break,
            Some(_) = connections.join_next() => {}
            accepted = entrance.accept() => match accepted {
                Ok((stream, place)) => welcome(&mut connections, stream, Some(place)),
                Err(error) => API.failed(error, connections.len()).await,
            },
            () = API.calm() => {}
        }
    }
    let Entrance { listener, room, come, .. } = entrance;
    for stream in come.into_iter().chain(backlog(listener)) {
        welcome(&mut connections, stream, room.take());
    }
    let finished = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        biased;
        () = reached(&mut phase, Phase::Aborted) => {}
        () = finished => {}
    }
}

/// Those that wait to be accepted by a listener that is closed: they have been promised a server, and closing it would reset
/// them. The system itself is asked, for what the runtime knows of the listener may be older than they are.
fn backlog(listener: TcpListener) -> Vec<TcpStream> {
    let mut found = Vec::new();
    let Ok(listener) = listener.into_std() else { return found };
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let stream =
                    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                found.extend(stream);
            }
            Err(error) if concerns_one_client(&error) => {}
            Err(_) => return found,
        }
    }
}

/// Ends when the plane's life has come this far. A plane that was dropped is aborted.
async fn reached(phase: &mut watch::Receiver<Phase>, this: Phase) {
    let _ = phase.wait_for(|phase| *phase >= this).await;
}

/// The same for a connection's task, which is woken for each of its requests and their answers: it asks when there may be
/// something new, and not every time. Must be polled with one and the same waker, as a task's future is.
async fn told_to_stop(phase: &mut watch::Receiver<Phase>) {
    let news = phase.clone();
    let mut stopping = pin!(reached(phase, Phase::Stopping));
    let mut asked = false;
    poll_fn(|cx| {
        let again = std::mem::replace(&mut asked, true);
        if again && matches!(news.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        stopping.as_mut().poll(cx)
    })
    .await;
}

/// The life of one connection.
async fn converse<I, S, B>(
    client: (I, Arc<Guest>),
    Terms { limits, memory, .. }: Terms,
    (service, misread): (Rc<S>, Answer),
    mut phase: watch::Receiver<Phase>,
) where
    I: AsyncRead + AsyncWrite + Wire + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes> + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let turns = Turns::default();
    let patience = [limits.idle_timeout, limits.header_timeout, limits.write_timeout];
    let stream = Patient::new(client, turns.clone(), patience);
    let stream = Misread::new(stream, turns.clone(), misread);
    let observed = Rc::new(phase.clone());
    let service = service_fn(move |request| {
        let (turn, observed, memory) = (turns.begin(), observed.clone(), memory.clone());
        let version = request.version();
        // Boxed: the server keeps the place of a future for as long as the connection lives, and this one is large.
        Box::pin(service.call(request).map_ok(move |mut response| {
            // hyper says so too once it is told to shut down, which is too late for who sends the next one just then.
            if *observed.borrow() >= Phase::Draining {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response.map(|body| InTurn::new(body, turn, version, memory))
        }))
    });
    let mut connection = pin!(
        http1::Builder::new()
            // The stream itself counts the time without a request; see `patience`.
            .header_read_timeout(None)
            .max_header_size(limits.max_header_bytes)
            .max_buf_size(limits.max_header_bytes.max(READ_AHEAD))
            .serve_connection(TokioIo::new(stream), service)
    );
    // Biased: a request that has arrived is served, also if the plane stops in the same moment, and if only the system knows of it
    // yet, which is asked in the next turn. One that comes later than that finds its connection closed: so it is whenever a server
    // closes one that is idle, and half of a closed connection would be of no use, for an answer needs the other half.
    let outcome = tokio::select! {
        biased;
        outcome = connection.as_mut() => outcome,
        () = told_to_stop(&mut phase).then(|()| yield_now()) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                outcome = connection.as_mut() => outcome,
                // Each of its futures and bodies is looked at again, and sees that it is to end.
                () = reached(&mut phase, Phase::Closing) => connection.await,
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests;
