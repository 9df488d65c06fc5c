//! Every view of the board agrees with what waits, whatever comes, leaves and moves.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{PodId, PromptSize, Reason, Request, policy::Order, queue::order};

fn waiting(id: u64, band: i8, at_ms: u64, ttl: Option<Duration>) -> Waiting {
    let arrived = Time::from_millis(at_ms);
    let request = Request {
        band: Band(band),
        body_bytes: 7,
        expires: ttl.map_or(Time::NEVER, |ttl| arrived.plus(ttl)),
        ..Request::new(RequestId(id), arrived, PromptSize::Tokens(100))
    };
    let pattern = Pattern::of(&BucketEdges::default(), Band(band), 100, 10, None);
    let due = order::due(&request, 100, Order::Deadline, Duration::ZERO);
    Waiting::new(Box::new(request), (100, 10), pattern, due)
}

#[derive(Clone, Debug)]
enum Step {
    Come { band: i8, at_ms: u64, bounded: bool },
    Leave(prop::sample::Index),
    Demote(prop::sample::Index),
    Move(prop::sample::Index, i8),
}

fn step() -> impl Strategy<Value = Step> {
    let band = -1..3i8;
    prop_oneof![
        3 => (band.clone(), 0..50u64, any::<bool>())
            .prop_map(|(band, at_ms, bounded)| Step::Come { band, at_ms, bounded }),
        2 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => any::<prop::sample::Index>().prop_map(Step::Demote),
        1 => (any::<prop::sample::Index>(), band).prop_map(|(which, band)| Step::Move(which, band)),
    ]
}

proptest! {
    #[test]
    fn the_board_s_views_agree_with_what_waits(steps in prop::collection::vec(step(), 0..80)) {
        let mut board = Board::default();
        for (id, step) in (0..).zip(steps) {
            let ids = board.ids();
            let named = |which: prop::sample::Index| match ids.len() {
                0 => RequestId(u64::MAX),
                _ => *which.get(&ids),
            };
            match step {
                Step::Come { band, at_ms, bounded } => {
                    let ttl = bounded.then_some(Duration::from_secs(1));
                    board.insert(waiting(id, band, at_ms, ttl));
                }
                Step::Leave(which) => drop(board.remove(named(which))),
                Step::Demote(which) => board.demote(named(which)),
                Step::Move(which, band) => board.move_to(named(which), Band(band)),
            }
            board.check();
        }
    }

    #[test]
    fn what_is_listed_from_behind_a_request_is_what_came_after_it(
        came in prop::collection::vec((-1..3i8, 0..30u64), 0..40),
        after in (0..30u64, 0..40u64),
        band in prop::option::of((-1..3i8).prop_map(Band)),
    ) {
        let mut board = Board::default();
        for (id, (band, at_ms)) in (0..).zip(&came) {
            board.insert(waiting(id, *band, *at_ms, None));
        }
        let after = (Time::from_millis(after.0), RequestId(after.1));
        let listed: Vec<Age> = board
            .behind(band, Some(after))
            .map(|waiting| (waiting.request.arrived, waiting.request.id))
            .collect();
        let all = (0..).zip(&came).filter(|(_, (one, _))| band.is_none_or(|band| band == Band(*one)));
        let ages = all.map(|(id, (_, at_ms))| (Time::from_millis(*at_ms), RequestId(id)));
        let mut wanted: Vec<Age> = ages.filter(|age| *age > after).collect();
        wanted.sort_unstable();
        prop_assert_eq!(listed, wanted);
    }
}

#[test]
fn what_was_found_of_a_head_is_not_another_s_and_not_its_own_in_another_place() {
    let mut board = Board::default();
    let leave: [fn(&mut Board, RequestId); 3] = [
        |board, id| drop(board.remove(id)),
        |board, id| board.demote(id),
        |board, id| board.move_to(id, Band(1)),
    ];
    // More than are kept for their memory.
    for (id, leave) in (0..4 * SPARE_STANDINGS as u64).zip(leave.iter().cycle()) {
        let (head, next) = (RequestId(2 * id), RequestId(2 * id + 1));
        board.insert(waiting(head.0, 0, id, None));
        board.insert(waiting(next.0, 0, id, None));
        *board.standing_of(head).unwrap() = Standing::example();
        leave(&mut board, head);
        assert!(board.standing_of(next).unwrap().is_blank(), "of {next:?}");
        assert!(board.get(head).is_none() || board.standing_of(head).unwrap().is_blank());
    }
}

#[test]
fn only_what_goes_first_in_its_lane_keeps_what_was_found_on_arrival() {
    let mut board = Board::default();
    let found = |mut waiting: Waiting| {
        waiting.standing = Some(Box::new(Standing::example()));
        waiting
    };
    board.insert(found(waiting(1, 0, 10, None)));
    board.insert(found(waiting(2, 0, 20, None)));
    let [head, next] = [1, 2].map(|id| board.get(RequestId(id)).unwrap());
    assert_eq!((head.reason(), head.claim()), (Reason::KvFull, Some(PodId(1))));
    assert_eq!(head.matches().len(), 1);
    assert_eq!((next.reason(), next.claim()), (Reason::NotConsidered, None));
    assert!(next.matches().is_empty() && next.standing.is_none());
    board.demote(RequestId(1));
    let late = board.get(RequestId(1)).unwrap();
    assert_eq!((late.reason(), late.claim()), (Reason::Late, None));
    assert!(board.blank().is_blank(), "what is kept for its memory says nothing");
}

#[test]
fn a_request_is_as_urgent_as_it_gets_when_its_spare_time_is_over_and_not_urgent_when_it_is_late() {
    let mut one = waiting(1, 0, 1000, None);
    one.spare_ms = 2000.0;
    let urgency =
        |one: &Waiting| [1000, 2000, 3000, 9000].map(|at_ms| one.urgency(Time::from_millis(at_ms)));
    assert_eq!(urgency(&one), [0.0, 0.5, 1.0, 1.0]);
    one.late = true;
    assert_eq!(urgency(&one), [0.0; 4]);
    let unpromised = waiting(2, 0, 0, None);
    let half = unpromised.urgency(Time::from_millis(30_000));
    assert!((half - 0.5).abs() < 1e-6, "its patience is a minute");
}
