//! Several engines at one address, each a pod.

use super::*;
use crate::{
    fleet::config::{Engines, StepsTogether},
    hub::fixture::until,
};

/// What a server tells of so many engines, of which number n runs n requests and uses n tenths of its cache.
fn of_engines(engines: u32) -> String {
    let lines = (0..engines).map(|engine| {
        format!(
            "vllm:num_requests_running{{engine=\"{engine}\"}} {engine}\n\
             vllm:num_requests_waiting{{engine=\"{engine}\"}} 0\n\
             vllm:kv_cache_usage_perc{{engine=\"{engine}\"}} 0.{engine}\n"
        )
    });
    lines.collect::<String>() + "process_start_time_seconds 1000\n"
}

fn ranks(gate: &Gate, engines: u16) -> Vec<Seat> {
    gate.seat.clone().engines(of_each(engines), None).collect()
}

fn of_each(count: u16) -> Engines {
    Engines { count, multi_port: false, together: StepsTogether::Server }
}

fn phases(hub: &Hub) -> Vec<(String, Phase)> {
    let mut pods: Vec<_> =
        hub.pods().iter().map(|pod| (pod.name.to_string(), pod.phase())).collect();
    pods.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    pods
}

#[tokio::test]
async fn each_engine_is_told_of_itself_by_one_scrape() {
    let mut gate = Gate::open().await;
    let hub = watched_all(ranks(&gate, 3), LONG);
    gate.answer(of_engines(3)).await;
    let _parked = gate.next().await;
    let all = [0, 1, 2].map(|rank| (format!("pod-0@{rank}"), Phase::Ready));
    assert_eq!(phases(&hub), all);
    let mut usage: Vec<f32> = hub.snapshot().pods.iter().map(|pod| pod.kv_usage).collect();
    usage.sort_unstable_by(f32::total_cmp);
    assert_eq!(usage, [0.0, 0.1, 0.2]);
    let good = hub.pods().iter().map(|pod| pod.scrapes.good.load(Relaxed)).max();
    assert_eq!(good, Some(1), "the server was asked once for all of them");
}

#[tokio::test]
async fn an_engine_that_the_server_does_not_have_gets_nothing() {
    let mut gate = Gate::open().await;
    let hub = watched_all(ranks(&gate, 3), LONG);
    gate.answer(of_engines(2)).await;
    let _parked = gate.next().await;
    let ready = [Phase::Ready, Phase::Ready, Phase::Broken];
    assert_eq!(phases(&hub).into_iter().map(|(_, phase)| phase).collect::<Vec<_>>(), ready);
}

#[tokio::test]
async fn a_server_that_restarts_is_restarted_as_a_whole() {
    let mut gate = Gate::open().await;
    let hub = watched_all(ranks(&gate, 2), LONG);
    gate.answer(of_engines(2)).await;
    gate.answer(of_engines(2).replace(" 1000", " 2000")).await;
    let parked = gate.next().await;
    let ids = |hub: &Hub| hub.pods().iter().map(|pod| pod.id.0).collect::<Vec<_>>();
    assert!(ids(&hub).iter().all(|id| *id > 2), "both are new: {:?}", ids(&hub));
    drop(parked);
}

#[tokio::test]
async fn what_is_asked_of_a_server_is_asked_of_each_of_its_engines() {
    let mut gate = Gate::open().await;
    let hub = watched_all(ranks(&gate, 2), LONG);
    gate.answer(of_engines(2)).await;
    let parked = gate.next().await;
    let asked = |name, what| hub.ask_pod(name, what).map(|seen| seen.detail.view.name.to_string());
    assert_eq!(asked("pod", Ask::Cordon), None, "no server of that name");
    assert!(asked("pod-0", Ask::Cordon).is_some());
    assert!(phases(&hub).iter().all(|(_, phase)| *phase == Phase::Cordoned));
    assert_eq!(asked("pod-0@1", Ask::Serve).as_deref(), Some("pod-0@1"));
    let want = [Phase::Cordoned, Phase::Ready];
    assert_eq!(phases(&hub).into_iter().map(|(_, phase)| phase).collect::<Vec<_>>(), want);
    hub.ask_pod("pod-0", Ask::Drain);
    drop(parked);
    // The first of these was begun before.
    gate.answer(of_engines(2)).await;
    gate.answer(of_engines(2)).await;
    let _parked = gate.next().await;
    let seen = |name| hub.pod_seen(name).unwrap();
    let is_done = |name| seen(name).leaving.unwrap().is_done();
    assert!(is_done("pod-0@0") && !is_done("pod-0@1"), "the second one still runs something");
    assert_eq!(
        &*seen("pod-0").detail.view.name,
        "pod-0@1",
        "a server is done when the last one is"
    );
}

#[tokio::test]
async fn a_reload_may_tell_a_servers_engines_apart() {
    let mut gate = Gate::open().await;
    let (hubs, fleet, orders) = ordered(&gate);
    gate.answer(gauges("0.5")).await;
    let parked = gate.next().await;
    let seats = ranks(&gate, 2);
    orders.send_replace(vec![Members { seats, dns: None }, Members::default()]);
    drop(parked);
    gate.answer(of_engines(2)).await;
    until("both engines are ready", || {
        phases(&hubs[0])
            == [("pod-0@0".to_owned(), Phase::Ready), ("pod-0@1".to_owned(), Phase::Ready)]
    })
    .await;
    assert!(hubs[1].pods().is_empty());
    // Who steps with others is another pod.
    let ids = || hubs[0].pods().iter().map(|pod| pod.id).collect::<BTreeSet<_>>();
    let before = ids();
    let mut seats = ranks(&gate, 2);
    seats.iter_mut().for_each(|seat| seat.group = Some("unit u".into()));
    orders.send_replace(vec![Members { seats, dns: None }, Members::default()]);
    until("both joined anew", || ids().len() == 2 && ids().is_disjoint(&before)).await;
    drop(gate);
    assert!(fleet.join(LONG));
}

#[tokio::test]
async fn engines_found_by_name_come_and_go_with_their_number() {
    let mut gate = Gate::open().await;
    let port = gate.seat.authority.rsplit_once(':').unwrap().1.parse().unwrap();
    let (hubs, fleet, orders) = ordered(&gate);
    let found = |engines| {
        let mut members = by_dns("127.0.0.1", port, 0, 60_000);
        members[0].dns.as_mut().unwrap().engines = of_each(engines);
        members
    };
    let names = |want: &[&str]| phases(&hubs[0]).iter().map(|(name, _)| name).eq(want);
    let at = |rank: &str| format!("{}{rank}", gate.seat.authority);
    orders.send_replace(found(2));
    let (one, two) = (at("@0"), at("@1"));
    until("two engines", || names(&[&one, &two])).await;
    orders.send_replace(found(1));
    let whole = at("");
    until("one pod", || names(&[&whole])).await;
    orders.send_replace(found(2));
    until("two again", || names(&[&one, &two])).await;
    // As many with a port each, of which the first one is watched on.
    let mut members = found(2);
    members[0].dns.as_mut().unwrap().engines.multi_port = true;
    orders.send_replace(members);
    let first = u16::to_string(&port);
    let second = (port + 1).to_string();
    until("a port each", || {
        let ports = hubs[0]
            .pods()
            .iter()
            .map(|pod| {
                (
                    pod.name.to_string(),
                    pod.authority.rsplit_once(':').unwrap().1.to_owned(),
                    pod.rank,
                )
            })
            .collect::<BTreeSet<_>>();
        ports == [(one.clone(), first.clone(), None), (two.clone(), second.clone(), None)].into()
    })
    .await;
    gate.arrived.close();
    assert!(fleet.join(LONG));
}
