//! A plane with real threads and sockets: how it starts, serves and stops.

mod broken_off;
mod on_the_wire;
mod places;
mod sealed;

use std::{net::Ipv4Addr, pin::Pin, sync::Arc, task::Context};

use futures_util::{FutureExt, StreamExt, stream};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::{Notify, mpsc},
    time::{sleep, timeout},
};

use super::*;
use crate::api::{config::RawApi, room::Census};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn limits() -> Limits {
    RawApi::default().check().unwrap().limits
}

fn config(threads: usize) -> PlaneConfig {
    let room = Room::of(limits().max_connections);
    let listeners = Listeners::bind((Ipv4Addr::LOCALHOST, 0).into(), threads).unwrap();
    PlaneConfig { listeners, identity: None, limits: limits(), room }
}

/// A service that says when a request has arrived and then holds it until it is let go.
#[derive(Clone)]
struct Gate {
    arrived: mpsc::Sender<()>,
    release: Arc<Notify>,
    ends: mpsc::Sender<()>,
}

/// Says that a request has ended, which may be that its future was dropped.
struct Ended(mpsc::Sender<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

struct Watch {
    arrived: mpsc::Receiver<()>,
    release: Arc<Notify>,
    ended: mpsc::Receiver<()>,
}

fn gate() -> (Gate, Watch) {
    let (arrived, seen) = mpsc::channel(64);
    let (ends, ended) = mpsc::channel(64);
    let release = Arc::new(Notify::new());
    let gate = Gate { arrived, release: release.clone(), ends };
    (gate, Watch { arrived: seen, release, ended })
}

impl Gate {
    async fn pass(self, _: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let _ended = Ended(self.ends);
        self.arrived.send(()).await.unwrap();
        self.release.notified().await;
        Ok(Response::new(Full::from("done")))
    }
}

/// What is no request is answered with its status as the body.
fn misread(status: StatusCode) -> Response<Full<Bytes>> {
    Response::new(Full::from(status.as_str().to_owned()))
}

fn start(threads: usize, gate: Gate) -> Plane {
    Plane::start((config(threads), Memory::of(0)), misread, move |_| {
        let gate = gate.clone();
        service_fn(move |request| gate.clone().pass(request))
    })
    .unwrap()
}

fn start_echo(config: PlaneConfig) -> Plane {
    let echo = async |request: Request<Incoming>| {
        let body = request.into_body().collect().await.map(|body| body.to_bytes());
        Ok::<_, Infallible>(Response::new(Full::new(body.unwrap_or_default())))
    };
    Plane::start((config, Memory::of(0)), misread, move |_| service_fn(echo)).unwrap()
}

async fn connect(plane: &Plane) -> TcpStream {
    TcpStream::connect(plane.address()).await.unwrap()
}

/// A bound on waits for what must happen, so that a test that fails does not hang.
/// With so much memory for what clients have not taken.
fn terms(most: usize) -> Terms {
    Terms { limits: limits(), identity: None, memory: Rc::new(Memory::of(most)) }
}

/// A client whose request has come to the gate.
async fn asking(plane: &Plane, watch: &mut Watch) -> TcpStream {
    let mut client = connect(plane).await;
    client.write_all(GET).await.unwrap();
    watch.arrived.recv().await.unwrap();
    client
}

async fn soon<F: Future>(what: F) -> F::Output {
    timeout(Duration::from_secs(30), what).await.unwrap()
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    text
}

#[tokio::test]
async fn a_running_response_finishes_after_the_stop_and_then_the_plane_is_done() {
    let (service, mut watch) = gate();
    let plane = start(1, service);
    let running = asking(&plane, &mut watch).await;
    let idle = connect(&plane).await;

    plane.stop();
    assert_eq!(read_to_end(idle).await, "", "a connection without a request is closed");
    assert!(plane.finished().now_or_never().is_none(), "a response still runs");

    watch.release.notify_one();
    let text = read_to_end(running).await;
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("done"), "{text}");
    assert!(text.contains("connection: close"), "{text}");
    soon(plane.finished()).await;
    assert!(TcpStream::connect(plane.address()).await.is_err(), "nobody listens any more");
}

/// Asks once over a connection that stays, and reads the answer, whose body is `done`.
async fn ask(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
    client.write_all(GET).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"done") {
        assert!(soon(client.read_buf(&mut text)).await.unwrap() > 0, "{text:?}");
    }
    String::from_utf8(text).unwrap()
}

fn start_done(config: PlaneConfig) -> Plane {
    let done = async |_| Ok(Response::new(Full::<Bytes>::from("done")));
    Plane::start((config, Memory::of(0)), misread, move |_| service_fn(done)).unwrap()
}

#[tokio::test]
async fn a_plane_that_drains_ends_each_connection_with_its_next_answer() {
    let plane = start_done(config(1));
    let (mut kept, mut quiet) = (connect(&plane).await, connect(&plane).await);
    for client in [&mut kept, &mut quiet] {
        assert!(!ask(client).await.contains("connection: close"));
    }
    plane.drain();
    let newcomer = connect(&plane).await;
    for mut client in [kept, newcomer] {
        assert!(ask(&mut client).await.contains("\r\nconnection: close\r\n"));
        assert_eq!(read_to_end(client).await, "", "it is closed behind the answer");
    }
    let word = quiet.try_read(&mut [0]).unwrap_err();
    assert_eq!(word.kind(), io::ErrorKind::WouldBlock, "nobody is cut off meanwhile");
    plane.stop();
    // It does not go back.
    plane.drain();
    assert_eq!(read_to_end(quiet).await, "");
    soon(plane.finished()).await;
}

#[tokio::test]
async fn a_request_that_only_the_system_knows_of_is_served_when_the_plane_stops() {
    let (arrived, mut seen) = mpsc::channel(1);
    let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
    let held = Arc::new(parking_lot::Mutex::new(held));
    let plane = Plane::start((config(1), Memory::of(0)), misread, move |_| {
        let (arrived, held) = (arrived.clone(), held.clone());
        service_fn(move |request: Request<Incoming>| {
            if request.uri().path() == "/holds" {
                arrived.try_send(()).unwrap();
                // The whole thread, so that it is told of nothing meanwhile.
                let _ = held.lock().recv();
            }
            std::future::ready(Ok(Response::new(Full::<Bytes>::from("done"))))
        })
    })
    .unwrap();
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut client = connect(&plane).await;
        ask(&mut client).await;
        idle.push(client);
    }
    let mut holds = connect(&plane).await;
    holds.write_all(b"GET /holds HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    seen.recv().await.unwrap();
    for client in &mut idle {
        client.write_all(GET).await.unwrap();
    }
    plane.stop();
    release.send(()).unwrap();
    for client in idle {
        let text = read_to_end(client).await;
        assert!(text.contains("connection: close") && text.ends_with("done"), "{text:?}");
    }
    soon(plane.finished()).await;
}

#[tokio::test]
async fn what_runs_when_the_plane_closes_is_looked_at_and_may_answer() {
    let (arrived, mut seen) = mpsc::channel(1);
    let plane = Plane::start((config(1), Memory::of(0)), misread, move |closing| {
        let (closing, arrived) = (closing.clone(), arrived.clone());
        service_fn(move |_| {
            let closing = closing.clone();
            arrived.try_send(()).unwrap();
            poll_fn(move |_| match closing.is_said() {
                true => Poll::Ready(Ok(Response::new(Full::<Bytes>::from("closing")))),
                false => Poll::Pending,
            })
        })
    })
    .unwrap();
    let mut running = connect(&plane).await;
    running.write_all(GET).await.unwrap();
    seen.recv().await.unwrap();
    plane.stop();
    plane.close();
    assert!(read_to_end(running).await.ends_with("closing"));
    soon(plane.finished()).await;
}

#[tokio::test]
async fn an_abort_cuts_what_runs() {
    let (service, mut watch) = gate();
    let plane = start(2, service);
    let mut running = asking(&plane, &mut watch).await;
    plane.stop();
    plane.abort();
    soon(plane.finished()).await;
    let mut rest = Vec::new();
    assert_eq!(running.read_to_end(&mut rest).await.unwrap_or(0), 0);
    assert_eq!(soon(watch.ended.recv()).await, Some(()), "the request's future was dropped");
}

#[tokio::test]
async fn dropping_the_plane_ends_its_threads() {
    let (service, mut watch) = gate();
    let plane = start(1, service);
    let _running = asking(&plane, &mut watch).await;
    drop(plane);
    assert_eq!(soon(watch.ended.recv()).await, Some(()));
}

#[tokio::test]
async fn a_client_that_leaves_drops_its_request() {
    let (service, mut watch) = gate();
    let plane = start(1, service);
    let client = asking(&plane, &mut watch).await;
    drop(client);
    // The gate was never opened: only a dropped future ends.
    assert_eq!(soon(watch.ended.recv()).await, Some(()));
    plane.stop();
    soon(plane.finished()).await;
}

#[tokio::test]
async fn a_client_that_leaves_bytes_behind_its_request_drops_it_too() {
    // What is read with the request, and what comes later, in packets of its own.
    let next = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let table: [(&str, &[&str]); 7] = [
        ("\r\n", &[]),
        (next, &[]),
        ("\r\n", &["GET /"]),
        ("", &["\r\n"]),
        ("", &["G"]),
        ("", &[next]),
        ("", &["G", "ET /"]),
    ];
    for (with, later) in table {
        for reset in [false, true] {
            let (service, mut watch) = gate();
            let plane = start(1, service);
            let mut client = connect(&plane).await;
            client.set_nodelay(true).unwrap();
            client.write_all(&[GET, with.as_bytes()].concat()).await.unwrap();
            watch.arrived.recv().await.unwrap();
            for packet in later {
                client.write_all(packet.as_bytes()).await.unwrap();
            }
            if reset {
                client.set_zero_linger().unwrap();
            }
            drop(client);
            // Nothing else has the connection looked at.
            let ended = soon(watch.ended.recv()).await;
            assert_eq!(ended, Some(()), "{with:?}, {later:?}, {reset}");
            plane.stop();
            soon(plane.finished()).await;
        }
    }
}

#[tokio::test]
async fn a_client_with_a_pipelined_request_that_stays_is_answered_twice() {
    let (service, mut watch) = gate();
    let plane = start(1, service);
    let mut client = connect(&plane).await;
    client.write_all(&[GET, GET].concat()).await.unwrap();
    for _ in 0..2 {
        soon(watch.arrived.recv()).await.unwrap();
        client.write_all(b"\r\n").await.unwrap();
        watch.release.notify_one();
        let mut answer = vec![0; 4096];
        let read = soon(client.read(&mut answer)).await.unwrap();
        assert!(answer[..read].ends_with(b"done"));
    }
}

#[tokio::test]
async fn all_threads_listen_on_one_port_and_a_second_plane_is_refused() {
    let plane = start_echo(config(3));
    for _ in 0..20 {
        let mut client = connect(&plane).await;
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        assert!(read_to_end(client).await.starts_with("HTTP/1.1 200"));
    }
    for threads in [1, 2] {
        let again = Listeners::bind(plane.address(), threads);
        assert_eq!(again.map(drop).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}

#[tokio::test]
async fn who_comes_before_the_threads_start_waits_for_them() {
    for threads in [1, 3] {
        let config = config(threads);
        let mut client = TcpStream::connect(config.listeners.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let _plane = start_echo(config);
        assert!(read_to_end(client).await.starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn what_the_system_holds_unsent_of_a_response_is_bounded() {
    let listener = open((Ipv4Addr::LOCALHOST, 0).into(), false).unwrap();
    listener.set_nonblocking(false).unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!(socket2::SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), UNSENT);
}
