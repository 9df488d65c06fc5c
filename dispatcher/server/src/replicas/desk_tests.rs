use weir_core::RequestId;

use super::*;
use crate::hub::fixture::{Fixture, assert_settled, request};

#[tokio::test]
async fn a_call_whose_numbers_are_used_up_ends_and_leaves_nothing() {
    let (hub, _) = Fixture::default().hub();
    let mut guest = Guest::new(Circle::lone(hub.clone()), Out::default());
    let of_call = |call| Numbers::of_call(call).taken().start;
    let end = of_call(1);
    assert_eq!(end - of_call(0), 1 << 32);
    guest.numbers = Some(Numbers::new(end - 2..end));
    let now = hub.clock().now();
    let admit = |id| Errand::Admit(Box::new(Facts::of(&request(&hub, id), now)));
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
