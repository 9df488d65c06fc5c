//! What waits goes to whoever decides now.

use std::{sync::Arc, time::Duration};

use async_channel::Receiver;
use futures_util::FutureExt;
use weir_core::{Band, EndKind, Gate, RefusalReason, Request, RequestId};
use weir_schema::Prediction;

use super::{
    Ticket,
    errand::{Ask, Errand, Given, Refused, Word},
    fixture::{Fixture, assert_settled, pod, request},
    handover::SLICE,
    led::{Errands, Lead},
};

fn leads<const N: usize>() -> [(Arc<Lead>, Receiver<Errands>); N] {
    [(); N].map(|()| {
        let (errands, due) = async_channel::bounded(4096);
        (Lead::new("elsewhere".to_owned(), errands), due)
    })
}

/// What a lead was told since.
fn told(to: &Receiver<Errands>) -> Vec<Errand> {
    std::iter::from_fn(|| to.try_recv().ok()).flatten().collect()
}

/// The requests that it was asked for, and which asking each is.
fn asked(to: &Receiver<Errands>) -> Vec<(RequestId, Ask)> {
    let ask = |errand| match errand {
        Errand::Admit(facts) => Some((facts.id, facts.ask)),
        _ => None,
    };
    told(to).into_iter().filter_map(ask).collect()
}

fn given(id: u64, ask: Ask) -> Word {
    Word::Give(Given {
        id: RequestId(id),
        ask,
        pod: "127.0.0.1:1".to_owned(),
        attempt: 1,
        uncached_tokens: 0.0,
        prediction: Prediction::default(),
        tokens_per_event: 1.0,
    })
}

#[tokio::test]
async fn what_waits_is_taken_over_in_slices_the_higher_bands_first_and_others_come_between() {
    let (hub, _) = Fixture::default().hub();
    let [(lead, to_lead)] = leads();
    hub.follow(Some(lead.clone()));
    let last = 3 * SLICE as u64 - 1;
    let mut tickets: Vec<Ticket> = (0..last).map(|id| hub.admit(request(&hub, id))).collect();
    tickets.push(hub.admit(Request { band: Band(1), ..request(&hub, last) }));
    let asks = asked(&to_lead);
    assert_eq!(asks.len(), tickets.len());
    hub.turn_to(None);
    assert_eq!(hub.waiting(), 0);
    assert!(hub.move_on());
    assert_eq!(hub.waiting(), SLICE);
    assert!(hub.explain(RequestId(last)).is_some(), "it is of a higher band");

    // A client of the rest leaves, a verdict comes from who decides no more, and somebody comes.
    drop(tickets.swap_remove(SLICE + 1));
    let (id, ask) = asks[SLICE];
    hub.pause(Gate::Pool);
    hub.add_pod(pod(1, "127.0.0.1:1"));
    assert_eq!(hub.hear(&lead, given(id.0, ask)), None);
    assert!(tickets[SLICE].verdict().now_or_never().is_none());
    let newcomer = hub.admit(request(&hub, last + 1));
    assert_eq!(hub.waiting(), SLICE + 1);
    while hub.move_on() {}
    assert_eq!(hub.waiting(), tickets.len() + 1);
    let cancelled = |errand: &Errand| matches!(errand, Errand::Cancel(_));
    assert_eq!(told(&to_lead).iter().filter(|errand| cancelled(errand)).count(), asks.len());
    drop((tickets, newcomer));
    assert_settled(&hub);
}

#[tokio::test]
async fn nothing_is_given_out_here_while_what_waits_goes_elsewhere() {
    let (hub, _) = Fixture::default().hub();
    let [(lead, to_lead)] = leads();
    let own = 2 * SLICE;
    let mut tickets: Vec<Ticket> = (0..own).map(|id| hub.admit(request(&hub, id as u64))).collect();
    // That of another dispatcher stays until that one asks elsewhere.
    let mut guest = hub.admit(request(&hub, 1 << 48));
    hub.turn_to(Some(lead));
    // As empty as the ledger seems once what ran has gone on.
    hub.add_pod(pod(1, "127.0.0.1:1"));
    assert!(hub.move_on());
    assert_eq!((hub.snapshot().counters.dispatched, hub.waiting()), (0, own - SLICE + 1));
    assert!(!hub.move_on());
    assert!(asked(&to_lead).into_iter().map(|(id, _)| id.0).eq(0..own as u64));
    let lease = guest.verdict().now_or_never().expect("it is given a pod again");
    lease.unwrap().end(EndKind::Complete, None, None);
    assert_eq!(hub.snapshot().counters.dispatched, 1);
    assert!(tickets.iter_mut().all(|ticket| ticket.verdict().now_or_never().is_none()));
    drop((tickets, guest));
    assert_settled(&hub);
}

#[tokio::test]
async fn a_verdict_is_that_of_the_asking_that_it_was_said_to() {
    let (hub, _) = Fixture::default().hub();
    hub.add_pod(pod(1, "127.0.0.1:1"));
    let [(first, to_first), (second, _to_second)] = leads();
    hub.follow(Some(first.clone()));
    let mut ticket = hub.admit(request(&hub, 1));
    // Another one decides for a moment, and then the first again.
    hub.follow(Some(second));
    hub.follow(Some(first.clone()));
    let asks = asked(&to_first);
    let [(_, before), (_, now)] = asks[..] else { panic!("{asks:?}") };
    let refuse = |ask| {
        let (id, retry_after) = (RequestId(1), Duration::ZERO);
        Word::Refuse(Refused { id, ask, reason: RefusalReason::MaxWait, retry_after })
    };
    let give = |ask| given(1, ask);
    for late in [refuse(before), give(before)] {
        assert_eq!(hub.hear(&first, late), None, "it was told that nobody waits for that");
        assert!(ticket.verdict().now_or_never().is_none());
    }
    assert_eq!(hub.hear(&first, give(now)), None);
    ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    assert_settled(&hub);
}
