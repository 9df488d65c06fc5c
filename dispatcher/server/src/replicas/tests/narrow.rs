//! Ways that are narrow, or do not lead everywhere.

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use weir_core::{Bounds, Request, RequestId, SchedulerConfig};
use weir_schema::Prediction;

use super::*;
use crate::hub::errand::{Errand, Given, Word};
use wire::{Asks, Hello, Out, Says, Values};

/// One that is followed and does nothing by itself.
struct Decider {
    asks: Values<OwnedReadHalf>,
    says: OwnedWriteHalf,
    out: Out,
}

impl Decider {
    async fn called(listener: &tokio::net::TcpListener) -> Self {
        let (from, says) = listener.accept().await.unwrap().0.into_split();
        let mut decider = Self { asks: Values::new(from), says, out: Out::default() };
        let hello: Hello = decider.asks.next().await.unwrap();
        let nonce = [2; 32];
        let nonces = [&hello.nonce, &nonce];
        let proof = proof(&SECRET, Side::Called, nonces);
        decider.say(&Welcome::Prove { nonce, proof }).await;
        let _: [u8; 32] = decider.asks.next().await.unwrap();
        decider.asks.seal(Seals::new(&SECRET, Side::Caller, nonces));
        decider.out.seal(Seals::new(&SECRET, Side::Called, nonces));
        decider.say(&Welcome::Come(Rank { started_unix_ms: 0, lot: 0 })).await;
        decider
    }

    async fn say<T: serde::Serialize>(&mut self, value: &T) {
        self.out.put(value).unwrap();
        self.out.send(&mut self.says).await.unwrap();
    }

    /// The next request that it is to decide, and which asking that is.
    async fn asked(&mut self) -> (RequestId, u32) {
        loop {
            if let Asks::Errand(Errand::Admit(facts)) = self.asks.next().await.unwrap() {
                return (facts.id, facts.ask);
            }
        }
    }
}

#[tokio::test]
async fn a_verdict_is_heard_while_there_is_more_to_say_than_is_taken() {
    let all = addresses::<2>();
    let listener = tokio::net::TcpListener::bind(all[0]).await.unwrap();
    let member = Member::start(1, &all, SECRET);
    member.hub.add_pod(pods());
    let mut decider = Decider::called(&listener).await;
    member.follows(Some(all[0])).await;
    let mut first = member.admit(1);
    let (id, ask) = decider.asked().await;
    // Some 70 MB, of which a connection holds less than what is left when some of it was read.
    let blocks: Arc<[u64]> = (0..30_000).collect();
    let long = |id| Request { blocks: blocks.clone(), ..request(&member.hub, id) };
    let more: Vec<Ticket> = (2..300).map(|id| member.hub.admit(long(id))).collect();
    for _ in 0..64 {
        decider.asked().await;
    }
    let (pod, prediction) = ("10.0.0.1:8000".to_owned(), Prediction::default());
    let given =
        Given { id, ask, pod, attempt: 1, uncached_tokens: 0.0, prediction, tokens_per_event: 1.0 };
    decider.say(&Says::Word(Word::Give(given))).await;
    let lease = first.verdict().await.unwrap();
    assert_eq!(member.circle.view().heard, 1, "it is not decided here");
    assert_eq!(member.circle.view().lead, Some(all[0].to_string()));
    drop((lease, first, more));
}

#[tokio::test]
async fn who_does_not_reach_the_one_that_decides_is_seen_to_be_decided_for_by_another() {
    let all = addresses::<3>();
    let [_elder, middle] = [0, 1].map(|place| Member::start(place, &all[..2], SECRET));
    middle.follows(Some(all[0])).await;
    let far = Member::start_among(2, all[2], &all[1..], SECRET);
    far.follows(Some(all[1])).await;
    middle.hub.add_pod(pods());
    far.hub.add_pod(pods());
    let elsewhere = || {
        let scrape = Scrape { running: 5, ..Scrape::default() };
        middle.hub.post(Event::Scraped(PodId(1), scrape));
        middle.hub.snapshot().pods[0].elsewhere
    };
    assert_eq!((middle.circle.view().decides, elsewhere()), (false, 0));
    let mut ticket = far.admit(1);
    let lease = ticket.verdict().await.unwrap();
    assert_eq!(middle.circle.view().lead, Some(all[0].to_string()));
    assert!(middle.circle.view().decides, "for one that asks it");
    assert!(elsewhere() > 0, "the first in rank has sent something that is in no books here");
    lease.end(EndKind::Complete, None, None);
    until("it decides for nobody any more", || !middle.circle.view().decides).await;
    assert!(!far.circle.view().decides);
}

#[tokio::test]
async fn what_waited_on_two_sides_and_is_too_much_for_one_queue_is_not_refused() {
    let [mut elder, younger] = Member::several().await;
    elder.vanish();
    younger.follows(None).await;
    let bounds = Bounds { max_requests: 2, ..Bounds::default() };
    let config = SchedulerConfig { policy: Policy::Weir, bounds, ..SchedulerConfig::default() };
    for member in [&elder, &younger] {
        member.hub.post(Event::Reconfigure(Box::new(config.clone())));
    }
    let there = [1, 2].map(|id| elder.admit(id));
    let mut here = [1, 2].map(|id| younger.admit(id));
    elder.appear();
    younger.follows(Some(elder.config.listen)).await;
    until("there is room for two of them where it is decided", || {
        (elder.waiting(), younger.waiting()) == (2, 2)
    })
    .await;
    let refusal = younger.admit(3).verdict().await.unwrap_err();
    assert_eq!(refusal.reason, RefusalReason::QueueFull, "it was let in nowhere");
    younger.hub.add_pod(pods());
    for ticket in &mut here {
        ticket.verdict().await.unwrap().end(EndKind::Complete, None, None);
    }
    drop((there, here));
    until("it is over", || elder.hub.idle() && younger.hub.idle()).await;
}
