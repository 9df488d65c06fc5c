//! The fleet against a pod that answers each scrape when, and as, the test says.

mod engines;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use axum::{
    Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{
        mpsc, oneshot,
        watch::{Sender, channel},
    },
    task::JoinSet,
};
use weir_core::{Phase, PodClass, Scheduler, SchedulerConfig};
use weir_predict::Chain;

use super::{
    config::{DnsConfig, RawClass, Seat},
    *,
};
use crate::{
    clock::Clock,
    hub::{Hub, fixture::until},
    worker::Worker,
};

/// A pod whose scrapes park until the test answers them.
struct Gate {
    seat: Seat,
    arrived: mpsc::Receiver<oneshot::Sender<Response>>,
}

impl Gate {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let (arrive, arrived) = mpsc::channel::<oneshot::Sender<Response>>(1);
        let answer = move || {
            let arrive = arrive.clone();
            async move {
                let (reply, replied) = oneshot::channel();
                arrive.send(reply).await.unwrap();
                replied.await.unwrap_or_else(|_| StatusCode::NO_CONTENT.into_response())
            }
        };
        let routes = Router::new().route("/metrics", get(answer));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { seat: Seat::of("pod-0".into(), authority, None, 0), arrived }
    }

    /// Answers the scrape that is parked, or the next one.
    async fn answer(&mut self, answer: impl IntoResponse) {
        // A scrape that was given up has no receiver any more; the next one counts.
        let mut answer = answer.into_response();
        loop {
            match self.arrived.recv().await.unwrap().send(answer) {
                Ok(()) => return,
                Err(back) => answer = back,
            }
        }
    }

    /// Returns once a scrape has arrived, that is once the answer before it was taken in.
    async fn next(&mut self) -> oneshot::Sender<Response> {
        self.arrived.recv().await.unwrap()
    }
}

fn pool() -> Arc<Hub> {
    let (sink, _) = async_channel::bounded(1);
    let classes = vec![PodClass::default(); 2];
    let config = SchedulerConfig { classes, ..SchedulerConfig::default() };
    let scheduler = Scheduler::new(config, Box::new(Chain::new()));
    Hub::new(scheduler, Arc::from("m"), Clock::new(), sink)
}

fn scraping(timeout: Duration) -> ScrapeConfig {
    ScrapeConfig {
        by_name: true,
        every: Some(Duration::from_millis(1)),
        timeout,
        stale_after: LONG,
    }
}

/// A pool with nothing but this gate as its pod, watched.
fn watched(gate: &Gate, timeout: Duration) -> Arc<Hub> {
    watched_all(vec![gate.seat.clone()], timeout)
}

/// A pool with nothing but these pods of one address, watched.
fn watched_all(seats: Vec<Seat>, timeout: Duration) -> Arc<Hub> {
    let hub = pool();
    let config = scraping(timeout);
    let rosters = Roster::for_each(std::slice::from_ref(&hub), config);
    let roster = rosters.into_iter().next().unwrap();
    let places = seats.into_iter().map(|seat| Place::take(&roster, seat)).collect();
    let places = Arc::new(Mutex::new(places));
    tokio::spawn(watch::watch(places, config));
    hub
}

/// Two pools with nothing but this gate as their pod, and the thread that watches it.
fn shared(gate: &Gate) -> ([Arc<Hub>; 2], Worker) {
    let (hubs, fleet, _) = ordered(gate);
    (hubs, fleet)
}

/// The same, with whom to tell who shall be watched.
fn ordered(gate: &Gate) -> ([Arc<Hub>; 2], Worker, Sender<Vec<Members>>) {
    let hubs = [pool(), pool()];
    let seat = Seat { shared: true, ..gate.seat.clone() };
    let members = || Members { seats: vec![seat.clone()], dns: None };
    let config = scraping(LONG);
    let rosters = Roster::for_each(&hubs, config).into_iter();
    let musters: Vec<_> = rosters.map(|roster| Muster::new(roster, members())).collect();
    let (orders, ordered) = channel(vec![]);
    let fleet = Worker::spawn_async("test-fleet", move |stop| run(musters, config, ordered, stop));
    (hubs, fleet.unwrap(), orders)
}

/// Orders for the first of two pools to find its pods by a name.
fn by_dns(host: &str, port: u16, class: u16, ms: u64) -> Vec<Members> {
    let dns = DnsConfig {
        engines: RawClass::default().engines(),
        host: host.to_owned(),
        port,
        secure: None,
        class,
        family: None,
        listed: BTreeSet::new(),
        shared: false,
        every: Duration::from_millis(ms),
    };
    vec![Members { seats: vec![], dns: Some(dns) }, Members::default()]
}

fn only(hub: &Hub) -> Arc<Pod> {
    let pods = hub.pods();
    assert_eq!(pods.len(), 1);
    pods[0].clone()
}

fn gauges(kv_usage: &str) -> String {
    format!(
        "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n\
         vllm:kv_cache_usage_perc {kv_usage}\nprocess_start_time_seconds 1000\n"
    )
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_pod_takes_requests_after_its_first_good_scrape() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    let parked = gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Broken);
    parked.send(gauges("0.5").into_response()).unwrap();
    gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Ready);
    assert_eq!(hub.snapshot().pods[0].kv_usage, 0.5);
}

#[tokio::test]
async fn three_failures_take_a_pod_out_and_one_success_brings_it_back() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(gauges("0.5")).await;
    for _ in 0..2 {
        gate.answer(StatusCode::INTERNAL_SERVER_ERROR).await;
    }
    let parked = gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Ready, "two failures are not enough");
    parked.send(StatusCode::INTERNAL_SERVER_ERROR.into_response()).unwrap();
    let parked = gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Broken);
    parked.send(gauges("0.5").into_response()).unwrap();
    gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Ready);
    assert_eq!(only(&hub).scrapes.failed.load(Relaxed), 3);
}

#[tokio::test]
async fn gauges_that_are_not_understood_leave_the_last_good_ones_in_force() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(gauges("0.5")).await;
    for _ in 0..4 {
        gate.answer(gauges("NaN")).await;
    }
    gate.next().await;
    let pod = only(&hub);
    assert_eq!((pod.scrapes.good.load(Relaxed), pod.scrapes.garbled.load(Relaxed)), (1, 4));
    assert_eq!(pod.phase(), Phase::Ready);
    assert_eq!(hub.snapshot().pods[0].kv_usage, 0.5);
}

#[tokio::test]
async fn a_pod_without_metrics_still_serves() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    // It is asked by name, and then for everything.
    gate.answer(StatusCode::NOT_FOUND).await;
    gate.answer(StatusCode::NOT_FOUND).await;
    gate.next().await;
    assert_eq!(only(&hub).phase(), Phase::Ready);
}

#[tokio::test]
async fn an_answer_beyond_all_bounds_is_not_read() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(vec![b'x'; 5 << 20]).await;
    gate.next().await;
    assert_eq!(only(&hub).scrapes.failed.load(Relaxed), 1);
    assert_eq!(only(&hub).phase(), Phase::Broken);
}

#[tokio::test]
async fn another_process_at_the_address_is_another_pod() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(gauges("0.5")).await;
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    let before = only(&hub).id;
    parked.send(gauges("0.1").replace(" 1000", " 2000").into_response()).unwrap();
    gate.next().await;
    let after = only(&hub);
    assert_ne!(after.id, before);
    assert_eq!(after.phase(), Phase::Ready);
}

/// Answers every scrape with this, each over a connection of its own, until it is dropped.
fn always(listener: TcpListener, answer: &'static str) -> JoinSet<()> {
    let mut server = JoinSet::new();
    server.spawn(async move {
        while let Ok((mut line, _)) = listener.accept().await {
            let _ = line.read(&mut [0; 4096]).await;
            let length = answer.len();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
            let _ = line.write_all(format!("{head} {length}\r\n\r\n{answer}").as_bytes()).await;
        }
    });
    server
}

#[tokio::test]
async fn where_nobody_listened_for_a_while_is_another_process_if_it_does_not_say_when_it_began() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gauges = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n\
                  vllm:kv_cache_usage_perc 0.5\n";
    let mut server = always(listener, gauges);
    let (name, authority) = (Arc::from("pod-0"), address.to_string());
    let seat = Seat::of(name, authority, None, 0);
    let hub = watched_all(vec![seat], LONG);
    until("the first scrape", || only(&hub).phase() == Phase::Ready).await;
    let before = only(&hub).id;
    server.shutdown().await;
    until("it is gone", || only(&hub).phase() == Phase::Broken).await;
    assert_eq!(only(&hub).id, before, "while nobody answers there is no other");
    let _server = always(TcpListener::bind(address).await.unwrap(), gauges);
    until("it is back", || only(&hub).phase() == Phase::Ready).await;
    assert_ne!(only(&hub).id, before);
    let after = only(&hub).id;
    until("some scrapes", || only(&hub).scrapes.good.load(Relaxed) > 5).await;
    assert_eq!(only(&hub).id, after, "once");
}

#[tokio::test]
async fn a_pod_that_streams_is_not_taken_out_for_late_scrapes() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, Duration::from_millis(5));
    gate.answer(gauges("0.5")).await;
    // Each scrape that is held unanswered is given up; the next one arriving says so.
    let (mut at_ms, mut held) = (1000, Vec::new());
    while only(&hub).scrapes.failed.load(Relaxed) < 6 {
        at_ms += 1000;
        only(&hub).pulse.chunk(weir_core::Time::from_millis(at_ms));
        held.push(gate.next().await);
    }
    assert_eq!(only(&hub).phase(), Phase::Ready);
}

#[tokio::test]
async fn a_pod_that_streams_is_not_taken_out_for_metrics_that_fail() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(gauges("0.5")).await;
    let mut at_ms = 1000;
    let mut scrape = gate.next().await;
    for _ in 0..6 {
        at_ms += 1000;
        only(&hub).pulse.chunk(weir_core::Time::from_millis(at_ms));
        scrape.send(StatusCode::INTERNAL_SERVER_ERROR.into_response()).unwrap();
        scrape = gate.next().await;
    }
    assert_eq!(only(&hub).scrapes.failed.load(Relaxed), 6);
    assert_eq!(only(&hub).phase(), Phase::Ready);
}

#[tokio::test]
async fn one_scrape_of_a_pod_in_two_pools_serves_both() {
    let mut gate = Gate::open().await;
    let (hubs, fleet) = shared(&gate);
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    for hub in &hubs {
        assert_eq!(only(hub).phase(), Phase::Ready, "by the one scrape that was answered");
        let pod = &hub.snapshot().pods[0];
        assert_eq!((pod.kv_usage, pod.elsewhere), (0.5, 1));
    }
    let before = hubs.each_ref().map(|hub| only(hub).id);
    parked.send(gauges("0.1").replace(" 1000", " 2000").into_response()).unwrap();
    let _parked = gate.next().await;
    let after = hubs.each_ref().map(|hub| only(hub).id);
    assert!(before.iter().all(|id| !after.contains(id)), "it was restarted for both");
    assert!(fleet.join(LONG));
    assert!(hubs.iter().all(|hub| hub.pods().is_empty()), "it has left both");
}

#[tokio::test]
async fn what_an_operator_asks_goes_before_the_breaker_and_outlives_a_restart() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    gate.answer(gauges("0.5")).await;
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    let before = only(&hub).id;
    hub.ask_pod("pod-0", Ask::Cordon).unwrap();
    assert_eq!(only(&hub).phase(), Phase::Cordoned);
    parked.send(gauges("0.1").replace(" 1000", " 2000").into_response()).unwrap();
    gate.next().await;
    assert_ne!(only(&hub).id, before, "another process");
    assert_eq!(hub.snapshot().pods[0].phase, Phase::Cordoned);
    assert_eq!(hub.snapshot().pods[0].kv_usage, 0.1, "it is scraped as before");
    hub.ask_pod("pod-0", Ask::Serve).unwrap();
    assert_eq!(hub.snapshot().pods[0].phase, Phase::Ready);
}

#[tokio::test]
async fn pods_found_by_dns_stay_unless_they_are_of_another_class_now() {
    let mut gate = Gate::open().await;
    let (hubs, fleet, orders) = ordered(&gate);
    let (host, port) = gate.seat.authority.split_once(':').unwrap();
    let asked = |class, ms| by_dns(host, port.parse().unwrap(), class, ms);
    let found = async || {
        while hubs[0].pods().iter().all(|pod| *pod.name != gate.seat.authority) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        only(&hubs[0]).id
    };
    orders.send_replace(asked(0, 5));
    let before = found().await;
    orders.send_replace(asked(0, 6));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(only(&hubs[0]).id, before);
    }
    orders.send_replace(asked(1, 6));
    while hubs[0].pods().iter().all(|pod| pod.id == before) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    orders.send_replace(vec![Members::default(); 2]);
    while !hubs[0].pods().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(gate.next().await);
    assert!(fleet.join(LONG));
}

#[tokio::test]
async fn a_class_that_changes_while_dns_does_not_answer_takes_no_pod_out() {
    let mut gate = Gate::open().await;
    let (hubs, fleet, orders) = ordered(&gate);
    let (host, port) = gate.seat.authority.split_once(':').unwrap();
    let port = port.parse().unwrap();
    orders.send_replace(by_dns(host, port, 0, 5));
    let name = gate.seat.authority.clone();
    until("the pod is found", || hubs[0].pods().iter().any(|pod| *pod.name == *name)).await;
    hubs[0].ask_pod(&name, Ask::Cordon).unwrap();
    // No such name; the pods of the last good answer stay, as ones of the new class.
    orders.send_replace(by_dns("no-such-name.invalid", port, 1, 5));
    until("it is of the new class", || hubs[0].pods().iter().any(|pod| pod.class == 1)).await;
    assert_eq!(*only(&hubs[0]).name, *name);
    assert_eq!(only(&hubs[0]).phase(), Phase::Cordoned, "what an operator asked still is");
    gate.answer(gauges("0.3")).await;
    let _parked = gate.next().await;
    assert_eq!(hubs[0].snapshot().pods[0].kv_usage, 0.3, "it is scraped as before");
    assert!(fleet.join(LONG));
}

#[tokio::test]
async fn what_an_operator_asks_outlives_a_class_and_an_absence() {
    let gate = Gate::open().await;
    let (hubs, fleet, orders) = ordered(&gate);
    hubs[0].ask_pod("pod-0", Ask::Drain).unwrap();
    let seat = |class| Seat { class, ..gate.seat.clone() };
    let order = |seats| {
        orders.send_replace(vec![Members { seats, dns: None }, Members::default()]);
    };
    order(vec![seat(1)]);
    until("it is of another class", || hubs[0].pods().iter().any(|pod| pod.class == 1)).await;
    assert_eq!(only(&hubs[0]).phase(), Phase::Draining);
    order(vec![]);
    until("it has left", || hubs[0].pods().is_empty()).await;
    order(vec![seat(0)]);
    until("it is back", || !hubs[0].pods().is_empty()).await;
    assert_eq!(only(&hubs[0]).phase(), Phase::Draining);
    hubs[0].ask_pod("pod-0", Ask::Serve).unwrap();
    assert_eq!(only(&hubs[0]).phase(), Phase::Broken, "until its first scrape");
    assert!(fleet.join(LONG));
}

#[tokio::test]
async fn a_pod_is_drained_when_it_says_itself_that_nothing_is_on_it() {
    let mut gate = Gate::open().await;
    let hub = watched(&gate, LONG);
    let drain = || hub.pod_seen("pod-0").unwrap().leaving.unwrap();
    hub.ask_pod("pod-0", Ask::Drain).unwrap();
    assert!(!drain().is_done(), "it was never scraped");
    // The scrape that is parked was begun before; the one behind it tells.
    gate.answer(gauges("0.5")).await;
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    assert_eq!((drain().left, drain().others(), drain().is_done()), (0, Some(1), false));
    parked.send(gauges("0").replace("running 1", "running 0").into_response()).unwrap();
    let _parked = gate.next().await;
    assert_eq!((drain().others(), drain().is_done()), (Some(0), true));
}

#[tokio::test]
async fn a_reload_takes_only_what_changed() {
    let (mut gate, other) = (Gate::open().await, Gate::open().await);
    let (hubs, fleet, orders) = ordered(&gate);
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    let before = hubs.each_ref().map(|hub| only(hub).id);
    // The first pool gets a pod more; the second one keeps what it has.
    let seat = Seat { shared: true, ..gate.seat.clone() };
    let added = Seat { name: Arc::from("pod-1"), ..other.seat.clone() };
    let seats = vec![seat.clone(), added];
    orders.send_replace(vec![
        Members { seats, dns: None },
        Members { seats: vec![seat.clone()], dns: None },
    ]);
    let mut other = other;
    other.answer(gauges("0.2")).await;
    let _parked_too = other.next().await;
    assert_eq!(hubs[0].pods().len(), 2);
    let known = |hub: &Hub| hub.pods().iter().map(|pod| pod.id).collect::<Vec<_>>();
    assert!(known(&hubs[0]).contains(&before[0]), "the pod that stays is the same pod");
    assert_eq!(known(&hubs[1]), [before[1]]);
    assert_eq!(only(&hubs[1]).phase(), Phase::Ready);
    drop(parked);
    // It leaves the second pool, and is the same to the first one: that it is no longer shared is told with its gauges.
    let alone = Seat { shared: false, ..seat };
    orders
        .send_replace(vec![Members { seats: vec![alone.clone()], dns: None }, Members::default()]);
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    assert_eq!(hubs[0].pods().len(), 1);
    assert_eq!(only(&hubs[0]).id, before[0]);
    assert!(hubs[1].pods().is_empty());
    // Another name is another pod.
    let renamed = Seat { name: Arc::from("pod-2"), ..alone };
    orders.send_replace(vec![Members { seats: vec![renamed], dns: None }, Members::default()]);
    drop(parked);
    gate.answer(gauges("0.5")).await;
    let _parked = gate.next().await;
    assert_ne!(only(&hubs[0]).id, before[0]);
    assert!(fleet.join(LONG));
}
