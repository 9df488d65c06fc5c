//! A full queue is listed page by page and watched by a page, and dispatch does not feel it.
//!
//! A decision is timed from the arrival of a request that may not wait, in the highest band, to its
//! verdict: the whole way through mailbox, scheduler and pass, over everything that waits. Rounds with
//! and without somebody who looks take turns, so that whatever else the machine does meets both alike.
//!
//! Prints both distributions. With `--release` a hundred thousand wait; otherwise two thousand do, or as
//! many as WEIR_CROWD says, and only the counts are judged. `--nocapture` shows the figures.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement that cannot go on fails, and its figures are read"
)]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use weir::{
    admin::{self, config::RawAdmin, seat::Seat, settings::Settings},
    api::room::Room,
    clock::Clock,
    config::Problems,
    fleet::Pod,
    hub::{Hub, Ticket, run_ticks},
    learn::{Shelf, reload::Bell},
    shutdown::Life,
    telemetry::{Metrics, Watched},
    worker::Worker,
};
use weir_core::{
    Band, Bounds, PodId, PromptSize, PullConfig, Request, RequestId, Scheduler, SchedulerConfig,
    Slo,
};
use weir_predict::Chain;

const RELEASE: bool = !cfg!(debug_assertions);
const ROUNDS: usize = if RELEASE { 10 } else { 3 };
const DECISIONS: usize = if RELEASE { 1_000 } else { 200 };
const PAGE: usize = 1000;

fn crowd_size() -> u64 {
    let asked = std::env::var("WEIR_CROWD").ok().and_then(|size| size.parse().ok());
    asked.unwrap_or(if RELEASE { 100_000 } else { 2_000 })
}

fn hub(crowd: u64) -> Arc<Hub> {
    let day = Duration::from_secs(86_400);
    let bounds = Bounds {
        max_requests: 2 * crowd as usize,
        max_bytes: u64::MAX,
        max_wait: day,
        max_wait_no_pods: day,
        ..Bounds::default()
    };
    // Nobody joins a prompt on a pod, however far that is.
    let pull = PullConfig {
        pending_tokens: 1,
        pending_ms: 0.0,
        top_band_tokens: 1,
        ..PullConfig::default()
    };
    let config = SchedulerConfig { bounds, pull, ..SchedulerConfig::default() };
    let model = config.model.clone();
    let (sink, _) = async_channel::bounded(1);
    let hub = Hub::new(Scheduler::new(config, Box::new(Chain::new())), model, Clock::new(), sink);
    for number in 0..8 {
        let name = format!("pod-{number}").into();
        hub.add_pod(Arc::new(Pod::new(PodId(number), name, format!("127.0.0.1:{number}"), 0)));
    }
    hub
}

/// Sizes, bands and tenants as mixed as real ones.
fn request(hub: &Hub, id: u64) -> Request {
    Request {
        max_output_tokens: Some(50 + (id * 104_729 % 2_000) as u32),
        slo: Slo { ttft: Some(Duration::from_secs(600)), tpot: Some(Duration::from_millis(100)) },
        band: Band((id % 3) as i8 - 1),
        tenant: Some(format!("tenant-{}", id % 50).into()),
        body_bytes: 4000,
        name: format!("req-{id}").into(),
        ..Request::new(
            RequestId(id),
            hub.clock().now(),
            PromptSize::Tokens(100 + (id * 7919 % 16_000) as u32),
        )
    }
}

/// Lets a crowd in that does not go: tickets and leases are kept.
async fn gather(hub: &Arc<Hub>, crowd: u64) -> Vec<Ticket> {
    let mut tickets = Vec::new();
    let mut next = 1;
    while hub.waiting() < crowd as usize {
        tickets.push(hub.admit(request(hub, next)));
        next += 1;
        if next % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    tickets
}

/// An admin side on a thread of its own, as in the dispatcher.
fn admin_side(hub: &Arc<Hub>) -> (SocketAddr, Worker) {
    let (shelf, _) = Shelf::new("no-such-folder".into(), Bell::new().0);
    let watched = Watched {
        circles: vec![],
        hubs: vec![hub.clone()],
        metrics: Arc::new(Metrics::new().unwrap()),
        versions: Arc::default(),
        state: Arc::default(),
        spool: Arc::default(),
        reload: Arc::default(),
        config: Arc::default(),
        shelf: Arc::new(shelf),
        trainer: Arc::default(),
        spans: Arc::default(),
        identities: vec![],
        room: Room::of(1),
        life: Life::default(),
        clock: hub.clock(),
    };
    let door = admin::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = door.local_addr().unwrap();
    let config = RawAdmin::default().check(&mut Problems::default());
    let seat = Seat::new(watched, config.rights(), Settings::default(), address);
    let side =
        Worker::spawn_async("admin", move |stop| admin::run(door, None, seat, stop)).unwrap();
    (address, side)
}

/// A GET on a connection of its own: the reader of its body.
fn open(address: SocketAddr, path: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("200"), "{path}: {line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    reader
}

/// What those who look have seen, and whether they are to look.
#[derive(Default)]
struct Looking {
    on: AtomicBool,
    over: AtomicBool,
    listed: AtomicU64,
    pages: AtomicU64,
    boards: AtomicU64,
}

/// Lists everything again and again while it is to look.
fn list(address: SocketAddr, looking: &Looking) {
    let mut cursor = None::<String>;
    while !looking.over.load(Acquire) {
        if !looking.on.load(Acquire) {
            thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        let after = cursor.take().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let mut body = String::new();
        open(address, &format!("/api/v1/requests?limit={PAGE}{after}"))
            .read_to_string(&mut body)
            .unwrap();
        let page: serde_json::Value = serde_json::from_str(&body).unwrap();
        looking.pages.fetch_add(1, Relaxed);
        looking.listed.fetch_add(page["requests"].as_array().unwrap().len() as u64, Relaxed);
        cursor = page["next"].as_str().map(str::to_owned);
    }
}

/// Watches the boards, as an open page does.
fn watch(address: SocketAddr, looking: &Looking) {
    while !looking.over.load(Acquire) {
        if !looking.on.load(Acquire) {
            thread::park_timeout(Duration::from_millis(1));
            continue;
        }
        let mut reader = open(address, "/api/v1/events");
        let mut line = Vec::new();
        while looking.on.load(Acquire) && reader.read_until(b'\n', &mut line).unwrap() > 0 {
            looking.boards.fetch_add(u64::from(line.starts_with(b"event: board")), Relaxed);
            line.clear();
        }
    }
}

/// One decision after another.
async fn decide(hub: &Arc<Hub>, next: &mut u64, times: &mut Vec<Duration>) {
    for _ in 0..DECISIONS {
        *next += 1;
        let mut asked = request(hub, *next);
        (asked.band, asked.immediate, asked.prompt) = (Band(5), true, PromptSize::Tokens(200));
        let begin = Instant::now();
        let mut ticket = hub.admit(asked);
        let verdict = ticket.verdict().await;
        times.push(begin.elapsed());
        drop(verdict);
        // As on a machine that is not driven at its limit.
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

fn quantile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6
}

#[tokio::test]
async fn a_hundred_thousand_waiting_requests_are_listed_without_disturbing_dispatch() {
    let crowd = crowd_size();
    let hub = hub(crowd);
    let ticking = tokio::spawn(run_ticks(hub.clone()));
    let filling = Instant::now();
    let tickets = gather(&hub, crowd).await;
    println!("{} wait after {:.1} s", hub.waiting(), filling.elapsed().as_secs_f64());
    let (address, side) = admin_side(&hub);
    let looking = Arc::new(Looking::default());
    let lookers = [list as fn(SocketAddr, &Looking), watch].map(|look| {
        let looking = looking.clone();
        thread::spawn(move || look(address, &looking))
    });

    let (mut alone, mut watched, mut next) = (Vec::new(), Vec::new(), 10 * crowd);
    for _ in 0..ROUNDS {
        looking.on.store(false, Release);
        decide(&hub, &mut next, &mut alone).await;
        looking.on.store(true, Release);
        decide(&hub, &mut next, &mut watched).await;
    }
    // However fast the rounds were: everything is listed once at least.
    while looking.listed.load(Relaxed) < crowd || looking.boards.load(Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    looking.over.store(true, Release);
    looking.on.store(false, Release);
    assert!(side.join(Duration::from_secs(30)));
    lookers.into_iter().for_each(|looker| drop(looker.join()));

    let count = |of: &AtomicU64| of.load(Relaxed);
    println!(
        "{} decisions each; {} pages of {PAGE} with {} requests, {} boards",
        alone.len(),
        count(&looking.pages),
        count(&looking.listed),
        count(&looking.boards)
    );
    println!("| decision, us | p50 | p99 | p99.9 |\n|---|---|---|---|");
    let mut p99 = [0.0; 2];
    for (number, (name, times)) in
        [("nobody looks", &mut alone), ("listed and watched", &mut watched)].into_iter().enumerate()
    {
        let [low, high, highest] = [0.5, 0.99, 0.999].map(|share| quantile(times, share));
        println!("| {name} | {low:.0} | {high:.0} | {highest:.0} |");
        p99[number] = high;
    }
    println!("p99 with / without: {:.2}", p99[1] / p99[0]);
    assert!(hub.waiting() >= crowd as usize, "they still wait");
    // What a slice may hold the scheduler for, and room for a busy machine.
    assert!(!RELEASE || p99[1] < 3.0 * p99[0] + 5_000.0, "{p99:?}");
    ticking.abort();
    drop(tickets);
}
