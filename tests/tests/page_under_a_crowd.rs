//! With 100,000 requests waiting for 500 pods the page is drawn at once, and decisions do not wait for it.
//!
//! ```sh
//! cargo test --release -p weir-tests --test page_under_a_crowd -- --ignored --nocapture
//! ```
//! The crowd is `dispatcher/server/examples/crowd.rs`: everything of `weir serve` but the sockets.
#![expect(clippy::indexing_slicing, reason = "a scenario says what broke by panicking")]
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::{net::SocketAddr, process::Command, time::Duration};

use serde_json::Value;
use weir_tests::{Browser, Program, built, wait::within};

const WAITING: u64 = 100_000;
const PODS: u64 = 500;
/// Seconds of each measurement.
const SECONDS: usize = 20;
const LONG: Duration = Duration::from_secs(600);

/// What the page, a scraper and an operator ask for.
const PATHS: [&str; 9] = [
    "/api/v1/overview",
    "/api/v1/queues",
    "/api/v1/requests?limit=1000",
    "/api/v1/pods",
    "/api/v1/history",
    "/api/v1/chart/ttft.svg",
    "/api/v1/chart/queue.svg",
    "/metrics",
    "/snapshot",
];

struct Crowd {
    program: Program,
    admin: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Crowd {
    async fn gather() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(built::example("crowd"));
        command.args([WAITING.to_string(), PODS.to_string()]);
        let mut program = Program::start(&mut command, &dir.path().join("crowd.log"));
        let admin = within(LONG, "the crowd waits", async || {
            let (ended, log) = (program.ended(), program.log());
            assert!(ended.is_none(), "the crowd is gone: {log}");
            let said = log.lines().find(|line| line.contains("the crowd waits"));
            let said: Option<Value> = said.and_then(|line| serde_json::from_str(line).ok());
            said.and_then(|said| said["admin"].as_str()?.parse().ok()).ok_or(log)
        })
        .await;
        Self { program, admin, _dir: dir }
    }

    /// Time that decisions took in the coming seconds: how many, and percentiles in microseconds.
    async fn decisions(&self) -> Decisions {
        let seconds = |log: &str| log.lines().filter(|line| line.contains("took_us")).count();
        let before = seconds(&self.program.log());
        let log = within(LONG, "seconds pass", async || {
            let log = self.program.log();
            let passed = seconds(&log) - before;
            if passed > SECONDS { Ok(log) } else { Err(passed) }
        })
        .await;
        let lines = log.lines().filter(|line| line.contains("took_us")).skip(before + 1);
        let of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["took_us"].take();
        let took = lines.flat_map(|line| of(line).as_array().unwrap().clone());
        Decisions::new(took.filter_map(|one| one.as_u64()).collect())
    }
}

#[derive(Debug)]
struct Decisions {
    count: usize,
    p50_us: u64,
    p99_us: u64,
    worst_us: u64,
}

impl Decisions {
    fn new(mut took_us: Vec<u64>) -> Self {
        took_us.sort_unstable();
        let at = |share: f64| {
            let place = (took_us.len() as f64 * share) as usize;
            took_us.get(place.min(took_us.len() - 1)).copied().unwrap()
        };
        Self { count: took_us.len(), p50_us: at(0.5), p99_us: at(0.99), worst_us: at(1.0) }
    }

    fn print(&self, when: &str) {
        let Self { count, p50_us, p99_us, worst_us } = self;
        println!("| {when:<34} | {count:>9} | {p50_us:>6} | {p99_us:>6} | {worst_us:>8} |");
    }
}

/// Milliseconds and bytes of an answer of the admin API, as the page gets it.
async fn fetched(browser: &mut Browser, path: &str) -> (f64, u64) {
    let script = format!(
        "(async () => {{
            const begun = performance.now();
            const text = await (await fetch('{path}')).text();
            return [performance.now() - begun, text.length];
        }})()"
    );
    let found = browser.eval(&script).await;
    (found[0].as_f64().unwrap(), found[1].as_u64().unwrap())
}

#[tokio::test]
#[ignore = "takes minutes, and says something in a release build only"]
async fn the_page_is_drawn_at_once_and_decisions_do_not_wait_for_it() {
    let crowd = Crowd::gather().await;
    let without = crowd.decisions().await;
    let Some(mut browser) = Browser::start().await else { return };
    browser.open(&format!("http://{}/", crowd.admin)).await;
    let mark = "performance.getEntriesByName('first-picture')[0]?.startTime";
    let first_ms = browser.sees("the first picture", mark).await.as_f64().unwrap();

    let cells = browser.eval("document.querySelectorAll('#pod-cells a').length").await;
    assert_eq!(cells.as_u64(), Some(PODS));
    let waiting =
        browser.eval("document.querySelector('#vitals dd').innerText.replaceAll(',', '')").await;
    let waiting: u64 = waiting.as_str().unwrap().parse().unwrap();
    assert!(waiting.abs_diff(WAITING) < WAITING / 10, "{waiting}");
    let with = crowd.decisions().await;

    browser.click("#lane-rows .lane").await;
    browser
        .sees("a page of the lane", "document.querySelectorAll('.runway .row').length > 0")
        .await;
    let scroll =
        "setInterval(() => { document.querySelector('.virtual').scrollTop += 4000; }, 250)";
    browser.eval(scroll).await;
    let scrolling = crowd.decisions().await;

    println!("first picture after {first_ms:.0} ms: {waiting} waiting, {PODS} pods");
    println!("| {:<34} | decisions | p50 us | p99 us | worst us |", "");
    without.print("without the page");
    with.print("with the page open");
    scrolling.print("and a lane scrolled, page by page");
    for path in PATHS {
        let (ms, bytes) = fetched(&mut browser, path).await;
        println!("GET {path}: {ms:.0} ms, {bytes} bytes");
    }
    assert!(first_ms < 2000.0, "{first_ms} ms");
    let bound_us = 3 * without.p99_us + 1000;
    assert!(with.p99_us < bound_us && scrolling.p99_us < bound_us, "{with:?} {scrolling:?}");
    assert!(browser.complaints().is_empty(), "{:#?}", browser.complaints());
}
