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
    PlaneConfig { listeners, limits: limits(), room }
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
    let mut running = connect(&plane).await;
    running.write_all(GET).await.unwrap();
    watch.arrived.recv().await.unwrap();
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
async fn ask(client: &mut TcpStream) -> String {
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
    let mut running = connect(&plane).await;
    running.write_all(GET).await.unwrap();
    watch.arrived.recv().await.unwrap();
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
    let mut running = connect(&plane).await;
    running.write_all(GET).await.unwrap();
    watch.arrived.recv().await.unwrap();
    drop(plane);
    assert_eq!(soon(watch.ended.recv()).await, Some(()));
}

#[tokio::test]
async fn a_client_that_leaves_drops_its_request() {
    let (service, mut watch) = gate();
    let plane = start(1, service);
    let mut client = connect(&plane).await;
    client.write_all(GET).await.unwrap();
    watch.arrived.recv().await.unwrap();
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

/// A plane for so many connections, whose requests are held.
fn start_bounded(max_connections: usize, threads: usize) -> (Plane, Watch, Arc<Room>) {
    let room = Room::of(max_connections);
    let (gate, watch) = gate();
    let config = PlaneConfig { room: room.clone(), ..config(threads) };
    let plane = Plane::start((config, Memory::of(0)), misread, move |_| {
        let gate = gate.clone();
        service_fn(move |request| gate.clone().pass(request))
    });
    (plane.unwrap(), watch, room)
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_for_their_turn() {
    const MOST: usize = 24;
    for threads in [1, 8] {
        let (plane, mut watch, _) = start_bounded(MOST, threads);
        let mut open = Vec::new();
        for _ in 0..MOST {
            let mut client = connect(&plane).await;
            client.write_all(GET).await.unwrap();
            soon(watch.arrived.recv()).await.unwrap();
            open.push(client);
        }
        let mut further = connect(&plane).await;
        further.write_all(GET).await.unwrap();
        assert!(watch.arrived.try_recv().is_err(), "no place is left");
        drop(open.pop());
        soon(watch.arrived.recv()).await.unwrap();
    }
}

/// Ends when so many have a place: of several threads each accepts when it comes to it, and not who came first does first.
async fn have_places(room: &Room, connections: usize) {
    let all = |Census { asking, idle, silent }| asking + idle + silent;
    soon(async {
        while all(room.census()) < connections {
            yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_asks_nothing_gives_way_to_who_comes_when_no_place_is_left() {
    for threads in [1, 4] {
        let (plane, mut watch, room) = start_bounded(4, threads);
        let mut busy = connect(&plane).await;
        let mut asked = connect(&plane).await;
        asked.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        watch.release.notify_one();
        soon(watch.ended.recv()).await.unwrap();
        busy.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        let silent = connect(&plane).await;
        let mut half = connect(&plane).await;
        half.write_all(b"GET / HT").await.unwrap();
        // Whoever of these had none yet would find the others' as a newcomer does.
        have_places(&room, 4).await;
        let mut newcomers = Vec::new();
        for _ in 0..2 {
            let mut newcomer = connect(&plane).await;
            newcomer.write_all(GET).await.unwrap();
            soon(watch.arrived.recv()).await.unwrap();
            newcomers.push(newcomer);
        }
        for mut gone in [silent, half] {
            assert_eq!(soon(gone.read(&mut [0])).await.unwrap(), 0, "it has left");
        }
        assert_eq!(room.census(), Census { asking: 3, idle: 1, silent: 0 });
        asked.write_all(GET).await.unwrap();
        soon(watch.arrived.recv()).await.unwrap();
        assert!(watch.ended.try_recv().is_err(), "who has a request keeps its place");
        drop((busy, newcomers));
    }
}

#[tokio::test]
async fn a_place_goes_to_whichever_thread_has_somebody_waiting() {
    let plane = start_echo(PlaneConfig { room: Room::of(1), ..config(8) });
    // Each is let in when the one before has left, and most of them by a thread that had none.
    let mut clients = JoinSet::new();
    for _ in 0..24 {
        let mut client = connect(&plane).await;
        client.write_all(GET).await.unwrap();
        clients.spawn(async move { client.read_u8().await });
    }
    while let Some(answered) = soon(clients.join_next()).await {
        answered.unwrap().unwrap();
    }
}

/// Some of a response, and then its end, an error, or neither.
enum Part {
    Ends,
    Breaks,
    Hangs,
}

/// A body without a length.
struct Parts(Part, u32);

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.1 += 1;
        match (self.1, &self.0) {
            (1, _) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            // What was written is sent before anything follows.
            (2, Part::Ends | Part::Breaks) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            (_, Part::Ends) => Poll::Ready(None),
            (_, Part::Breaks) => Poll::Ready(Some(Err("broken"))),
            (_, Part::Hangs) => Poll::Pending,
        }
    }

    /// As a response that is passed on: after its error nothing more comes.
    fn is_end_stream(&self) -> bool {
        self.1 > 2 && matches!(self.0, Part::Breaks)
    }
}

#[tokio::test]
async fn a_response_that_does_not_come_to_its_end_looks_finished_to_no_client() {
    let parts = async |request: Request<Incoming>| {
        let part = match request.uri().path() {
            "/ends" => Part::Ends,
            "/breaks" => Part::Breaks,
            _ => Part::Hangs,
        };
        Ok(Response::new(Parts(part, 0)))
    };
    let plane =
        Plane::start((config(1), Memory::of(0)), misread, move |_| service_fn(parts)).unwrap();
    let mut hanging = None;
    for (path, version) in
        [("ends", "1.0"), ("breaks", "1.0"), ("hangs", "1.0"), ("ends", "1.1"), ("breaks", "1.1")]
    {
        let mut client = connect(&plane).await;
        let close = "host: x\r\nconnection: close\r\n\r\n";
        let head = format!("GET /{path} HTTP/{version}\r\n{close}");
        client.write_all(head.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        while memchr::memmem::find(&text, b"part").is_none() {
            assert!(soon(client.read_buf(&mut text)).await.unwrap() > 0);
        }
        if path == "hangs" {
            hanging = Some(client);
            continue;
        }
        let rest = soon(client.read_to_end(&mut text)).await.map_err(|error| error.kind());
        match (path, version) {
            ("ends", "1.0") => assert_eq!(rest, Ok(0)),
            ("breaks", "1.0") => assert_eq!(rest, Err(io::ErrorKind::ConnectionReset)),
            (path, _) => {
                rest.unwrap();
                assert_eq!(text.ends_with(b"0\r\n\r\n"), path == "ends", "{text:?}");
            }
        }
    }
    plane.abort();
    let rest = soon(hanging.unwrap().read_u8()).await.map_err(|error| error.kind());
    assert_eq!(rest, Err(io::ErrorKind::ConnectionReset), "also where everything is cut");
}

/// Events of a response that breaks off behind them, as that of a pod that is lost does.
const EVENTS: usize = 200;
const EVENT: &str = "data: some of an answer, and more of it\n\n";

/// Answers with such a response a client over memory that takes little at once; says how long that took.
async fn breaks_off<F: Future<Output = ()>>(client: impl FnOnce(DuplexStream) -> F) -> Duration {
    let begun = tokio::time::Instant::now();
    let (mut near, far) = duplex(64);
    let (_open, phase) = watch::channel(Phase::Open);
    let answer = async |_: Request<Incoming>| {
        let event = || Ok(Frame::data(Bytes::from_static(EVENT.as_bytes())));
        let events = stream::iter(std::iter::repeat_with(event).take(EVENTS));
        let lost = stream::once(async {
            sleep(Duration::from_millis(20)).await;
            Err("lost")
        });
        Ok(Response::new(StreamBody::new(Box::pin(events.chain(lost)))))
    };
    let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
    let tasks = LocalSet::new();
    let server = tasks.spawn_local(converse((far, Arc::default()), terms(0), answers, phase));
    tasks.run_until(near.write_all(GET)).await.unwrap();
    tasks.run_until(client(near)).await;
    tasks.run_until(server).await.unwrap();
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_behind_gets_what_came_before_a_response_broke_off() {
    for pause in [0, 1, 5] {
        let took = breaks_off(async |mut client| {
            let mut text = String::new();
            let mut part = [0; 64];
            loop {
                sleep(Duration::from_millis(pause)).await;
                match client.read(&mut part).await.unwrap() {
                    0 => break,
                    read => text.push_str(std::str::from_utf8(&part[..read]).unwrap()),
                }
            }
            assert_eq!(text.matches(EVENT).count(), EVENTS, "{pause}");
            assert!(!text.ends_with("0\r\n\r\n"));
        })
        .await;
        assert!(took < limits().write_timeout);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_what_broke_off_holds_nothing_for_longer() {
    // Writes until nobody is there to read it.
    let took = breaks_off(async |mut client| {
        while client.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    let (limit, second) = (limits().write_timeout, Duration::from_secs(1));
    assert!((limit..=limit + second).contains(&took), "{took:?}");
    let took = breaks_off(async |client| drop(client)).await;
    assert!(took.is_zero(), "nor does one that leaves: {took:?}");
}

/// With so much memory for what clients have not taken.
fn terms(most: usize) -> Terms {
    Terms { limits: limits(), memory: Rc::new(Memory::of(most)) }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_take_is_read_to_its_end_where_there_is_memory() {
    const PART: usize = 1000;
    let whole = 300;
    for (most, end) in [(0, false), (whole * PART, true)] {
        let (mut near, far) = duplex(1024);
        let (_open, phase) = watch::channel(Phase::Open);
        let given = Rc::new(std::cell::Cell::new(0));
        let count = given.clone();
        let answer = move |_: Request<Incoming>| {
            let count = count.clone();
            let parts = std::iter::repeat_with(move || {
                count.set(count.get() + 1);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; PART])))
            });
            let body = StreamBody::new(stream::iter(parts.take(whole)));
            std::future::ready(Ok(Response::new(body)))
        };
        let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
        let (terms, tasks) = (terms(most), LocalSet::new());
        let budget = terms.memory.budget.clone();
        tasks.spawn_local(converse((far, Arc::default()), terms, answers, phase));
        let client = async {
            near.write_all(GET).await.unwrap();
            sleep(limits().write_timeout / 2).await;
            assert_eq!(given.get() == whole, end, "{} were read", given.get());
            assert!(given.get() * PART >= 64 << 10, "{} were read", given.get());
            assert_eq!(budget.bytes() > 0, end);
            let mut text = Vec::new();
            while !text.ends_with(b"0\r\n\r\n") {
                near.read_buf(&mut text).await.unwrap();
            }
            assert_eq!(text.iter().filter(|byte| **byte == b'x').count(), whole * PART);
            assert_eq!((given.get(), budget.bytes()), (whole, 0));
        };
        tasks.run_until(client).await;
    }
}

#[tokio::test]
async fn a_head_may_be_as_large_as_the_limit_says() {
    let roomy = Limits { max_header_bytes: 1 << 20, ..limits() };
    let plane = start_echo(PlaneConfig { limits: roomy, ..config(1) });
    for (fields, status) in [(10, b"HTTP/1.1 200"), (12, b"HTTP/1.1 431")] {
        let mut client = connect(&plane).await;
        let field = format!("x: {}\r\n", "y".repeat(100_000));
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", field.repeat(fields));
        // The server may close before it has taken everything.
        let _ = client.write_all(head.as_bytes()).await;
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, status);
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let plane = start_echo(config(1));
    for header in [format!("x: {}", "y".repeat(100_000)), "x: y\r\n".repeat(200)] {
        let mut client = connect(&plane).await;
        // The server may close before it has taken everything.
        let head = format!("GET / HTTP/1.1\r\n{header}\r\n\r\n");
        let _ = client.write_all(head.as_bytes()).await;
        let mut start = [0; 12];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 431");
    }
}

#[tokio::test]
async fn what_is_no_request_is_answered_by_who_was_given_for_it() {
    let roomy = Limits { max_header_bytes: 1 << 20, ..limits() };
    let plane = start_echo(PlaneConfig { limits: roomy, ..config(1) });
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(65_600));
    let table =
        [("nonsense\r\n\r\n", "400"), ("GET / HTTP/1.1\r\na b: c\r\n\r\n", "400"), (&long, "414")];
    for (sent, status) in table {
        // Behind a request that was answered, too, also to a client of HTTP/1.0.
        let old = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
        for before in [&b""[..], GET, old] {
            let mut client = connect(&plane).await;
            client.write_all(before).await.unwrap();
            if !before.is_empty() {
                client.read_u8().await.unwrap();
            }
            client.write_all(sent.as_bytes()).await.unwrap();
            let text = read_to_end(client).await;
            let expected = format!("content-length: 3\r\n\r\n{status}");
            let minor = u8::from(before != old);
            let line = format!("HTTP/1.{minor} {status} ");
            assert!(text.contains(&line) && text.ends_with(&expected), "{text}");
        }
    }
}

#[tokio::test]
async fn contradicting_framing_does_not_smuggle_a_request() {
    let plane = start_echo(config(1));
    let smuggled = "GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n";
    let twice =
        format!("POST / HTTP/1.1\r\ncontent-length: 4\r\ncontent-length: 40\r\n\r\n{smuggled}");
    let both = format!(
        "POST / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
         {:x}\r\n{smuggled}\r\n0\r\n\r\n",
        smuggled.len(),
    );
    for (request, status) in [(twice, "HTTP/1.1 400"), (both, "HTTP/1.1 200")] {
        let mut client = connect(&plane).await;
        client.write_all(request.as_bytes()).await.unwrap();
        let text = read_to_end(client).await;
        assert!(text.starts_with(status), "{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "one request, one answer: {text}");
    }
}

/// A conversation over memory, so that time can be paused.
async fn over_memory<F: Future<Output = ()>>(client: impl FnOnce(DuplexStream) -> F) {
    over_memory_after(b"", client).await;
}

/// The same where something was sent before the server first looks.
async fn over_memory_after<F: Future<Output = ()>>(
    sent: &[u8],
    client: impl FnOnce(DuplexStream) -> F,
) {
    let (mut near, far) = duplex(1024);
    near.write_all(sent).await.unwrap();
    let (_open, phase) = watch::channel(Phase::Open);
    let answer = async |_: Request<Incoming>| {
        sleep(Duration::from_millis(1)).await;
        Ok(Response::new(Full::<Bytes>::from("hi")))
    };
    let answers = (Rc::new(service_fn(answer)), Rc::new(misread) as Answer);
    let tasks = LocalSet::new();
    // A task of its own, which is woken for nothing that only its client does.
    let server = tasks.spawn_local(converse((far, Arc::default()), terms(0), answers, phase));
    tasks.run_until(client(near)).await;
    tasks.run_until(server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_drips_its_head_is_cut_off() {
    over_memory(async |mut client| {
        let drip = async {
            while client.write_all(b"G").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        timeout(limits().header_timeout + Duration::from_secs(1), drip).await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_lives_longer_than_a_gateways_and_then_ends() {
    over_memory(async |mut client| {
        for _ in 0..2 {
            client.write_all(GET).await.unwrap();
            let mut head = [0; 15];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            let mut rest = Vec::new();
            let quiet = timeout(Duration::from_secs(120), client.read_to_end(&mut rest)).await;
            assert!(quiet.is_err(), "the connection is kept");
        }
        let mut rest = Vec::new();
        timeout(limits().idle_timeout, client.read_to_end(&mut rest)).await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_came_with_its_request_ends_when_it_is_idle() {
    over_memory_after(GET, async |mut client| {
        let begun = tokio::time::Instant::now();
        let mut rest = Vec::new();
        let limit = limits().idle_timeout;
        timeout(limit * 2, client.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 200 OK"));
        assert_eq!(begun.elapsed().as_secs(), limit.as_secs());
    })
    .await;
}
