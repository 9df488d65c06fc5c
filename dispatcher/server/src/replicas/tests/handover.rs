//! Another one decides than before.

use weir_core::{
    Learned,
    prefix::{Cached, Part},
};

use super::*;
use crate::{fleet::pod::Witness, replicas::call::QUEUED};

/// One request of a client that may leave at any moment, over a network that may lose it before its pod. Its response is of so many events
/// at most.
pub(super) async fn come_and_go(
    hub: Arc<Hub>,
    id: u64,
    most: u32,
    mut dice: SmallRng,
) -> &'static str {
    let mut ticket = hub.admit(request(&hub, id));
    if dice.random_bool(0.1) {
        tokio::task::yield_now().await;
        return "left";
    }
    loop {
        let Ok(mut lease) = ticket.verdict().await else { return "refused" };
        for _ in 0..dice.random_range(0..20) {
            tokio::task::yield_now().await;
        }
        if dice.random_bool(0.1) {
            lease.undelivered(&mut ticket);
            continue;
        }
        lease.first_token();
        for events in 1..dice.random_range(2..most) {
            lease.carried(events, hub.clock().now());
            tokio::task::yield_now().await;
        }
        if dice.random_bool(0.1) {
            return "left";
        }
        lease.end(EndKind::Complete, Some(30), Some(100));
        return "served";
    }
}

#[tokio::test]
async fn what_waits_is_decided_anew_when_who_decides_is_gone() {
    let [mut elder, middle, younger] = Member::several().await;
    let tickets = [younger.admit(1), younger.admit(2)];
    until("both wait there", || elder.waiting() == 2).await;
    middle.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let [mut first, second] = tickets;
    assert!(first.verdict().now_or_never().is_none(), "no pod is known where it is decided");
    let while_it_waits = Duration::from_millis(20);
    tokio::time::sleep(while_it_waits).await;
    elder.vanish();
    middle.follows(None).await;
    let lease = first.verdict().await.unwrap();
    assert!(lease.dispatch().waited >= while_it_waits, "since it arrived");
    until("the other one came, too", || middle.hub.snapshot().counters.arrived == 2).await;
    drop((lease, first, second));
    until("everything is over", || middle.hub.idle() && younger.hub.idle()).await;
    assert_settled(&middle.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn streams_outlive_who_decided_for_them() {
    let [mut elder, younger] = Member::several().await;
    elder.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let lease = ticket.verdict().await.unwrap();
    lease.first_token();
    let mut undelivered = younger.admit(2);
    let second = undelivered.verdict().await.unwrap();
    elder.vanish();
    younger.follows(None).await;
    assert_eq!(younger.hub.snapshot().in_flight, 2, "in the ledger here now");
    // What did not reach its pod is decided here, with the pod that it has not failed on here.
    younger.hub.add_pod(pod(2, "10.0.0.2:8000"));
    second.undelivered(&mut undelivered);
    let again = undelivered.verdict().await.unwrap();
    assert_eq!(again.pod().id, PodId(2));
    again.end(EndKind::Complete, Some(3), None);
    lease.end(EndKind::Complete, Some(3), None);
    let counters = younger.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.completed), (2, 2));
    assert_settled(&younger.hub);
    assert_settled(&elder.hub);
}

#[tokio::test]
async fn whoever_decides_next_has_everybodys_streams_in_its_ledger() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
    }
    let mut tickets = [middle.admit(1), younger.admit(1), younger.admit(2)];
    let mut leases = Vec::new();
    for ticket in &mut tickets {
        leases.push(ticket.verdict().await.unwrap());
    }
    for (lease, member) in leases.iter_mut().zip([&middle, &younger]) {
        lease.first_token();
        lease.carried(40, member.hub.clock().now());
    }
    until("it is known where it is decided", || ledger(&elder).2 >= 280).await;
    let before = ledger(&elder);
    assert_eq!((before.0, before.1), (1, 2));
    elder.vanish();
    middle.follows(None).await;
    until("all of it is known where it is decided now", || ledger(&middle) == before).await;
    younger.follows(Some(middle.config.listen)).await;
    assert_eq!(ledger(&younger), (0, 0, 0), "it is in one ledger at a time");

    // From then on it is told there.
    leases[1].carried(90, younger.hub.clock().now());
    leases[2].first_token();
    until("it goes by the tokens there", || ledger(&middle).2 >= 430).await;
    assert_eq!(ledger(&middle).0, 0);
    leases.into_iter().for_each(|lease| lease.end(EndKind::Complete, Some(90), Some(100)));
    until("it is over", || middle.hub.idle() && younger.hub.idle()).await;
    let counters = middle.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.completed, counters.arrived), (3, 3, 0));
    for member in [&elder, &middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn what_did_not_reach_its_pod_is_decided_by_whoever_took_it_over() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        member.hub.add_pod(pods());
    }
    // The one that takes over does not know the pod of the second.
    let other = |id| pod(id, "10.0.0.2:8000");
    let mut first = younger.admit(1);
    let lease = first.verdict().await.unwrap();
    elder.hub.remove_pod(PodId(1));
    elder.hub.add_pod(other(2));
    younger.hub.add_pod(other(2));
    let mut second = younger.admit(2);
    let unknown = second.verdict().await.unwrap();
    elder.vanish();
    middle.follows(None).await;
    until("one of them is in the ledger", || middle.hub.snapshot().in_flight == 1).await;
    younger.follows(Some(middle.config.listen)).await;
    // All that was handed over is there with what comes after it.
    let mut third = younger.admit(3);
    drop(third.verdict().await.unwrap());
    middle.hub.add_pod(other(7));
    lease.undelivered(&mut first);
    unknown.undelivered(&mut second);
    for ticket in [&mut first, &mut second] {
        ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    }
    until("it is over", || middle.hub.idle() && younger.hub.idle()).await;
    let counters = middle.hub.snapshot().counters;
    assert_eq!((counters.adopted, counters.requeued, counters.arrived), (1, 1, 2));
    for member in [&middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn those_that_hear_each_other_again_have_one_ledger_and_one_queue() {
    let all = addresses::<3>();
    let [middle, younger] = [1, 2].map(|place| Member::start(place, &all, SECRET));
    younger.follows(Some(all[1])).await;
    for member in [&middle, &younger] {
        member.hub.add_pod(pods());
    }
    let mut tickets = [middle.admit(1), younger.admit(1)];
    let mut leases = Vec::new();
    for ticket in &mut tickets {
        leases.push(ticket.verdict().await.unwrap());
    }
    middle.hub.pause(Gate::Pool);
    let waits = [middle.admit(2), younger.admit(2), middle.admit(3)];
    until("they wait", || middle.waiting() == 3).await;
    // The first in rank had not been heard.
    let elder = Member::start(0, &all, SECRET);
    elder.hub.add_pod(pod(4, "10.0.0.1:8000"));
    elder.hub.pause(Gate::Pool);
    middle.follows(Some(all[0])).await;
    younger.follows(Some(all[0])).await;
    until("all of it is there", || {
        let seen = elder.hub.snapshot();
        (seen.waiting, seen.in_flight) == (3, 2)
    })
    .await;
    until("and nowhere else", || {
        let seen = middle.hub.snapshot();
        (seen.waiting, seen.in_flight) == (0, 0)
    })
    .await;
    drop((leases, tickets, waits));
    until("it is over", || elder.hub.idle() && middle.hub.idle() && younger.hub.idle()).await;
    for member in [&elder, &middle, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn one_that_is_asked_to_stop_hands_its_own_streams_over() {
    let [elder, younger] = Member::several().await;
    for member in [&elder, &younger] {
        member.hub.add_pod(pods());
    }
    let mut ticket = elder.admit(1);
    let mut lease = ticket.verdict().await.unwrap();
    lease.first_token();
    lease.carried(20, elder.hub.clock().now());
    elder.hub.pause(Gate::Pool);
    until("it is held there too", || younger.hub.held() == elder.hub.held()).await;
    let waits = elder.admit(2);
    elder.life.move_on(Stage::Draining);
    until("both are there", || {
        let seen = younger.hub.snapshot();
        (seen.in_flight, seen.waiting) == (1, 1)
    })
    .await;
    assert_eq!((elder.hub.snapshot().in_flight, elder.waiting()), (0, 0));
    assert!(!elder.hub.idle(), "it has a stream to finish");
    lease.end(EndKind::Complete, Some(20), None);
    drop((ticket, waits));
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
    assert_eq!(younger.hub.snapshot().counters.completed, 1);
    for member in [&elder, &younger] {
        assert_settled(&member.hub);
    }
}

#[tokio::test]
async fn more_than_a_channel_holds_is_handed_over_all_the_same() {
    let all = addresses::<2>();
    let younger = Member::start(1, &all, SECRET);
    let waits: Vec<Ticket> = (0..QUEUED as u64 * 5 / 4).map(|id| younger.admit(id)).collect();
    let elder = Member::start(0, &all, SECRET);
    younger.follows(Some(all[0])).await;
    until("they wait there", || elder.waiting() == waits.len()).await;
    assert_eq!(elder.circle.view().changes, 0);
    assert_eq!(younger.circle.view().changes, 1, "nobody was given up meanwhile");
    drop(waits);
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
}

#[tokio::test]
async fn what_runs_on_is_counted_by_gauges_once_who_decided_is_gone() {
    let [mut elder, younger] = Member::several().await;
    younger.hub.add_pod(pods());
    let elsewhere = || {
        let scrape = Scrape { running: 5, ..Scrape::default() };
        younger.hub.post(Event::Scraped(PodId(1), scrape));
        younger.hub.snapshot().pods[0].elsewhere
    };
    assert_eq!(elsewhere(), 0, "at other times that is the noise of scrapes");
    elder.vanish();
    younger.follows(None).await;
    assert_eq!(elsewhere(), 5);
}

#[tokio::test]
async fn who_has_handed_over_what_waits_has_lost_sight_of_nothing() {
    let [mut elder, younger] = Member::several().await;
    elder.hub.add_pod(pods());
    elder.hub.pause(Gate::Pool);
    let waits = younger.admit(1);
    until("it waits there", || elder.waiting() == 1).await;
    elder.life.move_on(Stage::Draining);
    until("it waits here", || younger.waiting() == 1).await;
    elder.vanish();
    let scrape = Scrape { running: 5, ..Scrape::default() };
    elder.hub.post(Event::Scraped(PodId(1), scrape));
    assert_eq!(elder.hub.snapshot().pods[0].elsewhere, 0, "that is the noise of scrapes");
    drop(waits);
}

#[tokio::test]
async fn whoever_decides_next_knows_what_is_cached_where() {
    let [mut elder, middle, younger] = Member::several().await;
    for member in [&elder, &middle, &younger] {
        (1..=3).for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
    }
    let with_blocks = |hub: &Arc<Hub>, id: u64, prompt: u64| {
        let blocks = (prompt * 1000..prompt * 1000 + 300).collect::<Vec<u64>>();
        let mut one = request(hub, id);
        (one.prompt, one.blocks) = (PromptSize::Bytes(38_400), Arc::from(blocks));
        hub.admit(one)
    };
    let mut went = Vec::new();
    // Prompts of all three, each of which leaves before the next one comes: all would go to the first pod otherwise.
    let mut held = Vec::new();
    for (prompt, member) in [&elder, &middle, &younger].into_iter().enumerate() {
        let mut ticket = with_blocks(&member.hub, 100, prompt as u64);
        let lease = ticket.verdict().await.unwrap();
        went.push(lease.pod().name.clone());
        held.push((lease, ticket));
    }
    for (lease, _ticket) in held {
        lease.end(EndKind::Complete, Some(200), Some(11_520));
    }
    until("they are over where it is decided", || elder.hub.idle()).await;
    let learned = |member: &Member| member.hub.snapshot().tokens_per_byte;
    assert!(learned(&elder) > 0.28, "{}", learned(&elder));
    until("all have learned of them", || learned(&middle) == learned(&elder)).await;
    let distinct: std::collections::BTreeSet<_> = went.iter().collect();
    assert_eq!(distinct.len(), 3, "{went:?}");
    elder.vanish();
    middle.follows(None).await;
    for prompt in (0..3).rev() {
        let mut ticket = with_blocks(&younger.hub, 200 + prompt, prompt);
        let lease = ticket.verdict().await.unwrap();
        assert_eq!(lease.pod().name, went[prompt as usize], "where it is cached");
        lease.end(EndKind::Complete, Some(200), None);
        until("it is over", || middle.hub.idle()).await;
    }
}

#[tokio::test]
async fn one_that_joins_is_told_what_is_known_and_goes_on_from_that() {
    let all = addresses::<2>();
    let mut elder = Member::start(0, &all, SECRET);
    let ids = 1..=3;
    let add_pods = |member: &Member| {
        ids.clone().for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
    };
    add_pods(&elder);
    let prompt = |id: u64| Arc::<[u64]>::from((id * 1000..id * 1000 + 300).collect::<Vec<u64>>());
    for id in ids.clone() {
        elder.hub.recall_on(PodId(id), Cached(vec![Part::Prompt(prompt(id.into()))]));
    }
    let held = Learned { held: 0.31, ..elder.hub.learned() };
    elder.hub.recall(held);
    let younger = Member::start(1, &all, SECRET);
    // The last of them it sees later than it is told of it, and knows only then how much its cache holds.
    let late = pod(3, "10.0.0.3:8000".to_owned());
    for _ in 0..3 {
        late.breaker.scrape_failed();
    }
    (1..=2).for_each(|id| younger.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
    younger.hub.add_pod(late.clone());
    younger.follows(Some(all[0])).await;
    until("it has learned", || younger.hub.learned() == elder.hub.learned()).await;
    assert!(younger.hub.cached_on(PodId(3)).is_empty());
    younger.hub.recall_cached(&late, &Witness::default());
    for id in ids.map(PodId) {
        let (here, there) = (&younger.hub, &elder.hub);
        until("it knows the caches", || here.cached_on(id) == there.cached_on(id)).await;
    }
    elder.vanish();
    younger.follows(None).await;
    assert_eq!(younger.hub.learned().held, 0.31);
    let mut one = request(&younger.hub, 7);
    (one.prompt, one.blocks) = (PromptSize::Bytes(38_400), prompt(2));
    let mut ticket = younger.hub.admit(one);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(lease.pod().authority, "10.0.0.2:8000");
    drop(lease);
}

#[tokio::test]
async fn one_that_is_asked_to_stop_leaves_decisions_to_the_next() {
    let [elder, younger] = Member::several().await;
    let ticket = younger.admit(1);
    until("it waits there", || elder.waiting() == 1).await;
    elder.life.move_on(Stage::Draining);
    younger.follows(None).await;
    until("it waits here", || younger.waiting() == 1).await;
    until("and there no more", || elder.hub.idle()).await;
    // What still comes to it is asked of the one that stays.
    until("the elder asks", || elder.circle.view().lead.is_some()).await;
    let late = elder.admit(1);
    until("both wait here", || younger.waiting() == 2).await;
    drop((ticket, late));
    until("it is over", || younger.hub.idle()).await;
    assert_settled(&younger.hub);
    assert_settled(&elder.hub);
}

#[tokio::test]
async fn whoever_vanishes_every_request_has_one_outcome_and_every_ledger_is_empty() {
    for seed in 0..12 {
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut members = Member::several::<3>().await;
        for member in &members {
            (1..=3).for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
        }
        let mut clients = JoinSet::new();
        let vanishes = [dice.random_range(0..300), dice.random_range(0..300)];
        let appears = [dice.random_range(0..300), dice.random_range(0..300)];
        for id in 0..300 {
            let hub = members[dice.random_range(0..3)].hub.clone();
            let lot = SmallRng::seed_from_u64(seed * 1000 + id);
            clients.spawn(come_and_go(hub, id, 30, lot));
            // A dispatcher that cannot be heard any more, while its own clients go on.
            for (place, at) in vanishes.into_iter().enumerate() {
                if at == id && members[place].worker.is_some() {
                    members[place].vanish();
                }
            }
            for (place, at) in appears.into_iter().enumerate() {
                if at == id && members[place].worker.is_none() {
                    members[place].appear();
                }
            }
            tokio::task::yield_now().await;
        }
        let outcomes = tokio::time::timeout(LONG, clients.join_all()).await.expect("all are over");
        assert_eq!(outcomes.len(), 300);
        for member in &members {
            until("nothing is left", || member.hub.idle()).await;
            assert_settled(&member.hub);
        }
    }
}

#[tokio::test]
async fn what_was_given_a_pod_that_has_left_has_an_outcome_whoever_decides_then() {
    let [mut elder, younger] = Member::several().await;
    elder.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let lease = ticket.verdict().await.unwrap();
    younger.hub.remove_restarted(PodId(1));
    elder.vanish();
    younger.follows(None).await;
    lease.undelivered(&mut ticket);
    assert!(ticket.verdict().now_or_never().is_none(), "it waits for a pod");
    younger.hub.add_pod(pod(2, "10.0.0.2:8000"));
    ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn what_an_operator_has_paused_waits_on_where_it_is_handed_over_to() {
    let all = addresses::<2>();
    let younger = Member::start(1, &all, SECRET);
    younger.hub.add_pod(pods());
    younger.hub.pause(Gate::Pool);
    let mut waits: Vec<Ticket> = (0..6).map(|id| younger.admit(id)).collect();
    let elder = Member::start(0, &all, SECRET);
    elder.hub.add_pod(pods());
    younger.follows(Some(all[0])).await;
    until("they wait there", || elder.waiting() == 6).await;
    until("and it is held there", || elder.hub.held() == younger.hub.held()).await;
    assert_eq!(elder.hub.snapshot().counters.dispatched, 0);
    assert!(waits.iter_mut().all(|ticket| ticket.verdict().now_or_never().is_none()));
    drop(waits);
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
    assert_settled(&elder.hub);
    assert_settled(&younger.hub);
}

#[tokio::test]
async fn one_that_stops_has_handed_over_what_others_had_there() {
    let [elder, younger] = Member::several().await;
    elder.hub.add_pod(pods());
    younger.hub.add_pod(pods());
    let mut ticket = younger.admit(1);
    let lease = ticket.verdict().await.unwrap();
    lease.first_token();
    elder.hub.pause(Gate::Pool);
    let waits = younger.admit(2);
    until("it waits there", || elder.waiting() == 1).await;
    elder.life.move_on(Stage::Draining);
    younger.follows(None).await;
    until("nothing is left there", || elder.hub.idle()).await;
    let counters = elder.hub.snapshot().counters;
    assert_eq!((counters.handed_over, counters.client_gone, counters.cancelled), (2, 0, 0));
    lease.end(EndKind::Complete, None, None);
    drop((ticket, waits));
    assert_settled(&elder.hub);
    until("it is over", || younger.hub.idle()).await;
    assert_settled(&younger.hub);
}
