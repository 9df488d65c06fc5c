//! Dispatchers and pods that come and go as dice have it.

use weir_core::PodView;

use super::{handover::come_and_go, *};

/// Pods of a member, by the last number of their address, with the number that each has there now.
type Here = [(u32, u32); 3];

/// A pod leaves, or has ended, and another joins at its address after a while.
async fn swap_pod(member: &Member, here: &mut Here, number: u32, dice: &mut SmallRng) {
    let (address, id) = &mut here[dice.random_range(0..3)];
    match dice.random_range(0..5) {
        0 => member.hub.remove_restarted(PodId(*id)),
        _ => member.hub.remove_pod(PodId(*id)),
    }
    for _ in 0..dice.random_range(0..30) {
        tokio::task::yield_now().await;
    }
    *id = number;
    member.hub.add_pod(pod(number, format!("10.0.0.{address}:8000")));
}

fn turn_over(member: &mut Member) {
    match member.worker {
        Some(_) => member.vanish(),
        None => member.appear(),
    }
}

/// As far as can be said where pods end: what ran on them may be told of afterwards. What dispatchers say to each other of requests that
/// are over may be on its way for a moment, and is in somebody's books meanwhile.
fn nothing_is_left(member: &Member) -> bool {
    let seen = member.hub.snapshot();
    let is_bare = |pod: &PodView| (pod.residents, pod.pending, pod.kv_tokens) == (0, 0, 0);
    let counters = &seen.counters;
    let refused: u64 = counters.refused.iter().map(|(_, count)| count).sum();
    let outcomes = counters.completed + counters.failed + counters.client_gone + counters.cancelled;
    let (came, went) = (counters.arrived + counters.adopted, counters.handed_over);
    member.hub.idle()
        && (seen.waiting, seen.waiting_bytes, seen.in_flight) == (0, 0, 0)
        && seen.pods.iter().all(is_bare)
        && came == outcomes + refused + went
}

#[tokio::test]
async fn whoever_comes_and_goes_and_whichever_pods_do_nothing_is_left() {
    for seed in 0..8 {
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut members = Member::several::<3>().await;
        let mut here = [0, 3, 6].map(|from| [1, 2, 3].map(|address| (address, from + address)));
        let mut numbers = 10..;
        for (member, pods) in members.iter().zip(&here) {
            for (address, id) in pods {
                member.hub.add_pod(pod(*id, format!("10.0.0.{address}:8000")));
            }
        }
        let mut clients = JoinSet::new();
        for id in 0..300 {
            let hub = members[dice.random_range(0..3)].hub.clone();
            let lot = SmallRng::seed_from_u64(seed * 1000 + id);
            clients.spawn(come_and_go(hub, id, 300, lot));
            if dice.random_bool(0.03) {
                turn_over(&mut members[dice.random_range(0..3)]);
            }
            if dice.random_bool(0.1) {
                let place = dice.random_range(0..3);
                let number = numbers.next().unwrap();
                swap_pod(&members[place], &mut here[place], number, &mut dice).await;
            }
            for _ in 0..dice.random_range(0..3) {
                tokio::task::yield_now().await;
            }
        }
        let outcomes = tokio::time::timeout(LONG, clients.join_all()).await.expect("all are over");
        assert_eq!(outcomes.len(), 300);
        let what = format!("nothing is left, seed {seed}");
        until(&what, || members.iter().all(nothing_is_left)).await;
    }
}

#[tokio::test]
async fn whoever_comes_and_goes_the_ledgers_hold_together_what_runs() {
    for seed in 0..8 {
        let mut dice = SmallRng::seed_from_u64(seed);
        let mut members = Member::several::<3>().await;
        for member in &members {
            (1..=3).for_each(|id| member.hub.add_pod(pod(id, format!("10.0.0.{id}:8000"))));
        }
        let mut running = Vec::new();
        for id in 0..30 {
            let mut ticket = members[dice.random_range(0..3)].admit(id);
            let lease = ticket.verdict().await.unwrap();
            if dice.random_bool(0.7) {
                lease.first_token();
            }
            running.push((lease, ticket));
        }
        for _ in 0..20 {
            turn_over(&mut members[dice.random_range(0..3)]);
            for _ in 0..dice.random_range(0..200) {
                tokio::task::yield_now().await;
            }
        }
        members.iter_mut().filter(|member| member.worker.is_none()).for_each(Member::appear);
        let in_flight = || [0, 1, 2].map(|place: usize| members[place].hub.snapshot().in_flight);
        until("all of it is in the first one's", || in_flight() == [running.len(), 0, 0]).await;
        drop(running);
        for member in &members {
            until("it is over", || member.hub.idle()).await;
            assert_settled(&member.hub);
        }
    }
}
