//! The operator's methods over the real scheduler.

use std::sync::Barrier;

use weir_core::{Band, Gate, PodId, RefusalReason, inspect::Tally};

use super::*;
use crate::hub::fixture::{Fixture, assert_settled, pod, request};

#[tokio::test]
async fn a_waiting_request_is_cancelled_by_the_name_its_client_gave_it() {
    let (hub, _samples) = Fixture::default().hub();
    let mut named = request(&hub, 1);
    named.name = "mine".into();
    let mut ticket = hub.admit(named);
    assert!(!hub.cancel_waiting(&Called::Name("yours".to_owned())));
    assert!(hub.cancel_waiting(&Called::Name("mine".to_owned())));
    assert!(!hub.cancel_waiting(&Called::Id(RequestId(1))));
    let refusal = ticket.verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Cancelled);
    let seen = hub.inspect(&Called::Name("mine".to_owned())).unwrap();
    assert_eq!(seen.ended.unwrap().outcome, "cancelled_by_operator");
    drop(ticket);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_cordoned_pod_gets_nothing_and_a_drained_one_says_so() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let running = hub.admit(request(&hub, 1)).verdict().await.unwrap();
    let seen = hub.ask_pod("pod-1", Ask::Drain).unwrap();
    let leaving = seen.leaving.unwrap();
    assert_eq!((leaving.left, leaving.is_done()), (1, false));
    assert!(leaving.expected_ms > 0.0);
    let waiting = hub.admit(request(&hub, 2));
    assert_eq!(hub.summary().waiting, 1, "it takes no new request");
    // A breaker that closes does not let it in again.
    hub.pod_changed(PodId(1));
    assert_eq!(hub.summary().waiting, 1);
    running.end(weir_core::EndKind::Complete, None, None);
    assert!(hub.pod_seen("pod-1").unwrap().leaving.unwrap().is_done());
    assert!(hub.ask_pod("pod-1", Ask::Serve).unwrap().leaving.is_none());
    let mut waiting = waiting;
    drop(waiting.verdict().await.unwrap());
    assert!(hub.ask_pod("no-such", Ask::Cordon).is_none());
}

#[tokio::test]
async fn a_pod_that_has_left_is_shown_with_what_runs_there_until_that_ends() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let streamed = hub.admit(request(&hub, 1)).verdict().await.unwrap();
    streamed.first_token();
    let prefilled = hub.admit(request(&hub, 2)).verdict().await.unwrap();
    hub.remove_pod(PodId(1));
    hub.add_pod(pod(2, "127.0.0.1:2"));
    let phases = |hub: &Hub| -> Vec<(String, bool)> {
        let pods = hub.pods_seen(8).into_iter();
        pods.map(|seen| (seen.detail.view.name, seen.has_left)).collect()
    };
    assert_eq!(phases(&hub), [("pod-2".to_owned(), false), ("pod-1".to_owned(), true)]);
    let seen = hub.pod_seen("pod-1").unwrap();
    let (view, leaving) = (&seen.detail.view, seen.leaving.unwrap());
    assert_eq!((&*seen.address, view.residents, view.pending), ("127.0.0.1:1", 1, 1));
    assert_eq!((leaving.left, leaving.is_done()), (2, false));
    assert!(leaving.expected_ms > 0.0);
    let decoding: Vec<bool> = view.requests.iter().map(|one| one.decoding).collect();
    assert_eq!(decoding, [true, false], "as far as they have come");
    assert_eq!(hub.summary().pods, 1, "it is no pod of the pool any more");
    let running = hub.inspect(&Called::Id(RequestId(1))).unwrap();
    assert_eq!(running.pod.as_deref(), Some("pod-1 (gone)"));

    streamed.end(weir_core::EndKind::Complete, Some(7), None);
    assert_eq!(hub.pod_seen("pod-1").unwrap().leaving.unwrap().left, 1);
    drop(prefilled);
    assert!(hub.pod_seen("pod-1").is_none());
    assert_eq!(phases(&hub), [("pod-2".to_owned(), false)]);
    assert_settled(&hub);
}

#[tokio::test]
async fn what_is_asked_of_a_pod_that_has_left_holds_when_it_comes_back() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let running = hub.admit(request(&hub, 1)).verdict().await.unwrap();
    hub.remove_pod(PodId(1));
    let seen = hub.ask_pod("pod-1", Ask::Drain).unwrap();
    assert!(seen.has_left);
    assert_eq!(hub.held().pods, [("127.0.0.1:1".to_owned(), Ask::Drain)].into());
    // A pod that comes back under its name and address has the cordon of before: the roster sees to that.
    let before = hub.departed_called("pod-1").remove(0).pod;
    let back = Pod {
        cordon: before.cordon.clone(),
        ..Pod::new(PodId(2), "pod-1".into(), "127.0.0.1:1".into(), 0)
    };
    hub.add_pod(Arc::new(back));
    let seen = hub.pod_seen("pod-1").unwrap();
    let leaving = seen.leaving.unwrap();
    assert_eq!((seen.has_left, leaving.asked, leaving.left), (false, Ask::Drain, 1));
    drop(running);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_server_that_has_left_is_done_when_the_last_of_its_engines_is() {
    let (hub, _samples) = Fixture::default().hub();
    let engine = |rank: u16| Pod {
        address: format!("127.0.0.1:1@{rank}"),
        rank: Some(rank),
        server: "s".into(),
        ..Pod::new(PodId(rank.into()), format!("s@{rank}").into(), "127.0.0.1:1".into(), 0)
    };
    let mut running = Vec::new();
    for rank in 0..2 {
        hub.add_pod(Arc::new(engine(rank)));
        // Two requests on the first, one on the second.
        for number in 0..2 - rank {
            let id = u64::from(10 * rank + number);
            running.push(hub.admit(request(&hub, id)).verdict().await.unwrap());
        }
        hub.remove_pod(PodId(rank.into()));
    }
    let seen = hub.ask_pod("s", Ask::Drain).unwrap();
    assert_eq!((&*seen.detail.view.name, seen.leaving.unwrap().left), ("s@0", 2));
    let asked = ["127.0.0.1:1@0", "127.0.0.1:1@1"].map(|pod| (pod.to_owned(), Ask::Drain));
    assert_eq!(hub.held().pods, asked.into(), "both of them");
    running.drain(..2);
    let seen = hub.pod_seen("s").unwrap();
    assert_eq!((&*seen.detail.view.name, seen.leaving.unwrap().left), ("s@1", 1));
    running.clear();
    assert!(hub.pod_seen("s").is_none());
    assert_settled(&hub);
}

/// A hub without pods in which `count` requests wait, of tenants a and b in turn and bands 0 to 2.
fn waiting(count: u64) -> (Arc<Hub>, Vec<crate::hub::Ticket>) {
    let (hub, _samples) = Fixture::default().hub();
    let admit = |number| {
        let mut one = request(&hub, number);
        one.name = format!("r-{number}").into();
        one.tenant = Some(if number % 2 == 0 { "a" } else { "b" }.into());
        one.band = Band((number % 3) as i8);
        hub.admit(one)
    };
    let tickets = (0..count).map(admit).collect();
    (hub, tickets)
}

#[tokio::test]
async fn what_a_filter_leaves_is_paged_and_cancelled_after_a_dry_run() {
    let (hub, mut tickets) = waiting(1200);
    let filter = Filter { tenant: Some("a".into()), band: Some(Band(0)), ..Filter::default() };
    let first = hub.waiting_page(&filter, None, 150);
    assert_eq!(first.requests.len(), 150);
    let second = hub.waiting_page(&filter, first.next, 150);
    assert_eq!((second.requests.len(), second.next), (50, None));
    let tenth = &first.requests[10];
    assert_eq!((tenth.id, &*tenth.request_id), (RequestId(60), "r-60"));

    let dry = hub.cancel_matching(&filter, true);
    assert_eq!((dry.matched, dry.cancelled, dry.sample.len()), (200, 0, 20));
    assert_eq!(hub.summary().waiting, 1200);
    let done = hub.cancel_matching(&filter, false);
    assert_eq!((done.matched, done.cancelled), (200, 200));
    assert_eq!(hub.summary().waiting, 1000);
    let refusal = tickets[6].verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Cancelled);
    drop(tickets);
    assert_settled(&hub);
}

#[tokio::test]
async fn lanes_bands_and_tenants_are_listed_with_their_counts() {
    let (hub, tickets) = waiting(600);
    let queues = hub.queues();
    let depths: Vec<_> = queues.lanes.iter().map(|(lane, count)| (lane.depth, *count)).collect();
    assert_eq!(depths.len(), 3);
    for (depth, count) in depths {
        let count = count.unwrap();
        assert_eq!((depth, count.depth, count.bytes), (200, 200, 80_000));
        assert_eq!(count.risk.ok, 200, "two seconds have only begun");
    }
    assert_eq!(queues.lanes[0].0.band, Band(2), "the highest first");
    assert_eq!(queues.bands.len(), 3);
    assert_eq!(queues.census.tenants["a"].depth, 300);
    assert_eq!(hub.queues().census.counted, 600, "counted once in a second");
    drop(tickets);
    assert_eq!(hub.queues().lanes.len(), 0, "what is gone is not listed");
}

#[tokio::test]
async fn what_is_paused_waits_beside_a_free_pod_until_it_is_resumed() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let key = hub.lane_called("b0/i128/o128").unwrap();
    assert_eq!(hub.pause(Gate::Lane(key)), ["b0/i128/o128"]);
    assert_eq!(hub.pause(Gate::Band(Band(3))), ["b3", "b0/i128/o128"]);
    let mut ticket = hub.admit(request(&hub, 1));
    assert_eq!(hub.explain(RequestId(1)), Some(weir_core::Reason::Paused));
    let seen = hub.inspect(&Called::Id(RequestId(1))).unwrap();
    assert!(seen.pods[0].fits, "by itself it would fit");
    assert!(seen.explanation.contains("an operator has paused"), "{}", seen.explanation);
    assert!(hub.move_waiting(&Called::Id(RequestId(1)), Band(3)));
    assert_eq!(hub.resume(Gate::Lane(key)), ["b3"]);
    assert_eq!(hub.summary().waiting, 1, "its band is paused too");
    assert!(hub.resume(Gate::Pool).is_empty());
    drop(ticket.verdict().await.unwrap());
    let decisions = hub.decisions(0, 10, Some(&Called::Id(RequestId(1))));
    let kinds: Vec<_> = decisions.iter().map(|decision| decision.kind).collect();
    assert_eq!(kinds, ["dispatch", "move"], "newest first");
    drop(ticket);
    assert_settled(&hub);
}

#[test]
fn changes_that_several_make_at_once_are_all_counted_and_all_held() {
    let (hub, _samples) = Fixture::default().hub();
    let together = Barrier::new(4);
    thread::scope(|threads| {
        for band in 0..4 {
            let (hub, together) = (&hub, &together);
            threads.spawn(move || {
                together.wait();
                for _ in 0..500 {
                    hub.resume(Gate::Band(Band(band)));
                    hub.pause(Gate::Band(Band(band)));
                }
            });
        }
    });
    let held = hub.held();
    assert_eq!((held.version, held.gates.len()), (4000, 4));
}

#[tokio::test]
async fn a_sampler_sees_each_end_once() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let first = hub.sampling(0);
    for id in 0..3 {
        let lease = hub.admit(request(&hub, id)).verdict().await.unwrap();
        lease.first_token();
        lease.end(weir_core::EndKind::Complete, Some(5), None);
    }
    let second = hub.sampling(first.next_ended);
    assert_eq!(second.ended.len(), 3);
    assert!(second.ended.iter().all(|one| one.ttft_ms.is_some() && one.attained));
    assert_eq!(second.summary.bands[0].1, Tally { sent: 3, attained: 3, refused: 0 });
    assert!(hub.sampling(second.next_ended).ended.is_empty());
}

#[tokio::test]
async fn a_supposed_request_leaves_nothing_behind() {
    let (hub, _samples) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let before = format!("{:?}", hub.snapshot());
    let would = hub.suppose(&Supposition { input_tokens: 100, ..Supposition::default() });
    assert_eq!(would.pod.as_deref(), Some("pod-1"));
    assert_eq!(format!("{:?}", hub.snapshot()), before);
    assert_settled(&hub);
}

#[test]
fn digits_are_a_name_before_they_are_a_number() {
    let (name, twelve) = (|text: &str| Called::Name(text.to_owned()), Called::Id(RequestId(12)));
    assert_eq!(Called::readings("12"), [name("12"), twelve.clone()]);
    assert_eq!(Called::readings("#12"), [twelve]);
    for text in ["weir-1-2", "", "-1", "+1", "1.5", "99999999999999999999999999"] {
        assert_eq!(Called::readings(text), [name(text)]);
    }
    for text in ["#", "#x", "#+1"] {
        assert_eq!(Called::readings(text), []);
    }
}
