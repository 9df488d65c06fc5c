//! A dispatcher with a crowd before it: as many waiting requests and pods as one asks for, to look at the
//! page and the admin API under, and to measure what they cost.
//!
//! ```sh
//! cargo run --release -p weir --example crowd -- 100000 500
//! ```
//! Scheduler, hub, admin side and their threads are those of `weir serve`. What is missing is sockets, for
//! few systems let a process have 100,000 open: requests come from this program, and it stays on a pod
//! for the time that a response takes. For each that ends one more comes, so that the queue keeps its
//! length. Prints where the admin side listens once all wait and the pods are full, then one line a
//! second: how long it took, in microseconds, to let each request in, which is when the scheduler decides.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time};
use weir::{
    app::App,
    config::{Config, Origin, load},
    hub::{Hub, Ticket},
};
use weir_core::{Band, EndKind, PromptSize, Request, RequestId, Slo};

/// A response's time to its first token.
const FIRST: Duration = Duration::from_millis(800);
/// From there to its end: so many seconds at least, and how many more it may be, so that ends are spread.
const REST_S: [f64; 2] = [10.0, 20.0];
/// Until the pods are full and their responses end evenly.
const SETTLING: Duration = Duration::from_secs(25);
/// Requests let in between two looks at how many wait.
const BURST: usize = 500;

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (waiting, pods) = (number(100_000)?, number(500)?);
    let raw = load::parse(&configuration(pods).to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(Config::check(&raw)?, waiting))
}

async fn run(config: Config, waiting: usize) -> anyhow::Result<()> {
    let app = App::start(config, &Origin::default())?;
    let (_, admin) = app.addresses();
    let hub = app.hubs().first().context("there is a pool")?.clone();
    let serving = app.run(std::future::pending);
    tokio::select! {
        () = serving => {}
        () = crowd(&hub, waiting, admin) => {}
    }
    Ok(())
}

async fn crowd(hub: &Arc<Hub>, waiting: usize, admin: SocketAddr) {
    let mut lives = JoinSet::new();
    let mut next = gather(hub, waiting, &mut lives).await;
    let mut took_us = Vec::new();
    let mut seconds = time::interval(Duration::from_secs(1));
    let settled = Instant::now() + SETTLING;
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            _ = seconds.tick() => {
                let took_us = std::mem::take(&mut took_us);
                if told {
                    println!("{}", json!({"took_us": took_us}));
                } else if Instant::now() > settled {
                    told = true;
                    let waiting = hub.waiting();
                    println!("{}", json!({"message": "the crowd waits", "admin": admin, "waiting": waiting}));
                }
            }
            Some(_) = lives.join_next() => {
                // Nobody comes in the place of one that was refused.
                if hub.waiting() >= waiting {
                    continue;
                }
                let begun = Instant::now();
                let ticket = hub.admit(request(hub, next));
                took_us.push(begun.elapsed().as_micros());
                lives.spawn(live(ticket, next));
                next += 1;
            }
        }
    }
}

/// Lets requests in until so many wait; returns the number of the next one.
async fn gather(hub: &Arc<Hub>, waiting: usize, lives: &mut JoinSet<()>) -> u64 {
    let mut next = 0;
    while hub.waiting() < waiting {
        for _ in 0..BURST {
            lives.spawn(live(hub.admit(request(hub, next)), next));
            next += 1;
        }
        // Those that were sent on their way begin, and those that are over make no room in the crowd.
        tokio::task::yield_now().await;
        while lives.try_join_next().is_some() {}
    }
    next
}

/// One request, from its verdict to its end.
async fn live(mut ticket: Ticket, number: u64) {
    let Ok(lease) = ticket.verdict().await else { return };
    time::sleep(FIRST).await;
    lease.first_token();
    // Steps of the golden section: even, and the same in every run.
    let share = (number as f64 * 0.618_034).fract();
    let [least, more] = REST_S;
    time::sleep(Duration::from_secs_f64(least + share * more)).await;
    lease.end(EndKind::Complete, Some(200), None);
}

/// The requests go round through sizes, bands and tenants, so that there are lanes of each.
fn request(hub: &Hub, number: u64) -> Request {
    let of = |choices: &[u32], turn: u64| {
        let length = choices.len().max(1) as u64;
        choices.iter().copied().nth((number / turn % length) as usize).unwrap_or_default()
    };
    let tokens = of(&[100, 400, 1500, 6000], 1);
    let (band, ttft_s) = match of(&[0, 1, 2, 3], 4) {
        0 => (1, 60),
        3 => (-1, 1800),
        _ => (0, 600),
    };
    let tenant: Option<Arc<str>> = Some(format!("tenant-{}", number % 7).into());
    Request {
        max_output_tokens: Some(of(&[64, 256, 1024], 16)),
        slo: Slo { ttft: Some(Duration::from_secs(ttft_s)), tpot: Some(Duration::from_millis(50)) },
        band: Band(band),
        tenant,
        body_bytes: 4 * tokens,
        name: format!("crowd-{number}").into(),
        ..Request::new(RequestId(number), hub.clock().now(), PromptSize::Tokens(tokens))
    }
}

/// Pods that nobody scrapes and nothing is sent to, and bounds that a crowd fits in.
fn configuration(pods: usize) -> Value {
    let pod = |number: usize| {
        let url = format!("http://127.0.{}.{}:9", number / 200, number % 200 + 1);
        json!({"name": format!("pod-{number:03}"), "url": url})
    };
    json!({
        "listen": "127.0.0.1:0",
        "admin": {"listen": "127.0.0.1:0"},
        "classes": [{"name": "h100-qwen3-32b-tp2", "max_sequences": 16}],
        "pools": [{"model": "qwen3-32b", "pods": (0..pods).map(pod).collect::<Vec<_>>()}],
        "queue": {
            "max_requests": 1_000_000, "max_bytes": 1_u64 << 34, "max_wait_s": 86_400, "max_predicted_wait_s": 86_400,
        },
        "scrape": {"every_ms": 0},
        "spool": {"dir": std::env::temp_dir().join("weir-crowd")},
        "log": {"level": "warn"},
    })
}
