//! The operator's methods over the real scheduler.

use weir_core::PodId;

use super::*;
use crate::hub::fixture::{Fixture, assert_settled, pod, request};

#[tokio::test]
async fn a_waiting_request_is_cancelled_by_the_name_its_client_gave_it() {
    let (hub, _samples) = Fixture::default().hub();
    let mut named = request(&hub, 1);
    named.name = "mine".into();
    let mut ticket = hub.admit(named);
    assert!(!hub.cancel_waiting(&Called::parse("yours")));
    assert!(hub.cancel_waiting(&Called::parse("mine")));
    assert!(!hub.cancel_waiting(&Called::parse("1")));
    let refusal = ticket.verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::Cancelled);
    let seen = hub.inspect(&Called::parse("mine")).unwrap();
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
