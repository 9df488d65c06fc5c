use weir_core::RequestId;

use super::*;
use crate::hub::fixture::{Fixture, assert_settled, pod, request};

#[tokio::test]
async fn a_call_whose_numbers_are_used_up_ends_and_leaves_nothing() {
    let (hub, _) = Fixture::default().hub();
    let mut guest = Guest::new(Circle::lone(hub.clone()), Out::default());
    let of_call = |call| Numbers::of_call(call).taken().start;
    let end = of_call(1);
    assert_eq!(end - of_call(0), 1 << 32);
    guest.numbers = Some(Numbers::new(end - 2..end));
    let now = hub.clock().now();
    let admit = |id| Errand::Admit(Box::new(Facts::of(&request(&hub, id), 0, now)));
    guest.run(admit(7)).unwrap();
    guest.run(admit(8)).unwrap();
    assert_eq!(hub.waiting(), 2);
    assert!(hub.explain(RequestId(end - 1)).is_some(), "by the last number");
    guest.run(admit(9)).unwrap_err();
    assert!(hub.explain(RequestId(end)).is_none(), "it is another call's");
    drop(guest);
    assert_settled(&hub);
}

#[tokio::test]
async fn a_call_that_asks_for_nothing_takes_no_numbers() {
    let (hub, _) = Fixture::default().hub();
    let mut guest = Guest::new(Circle::lone(hub), Out::default());
    guest.run(Errand::FirstToken(RequestId(1))).unwrap();
    assert!(guest.numbers.is_none());
}

#[tokio::test]
async fn what_is_asked_for_no_more_is_given_back_though_its_verdict_was_told() {
    let (hub, _) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let mut guest = Guest::new(Circle::lone(hub.clone()), Out::default());
    let facts = |ask| Facts::of(&request(&hub, 7), ask, hub.clock().now());
    guest.run(Errand::Admit(Box::new(facts(1)))).unwrap();
    let answered = guest.tickets.next().await.unwrap();
    guest.tell(answered).unwrap();
    assert_eq!(hub.snapshot().in_flight, 1);
    guest.run(Errand::Cancel(RequestId(7))).unwrap();
    assert_settled(&hub);
    // It may be asked for anew, and that has a verdict of its own.
    guest.run(Errand::Admit(Box::new(facts(3)))).unwrap();
    let answered = guest.tickets.next().await.unwrap().unwrap();
    assert_eq!((answered.0, answered.1), (RequestId(7), 3));
}
